import { signal } from "@preact/signals";
import { span } from "./words";

/** Ticks every ten seconds while the page is seen: ages grow by it. */
const now = signal(Date.now());
setInterval(() => document.hidden || (now.value = Date.now()), 10_000);
document.addEventListener("visibilitychange", () => (now.value = Date.now()));

const today = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const thisYear = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const anyYear = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** The exact moment, in UTC, as it was told. */
const exact = (at: string): string => at.replace("T", " ").replace(/(Z|\+00:00)$/, " UTC");

/** A moment in the reader's zone; the exact one on hover, on focus, and to those who hear the page. */
export function Time({ at, none = "–" }: { at: string | null | undefined; none?: string }) {
  if (!at) return <span class="muted">{none}</span>;
  const moment = new Date(at);
  if (Number.isNaN(moment.getTime())) return <span>{at}</span>;
  const current = new Date(now.value);
  const format = moment.toDateString() === current.toDateString() ? today : moment.getFullYear() === current.getFullYear() ? thisYear : anyYear;
  return <Exact at={at} text={format.format(moment)} />;
}

/** How long ago, or in how long; `since` is a moment, `seconds` a length that was measured by the server. */
export function Age({ since, seconds, none = "–" }: { since?: string | null; seconds?: number | null; none?: string }) {
  if (since) {
    const past = (Math.max(now.value, Date.now()) - new Date(since).getTime()) / 1000; // the last tick may be older than what is shown
    return <Exact at={since} text={past < 0 ? `in ${span(-past)}` : `${span(past)} ago`} />;
  }
  if (seconds === null || seconds === undefined) return <span class="muted">{none}</span>;
  return <span title={`${seconds.toLocaleString()} s`}>{span(seconds)}</span>;
}

function Exact({ at, text }: { at: string; text: string }) {
  return (
    <time class="time" dateTime={at} data-exact={exact(at)} tabIndex={0}>
      {text}
      <span class="unseen">, exactly {exact(at)}</span>
    </time>
  );
}
