import { useState } from "preact/hooks";
import { Acting, type Params } from "../acting";
import { query as asked, useData } from "../api";
import { barred } from "../rights";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Badge, Bar, Button, Empty, Field, Figure, Figures, Link, Page, Search, Table, Tabs, type Tone, count, counted } from "../ui";

interface Line {
  service: string;
  consumer: string;
  topic: string;
  declared: boolean;
  applied: number;
  skipped: number;
  held: Record<string, number>;
  strange: number;
  in_flight: number | null;
  in_hand: number | null;
  lag: number | null;
  uncounted: string;
  members: string[];
  /** Of a line that stands for all that a consumer reads. */
  topics?: string[];
}

const BLOCKING = ["dead", "gap", "retrying", "blocked", "quarantined"] as const;
const TONES: Record<string, Tone> = { dead: "bad", quarantined: "warn", gap: "warn", retrying: "info", blocked: "neutral" };
const total = (held: Record<string, number>): number => Object.values(held).reduce((all, one) => all + one, 0);
const unattended = (one: Line): boolean => one.members.length === 0 && one.declared && ((one.in_flight ?? 0) > 0 || total(one.held) > 0);

export default function Consumers({ query }: PageProps) {
  const found = useData<{ items: Line[] }>("/consumers", { live: "consumers", every: 10_000 });
  const lines = found.data?.items ?? [];
  const sought = query.get("q") ?? query.get("consumer") ?? "";
  const text = sought.toLowerCase();
  const each = query.get("by") === "topic";
  const shown = (each ? lines : together(lines))
    .filter((one) => !text || `${one.consumer} ${one.topics?.join(" ") ?? one.topic} ${one.service}`.toLowerCase().includes(text))
    .sort((a, b) => worth(b) - worth(a) || a.consumer.localeCompare(b.consumer));
  const waits = new Set(lines.filter((one) => one.held.dead || one.held.quarantined).map((one) => one.consumer));
  const alone = [...new Set(lines.filter(unattended).map((one) => one.consumer))];
  const dead = lines.filter((one) => one.held.dead || one.held.quarantined);
  const lag = Math.max(0, ...lines.map((one) => one.lag ?? 0));
  const names = new Set(lines.map((one) => one.consumer));
  return (
    <Page title="Consumers and members" says="Who applies which events: how far each is, how old the oldest is that it has not applied, and who runs it." data={found}>
      <p class="verdict">
        {alone.length ? `Work waits for ${counted(alone.length, "consumer")} that nobody runs: ${alone.join(", ")}.` : dead.length ? `Events of ${counted(waits.size, "consumer")} wait for your decision: ${[...waits].join(", ")}.` : "Every consumer that has work is run by somebody, and nothing waits for a decision."}
      </p>
      <Figures>
        <Figure label="Consumers" value={count(names.size)} says={`reading ${counted(lines.length, "topic")} in all`} />
        <Figure label="In flight" value={count(lines.reduce((all, one) => all + (one.in_flight ?? 0), 0))} says="unsent, or at the broker" />
        <Figure label="Longest lag" value={<Age seconds={lag} />} says="age of the oldest that is not applied" tone={lag > 60 ? "warn" : "neutral"} />
        <Figure label="Held" value={count(lines.reduce((all, one) => all + total(one.held), 0))} says="could not be applied" to="/held" tone={dead.length ? "bad" : "neutral"} />
        <Figure label="Unattended" value={count(alone.length)} says="have work and no member" tone={alone.length ? "bad" : "good"} />
      </Figures>
      <Bar>
        <Search label="Find a consumer, topic or service" value={sought} onSearch={(q) => requery({ q, consumer: null })} onInput={(q) => requery({ q, consumer: null })} />
      </Bar>
      <Tabs label="How it is shown" current={each ? "topic" : "consumer"} onPick={(id) => requery({ by: id === "topic" ? id : null })} tabs={[{ id: "consumer", title: "By consumer", count: names.size }, { id: "topic", title: "By consumer and topic", count: lines.length }]}>
      <Table
        caption={each ? "Consumers by topic" : "Consumers"}
        rows={shown}
        id={(row) => `${row.service} ${row.consumer} ${row.topic}`}
        empty={<Empty title={text ? "No consumer fits." : "No service consumes anything."} />}
        columns={[
          { title: "Consumer", cell: (row) => <strong class="wrap">{row.consumer}</strong> },
          each
            ? { title: "Topic", cell: (row) => <span class="mono wrap">{row.topic}</span>, wide: true }
            : { title: "Topics", cell: (row) => <Link to={asked("/consumers", { q: row.consumer, by: "topic" })} title={row.topics?.join("\n")}>{count(row.topics?.length ?? 1)}</Link>, end: true },
          { title: "Members", cell: (row) => (row.members.length ? <span title={row.members.join("\n")}>{count(row.members.length)}</span> : row.declared ? <Badge tone={unattended(row) ? "bad" : "neutral"}>nobody</Badge> : <Badge tone="warn">not declared any more</Badge>), end: true },
          { title: "Applied", cell: (row) => count(row.applied), end: true },
          { title: "In flight", cell: (row) => <span title={row.uncounted ? `At least: ${row.uncounted}` : undefined}>{count(row.in_flight, !!row.uncounted)}</span>, end: true },
          { title: "In hand", cell: (row) => <span title="Of those in flight, at most so many are with a member right now">{count(row.in_hand)}</span>, end: true, spare: true },
          { title: "Lag", cell: (row) => <Age seconds={row.lag} none="unknown" />, end: true },
          { title: "Held", cell: (row) => <Held line={row} /> },
          { title: "Skipped", cell: (row) => count(row.skipped), end: true, spare: true },
          { title: "Press", cell: (row) => (row.declared ? <Seek params={{ service: row.service, consumer: row.consumer, ...(each ? { topic: row.topic } : {}) }} done={found.refresh} /> : null) },
        ]}
      />
      </Tabs>
    </Page>
  );
}

