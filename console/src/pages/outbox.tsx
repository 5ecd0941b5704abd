import { Act, BulkAct, Resend } from "../acting";
import { type Listing, at, query, useData } from "../api";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Badge, Empty, Figure, Figures, Notice, Page, Section, Table, Tabs, count, counted } from "../ui";

interface Topic {
  topic: string;
  service: string | null;
  committed: number;
  unsent: number;
  refused: number;
  oldest: number | null;
}
interface Store {
  service: string;
  services: string[];
  estimated: boolean;
  stuck: number;
  refused: number;
  oldest: number;
  topics: Topic[];
}
interface Stuck {
  id: string;
  state: "quarantined" | "refused" | "waiting";
  topic: string;
  tenant: string;
  key: string | null;
  sequence: string | null;
  event_id: string;
  attempts: number;
  first_at: string;
  next_at: string | null;
  error: string | null;
}

const MEANS = {
  quarantined: "The broker refused it for good. Its key waits: mend the cause, then try it again.",
  refused: "The broker refused it for now. It is tried again by itself.",
  waiting: "Waits behind a refused event of its key, and follows by itself.",
} as const;

export default function Outbox({ query: asked }: PageProps) {
  const found = useData<{ stores: Store[] }>("/outbox", { live: "outbox" });
  const stores = found.data?.stores ?? [];
  const unsent = sum(stores, (one) => sum(one.topics, (topic) => topic.unsent));
  const stuck = sum(stores, (one) => one.stuck);
  const refused = sum(stores, (one) => one.refused);
  const oldest = Math.max(0, ...stores.map((one) => one.oldest));
  const busy = stores.flatMap((store) => store.topics.map((topic) => ({ ...topic, store }))).filter((one) => asked.has("all") || one.unsent || one.refused);
  return (
    <Page title="Outbox" says="Events that were committed and are not with the broker yet, by topic." data={found} actions={<Resend topics={stores.flatMap((one) => one.topics.map((each) => ({ topic: each.topic, service: each.service ?? one.service })))} onDone={found.refresh} />}>
      <p class="verdict">
        {refused ? `The broker refused ${counted(refused, "event")} for good: their keys wait for you.` : stuck ? `${counted(stuck, "event")} wait for another try.` : unsent ? `${counted(unsent, "event")} on their way to the broker.` : "Everything that was committed is with the broker."}
      </p>
      <Figures>
        <Figure label="Unsent" value={count(unsent, stores.some((one) => one.estimated))} says="committed, not yet with the broker" tone={oldest > 60 ? "warn" : "neutral"} />
        <Figure label="Oldest" value={<Age seconds={unsent ? oldest : 0} />} says="how long the first has waited" tone={oldest > 60 ? "warn" : "neutral"} />
        <Figure label="Stuck" value={count(stuck)} says="refused, or behind a refused one" tone={stuck ? "warn" : "neutral"} />
        <Figure label="Refused for good" value={count(refused)} says="wait for a person" tone={refused ? "bad" : "good"} />
      </Figures>
      {stores.filter((one) => one.stuck).map((one) => (
        <Refused key={one.service} store={one} asked={asked} done={found.refresh} />
      ))}
      <Section title="By topic">
        <Tabs label="Which topics" current={asked.has("all") ? "all" : "busy"} onPick={(id) => requery({ all: id === "all" ? "1" : null })} tabs={[{ id: "busy", title: "With something waiting" }, { id: "all", title: "All topics" }]}>
          <Table
            caption="Unsent events by topic"
            rows={busy}
            id={(row) => `${row.store.service} ${row.topic}`}
            empty={<Empty title="Nothing waits in any outbox." />}
            columns={[
              { title: "Topic", cell: (row) => <span class="mono wrap">{row.topic}</span>, wide: true },
              { title: "Service", cell: (row) => row.service ?? row.store.service },
              { title: "Unsent", cell: (row) => count(row.unsent, row.store.estimated), end: true },
              { title: "Oldest", cell: (row) => <Age seconds={row.unsent ? row.oldest : null} />, end: true },
              { title: "Refused", cell: (row) => (row.refused ? <Badge tone="bad">{count(row.refused)}</Badge> : "0"), end: true },
              { title: "Committed ever", cell: (row) => count(row.committed), end: true, spare: true },
            ]}
          />
        </Tabs>
      </Section>
    </Page>
  );
}

function Refused({ store, asked, done }: { store: Store; asked: URLSearchParams; done: () => void }) {
  const name = `after-${store.service}`;
  const rows = useData<Listing<Stuck>>(query(at`/outbox/${store.service}/stuck`, { after: asked.get(name) }), { live: "outbox" });
  const again = (): void => {
    rows.refresh();
    done();
  };
  return (
    <Section
      title={`Refused by the broker: ${store.service}`}
      says="An event that is refused keeps those of its key waiting, so that none overtakes it."
      actions={<BulkAct name="outbox.retry.all" params={{ service: store.service }} label="Try all again" onDone={again} />}
    >
      {rows.error && <Notice tone="bad">{rows.error.message}</Notice>}
      <Table
        caption={`Stuck rows of ${store.service}`}
        rows={rows.data?.items ?? []}
        id={(row) => row.id}
        empty="Nothing is stuck any more."
        columns={[
          { title: "Event", cell: (row) => <span class="mono wrap">{row.event_id}</span> },
          { title: "State", cell: (row) => <Badge title={MEANS[row.state]} tone={row.state === "quarantined" ? "bad" : row.state === "refused" ? "warn" : "neutral"}>{row.state}</Badge> },
          { title: "Topic", cell: (row) => <span class="mono wrap">{row.topic}</span>, spare: true },
          { title: "Tenant", cell: (row) => row.tenant, spare: true },
          { title: "Key", cell: (row) => <span class="mono wrap">{row.key ?? "–"}</span> },
          { title: "Tries", cell: (row) => row.attempts, end: true },
          { title: "Since", cell: (row) => <Age since={row.first_at} /> },
          { title: "Next try", cell: (row) => (row.next_at ? <Age since={row.next_at} /> : <span class="muted">{row.state === "waiting" ? "behind another" : "never by itself"}</span>) },
          { title: "Why, and what it means", cell: (row) => <><span class="wrap">{row.state === "waiting" ? "" : row.error ?? "You may not see payloads, and an error may tell of one."}</span> <span class="muted">{MEANS[row.state]}</span></>, wide: true },
          { title: "Press", cell: (row) => (row.state === "waiting" ? null : <Act small name="outbox.retry" params={{ service: store.service, id: row.id }} label="Try again" onDone={again} />) },
        ]}
      />
      {(rows.data?.next || asked.has(name)) && (
        <p class="bar">
          {asked.has(name) && <button type="button" class="button button-plain button-small" onClick={() => requery({ [name]: null }, { replace: false })}>First page</button>}
          {rows.data?.next && <button type="button" class="button button-plain button-small" onClick={() => requery({ [name]: rows.data?.next ?? null }, { replace: false })}>Next page</button>}
        </p>
      )}
    </Section>
  );
}

const sum = <T,>(items: readonly T[], of: (one: T) => number): number => items.reduce((all, one) => all + of(one), 0);
