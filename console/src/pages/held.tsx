import { useState } from "preact/hooks";
import { BulkAct, BulkActing } from "../acting";
import { at, query, useData } from "../api";
import { type Bounded, failure, type HeldLine, type Meaning, Means, StateBadge } from "../held/states";
import { barred } from "../rights";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Bar, Button, count, Empty, Field, Link, Page, Section, Table, Tabs } from "../ui";

interface Group {
  service: string;
  fingerprint: string;
  consumer: string;
  state: string;
  count: Bounded;
  first_at: string;
  last_at: string;
  example: string;
  type: string;
  error: string | null;
}

interface Groups {
  groups: Group[];
  states: Record<string, Meaning>;
  choices: { services: string[]; consumers: string[]; states: string[]; tenants: string[] };
}

const FILTERS = ["service", "consumer", "state", "tenant", "topic", "key", "fingerprint", "correlation"] as const;

export default function Held({ query: asked }: PageProps) {
  const filters = Object.fromEntries(FILTERS.filter((name) => asked.has(name)).map((name) => [name, asked.get(name) as string]));
  const shows = asked.get("show") === "events" ? "events" : "failures";
  const groups = useData<Groups>(query("/held/groups", filters), { live: "held" });
  const list = useData<{ items: HeldLine[]; next: string | null }>(shows === "events" ? query("/held", { ...filters, after: asked.get("after") }) : null, { live: "held" });
  const found = groups.data?.groups ?? [];
  const states = [...new Set(found.map((group) => group.state))];
  const filtered = Object.keys(filters).length > 0;
  return (
    <Page title="Held" says="Events that were accepted and could not be applied. They lie here in order, and nothing leaves in silence." data={groups}>
      {groups.data && (
        <>
          <p class="held-sum">{summed(found, filtered)}</p>
          <div class="held-states">
            {states.map((state) => {
              const meaning = groups.data?.states[state];
              return meaning && <Means key={state} state={state} meaning={meaning} />;
            })}
          </div>
          <Filters filters={filters} choices={groups.data.choices} />
          <Tabs
            label="How held events are shown"
            tabs={[
              { id: "failures", title: "Failures", count: found.length },
              { id: "events", title: "Events" },
            ]}
            current={shows}
            onPick={(id) => requery({ show: id === "events" ? id : null, after: null })}
          >
            {shows === "failures" ? (
              <Failures groups={found} filters={filters} filtered={filtered} done={groups.refresh} />
            ) : (
              <Section>
                <Events lines={list.data?.items ?? []} next={list.data?.next} loading={list.data === undefined} />
                {list.error && <p class="muted">{list.error.message}</p>}
              </Section>
            )}
          </Tabs>
        </>
      )}
    </Page>
  );
}

function summed(groups: Group[], filtered: boolean): string {
  if (!groups.length) return filtered ? "Nothing that fits is held." : "Nothing is held: every event that came was applied.";
  const number = groups.reduce((sum, group) => sum + group.count.number, 0);
  const more = groups.some((group) => group.count.more);
  const dead = groups.filter((group) => group.state === "dead").reduce((sum, group) => sum + group.count.number, 0);
  const waits = dead ? `; ${count(dead)} of them dead, until somebody decides` : "";
  return `${count(number, more)} ${number === 1 ? "event is" : "events are"} held, in ${groups.length} ${groups.length === 1 ? "way" : "ways"}${waits}.`;
}

function Failures({ groups, filters, filtered, done }: { groups: Group[]; filters: Record<string, string>; filtered: boolean; done: () => void }) {
  return (
    <Table
      caption="Failures, the most frequent first"
      rows={groups}
      id={(group) => [group.service, group.consumer, group.state, group.fingerprint].join(" ")}
      empty={<Empty title={filtered ? "Nothing that fits is held." : "Nothing is held."}>{filtered ? "Take a filter away to see more." : "Everything that came was applied."}</Empty>}
      columns={[
        {
          title: "Failure",
          wide: true,
          cell: (group) => (
            <>
              <Link class="wrap strong" to={query("/held", { ...filters, show: "events", service: group.service, consumer: group.consumer, state: group.state, fingerprint: group.fingerprint })}>
                {failure(group.fingerprint, group.state)}
              </Link>
              {group.error && <div class="muted wrap clip">{group.error}</div>}
            </>
          ),
        },
        { title: "State", cell: (group) => <StateBadge state={group.state} /> },
        { title: "Consumer", cell: (group) => group.consumer },
        { title: "Events", end: true, cell: (group) => count(group.count.number, group.count.more) },
        { title: "First", cell: (group) => <Age since={group.first_at} /> },
        { title: "Last", cell: (group) => <Age since={group.last_at} /> },
        {
          title: "Press",
          cell: (group) => (
            <span class="held-press">
              <Link class="button button-plain button-small" to={at`/held/${group.service}/${group.example}`}>
                Look at one
              </Link>
              <GroupActs group={group} filters={filters} done={done} />
            </span>
          ),
        },
      ]}
    />
  );
}