/** One line for a consumer, whatever it reads. */
function together(lines: readonly Line[]): Line[] {
  const found = new Map<string, Line>();
  const plus = (a: number | null, b: number | null): number | null => (a === null || b === null ? null : a + b);
  for (const one of lines) {
    const known = found.get(one.consumer);
    if (!known) {
      found.set(one.consumer, { ...one, held: { ...one.held }, topics: [one.topic] });
      continue;
    }
    const held = { ...known.held };
    for (const [state, number] of Object.entries(one.held)) held[state] = (held[state] ?? 0) + number;
    found.set(one.consumer, {
      ...known,
      held,
      topics: [...(known.topics ?? []), one.topic],
      declared: known.declared || one.declared,
      applied: known.applied + one.applied,
      skipped: known.skipped + one.skipped,
      strange: known.strange + one.strange,
      in_flight: plus(known.in_flight, one.in_flight),
      in_hand: plus(known.in_hand, one.in_hand),
      lag: known.lag === null || one.lag === null ? null : Math.max(known.lag, one.lag),
      uncounted: known.uncounted || one.uncounted,
    });
  }
  return [...found.values()];
}

function Held({ line }: { line: Line }) {
  const states = BLOCKING.filter((state) => line.held[state]);
  if (!states.length && !line.strange) return <span class="muted">none</span>;
  return (
    <>
      {states.map((state) => (
        <Link key={state} to={asked("/held", { service: line.service, consumer: line.consumer, state })}>
          <Badge tone={TONES[state]}>
            {count(line.held[state])} {state}
          </Badge>
        </Link>
      ))}
      {line.strange > 0 && <Badge tone="warn" title="Frames in which no event could be read">{count(line.strange)} strange</Badge>}
    </>
  );
}

/** What a person should see first. */
const worth = (one: Line): number => (unattended(one) ? 1e12 : 0) + (one.held.dead ?? 0) * 1e6 + total(one.held) * 1e3 + (one.in_flight ?? 0);

/** Reads on from a moment that is asked for, an hour ago unless somebody says another. */
function Seek({ params, done }: { params: Params; done: () => void }) {
  const [open, show] = useState(false);
  const [from, pick] = useState("");
  const ask = () => {
    const ago = new Date(Date.now() - 3_600_000);
    pick(new Date(ago.getTime() - ago.getTimezoneOffset() * 60_000).toISOString().slice(0, 16));
    show(true);
  };
  const moment = new Date(from);
  const time = Number.isNaN(moment.getTime()) ? {} : { time: moment.toISOString() };
  return (
    <>
      <Button small kind="quiet" barred={barred("seek")} aria-haspopup="dialog" onClick={ask}>
        Read again
      </Button>
      {open && <Acting name="seek" params={{ ...params, ...time }} title="Read again" asked={<Field label="From" kind="datetime-local" value={from} onInput={pick} hint="In your time zone." />} onDone={done} onClose={() => show(false)} />}
    </>
  );
}
