import { useState } from "preact/hooks";
import { ApiError, post } from "../api";
import { place } from "../router";
import { linkError, renew, session, signIn, toProvider } from "../session";
import { Button, Field, Notice } from "../ui";

const REFUSED: Record<string, string> = {
  refused: "The sign-in was refused. It may have taken longer than ten minutes, or was begun in another window: begin it again. The console's log says why.",
  role: "You signed in, and no rule gives you a role here. Ask whoever keeps the console's file of roles.",
  provider: "The provider of sign-ins did not answer as it should. Try again; the console's log says why.",
};

/** Shown instead of any page until somebody is signed in; the address stays, so that they come to what they wanted. */
export default function SignIn() {
  const now = session.value;
  const told = place.value.path === "/signin" ? REFUSED[place.value.query.get("refused") ?? ""] : undefined;
  return (
    <section class="signin" aria-labelledby="signin-title">
      <h1 id="signin-title" tabIndex={-1}>
        Sign in
      </h1>
      {told && <Notice tone="bad" title={told} />}
      {now?.refused && <Notice tone="bad" title={now.refused} />}
      {now?.way === "token" && <ByToken />}
      {now?.way === "oidc" && <ByProvider provider={now.provider} />}
      {(now?.way === "proxy" || now?.way === "application") && <ByOthers way={now.way} />}
      {!now && <Notice tone="warn" title="The console does not answer." action={<Button onClick={() => void renew().catch(() => undefined)}>Ask again</Button>} />}
    </section>
  );
}

function useDoing(): [boolean, ApiError | null, (work: () => Promise<void>) => void] {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const run = (work: () => Promise<void>): void => {
    setBusy(true);
    setError(null);
    work()
      .catch((failed: unknown) => setError(failed instanceof ApiError ? failed : new ApiError(0, String(failed))))
      .finally(() => setBusy(false));
  };
  return [busy, error, run];
}

function ByToken() {
  const [token, type] = useState("");
  const [printed, setPrinted] = useState(false);
  const [busy, error, run] = useDoing();
  const wrong = error ?? linkError.value;
  const given = token.trim().replace(/^.*#token=/, "");
  return (
    <>
      <p>
        The console prints a link where it runs, which signs one browser in, once. Open the link, or paste it here.
      </p>
      {wrong && <Notice tone="bad" title={wrong.message}>{wrong.hint}</Notice>}
      {printed && !wrong && <Notice tone="good" title="A new link is printed in the terminal of `posthouse console`." />}
      <form
        class="signin-form"
        onSubmit={(event) => {
          event.preventDefault();
          linkError.value = null;
          run(() => signIn(given));
        }}
      >
        <Field label="Link or token" kind="password" mono value={token} onInput={type} required autofocus />
        <div class="signin-buttons">
          <Button type="submit" kind="main" busy={busy} disabled={!given}>
            Sign in
          </Button>
          <Button
            busy={busy}
            onClick={() => {
              linkError.value = null;
              run(async () => {
                await post("/access/link", {});
                setPrinted(true);
              });
            }}
          >
            Print a new link
          </Button>
        </div>
      </form>
    </>
  );
}

function ByProvider({ provider }: { provider: string }) {
  const [busy, error, run] = useDoing();
  const here = place.value.path === "/signin" ? "/" : place.value.path + (place.value.query.toString() ? `?${place.value.query}` : "");
  return (
    <>
      <p>
        You sign in at <strong>{provider.replace(/^https?:\/\//, "")}</strong> and come back to this page.
      </p>
      {error && <Notice tone="bad" title={error.message}>{error.hint}</Notice>}
      <div class="signin-buttons">
        <Button kind="main" busy={busy} onClick={() => run(() => toProvider(here))}>
          Sign in there
        </Button>
      </div>
    </>
  );
}

function ByOthers({ way }: { way: "proxy" | "application" }) {
  return (
    <>
      <p>
        {way === "proxy"
          ? "The proxy in front of this console says who you are, and it did not, or not in a way that was accepted. Open the console at its own address, and sign in there."
          : "The application in which this console is mounted says who you are, and it knows nobody. Sign in there, and come back."}
      </p>
      <div class="signin-buttons">
        <Button kind="main" onClick={() => location.reload()}>
          Try again
        </Button>
      </div>
    </>
  );
}
