import { BulkAct } from "../acting";
import { type Listing, at, query as asked, useData } from "../api";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Badge, Bar, Button, Empty, Field, Link, Notice, Page, Search, Section, Table, type Tone, count, counted, span } from "../ui";

export type Status = "awaited" | "running" | "compensating" | "completed" | "compensated" | "partial" | "compensation_failed" | "cancelled";

interface Kind {
  service: string;
  saga: string;
  declared?: boolean;
  states: Partial<Record<Status, number>> | null;
  oldest: Partial<Record<Status, number>>;
  ended: Record<string, number>;
}

export interface SagaLine {
  service: string | null;
  saga: string;
  id: string;
  name: string;
  attempt: number;
  tenant: string;
  status: Status;
  last_step: string;
  reason: string | null;
  next: { name: string; due_at: string } | null;
  early: number;
  out: string[];
  turns_taken: number;
  started_at: string;
  changed_at: string;
  ended_at: string | null;
}

export const STATUS: Record<Status, readonly [Tone, string, string]> = {
  compensation_failed: ["bad", "cannot undo", "An undo failed for good. Mend the cause and retry, or do it by hand and resume."],
  partial: ["warn", "partial", "A part could not be done. It still takes events, and waits for an operator."],
  awaited: ["warn", "awaited", "It was not started yet, and events came for it."],
  compensating: ["info", "compensating", "It undoes its steps, last one first."],
  running: ["info", "running", "It takes events and deadlines."],
  completed: ["good", "completed", "It ended well."],
  compensated: ["neutral", "compensated", "It ended, and everything was undone."],
  cancelled: ["neutral", "cancelled", "An operator ended it, and everything was undone."],
};
const ORDER = Object.keys(STATUS) as Status[];

export const to = (row: { service: string | null; saga: string; id: string; tenant: string; attempt: number }): string =>
  asked(at`/sagas/${row.service ?? ""}/${row.saga}/${row.id}`, { tenant: row.tenant, attempt: row.attempt });

export function State({ status }: { status: Status }) {
  const [tone, word, means] = STATUS[status];
  return (
    <Badge tone={tone} title={means}>
      {word}
    </Badge>
  );
}

export default function Sagas({ query }: PageProps) {
  const found = useData<{ sagas: Kind[]; waiting: SagaLine[] }>(asked("/sagas", { tenant: query.get("tenant") }), { live: "sagas" });
  const kinds = found.data?.sagas ?? [];
  const waiting = found.data?.waiting ?? [];
  const service = query.get("service") ?? kinds[0]?.service ?? null;
  const failed = kinds.reduce((all, one) => all + (one.states?.compensation_failed ?? 0), 0);
  const partial = kinds.reduce((all, one) => all + (one.states?.partial ?? 0), 0);
  const shown = ORDER.filter((status) => kinds.some((one) => one.states?.[status]));
  return (
    <Page title="Sagas" says="Processes of several steps: how many stand where, and which wait for somebody." data={found}>
      <p class="verdict">
        {failed ? `Cannot undo what was done, until you decide: ${counted(failed, "saga")}.` : partial ? `Resting with a part undone, and waiting for you: ${counted(partial, "saga")}.` : waiting.length ? `Waiting for you: ${counted(waiting.length, "saga")}.` : kinds.length ? "No saga waits for an operator." : ""}
      </p>
      {!kinds.length && <Empty title="No service declares a saga." />}
      {waiting.length > 0 && (
        <Section title="Wait for an operator" says="The newest of each state. Open one: it says what happened, and what to press.">
          <Rows rows={waiting} caption="Sagas that wait for an operator" />
        </Section>
      )}
      {kinds.length > 0 && (
        <Section title="By saga and state" says="Press a number to see those.">
          <Table
            caption="Sagas by state"
            rows={kinds}
            id={(row) => `${row.service} ${row.saga}`}
            columns={[
              { title: "Saga", cell: (row) => <><Link to={asked("/sagas", { service: row.service, saga: row.saga })}><strong class="wrap">{row.saga}</strong></Link> <span class="muted">{row.service}{row.declared === false ? ", not declared any more" : ""}</span></>, wide: true },
              ...shown.map((status) => ({
                title: STATUS[status][1],
                end: true,
                cell: (row: Kind) =>
                  row.states?.[status] ? (
                    <Link to={asked("/sagas", { service: row.service, saga: row.saga, status })} title={STATUS[status][2]}>
                      {STATUS[status][0] === "bad" || STATUS[status][0] === "warn" ? <Badge tone={STATUS[status][0]}>{count(row.states[status])}</Badge> : count(row.states[status])}
                    </Link>
                  ) : (
                    <span class="muted">0</span>
                  ),
              })),
              { title: "Oldest that runs began", cell: (row) => (row.oldest.running === undefined ? <span class="muted">–</span> : <>{span(row.oldest.running)} ago</>), end: true },
            ]}
          />
        </Section>
      )}
      {service !== null && <List service={service} kinds={kinds} query={query} />}
    </Page>
  );
}

