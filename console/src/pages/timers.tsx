import { Act } from "../acting";
import { type Listing, at, query as asked, useData } from "../api";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Badge, Bar, Empty, Field, Figure, Figures, Link, Notice, Page, Search, Table, Time, count, counted, span } from "../ui";

interface Store {
  service: string;
  timers?: number;
  overdue?: number;
}
interface Timer {
  name: string;
  tenant: string;
  due_at: string;
  overdue: number;
  topic: string;
  key: string | null;
  event_id: string;
}

const LATE = 5;

export default function Timers({ query }: PageProps) {
  const found = useData<{ stores: Store[] }>("/timers", { live: "timers", every: 10_000 });
  const stores = found.data?.stores ?? [];
  const most = [...stores].sort((a, b) => (b.overdue ?? 0) - (a.overdue ?? 0) || (b.timers ?? 0) - (a.timers ?? 0))[0];
  const service = query.get("service") ?? most?.service ?? null;
  const list = useData<Listing<Timer>>(service === null ? null : asked(at`/timers/${service}`, { after: query.get("after"), tenant: query.get("tenant") }), { live: "timers", every: 10_000 });
  const overdue = Math.max(0, ...stores.map((one) => one.overdue ?? 0));
  const known = stores.some((one) => one.timers !== undefined);
  const all = stores.reduce((sum, one) => sum + (one.timers ?? 0), 0);
  return (
    <Page title="Timers" says="Facts that will be said later, soonest first: deadlines of sagas, retries of calls, and what services put off." data={found}>
      {known && (
        <>
          <p class="verdict">{overdue > LATE ? `A timer has been due for ${span(overdue)}: does a process run the timers?` : all ? `${counted(all, "timer")} wait for their time, and none is overdue.` : "No timer is pending."}</p>
          <Figures>
            <Figure label="Pending" value={count(all)} says="not fired yet" />
            <Figure label="Overdue" value={<Age seconds={overdue} />} says="the first has been due for" tone={overdue > LATE ? "bad" : "good"} />
          </Figures>
        </>
      )}
      <Bar>
        <Field label="Service" value={service ?? ""} onInput={(value) => requery({ service: value, after: null })} choices={stores.map((one) => ({ value: one.service, label: one.timers === undefined ? one.service : `${one.service} (${count(one.timers)})` }))} />
        <Search label="Only of this tenant" value={query.get("tenant") ?? ""} onSearch={(tenant) => requery({ tenant, after: null })} />
      </Bar>
      {list.error && <Notice tone="bad">{list.error.message} {list.error.hint}</Notice>}
      <Table
        caption="Timers, soonest first"
        rows={list.data?.items ?? []}
        id={(row) => `${row.tenant} ${row.name}`}
        next={list.data?.next}
        empty={<Empty title="No timer is pending here." />}
        columns={[
          { title: "Timer", cell: (row) => <span class="mono wrap">{row.name}</span>, wide: true },
          { title: "Due", cell: (row) => <Time at={row.due_at} /> },
          { title: "In", cell: (row) => (row.overdue > LATE ? <Badge tone="bad">overdue for {span(row.overdue)}</Badge> : <Age since={row.due_at} />) },
          { title: "Tenant", cell: (row) => <span class="wrap">{row.tenant}</span> },
          { title: "Topic", cell: (row) => <span class="mono wrap">{row.topic}</span>, spare: true },
          { title: "Key", cell: (row) => (row.key ? <Link to={asked("/keys", { topic: row.topic, tenant: row.tenant, key: row.key })}>{row.key}</Link> : "–") },
          { title: "Press", cell: (row) => <Act small name="timers.cancel" params={{ service: service ?? "", tenant: row.tenant, timer: row.name }} label="Cancel" onDone={list.refresh} /> },
        ]}
      />
    </Page>
  );
}
