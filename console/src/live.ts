// Live: one connection to /api/live for all tabs of this browser. The tab that holds the lock listens and tells the others; when it
// goes, the next one takes the lock and goes on from the last position. Where a browser has no locks, pages ask every few seconds.
import { effect, signal } from "@preact/signals";
import { base, changed, liveUp } from "./api";
import { follow, Refused, type Told } from "./stream";

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
  const told = (event: Told): void => {
    if (event.id) position = event.id;
    if (event.name === "busy") return say("asking");
    say("live", event.name === "ready" || event.name === "must-refetch" ? ["*"] : event.name === "" ? (JSON.parse(event.data) as { topics: string[] }).topics : undefined);
  };
  const open = async (): Promise<void> => {
    for (;;) {
      let wait = AGAIN;
      try {
        await follow(position, told, () => say("live"), (milliseconds) => (wait = milliseconds));
        say("reconnecting");
      } catch (error) {
        say(error instanceof Refused ? "asking" : "reconnecting");
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  };
  channel.addEventListener("message", ({ data }: MessageEvent<Word>) => {
    if ("hello" in data) say(connection.value);
  });
  void open();
  return new Promise<never>(() => {});
}

/** Listen, from now on; once, when the interface starts. */
export function listen(): void {
  document.addEventListener("visibilitychange", shown);
  if (!navigator.locks || typeof BroadcastChannel === "undefined") return;
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
