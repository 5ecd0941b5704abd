// A payload: asked for once, since each look is kept; masked until somebody asks to see it whole.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask, query } from "../api";
import { Button, Code, counted, Dialog, Failure, Field, Notice, Skeleton } from "../ui";

export interface Shown {
  text: string | null;
  form: "json" | "text" | "bytes";
  size: number;
  cut: boolean;
  masked: string[];
  unmaskable: boolean;
  withheld: string;
  /** So many fields travel encrypted, and are plain here. */
  decrypted: number;
  erased: string[];
  unreadable: string[];
  /** What an editor begins with, where that is not the text. */
  edit: string | null;
}

export interface Looked {
  payload: Shown;
  headers?: Record<string, string> | null;
  envelope?: string;
  unreadable?: string | null;
}

/** What is at a path of payloads, masked until somebody says why it should not be. It is kept nowhere: whoever leaves the page hides it again. */
export function useLook(path: string | null) {
  const [looked, set] = useState<Looked>();
  const [unmasked, setUnmasked] = useState(false);
  const [error, fail] = useState<ApiError>();
  const current = useRef(path);
  current.current = path;
  useEffect(() => {
    set(undefined);
    setUnmasked(false);
    fail(undefined);
    if (path === null) return;
    const stop = new AbortController();
    ask<Looked>(path, stop.signal).then(
      (answer) => set(answer.data),
      (told: ApiError) => stop.signal.aborted || fail(told),
    );
    return () => stop.abort();
  }, [path]);
  const unmask = async (why: string): Promise<void> => {
    if (path === null) return;
    const answer = await ask<Looked>(query(path, { unmask: true, why }));
    if (current.current !== path) return;
    set(answer.data);
    setUnmasked(true);
  };
  return { looked, error, unmasked, unmask };
}

export type Look = ReturnType<typeof useLook>;

/** The button that shows what is hidden, and the dialog that asks why. */
export function Unmask({ press: unmask, label = "Unmask" }: { press: (why: string) => Promise<void>; label?: string }) {
  const [open, show] = useState(false);
  const [why, say] = useState("");
  const [missing, miss] = useState("");
  const [error, fail] = useState<ApiError>();
  const [busy, work] = useState(false);
  const press = async (): Promise<void> => {
    if (busy) return;
    if (!why.trim()) return miss("Say why: it is kept in the operators' log, with your name and whose data it is.");
    work(true);
    fail(undefined);
    try {
      await unmask(why);
      show(false);
    } catch (told) {
      fail(told instanceof ApiError ? told : new ApiError(0, String(told)));
    } finally {
      work(false);
    }
  };
  return (
    <>
      <Button small aria-haspopup="dialog" onClick={() => show(true)}>
        {label}
      </Button>
      {open && (
        <Dialog
          open
          title="Show what is hidden"
          onClose={() => show(false)}
          onSubmit={() => void press()}
          actions={
            <>
              <Button onClick={() => show(false)}>Not now</Button>
              <Button kind="main" type="submit" busy={busy}>Show it</Button>
            </>
          }
        >
          <p>What says something about a person is shown here, decrypted where it travels encrypted.</p>
          {error && (
            <Notice tone="bad">
              <p>{error.message}</p>
              {error.hint && <p>{error.hint}</p>}
            </Notice>
          )}
          <Field
            label="Why"
            value={why}
            onInput={(text) => {
              say(text);
              miss("");
            }}
            lines={2}
            autofocus
            required
            error={missing}
            hint="Kept in the operators' log with your name and whose data it is; what you see is not. A ticket's number says more than a name."
          />
        </Dialog>
      )}
    </>
  );
}

export function Payload({ look }: { look: Look }) {
  const { looked, error, unmasked } = look;
  if (error) return <Failure error={error} />;
  if (!looked) return <Skeleton lines={4} />;
  const shown = looked.payload;
  return (
    <>
      {looked.unreadable && (
        <Notice tone="bad" title="These bytes are not an event.">
          {looked.unreadable}
        </Notice>
      )}
      {shown.withheld ? (
        <Notice tone="info" title={`${shown.size.toLocaleString("en")} bytes are not shown.`} action={shown.unmaskable && <Unmask press={look.unmask} />}>
          {shown.withheld}
        </Notice>
      ) : (
        shown.unmaskable &&
        !unmasked && (
          <Notice tone="info" title="Personal fields are hidden." action={<Unmask press={look.unmask} />}>
            {shown.masked.join(", ")}. Unmasking is kept in the operators' log, with your name.
          </Notice>
        )
      )}
      {unmasked && <Revealed shown={shown} />}
      {shown.text !== null && <Code text={shown.text} label="Payload" kind={shown.form === "json" ? "json" : "text"} />}
      {shown.cut && <p class="muted">It is longer: {shown.size.toLocaleString("en")} bytes. `posthouse held export` writes all of it.</p>}
      {shown.form === "bytes" && <p class="muted">No text: bytes that are none are written as \xNN.</p>}
    </>
  );
}

/** What was decrypted for this look, and what nobody can decrypt. */
function Revealed({ shown }: { shown: Shown }) {
  const { decrypted, erased, unreadable } = shown;
  if (!decrypted && !erased.length && !unreadable.length) return null;
  return (
    <Notice tone={unreadable.length ? "warn" : "info"} title={decrypted ? `${counted(decrypted, "field")} decrypted for you, and for nobody else.` : "Nothing here can be decrypted."}>
      {erased.length > 0 && <p class="wrap">Erased, with the key of whoever it was about: {erased.join(", ")}.</p>}
      {unreadable.length > 0 && <p class="wrap">Changed, moved, or encrypted with other keys: {unreadable.join(", ")}.</p>}
      <p>Your look is in the operators' log.</p>
    </Notice>
  );
}
