// What the states of held events are called and mean. The words come from the server, which has them from docs/held.md.
import type { ComponentChildren } from "preact";
import { Badge } from "../ui";

export interface Meaning {
  means: string;
  key: string;
  press: string;
  acts: string[];
}

export interface Bounded {
  number: number;
  more: boolean;
}

export interface HeldLine {
  service: string;
  id: string;
  state: string;
  consumer: string;
  type: string;
  topic: string;
  tenant: string;
  key: string | null;
  sequence: string | null;
  event_id: string;
  attempts: number;
  first_at: string;
  last_at: string;
  next_at: string | null;
  fingerprint: string;
  error: string | null;
  behind: Bounded | null;
}

type Tone = "neutral" | "good" | "warn" | "bad" | "info";

const TONES: Record<string, Tone> = {
  retrying: "warn",
  blocked: "warn",
  gap: "warn",
  dead: "bad",
  quarantined: "bad",
  skipped: "neutral",
  applied: "good",
  passed: "good",
  waiting: "info",
  unknown: "neutral",
};

export const StateBadge = ({ state }: { state: string }) => <Badge tone={TONES[state] ?? "neutral"}>{state}</Badge>;

/** A sentence in which words between backticks are commands. */
export function Sentence({ text }: { text: string }): ComponentChildren {
  return text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part));
}

/** The sentence of a state, as the docs say it. */
export function Means({ state, meaning }: { state: string; meaning: Meaning }) {
  return (
    <p class="held-means">
      <StateBadge state={state} /> {meaning.means}; its key {meaning.key}. What to press: <Sentence text={meaning.press} />.
    </p>
  );
}

/** What failed, in words: nothing did where something is only waited for. */
export const failure = (fingerprint: string, state: string): string =>
  fingerprint || (state === "gap" ? "An earlier number never came" : state === "blocked" ? "Waits behind an earlier event of its key" : "No error was kept");
