// Who is signed in, and how one does it here.
import { signal } from "@preact/signals";
import { ApiError, ask, keepKey, post, stranger } from "./api";
import { go, place } from "./router";

export interface Who {
  name: string;
  roles: string[];
  tenants: string[] | null;
  payloads: boolean;
  until: number | null;
}

export interface Session {
  way: "token" | "oidc" | "proxy" | "application";
  /** Where people sign in, for `oidc`. */
  provider: string;
  who: Who | null;
  /** Why somebody who is known may not come in. */
  refused: string;
}

export const session = signal<Session | null>(null);

/** What was wrong with the link that led here. */
export const linkError = signal<ApiError | null>(null);

export async function renew(): Promise<void> {
  session.value = (await ask<Session>("/access/session")).data;
  stranger.value = session.value.who === null;
  if (!stranger.value && place.value.path === "/signin") go("/", { replace: true });
}

/** Exchange a one-time token for a session. Throws ApiError. */
export async function signIn(token: string): Promise<void> {
  await exchange(token);
  location.reload();
}

async function exchange(token: string): Promise<void> {
  keepKey((await post<{ key: string }>("/access/token", { token })).data.key);
}

/** Go to the provider; it sends the reader back to this very page. */
export async function toProvider(to: string): Promise<void> {
  location.assign((await post<{ go: string }>("/access/oidc", { to })).data.go);
}

export async function signOut(): Promise<void> {
  await post("/access/out", {});
  keepKey("");
  location.reload();
}

/** Before the first page: the token of the link, or the key that a sign-in elsewhere gave, is taken out of the address bar and its history, and used. */
export async function enter(): Promise<void> {
  addEventListener("hashchange", () => location.hash.startsWith("#token=") && location.reload()); // a new link in an old tab
  const said = new URLSearchParams(location.hash.slice(1));
  const token = said.get("token");
  const key = said.get("key");
  if (token !== null || key !== null) history.replaceState(null, "", location.pathname + location.search);
  if (key !== null) keepKey(key);
  if (token !== null) {
    try {
      await exchange(token);
    } catch (error) {
      linkError.value = error instanceof ApiError ? error : new ApiError(0, String(error));
    }
  }
  try {
    await renew();
  } catch {
    // The pages say that the console does not answer, and ask again.
  }
}
