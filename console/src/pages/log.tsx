import { type Listing, at, query as asked, useData } from "../api";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Badge, Bar, Button, Empty, Field, Link, Notice, Page, Search, Table, Time, counted } from "../ui";

interface Action {
  id: string;
  at: string;
  verb: string;
  by: string;
  why: string;
  service: string;
  consumer: string;
  topic: string;
  tenant: string;
  key: string;
  event_id: string;
  target: string;
  changed: { name: string; before: string | null; after: string | null }[];
  count: number;
  outcome: string;
}

const VERBS = ["", "held", "held retry", "held skip", "held edit", "held unmask", "outbox", "saga", "schedule", "timers", "projection", "seek", "grant", "console", "console view", "console unmask"];

export default function Log({ query }: PageProps) {
  const names = ["verb", "by", "event", "since", "until", "service", "job"] as const;
  const given = Object.fromEntries(names.map((name) => [name, query.get(name)]));
  const found = useData<Listing<Action>>(asked("/log", { ...given, after: query.get("after") }), { live: "log" });
  const set = (name: string) => (value: string) => requery({ [name]: value || null, after: null });
  const filtered = names.some((name) => query.get(name));
  return (
    <Page title="Operators' log" says="Who did what, when and why, and what it changed; also who looked at payloads. A job is one line, which opens. It is kept for a year." data={found}>
      <Bar>
        <Field label="What" value={query.get("verb") ?? ""} onInput={set("verb")} choices={VERBS.map((verb) => ({ value: verb, label: verb || "everything" }))} />
        <Search label="Who, exactly" value={query.get("by") ?? ""} onSearch={set("by")} />
        <Search label="Event id" value={query.get("event") ?? ""} onSearch={set("event")} />
        <Moment label="From" value={query.get("since")} onPick={set("since")} />
        <Moment label="Until" value={query.get("until")} onPick={set("until")} />
        {filtered && <Button onClick={() => requery({ ...Object.fromEntries(names.map((name) => [name, null])), after: null })}>Show all</Button>}
      </Bar>
      {query.get("job") && (
        <Notice action={<Button small onClick={() => requery({ job: null, after: null })}>Back to all</Button>}>
          What one job did, item by item.
        </Notice>
      )}
      <Table
        caption="What operators did, newest first"
        rows={found.data?.items ?? []}
        id={(row) => row.id}
        next={found.data?.next}
        empty={<Empty title={filtered ? "Nothing that fits was done." : "No operator has done anything."} />}
        columns={[
          { title: "When", cell: (row) => <Time at={row.at} /> },
          { title: "Who", cell: (row) => <span class="wrap">{row.by}</span> },
          { title: "What", cell: (row) => <strong>{row.verb}</strong> },
          { title: "Of", cell: (row) => <Of row={row} />, wide: true },
          { title: "Why", cell: (row) => <span class="wrap">{row.why.replace(OF_JOB, "") || <span class="muted">not said</span>}</span>, wide: true },
          { title: "Changed", cell: (row) => <Changed row={row} /> },
          { title: "Outcome", cell: (row) => <Badge tone={row.outcome === "done" ? "good" : row.outcome === "begun" ? "warn" : "bad"}>{row.outcome}</Badge> },
        ]}
      />
    </Page>
  );
}

const OF_JOB = / \[job [0-9a-f-]{36}\]$/;

function Of({ row }: { row: Action }) {
  if (row.verb === "job start")
    return (
      <span class="wrap">
        {row.target.replace(/^job [0-9a-f-]{36}: /, "")} <span class="muted">in {row.service}</span>{" "}
        <span class="presses">
          <Link to={at`/jobs/${row.service}/${row.id}`}>The job</Link>
          <Link to={asked("/log", { job: row.id })}>{row.count ? `Its ${counted(row.count, "line")}` : "Its lines"}</Link>
        </span>
      </span>
    );
  const many = `${counted(row.count, "event")}${row.topic ? ` of ${row.topic}` : ""}`;
  return (
    <span class="wrap">
      {row.target || many}
      {row.service && <span class="muted"> in {row.service}</span>}
      {row.tenant && <span class="muted"> of {row.tenant}</span>}
      {row.event_id && (
        <>
          {" "}
          <span class="says"><Link to={at`/events/${row.event_id}`}>event</Link></span>
        </>
      )}
    </span>
  );
}

function Changed({ row }: { row: Action }) {
  if (!row.changed.length) return <span class="muted">–</span>;
  return (
    <ul class="plain">
      {row.changed.map((one) => (
        <li key={one.name} class="wrap">
          {one.name}: {one.before === null && one.after === null ? <span class="muted">hidden</span> : <><del>{one.before}</del> → <ins>{one.after}</ins></>}
        </li>
      ))}
    </ul>
  );
}

/** A time in the reader's zone; the address has it in UTC. */
function Moment({ label, value, onPick }: { label: string; value: string | null; onPick: (iso: string) => void }) {
  const moment = value ? new Date(value) : null;
  const local = moment && !Number.isNaN(moment.getTime()) ? new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
  return <Field label={label} kind="datetime-local" value={local} onInput={(text) => onPick(text && !Number.isNaN(new Date(text).getTime()) ? new Date(text).toISOString() : "")} />;
}