function GroupActs({ group, filters, done }: { group: Group; filters: Record<string, string>; done: () => void }) {
  const { correlation: _, ...rest } = filters;
  const params = { ...rest, service: group.service, consumer: group.consumer, state: group.state, ...(group.fingerprint ? { fingerprint: group.fingerprint } : {}) };
  // Without a failure that names them, a job would take others of this consumer too.
  const [more, show] = useState<Many | null>(null);
  if (group.state === "blocked") return <span class="muted">follow the first ones</span>;
  const [first, ...others] = MANY[group.state] ?? [];
  if (filters.correlation || !first || (!group.fingerprint && group.state !== "gap")) return null;
  return (
    <>
      <BulkAct name={first.name} params={params} label={`${first.label}…`} small onDone={done} />
      {others.map((one) => (
        <Button key={one.name} kind="quiet" small barred={barred(one.name)} aria-haspopup="dialog" onClick={() => show(one)}>
          {one.label}…
        </Button>
      ))}
      {more && <BulkActing name={more.name} params={params} title={`${more.label}…`} onDone={done} onClose={() => show(null)} />}
    </>
  );
}

interface Many {
  name: string;
  label: string;
}

const RETRY: Many = { name: "held.retry.all", label: "Retry all" };
const RERUN: Many = { name: "held.rerun.all", label: "Run all out of order" };
const SKIP: Many = { name: "held.skip.all", label: "Skip all" };
const QUARANTINE: Many = { name: "held.quarantine.all", label: "Quarantine all" };

/** What works for all of a failure, by its state; the likeliest first. */
export const MANY: Record<string, readonly Many[]> = {
  dead: [RETRY, SKIP, QUARANTINE],
  retrying: [{ ...RETRY, label: "Retry all now" }, SKIP, QUARANTINE],
  quarantined: [RETRY, RERUN, SKIP],
  skipped: [RERUN],
  gap: [{ name: "held.release.all", label: "Release" }, QUARANTINE],
};

function Filters({ filters, choices }: { filters: Record<string, string>; choices: Groups["choices"] }) {
  const [typed, type] = useState<Record<string, string>>(filters);
  const pick = (name: string, all: string, options: string[]) =>
    options.length > 1 || filters[name] ? (
      <Field
        label={name[0]?.toUpperCase() + name.slice(1)}
        value={filters[name] ?? ""}
        onInput={(value) => requery({ [name]: value, after: null })}
        choices={[{ value: "", label: all }, ...[...new Set([...options, ...(filters[name] ? [filters[name] as string] : [])])].map((one) => ({ value: one, label: one }))]}
      />
    ) : null;
  return (
    <form
      class="held-filters"
      onSubmit={(event) => {
        event.preventDefault();
        requery({ tenant: typed.tenant?.trim() || null, topic: typed.topic?.trim() || null, key: typed.key?.trim() || null, after: null });
      }}
    >
      <Bar>
        {pick("service", "all services", choices.services)}
        {pick("consumer", "all consumers", choices.consumers)}
        {pick("state", "all states", choices.states)}
        {(["tenant", "topic", "key"] as const).map((name) => (
          <Field key={name} label={name[0]?.toUpperCase() + name.slice(1)} value={typed[name] ?? ""} onInput={(value) => type({ ...typed, [name]: value })} />
        ))}
        <Button type="submit">Narrow</Button>
        {Object.keys(filters).length > 0 && (
          <Button
            kind="quiet"
            onClick={() => {
              type({});
              requery({ ...Object.fromEntries(FILTERS.map((name) => [name, null])), after: null });
            }}
          >
            All
          </Button>
        )}
      </Bar>
      {filters.fingerprint !== undefined && (
        <p class="wrap">
          Failed alike: <strong>{failure(filters.fingerprint, filters.state ?? "")}</strong>{" "}
          <Button kind="quiet" small onClick={() => requery({ fingerprint: null, after: null })}>
            any failure
          </Button>
        </p>
      )}
    </form>
  );
}

export function Events({ lines, next, loading }: { lines: HeldLine[]; next?: string | null; loading?: boolean }) {
  return (
    <Table
      caption="Held events, newest first"
      rows={lines}
      id={(line) => `${line.service} ${line.id}`}
      next={next}
      empty={loading ? "…" : "Nothing that fits is held."}
      columns={[
        {
          title: "Event",
          wide: true,
          cell: (line) => (
            <>
              <Link class="wrap strong" to={at`/held/${line.service}/${line.id}`}>
                {line.type || "bytes that are no event"}
              </Link>
              {line.error && <div class="muted wrap clip">{line.error}</div>}
            </>
          ),
        },
        { title: "State", cell: (line) => <StateBadge state={line.state} /> },
        { title: "Consumer", cell: (line) => line.consumer },
        { title: "Tenant", cell: (line) => <span class="wrap">{line.tenant}</span> },
        { title: "Key", cell: (line) => <KeyLink of={line} /> },
        { title: "Behind it", end: true, cell: (line) => (line.behind ? <Behind of={line} /> : "–") },
        { title: "Runs", end: true, spare: true, cell: (line) => count(line.attempts) },
        { title: "Held", cell: (line) => <Age since={line.first_at} /> },
      ]}
    />
  );
}

const Behind = ({ of }: { of: HeldLine }) => (of.behind?.number ? <strong>{count(of.behind.number, of.behind.more)} wait</strong> : <span class="muted">none</span>);

export function KeyLink({ of }: { of: { topic: string; tenant: string; key: string | null; sequence?: string | null } }) {
  if (of.key === null) return <span class="muted">none</span>;
  return (
    <span class="wrap">
      <Link to={query("/keys", { topic: of.topic, tenant: of.tenant, key: of.key })}>{of.key}</Link>
      {of.sequence ? <span class="muted"> no. {of.sequence}</span> : null}
    </span>
  );
}
