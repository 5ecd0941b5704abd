import type { Tone } from "../ui";

/** A job as the server tells of it. */
export interface Job {
  id: string;
  service: string;
  act: string;
  title: string;
  which: Record<string, unknown>;
  by: string;
  why: string;
  state: "running" | "paused" | "done" | "stopped" | "cancelled" | "failed";
  says: string;
  total: number;
  more: boolean;
  done: number;
  refused: number;
  applied: number;
  failed: number;
  open: number;
  rate: number;
  canary: number;
  canary_passed: boolean;
  stop_after: number;
  last: string;
  note: string;
  ended: boolean;
  created_at: string;
  changed_at: string;
  ended_at: string | null;
}

export const toneOf: Record<Job["state"], Tone> = {
  running: "info",
  paused: "warn",
  done: "good",
  stopped: "bad",
  failed: "bad",
  cancelled: "neutral",
};

/** The filter in words. */
export const which = (job: Job): string =>
  Object.entries(job.which)
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(", ") || "all of them";
