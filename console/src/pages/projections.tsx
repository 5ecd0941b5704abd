import { Act } from "../acting";
import { query, useData } from "../api";
import { Age, Badge, Empty, Link, Page, Section, Table, Time, type Tone, count, counted, span } from "../ui";

interface Generation {
  number: number;
  version: number;
  state: "building" | "live" | "retired";
  verdict: string;
  group: string;
  source: string;
  phase: "begun" | "bulk" | "closing" | "following";
  read: number;
  waiting: number;
  held: number;
  seconds: number | null;
  lag: number;
  budget: number;
  tables: string[];
  owner: string;
  made_at: string | null;
  live_at: string | null;
  retired_at: string | null;
  drop_at: string | null;
  applied_at: string | null;
}
interface Projection {
  service: string;
  name: string;
  consumer: string;
  version: number;
  cross_tenant: boolean;
  state: "none" | "fresh" | "late" | "held" | "partial" | "older" | "newer";
  building: boolean;
  generations: Generation[];
}

const MEANS: Record<Projection["state"], readonly [Tone, string, string]> = {
  fresh: ["good", "fresh", "It has everything, within its budget."],
  late: ["bad", "over its budget", "It is further behind than it may be: does somebody run its consumer?"],
  held: ["bad", "events are held", "It could not apply some events: deal with them in Held."],
  partial: ["bad", "a part is missing", "It lacks what happened before it was there, or what the broker dropped: rebuild it."],
  older: ["warn", "older than the code", "The code has moved on: rebuild it."],
  newer: ["warn", "newer than the code", "Processes of a later version feed it: start some, and stop those before."],
  none: ["info", "not made yet", "It is made when its service is opened, as by posthouse run."],
};
const PHASE = { begun: "its tables are there", bulk: "reads streams", closing: "reads the last of the streams", following: "reads the log" } as const;

export default function Projections() {
  const found = useData<{ items: Projection[] }>("/projections", { live: "projections", every: 10_000 });
  const items = found.data?.items ?? [];
  const unwell = items.filter((one) => !["fresh", "none"].includes(one.state));
  const building = items.filter((one) => one.building);
  return (
    <Page title="Projections" says="Read models: how far each is behind the facts, which generation is read, and how far a rebuild is." data={found}>
      <p class="verdict">
        {unwell.length ? `${counted(unwell.length, "read model")} not as it should be: ${unwell.map((one) => one.name).join(", ")}.` : items.length ? "Every read model has everything, within its budget." : ""}
        {building.length ? ` ${counted(building.length, "rebuild")} under way.` : ""}
      </p>
      {!items.length && <Empty title="No service declares a read model." />}
      {items.map((one) => (
        <Section
          key={one.consumer}
          title={<>{one.name} <Badge tone={MEANS[one.state][0]}>{MEANS[one.state][1]}</Badge></>}
          says={`${one.service}, version ${one.version}, ${one.cross_tenant ? "all tenants together" : "each tenant its own"}. ${MEANS[one.state][2]}`}
          actions={
            <>
              {one.building && <Act small name="projection.drop" params={{ service: one.service, projection: one.name }} label="Give up the rebuild" onDone={found.refresh} />}
              <Act small name="projection.rebuild" params={{ service: one.service, projection: one.name }} label={one.building ? "Go on with the rebuild" : "Rebuild"} onDone={found.refresh} />
            </>
          }
        >
          <Table
            caption={`Generations of ${one.name}`}
            rows={[...one.generations].reverse()}
            id={(row) => String(row.number)}
            empty="It has no generation yet."
            columns={[
              { title: "Generation", cell: (row) => <strong>{row.number}</strong> },
              { title: "State", cell: (row) => <Badge tone={row.state === "live" ? "good" : row.state === "building" ? "info" : "neutral"}>{row.state}</Badge> },
              { title: "Behind", cell: (row) => (row.state === "live" ? <span title={`budget ${span(row.budget)}`}>{span(row.lag)} of {span(row.budget)}</span> : "–"), end: true },
              { title: "Unread", cell: (row) => count(row.waiting), end: true },
              { title: "Held", cell: (row) => (row.held ? <Link to={query("/held", { service: one.service, consumer: row.group })}>{count(row.held)}</Link> : "0"), end: true },
              { title: "Progress", cell: (row) => <Progress row={row} />, wide: true },
              { title: "Last applied", cell: (row) => <Age since={row.applied_at} none="nothing yet" /> },
              { title: "Since", cell: (row) => <Time at={row.live_at ?? row.made_at} />, spare: true },
              { title: "Tables", cell: (row) => <span class="mono wrap">{row.tables.join(", ") || "–"}</span>, spare: true },
              { title: "Press", cell: (row) => (row.state === "retired" ? <Act small name="projection.drop" params={{ service: one.service, projection: one.name, generation: row.number }} label="Drop" onDone={found.refresh} /> : null) },
            ]}
          />
        </Section>
      ))}
    </Page>
  );
}

function Progress({ row }: { row: Generation }) {
  if (row.state === "retired") return <span class="muted">{row.drop_at ? <>goes <Age since={row.drop_at} /></> : "kept until it is dropped"}</span>;
  if (row.state === "live") return <span class="muted">{row.seconds === null ? "nothing applied yet" : `the last event was ${span(row.seconds)} old when it was applied`}</span>;
  const all = row.read + row.waiting;
  return (
    <span class="presses">
      <progress max={Math.max(1, all)} value={row.phase === "begun" ? 0 : row.read} aria-label={`Rebuild of generation ${row.number}`} />
      <span>
        {PHASE[row.phase]}: {count(row.read)} read, {count(row.waiting)} to come
      </span>
    </span>
  );
}
