// Server-sent events by fetch: an EventSource can send no header, and so not the key of the session.
import { base, keyed } from "./api";

export interface Told {
  id: string;
  name: string;
  data: string;
}

/** The server let nobody in. */
export class Refused extends Error {}

const SILENT = 45_000; // three heartbeats of the server: whoever says nothing for longer is gone

/** What one event says, of the lines between two empty ones. */
export function parse(block: string, wait: (milliseconds: number) => void): Told | null {
  const told: Told = { id: "", name: "", data: "" };
  for (const line of block.split("\n")) {
    const [field, ...rest] = line.split(": ");
    const value = rest.join(": ");
    if (field === "id") told.id = value;
    else if (field === "event") told.name = value;
    else if (field === "data") told.data = value;
    else if (field === "retry" && Number(value) > 0) wait(Number(value));
  }
  return told.data ? told : null;
}

/** Listen from a position on, until the server or the network ends it. Throws where there is no answer. */
export async function follow(
  position: string,
  told: (event: Told) => void,
  opened: () => void,
  wait: (milliseconds: number) => void,
): Promise<void> {
  const stop = new AbortController();
  let silent = setTimeout(() => stop.abort(), SILENT);
  try {
    const response = await fetch(`${base}/api/live${position ? `?after=${encodeURIComponent(position)}` : ""}`, {
      credentials: "same-origin",
      cache: "no-store",
      headers: keyed({ accept: "text/event-stream" }),
      signal: stop.signal,
    });
    if (!response.ok || !response.body) throw new Refused(`HTTP ${response.status}`);
    opened();
    const reader = response.body.getReader();
    const text = new TextDecoder();
    let left = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(silent);
      silent = setTimeout(() => stop.abort(), SILENT);
      const blocks = (left + text.decode(value, { stream: true })).split("\n\n");
      left = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parse(block, wait);
        if (event) told(event);
      }
    }
  } finally {
    clearTimeout(silent);
    stop.abort();
  }
}
