import { useData } from "../api";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Badge, Empty, Figure, Figures, Notice, Page, Table, Tabs, brief, count, counted, span } from "../ui";

interface Worker {
  id: string;
  name: string;
  host: string;
  pid: number;
  services: string[];
  parts: string[];
  version: string;
  commit: string;
  consumers: string[];
  aside: Record<string, "waits" | "later" | "unfit">;
  since: number;
  age: number;
  state: "runs" | "silent" | "stopped";
}
interface Store {
  service: string;
  services: string[];
  workers: Worker[];
  missing: string[];
  idle: string[];
  versions: string[];
}

const ASIDE = {
  waits: "takes it over as soon as the others stand aside",
  later: "leaves it to a later release",
  unfit: "cannot go on with what is stored, and leaves it alone",
} as const;
const TONE = { runs: "good", silent: "bad", stopped: "neutral" } as const;

export default function Processes({ query }: PageProps) {
  const found = useData<{ silent_after: number; stores: Store[] }>("/processes", { live: "processes", every: 10_000 });
  const stores = found.data?.stores ?? [];
  const workers = together(stores.flatMap((one) => one.workers));
  const of = (state: Worker["state"]): Worker[] => workers.filter((one) => one.state === state);
  const gone = [...of("silent"), ...of("stopped")].sort((a, b) => a.age - b.age);
  const shown = query.get("state") === "gone" ? gone : of("runs");
  const alone = stores.filter((one) => one.missing.length || one.idle.length);
  const versions = new Set(stores.flatMap((one) => one.versions));
  return (
    <Page title="Processes" says="Whoever ran a service in the last day, what it runs, and when it gave its last sign of life." data={found}>
      <p class="verdict">
        {alone.length ? `Something of ${counted(alone.length, "service")} is run by nobody.` : of("runs").length ? "Every part that is needed is run by somebody." : "Nobody runs."}
        {of("silent").length ? ` In the last day ${counted(of("silent").length, "process", "processes")} fell silent without a word: killed, hanging, or cut off from the store${alone.length ? "" : "; others do what they did"}.` : ""}
      </p>
      <Figures>
        <Figure label="Running" value={count(of("runs").length)} says="gave a sign of life lately" tone={of("runs").length ? "good" : "bad"} />
        <Figure label="Silent" value={count(of("silent").length)} says={`no sign for ${span(found.data?.silent_after ?? 20)}`} tone={of("silent").length ? "warn" : "neutral"} />
        <Figure label="Versions" value={count(versions.size)} says={brief([...versions].join(" · ")) || "none runs"} tone={versions.size > 1 ? "info" : "neutral"} />
      </Figures>
      {alone.map((one) => (
        <Notice key={one.service} tone="warn" title={one.services.join(", ")}>
          {one.missing.length ? `No process runs its ${one.missing.join(", ")}. ` : ""}
          {one.idle.length ? `Nobody runs ${one.idle.join(", ")}. ` : ""}
          Start one: <code>posthouse run TARGET</code>.
        </Notice>
      ))}
      <Tabs label="Which processes" current={query.get("state") === "gone" ? "gone" : "here"} onPick={(id) => requery({ state: id === "gone" ? id : null })} tabs={[{ id: "here", title: "Running", count: of("runs").length }, { id: "gone", title: "Silent or stopped", count: gone.length }]}>
        <Table
          caption="Processes"
          rows={shown}
          id={(row) => row.id}
          empty={<Empty title="No process is here." >Start one: <code>posthouse run TARGET</code></Empty>}
          columns={[
            { title: "Process", cell: (row) => <span class="mono wrap">{row.name}</span> },
            { title: "State", cell: (row) => <Badge tone={TONE[row.state]}>{row.state}</Badge> },
            { title: "Last sign", cell: (row) => <>{row.age < -1 ? `by a clock ${span(-row.age)} ahead` : `${span(Math.max(0, row.age))} ago`}</> },
            { title: "Up for", cell: (row) => <Age seconds={row.since} />, end: true },
            { title: "Runs", cell: (row) => <span class="presses">{row.parts.map((part) => <Badge key={part}>{part}</Badge>)}</span> },
            { title: "Services", cell: (row) => <span class="wrap">{row.services.join(", ")}</span>, wide: true },
            { title: "Posthouse", cell: (row) => <span class="mono">{row.version}</span> },
            { title: "Commit", cell: (row) => <span class="mono wrap" title={row.commit}>{brief(row.commit) || "–"}</span>, spare: true },
            { title: "Stands aside", cell: (row) => (Object.keys(row.aside).length ? <span class="wrap">{Object.entries(row.aside).map(([saga, why]) => `${saga}: ${ASIDE[why]}`).join("; ")}</span> : "–"), spare: true },
          ]}
        />
      </Tabs>
    </Page>
  );
}

/** One line for a process, though it gives a sign of life in each store that it works with; the oldest of them counts. */
function together(workers: readonly Worker[]): Worker[] {
  const found = new Map<string, Worker>();
  for (const one of workers) {
    const place = `${one.name} ${one.state}`;
    const known = found.get(place);
    found.set(
      place,
      known
        ? { ...known, services: [...new Set([...known.services, ...one.services])], parts: [...new Set([...known.parts, ...one.parts])], aside: { ...known.aside, ...one.aside }, age: Math.max(known.age, one.age), since: Math.max(known.since, one.since) }
        : one,
    );
  }
  return [...found.values()];
}
