// Asking the server. Every answer is {data, problems, at}; what went wrong is said in a sentence, with what to do.
import { signal } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

export { at, query } from "./paths";

export interface Problem {
  service: string;
  what: string;
  do: string;
}

export interface Answer<T> {
  data: T;
  problems: Problem[];
  at: string;
}

/** A page of a list: `next` is the cursor for `?after=`, null at the end. */
export interface Listing<T> {
  items: T[];
  next: string | null;
}

/** What the server refused, or that it did not answer (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string = "",
  ) {
    super(message);
  }
}

/** Where the console is mounted, without a slash at its end. */
export const base: string = document.documentElement.dataset.base ?? "";

/** Whether the server can be reached, as the last question found it. */
export const reachable = signal(true);

/** The server does not know us: nobody signed in, or the session is over. */
export const stranger = signal(false);

/** Whether `/api/live` tells us of changes. While it does not, pages that want to be live ask every few seconds. */
export const liveUp = signal(false);

const NAME = `posthouse-key:${base}`;
let key = "";
try {
  key = localStorage.getItem(NAME) ?? "";
} catch {
  // A browser that keeps nothing: this tab alone is signed in.
}

/** Keep the key of a session for all tabs of this origin; browsers send its cookie to every port of the host, and never this. */
export function keepKey(given: string): void {
  key = given;
  try {
    if (given) localStorage.setItem(NAME, given);
    else localStorage.removeItem(NAME);
  } catch {
    // As above.
  }
}

addEventListener("storage", (event) => {
  if (event.key === NAME && event.newValue) key = event.newValue;
});

/** Every question to the server says the key. */
export const keyed = (headers: HeadersInit = {}): Headers => {
  const all = new Headers(headers);
  if (key) all.set("x-posthouse-key", key);
  return all;
};

const WITHIN = 30_000;
const ASK_AGAIN = 5_000;
const ASK_UNHEARD = 3_000;
const KEPT = 60;

/** The last answers, shown while the next are on their way. */
const kept = new Map<string, Answer<unknown>>();

async function request<T>(path: string, init: RequestInit, stop?: AbortSignal): Promise<T> {
  const signals = [AbortSignal.timeout(WITHIN), ...(stop ? [stop] : [])];
  let response: Response;
  try {
    response = await fetch(`${base}/api${path}`, {
      ...init,
      credentials: "same-origin",
      headers: keyed({ accept: "application/json", ...init.headers }),
      signal: AbortSignal.any(signals),
    });
  } catch (error) {
    if (stop?.aborted) throw error;
    reachable.value = false;
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new ApiError(
      0,
      late ? "The console did not answer within 30 seconds." : "The console does not answer.",
      "Is `posthouse console` still running? This page asks again by itself.",
    );
  }
  reachable.value = true;
  const text = await response.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new ApiError(response.status, `The answer (HTTP ${response.status}) is not the console's.`, "Is there a proxy between?");
  }
  if (response.ok) return body as T;
  if (response.status === 401) kept.clear();
  if (response.status === 401 && !path.startsWith("/access/")) stranger.value = true;
  const told = (body as { error?: { message?: string; hint?: string } }).error;
  throw new ApiError(response.status, told?.message ?? `HTTP ${response.status}`, told?.hint ?? "");
}

/** One question, now. Prefer `useData` in a page. */
export const ask = <T>(path: string, stop?: AbortSignal): Promise<Answer<T>> => request<Answer<T>>(path, {}, stop);

/** Press something: POST /api/acts/NAME. */
export const act = <T = unknown>(name: string, body: Record<string, unknown>): Promise<Answer<T>> => post<T>(`/acts/${encodeURIComponent(name)}`, body);

export const post = <T = unknown>(path: string, body: unknown): Promise<Answer<T>> =>
  request<Answer<T>>(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

type Listener = (topic: string) => void;
const listeners = new Set<Listener>();

/** Data of this topic changed: `home`, `held:orders`. Every page that shows it asks again. "*" is everything. */
export function changed(topic: string): void {
  for (const listener of [...listeners]) listener(topic);
}

const concerns = (mine: string, topic: string): boolean =>
  topic === "*" || topic === mine || topic.startsWith(`${mine}:`) || mine.startsWith(`${topic}:`);

export interface Options {
  /** Ask again after so many milliseconds. */
  every?: number;
  /** Ask again when data of this topic (or one of these) changed. */
  live?: string | readonly string[];
}

export interface Data<T> {
  data: T | undefined;
  problems: Problem[];
  /** When the server answered. */
  at: string | undefined;
  error: ApiError | undefined;
  /** A question is on its way. `data` is what was known before, if anything. */
  loading: boolean;
  refresh: () => void;
}

interface State<T> {
  path: string | null;
  answer?: Answer<T>;
  error?: ApiError;
  loading: boolean;
}

function keep(path: string, answer: Answer<unknown>): void {
  kept.delete(path);
  kept.set(path, answer);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value as string);
}

/** The data of a path under /api, asked again as the options say. `null` asks nothing. What was known before is shown
 * until the new answer is there; hidden tabs do not ask. */
export function useData<T>(path: string | null, { every, live }: Options = {}): Data<T> {
  const fresh = (): State<T> => ({ path, answer: path === null ? undefined : (kept.get(path) as Answer<T> | undefined), loading: path !== null });
  const [state, set] = useState<State<T>>(fresh);
  const running = useRef<AbortController | null>(null);
  const again = useRef(false);
  const topics = live === undefined ? "" : typeof live === "string" ? live : live.join(" ");

  const refresh = useCallback(() => {
    if (path === null) return;
    if (running.current) {
      again.current = true;
      return;
    }
    const stop = new AbortController();
    running.current = stop;
    set((was) => (was.path === path ? { ...was, loading: true } : fresh()));
    ask<T>(path, stop.signal)
      .then(
        (answer) => {
          keep(path, answer);
          if (!stop.signal.aborted) set({ path, answer, loading: false });
        },
        (error: unknown) => {
          if (stop.signal.aborted) return;
          const told = error instanceof ApiError ? error : new ApiError(0, String(error));
          set((was) => ({ path, answer: told.status === 0 && was.path === path ? was.answer : undefined, error: told, loading: false }));
        },
      )
      .finally(() => {
        if (running.current !== stop) return;
        running.current = null;
        if (again.current) {
          again.current = false;
          refresh();
        }
      });
  }, [path]);

  useEffect(() => {
    refresh();
    return () => {
      running.current?.abort();
      running.current = null;
      again.current = false;
    };
  }, [refresh]);

  const up = liveUp.value;
  const unheard = state.error?.status === 0;
  const wait = unheard ? ASK_UNHEARD : (every ?? (topics && !up ? ASK_AGAIN : undefined));
  useEffect(() => {
    if (wait === undefined) return;
    const next = (): void => {
      if (!document.hidden) refresh();
    };
    const timer = setInterval(next, wait);
    document.addEventListener("visibilitychange", next);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", next);
    };
  }, [wait, refresh]);

  useEffect(() => {
    const mine = topics ? topics.split(" ") : [];
    const listener: Listener = (topic) => {
      if (topic === "*" || mine.some((one) => concerns(one, topic))) refresh();
    };
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, [topics, refresh]);

  const now = state.path === path ? state : fresh();
  return {
    data: now.answer?.data,
    problems: now.answer?.problems ?? [],
    at: now.answer?.at,
    error: now.error,
    loading: now.loading,
    refresh,
  };
}
