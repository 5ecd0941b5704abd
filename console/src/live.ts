// Live: one connection to /api/live for all tabs of this browser. The tab that holds the lock listens and tells the others; when it
// goes, the next one takes the lock and goes on from the last position. Where a browser has no locks, pages ask every few seconds.
import { effect, signal } from "@preact/signals";
import { base, changed, liveUp } from "./api";

/** live: changes are told. reconnecting: the connection was lost, and comes back by itself. asking: there is none; pages ask every few seconds. */
export type Connection = "live" | "reconnecting" | "asking";
export const connection = signal<Connection>("asking");

type Word = { hello: true } | { now: Connection; position: string; topics?: string[] };

const NAME = `posthouse-live:${base}`;
const SILENCE = 45_000; // three heartbeats of the server
const AGAIN = 5_000;

let position = "";
const missed = new Set<string>(); // while this tab is hidden

effect(() => {
  liveUp.value = connection.value === "live";
});

function hear(topics: readonly string[]): void {
  for (const topic of topics) document.hidden ? missed.add(topic) : changed(topic);
}

function shown(): void {
  if (document.hidden) return;
  const topics = missed.has("*") ? ["*"] : [...missed];
  missed.clear();
  hear(topics);
}

/** Hold the connection for all tabs, as long as this one lives. */
function lead(channel: BroadcastChannel): Promise<never> {
  const say = (now: Connection, topics?: string[]): void => {
    connection.value = now;
    channel.postMessage({ now, position, topics } satisfies Word);
    if (topics) hear(topics);
  };
  const open = (): void => {
    const source = new EventSource(`${base}/api/live${position ? `?after=${encodeURIComponent(position)}` : ""}`);
    const told = (event: MessageEvent<string>, topics?: string[]): void => {
      if (event.lastEventId) position = event.lastEventId;
      say("live", topics);
    };
    source.onmessage = (event: MessageEvent<string>) => told(event, (JSON.parse(event.data) as { topics: string[] }).topics);
    source.addEventListener("ready", (event) => told(event, ["*"]));
    source.addEventListener("must-refetch", (event) => told(event, ["*"]));
    source.addEventListener("beat", (event) => told(event));
    source.addEventListener("busy", () => say("asking"));
    source.onopen = () => say("live");
    source.onerror = () => {
      const over = source.readyState === EventSource.CLOSED; // a browser does not come back after a refusal
      say(over ? "asking" : "reconnecting");
      if (over) setTimeout(open, AGAIN);
    };
  };
  channel.addEventListener("message", ({ data }: MessageEvent<Word>) => {
    if ("hello" in data) say(connection.value);
  });
  open();
  return new Promise<never>(() => {});
}

/** Listen, from now on; once, when the interface starts. */
export function listen(): void {
  document.addEventListener("visibilitychange", shown);
  if (!navigator.locks || typeof BroadcastChannel === "undefined" || typeof EventSource === "undefined") return;
  const channel = new BroadcastChannel(NAME);
  let silent: ReturnType<typeof setTimeout> | undefined;
  let leads = false;
  channel.onmessage = ({ data }: MessageEvent<Word>) => {
    if (leads || "hello" in data) return;
    clearTimeout(silent);
    silent = setTimeout(() => leads || (connection.value = "asking"), SILENCE);
    position = data.position || position;
    connection.value = data.now;
    if (data.topics) hear(data.topics);
  };
  void navigator.locks.request(NAME, () => {
    leads = true;
    clearTimeout(silent);
    return lead(channel);
  });
  channel.postMessage({ hello: true } satisfies Word);
}