function List({ service, kinds, query }: { service: string; kinds: readonly Kind[]; query: URLSearchParams }) {
  const names = ["saga", "status", "tenant", "id", "after"] as const;
  const list = useData<Listing<SagaLine>>(asked(at`/sagas/${service}`, { ...Object.fromEntries(names.map((name) => [name, query.get(name)])), limit: 25 }), { live: "sagas" });
  const set = (name: string) => (value: string) => requery({ [name]: value || null, after: null });
  const services = [...new Set(kinds.map((one) => one.service))];
  return (
    <Section title="The sagas, newest first" actions={<Together service={service} query={query} done={list.refresh} />}>
      <Bar>
        <Field label="Service" value={service} onInput={(value) => requery({ service: value, saga: null, after: null })} choices={services.map((value) => ({ value, label: value }))} />
        <Field label="Saga" value={query.get("saga") ?? ""} onInput={set("saga")} choices={[{ value: "", label: "all" }, ...kinds.filter((one) => one.service === service && one.declared !== false).map((one) => ({ value: one.saga, label: one.saga }))]} />
        <Field label="State" value={query.get("status") ?? ""} onInput={set("status")} choices={[{ value: "", label: "any" }, ...ORDER.map((value) => ({ value, label: STATUS[value][1] }))]} />
        <Search label="Its id, exactly" value={query.get("id") ?? ""} onSearch={set("id")} />
        <Search label="Tenant, exactly" value={query.get("tenant") ?? ""} onSearch={set("tenant")} />
        {names.some((name) => query.get(name)) && <Button onClick={() => requery(Object.fromEntries(names.map((name) => [name, null])))}>Show all</Button>}
      </Bar>
      {list.error && (
        <Notice tone="bad">
          {list.error.message} {list.error.hint}
        </Notice>
      )}
      <Rows rows={list.data?.items ?? []} caption={`Sagas of ${service}`} next={list.data?.next} />
    </Section>
  );
}

/** What is decided for all that rest in one state: of one saga, or of all of the service. */
function Together({ service, query, done }: { service: string; query: URLSearchParams; done: () => void }) {
  const status = query.get("status");
  if (query.get("id") || (status !== "partial" && status !== "compensation_failed")) return null;
  const params = { service, status, saga: query.get("saga"), tenant: query.get("tenant") };
  return (
    <>
      <BulkAct small name="saga.retry.all" params={params} label="Retry all…" onDone={done} />
      <BulkAct small name="saga.resume.all" params={params} label="Complete all…" onDone={done} />
      {status === "partial" && <BulkAct small name="saga.cancel.all" params={{ ...params, reason: "cancelled at the console" }} label="Compensate all…" kind="danger" onDone={done} />}
    </>
  );
}

export function Rows({ rows, caption, next }: { rows: readonly SagaLine[]; caption: string; next?: string | null }) {
  return (
    <Table
      caption={caption}
      rows={rows}
      id={(row) => `${row.service} ${row.saga} ${row.tenant} ${row.id} ${row.attempt}`}
      next={next}
      empty="No saga fits."
      columns={[
        { title: "Saga", cell: (row) => <Link to={to(row)}><span class="wrap">{row.saga} <span class="mono">{row.name}</span></span></Link>, wide: true },
        { title: "State", cell: (row) => <State status={row.status} /> },
        { title: "Last step", cell: (row) => <span class="wrap">{row.last_step || "–"}</span> },
        { title: "Next, or why", cell: (row) => <Next row={row} />, wide: true },
        { title: "Tenant", cell: (row) => <span class="wrap">{row.tenant}</span> },
        { title: "Last change", cell: (row) => <Age since={row.changed_at} /> },
        { title: "Started", cell: (row) => <Age since={row.started_at} />, spare: true },
      ]}
    />
  );
}

function Next({ row }: { row: SagaLine }) {
  return (
    <span class="wrap">
      {row.early > 0 && `${counted(row.early, "early event")}; `}
      {row.out.length > 0 && `calls for ${row.out.join(", ")}; `}
      {row.next && (
        <>
          {row.next.name} <Age since={row.next.due_at} />{row.reason ? "; " : ""}
        </>
      )}
      {row.reason}
    </span>
  );
}
