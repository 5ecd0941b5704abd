// Who says what to whom, with what flows and what is stuck.
import { useMemo, useState } from "preact/hooks";
import { at, useData } from "../api";
import { Canvas } from "../map/canvas";
import { type Edge, type Node, around, drawn, services } from "../map/graph";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Badge, Button, Empty, Link, Page, Search, Section, Table, Tabs, count, counted, rate } from "../ui";

interface Map {
  nodes: Node[];
  edges: Edge[];
  events: number;
}

const TONES = { now: "bad", soon: "warn", wait: "neutral" } as const;
const WORDS = { now: "needs a person", soon: "takes too long", wait: "goes on by itself" } as const;

/** Where a click leads: a service opens here, everything else on its own page. */
const leads = (node: Node): string => {
  if (node.kind === "service") return `/map?service=${encodeURIComponent(node.name)}`;
  if (node.kind === "topic") return node.about.length === 1 ? at`/catalogue/${node.about[0] ?? ""}` : `/catalogue?view=topics&find=${encodeURIComponent(node.name)}`;
  return node.kind === "saga" ? `/sagas?service=${encodeURIComponent(node.service)}` : `/consumers?consumer=${encodeURIComponent(node.name)}`;
};

const matches = (node: Node, words: string[]): boolean => {
  const text = `${node.name} ${node.kind} ${node.service} ${node.about.join(" ")}`.toLowerCase();
  return words.every((word) => text.includes(word));
};

export default function MapPage({ query }: PageProps) {
  const map = useData<Map>("/map", { every: 3_000, live: "home" });
  const [words, setWords] = useState(query.get("find") ?? "");
  const service = query.get("service");
  const all = query.get("view") === "all";
  const found = map.data;
  const view = useMemo(() => (found ? (service ? around(found, service) : all ? found : services(found)) : null), [found, service, all]);
  const shape = view ? [...view.nodes.map((one) => one.id), ...view.edges.map((one) => `${one.source} ${one.target}`)].join("\n") : "";
  const drawing = useMemo(() => (view ? drawn(view) : null), [shape]);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = useMemo(() => (wanted.length && found ? found.nodes.filter((one) => matches(one, wanted)) : []), [found, words]);
  const marked = useMemo(() => (wanted.length && view ? new Set(view.nodes.filter((one) => hits.includes(one) || hits.some((hit) => hit.id === one.id || (!service && !all && hit.service === one.service))).map((one) => one.id)) : null), [view, hits]);
  const stuck = view?.nodes.filter((one) => one.gravity === "now") ?? [];
  return (
    <Page
      title={service ? `Map of ${service}` : "Map"}
      path={service ? [["Map", "/map"]] : undefined}
      says={
        found
          ? `${counted(found.nodes.filter((one) => one.kind === "service").length, "service")}, ${counted(found.events, "event")}, ${counted(found.nodes.filter((one) => one.kind === "topic").length, "topic")}. ${stuck.length ? `${counted(stuck.length, "place needs", "places need")} a person.` : "Nothing needs a person."}`
          : "Services, topics, consumers and sagas as they are declared, with what flows and what is stuck."
      }
      data={map}
      actions={service ? <Link to="/map" class="button">All services</Link> : undefined}
    >
      {found && view && drawing && (
        <>
          <div class="bar">
            <Search label="Find a service, an event, a consumer" value={words} onInput={setWords} onSearch={(text) => (setWords(text), requery({ find: text }))} />
            {!service && (
              <Tabs
                label="How much is drawn"
                current={all ? "all" : "services"}
                onPick={(id) => requery({ view: id === "all" ? "all" : null })}
                tabs={[
                  { id: "services", title: "Services" },
                  { id: "all", title: "Everything" },
                ]}
              />
            )}
          </div>
          {wanted.length > 0 && <Hits hits={hits} />}
          {view.nodes.length ? (
            <Canvas label={`${service ? `What ${service} says and hears` : "Who says what to whom"}, drawn; the list below says the same`} view={view} drawing={drawing} found={marked} to={leads} />
          ) : (
            <Empty title={service ? `No service is called ${service} here.` : "No service declares anything yet."} action={service ? <Button onClick={() => requery({ service: null })}>All services</Button> : undefined} />
          )}
          <Legend />
          <Section title="The same as a list">
            <List nodes={view.nodes} />
          </Section>
        </>
      )}
    </Page>
  );
}

function Hits({ hits }: { hits: Node[] }) {
  if (!hits.length) return <p class="muted">Nothing on the map is called so.</p>;
  return (
    <p class="map-hits">
      {hits.slice(0, 12).map((one) => (
        <Link key={one.id} to={one.kind === "service" ? leads(one) : `/map?service=${encodeURIComponent(one.service)}&find=${encodeURIComponent(one.name)}`} class="button button-small">
          {one.kind} {one.name}
        </Link>
      ))}
      {hits.length > 12 && <span class="muted">and {count(hits.length - 12)} more</span>}
    </p>
  );
}

function Legend() {
  return (
    <p class="map-legend muted">
      <span>▣ service</span>
      <span>≡ topic</span>
      <span>▸ consumer</span>
      <span>⟳ saga</span>
      <span>◫ read model</span>
      <span>A line is thicker while events flow along it; ! needs a person.</span>
    </p>
  );
}

function List({ nodes }: { nodes: Node[] }) {
  const order = { now: 0, soon: 1, wait: 2 };
  const rows = [...nodes].sort((a, b) => (a.gravity ? order[a.gravity] : 3) - (b.gravity ? order[b.gravity] : 3) || a.kind.localeCompare(b.kind) || a.name.localeCompare(b.name));
  return (
    <Table
      caption="Everything that is drawn"
      rows={rows}
      id={(one) => one.id}
      columns={[
        { title: "Name", wide: true, cell: (one) => <Link to={leads(one)}>{one.name}</Link> },
        { title: "What", cell: (one) => one.kind },
        { title: "State", wide: true, cell: (one) => (one.gravity ? <span><Badge tone={TONES[one.gravity]}>{WORDS[one.gravity]}</Badge> {one.troubles[0]}</span> : <span class="muted">nothing is stuck</span>) },
        { title: "Events per second", end: true, cell: (one) => rate(one.rate) },
        { title: "On their way", end: true, cell: (one) => count(one.waiting) },
        { title: "Held", end: true, cell: (one) => count(one.held) },
        { title: "Oldest", end: true, cell: (one) => <Age seconds={one.lag} /> },
      ]}
    />
  );
}
