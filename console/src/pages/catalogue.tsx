// What is said, by whom, who reads it, and what the code would change.
import { useState } from "preact/hooks";
import { at, useData } from "../api";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Badge, Link, Notice, Page, Search, Section, Table, Tabs, count, type Tone } from "../ui";

export interface Line {
  subject: string;
  service: string;
  topic: string;
  owner: string;
  key: string | null;
  version: number;
  retention: string;
  residency: string | null;
  format: string;
  deprecated: string | null;
  successor: string | null;
  readers: number;
  description: string;
}

interface Topic {
  name: string;
  owner: string;
  guarantee: string;
  ordering: string[];
  dead_letters: string;
  producers: string[];
  consumers: string[];
  subjects: string[];
}

interface Flow {
  name: string;
  service: string;
  starts: string;
  then: string[];
  may: string[];
  description: string;
}

interface Catalogue {
  events: Line[];
  topics: Topic[];
  flows: Flow[];
  rights: Rights[];
}

/** Who may do what with a topic, as the rights of the Apps of `services` say; null where nobody is listed. */
export interface Rights {
  topic: string;
  publish: string[];
  read: string[] | null;
  replay: string[] | null;
  services: string[];
}

interface Changes {
  sentence: string;
  hint: string;
  changed: number;
  found: { severity: string; subject: string; sentence: string; way_out: string; touched: string[] }[];
}

const matches = (words: string, ...texts: (string | null)[]): boolean => {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const all = texts.join(" ").toLowerCase();
  return wanted.every((word) => all.includes(word));
};

export default function CataloguePage({ query }: PageProps) {
  const catalogue = useData<Catalogue>("/catalogue");
  const [words, setWords] = useState(query.get("find") ?? "");
  const view = query.get("view") ?? "events";
  const found = catalogue.data;
  const events = found?.events.filter((one) => matches(words, one.subject, one.service, one.owner, one.description)) ?? [];
  const rights = found?.rights.filter((one) => matches(words, one.topic, ...one.publish, ...(one.read ?? []), ...(one.replay ?? []))) ?? [];
  const topics = found?.topics.filter((one) => matches(words, one.name, one.owner, ...one.producers, ...one.consumers)) ?? [];
  return (
    <Page title="Catalogue" says="What the services say and hear, as their code declares it: schemas, versions, who reads what, and what a change would break." data={catalogue}>
      {found && (
        <>
          <Search label="Find an event, a service, an owner" value={words} onInput={setWords} onSearch={(text) => (setWords(text), requery({ find: text }))} />
          <Tabs
            label="What is listed"
            current={view}
            onPick={(id) => requery({ view: id === "events" ? null : id })}
            tabs={[
              { id: "events", title: "Events", count: events.length },
              { id: "topics", title: "Topics", count: topics.length },
              { id: "flows", title: "Flows", count: found.flows.length },
              { id: "rights", title: "Rights", count: rights.length },
              { id: "changes", title: "What the code changes" },
            ]}
          >
            {view === "topics" ? (
              <Topics topics={topics} />
            ) : view === "flows" ? (
              <Flows flows={found.flows} />
            ) : view === "rights" ? (
              <RightsOf rights={rights} any={found.rights.length > 0} />
            ) : view === "changes" ? (
              <ChangesView />
            ) : (
              <Events events={events} />
            )}
          </Tabs>
        </>
      )}
    </Page>
  );
}

function Events({ events }: { events: Line[] }) {
  return (
    <Table
      caption="Events"
      rows={events}
      id={(one) => one.subject}
      empty="No event is called so."
      columns={[
        { title: "Event", wide: true, cell: (one) => <Link to={at`/catalogue/${one.subject}`}>{one.subject}</Link> },
        { title: "Service", cell: (one) => one.service },
        { title: "Owner", cell: (one) => one.owner || <Badge tone="warn">nobody</Badge> },
        { title: "Key", cell: (one) => (one.key ? <code>{one.key}</code> : "no order") },
        { title: "Read by", end: true, cell: (one) => (one.readers ? count(one.readers) : <span class="muted">nobody listed</span>) },
        { title: "Kept", spare: true, cell: (one) => one.retention },
        { title: "State", cell: (one) => (one.deprecated ? <Badge tone="warn">deprecated {one.deprecated}</Badge> : one.successor ? <Badge>has a newer version</Badge> : <Badge tone="good">current</Badge>) },
      ]}
    />
  );
}

function Topics({ topics }: { topics: Topic[] }) {
  return (
    <Table
      caption="Topics"
      rows={topics}
      id={(one) => one.name}
      empty="No topic is called so."
      columns={[
        { title: "Topic", wide: true, cell: (one) => one.name },
        { title: "Guarantee", cell: (one) => (one.ordering.length ? `${one.guarantee}: ${one.ordering.join(", ")}` : one.guarantee) },
        { title: "Written by", cell: (one) => one.producers.join(", ") || "a service that is not listed" },
        { title: "Read by", wide: true, cell: (one) => one.consumers.join(", ") || <span class="muted">nobody listed</span> },
        { title: "Events", end: true, cell: (one) => count(one.subjects.length) },
        { title: "Dead letters", spare: true, cell: (one) => <code>{one.dead_letters}</code> },
      ]}
    />
  );
}

const listed = (names: string[] | null, others: string) => (names === null ? <span class="muted">{others}</span> : names.length ? names.join(", ") : <Badge tone="warn">nobody</Badge>);

/** Whom a topic is for, as `posthouse catalog` prints it. */
export function RightsOf({ rights, any }: { rights: Rights[]; any: boolean }) {
  return (
    <Table
      caption="Rights"
      rows={rights}
      id={(one) => `${one.topic} ${one.services.join(" ")}`}
      empty={any ? "No topic is called so." : "No App has rights: whoever declares something may do it. App(…, rights=Rights(…)) says who may."}
      columns={[
        { title: "Topic", wide: true, cell: (one) => one.topic },
        { title: "May publish", wide: true, cell: (one) => (one.publish.length ? one.publish.join(", ") : <span class="muted">nobody listed</span>) },
        { title: "May read", wide: true, cell: (one) => listed(one.read, "whoever declares it") },
        { title: "May replay", wide: true, cell: (one) => listed(one.replay, "whoever reads it") },
        { title: "Kept by", cell: (one) => one.services.join(", ") },
      ]}
    />
  );
}

function Flows({ flows }: { flows: Flow[] }) {
  return (
    <Table
      caption="Flows"
      rows={flows}
      id={(one) => `${one.service}/${one.name}`}
      empty="No flow is declared: declare one with service.flow(…)."
      columns={[
        { title: "Flow", cell: (one) => one.name },
        { title: "Service", cell: (one) => one.service },
        { title: "Starts with", wide: true, cell: (one) => <Link to={at`/catalogue/${one.starts}`}>{one.starts}</Link> },
        { title: "Must come", wide: true, cell: (one) => one.then.join(", ") },
        { title: "May come", spare: true, cell: (one) => one.may.join(", ") || "–" },
      ]}
    />
  );
}

const severity = (word: string): Tone => (word === "error" || word === "breaks" ? "bad" : word === "warning" ? "warn" : "neutral");

function ChangesView() {
  const changes = useData<Changes>("/catalogue/changes");
  if (changes.error) return <Notice tone="bad">{changes.error.message} {changes.error.hint}</Notice>;
  if (!changes.data) return <p class="muted">Comparing…</p>;
  const found = changes.data;
  return (
    <Section says="The declarations of the running code against the frozen catalogue in event-schemas/, as `posthouse schema check` judges them.">
      <Notice tone={found.found.length ? "warn" : found.hint ? "info" : "good"} title={found.sentence}>
        {found.hint}
      </Notice>
      {found.found.length > 0 && (
        <Table
          caption="What the code changes"
          rows={found.found}
          id={(one) => `${one.subject} ${one.sentence}`}
          columns={[
            { title: "Event", cell: (one) => one.subject || "the catalogue" },
            { title: "How grave", cell: (one) => <Badge tone={severity(one.severity)}>{one.severity}</Badge> },
            { title: "What", wide: true, cell: (one) => one.sentence },
            { title: "Whom it touches", cell: (one) => one.touched.join(", ") || "nobody listed" },
            { title: "The way out", wide: true, cell: (one) => one.way_out || "–" },
          ]}
        />
      )}
    </Section>
  );
}
