import { useRef, useState } from "preact/hooks";
import { Act } from "../acting";
import { at, type Data, query, useData } from "../api";
import { barred } from "../rights";
import { Diff, Editor } from "../held/editor";
import { Payload, useLook } from "../held/payload";
import { type Bounded, failure, type HeldLine, type Meaning, Sentence, StateBadge } from "../held/states";
import type { PageProps } from "../routes";
import { Age, Badge, Button, Code, Copy, count, Empty, Facts, Link, Notice, Page, Section, Table, Tabs, Time } from "../ui";
import { KeyLink } from "./held";

interface Action {
  id: string;
  at: string;
  verb: string;
  by: string;
  why: string;
  outcome: string;
  target: string;
  changed: { name: string; before: string | null; after: string | null }[];
}

/** What became of one that is held no more. */
export interface Gone {
  outcome: "applied" | "held" | "forgotten" | "unknown";
  consumer: string;
  topic: string;
  tenant: string;
  key: string | null;
  event_id: string;
  now: string | null;
  at: string | null;
}

interface Left {
  gone: Gone;
  history: Action[];
}

interface Held extends HeldLine {
  lineage: string;
  correlation: string | null;
  size: number;
  readable: boolean;
  envelope: string | null;
  reason: string | null;
  stack: string | null;
  payloads: boolean;
  state_means: Meaning;
  line: { items: HeldLine[]; more: boolean; behind: Bounded | null; first: string | null };
  neighbours: { older: string | null; newer: string | null };
  history: Action[];
}

const LABELS: Record<string, [string, boolean]> = {
  "held.retry": ["Retry", false],
  "held.edit": ["Edit and retry", false],
  "held.skip": ["Skip", true],
  "held.release": ["Release its key", true],
  "held.quarantine": ["Quarantine", false],
};

/** What it means to press it even so. */
const forces = (name: string): string | undefined =>
  name === "held.retry" ? "Also when its key went on without it: out of order" : name === "held.release" ? "Give up any number of missing ones" : undefined;

export default function HeldEvent({ params }: PageProps) {
  const { service = "", id = "" } = params;
  const seen = useRef<Held | null>(null);
  const was = seen.current;
  // Who has seen it says what it was, so that the server can tell what became of it.
  const told = was && { event: was.event_id, consumer: was.consumer, topic: was.topic, tenant: was.tenant, key: was.key };
  const held = useData<Held | Left>(at`/held/${service}/${id}`, { live: "held" });
  const after = useData<Left>(held.error?.status === 404 && told ? query(at`/held/${service}/${id}`, told) : null, { live: "held" });
  const left = held.data && "gone" in held.data ? held.data : after.data;
  const one = held.data && !("gone" in held.data) ? held.data : undefined;
  if (one) seen.current = one;
  const look = useLook(one?.payloads ? at`/held/${service}/${id}/payload` : null);
  const [editing, edit] = useState(false);
  const [tab, pick] = useState("payload");
  if (left) return <Became id={id} service={service} left={left} type={was?.type} correlation={was?.correlation} data={after.data ? after : held} />;
  return (
    <Page
      title={one ? one.type || "Bytes that are no event" : `Held event ${id}`}
      path={[["Held", "/held"]]}
      badge={one && <StateBadge state={one.state} />}
      says={one && `Held event ${one.id} of ${one.consumer}, in ${one.service}.`}
      data={held}
      actions={one && <Neighbours of={one} />}
    >
      {one && (
        <>
          <Standing one={one} done={held.refresh} edit={() => edit(true)} />
          {editing && look.looked && (
            <Editor
              service={one.service}
              id={one.id}
              look={look}
              done={() => {
                edit(false);
                held.refresh();
              }}
              cancel={() => edit(false)}
            />
          )}
          <Facts
            items={[
              ["Consumer", <Link to={query("/held", { show: "events", service: one.service, consumer: one.consumer })}>{one.consumer}</Link>],
              ["Topic", one.topic],
              ["Tenant", one.tenant],
              ["Key", <KeyLink of={one} />],
              ["Event", <Ids of={one} />],
              one.correlation ? ["Correlation", <Link class="wrap mono" to={at`/events/${one.correlation}`}>{one.correlation}</Link>] : null,
              ["Runs", count(one.attempts)],
              ["Held since", <><Time at={one.first_at} />, <Age since={one.first_at} /></>],
              ["Last change", <Time at={one.last_at} />],
              one.next_at ? ["Next run", <><Time at={one.next_at} />, <Age since={one.next_at} /></>] : null,
              one.lineage !== "1" ? ["Lineage", one.lineage] : null,
            ]}
          />
          {one.error || one.reason ? (
            <Section title="What went wrong">
              {one.reason && <p class="wrap">{one.reason}</p>}
              {one.error && one.error !== one.reason && <Code text={one.error} label="Error" kind="text" />}
              {one.stack && <Code text={one.stack} label="Stack" kind="text" />}
            </Section>
          ) : (
            !one.payloads && <Notice title="Error, stack and payload are not shown.">You may not see payloads: ask whoever gives rights for the one to see them.</Notice>
          )}
          <Section>
            <Tabs
              label="What is in it"
              tabs={[
                { id: "payload", title: "Payload" },
                { id: "envelope", title: "Envelope" },
                { id: "headers", title: "Headers" },
              ]}
              current={tab}
              onPick={pick}
            >
              {tab === "payload" && (one.payloads ? <Payload look={look} /> : <p class="muted">{count(one.size)} bytes, which you may not see.</p>)}
              {tab === "envelope" && (one.envelope ? <Code text={one.envelope} label="Envelope" /> : <Empty title="Nobody could read one in these bytes." />)}
              {tab === "headers" && <Headers headers={look.looked?.headers} />}
            </Tabs>
          </Section>
          <Line one={one} />
          <History actions={one.history} />
        </>
      )}
    </Page>
  );
}

/** It is held no more: what became of it, who saw to that, and what was done with it. */
function Became({ id, service, left, type, correlation, data }: { id: string; service: string; left: Left; type?: string; correlation?: string | null; data: Data<unknown> }) {
  const { gone, history } = left;
  const act = history.find((one) => one.verb.startsWith("held "));
  const good = gone.outcome === "applied";
  return (
    <Page
      title={type || `Held event ${id}`}
      path={[["Held", "/held"]]}
      badge={<Badge tone={good ? "good" : gone.outcome === "held" ? "warn" : "neutral"}>{gone.outcome === "held" ? "held anew" : gone.outcome === "unknown" ? "gone" : gone.outcome}</Badge>}
      says={`Was held event ${id} of ${gone.consumer}, in ${service}.`}
      data={data}
    >
      <Notice tone={good ? "good" : "info"} title={BECAME[gone.outcome]}>
        {good && gone.at && <>{gone.consumer} had it <Age since={gone.at} />, at <Time at={gone.at} />. </>}
        {act && (
          <>
            Last, {act.by} pressed <strong>{act.verb}</strong> <Age since={act.at} />{act.why && <>: “{act.why}”</>}.
          </>
        )}
        {good && !act && "It ran again by itself."}
      </Notice>
      <div class="held-press">
        {gone.now && <Link class="button button-main" to={at`/held/${service}/${gone.now}`}>Go to held event {gone.now}</Link>}
        {gone.event_id && <Link class="button button-plain" to={at`/events/${gone.event_id}`}>What it led to</Link>}
        <Link class="button button-plain" to={query("/held", { service, consumer: gone.consumer })}>What else is held of {gone.consumer}</Link>
      </div>
      <Facts
        items={[
          ["Consumer", gone.consumer],
          ["Topic", gone.topic],
          ["Tenant", gone.tenant],
          ["Key", <KeyLink of={gone} />],
          ["Event", <span class="wrap mono">{gone.event_id ? <><Link to={at`/events/${gone.event_id}`}>{gone.event_id}</Link> <Copy text={gone.event_id} label="Copy the id" /></> : "none"}</span>],
          correlation ? ["Correlation", <Link class="wrap mono" to={at`/events/${correlation}`}>{correlation}</Link>] : null,
        ]}
      />
      <History actions={history} />
    </Page>
  );
}

const BECAME: Record<Gone["outcome"], string> = {
  applied: "It was applied.",
  held: "It runs out of order now, and has another number.",
  forgotten: "It was set aside, and is not kept any more.",
  unknown: "It is held no more, and nothing is left that tells what became of it.",
};

/** The sentence of its state, how many wait, and what to press. */
function Standing({ one, done, edit }: { one: Held; done: () => void; edit: () => void }) {
  const meaning = one.state_means;
  const behind = one.line.behind;
  const first = one.line.first !== null && one.line.first !== one.id ? one.line.first : null;
  return (
    <div class="standing">
      <p>
        <StateBadge state={one.state} /> {meaning.means}; its key {meaning.key}. What to press: <Sentence text={meaning.press} />.
      </p>
      {behind && behind.number > 0 && (
        <p>
          <strong>{count(behind.number, behind.more)} {behind.number === 1 ? "event waits" : "events wait"}</strong> behind it, for they are of the same key.
        </p>
      )}
      {first && (
        <p>
          It waits behind <Link to={at`/held/${one.service}/${first}`}>held event {first}</Link>, the first of its key: that is the one to deal with.
        </p>
      )}
      <div class="held-press">
        {meaning.acts.map((name, i) => {
          const [label, danger] = LABELS[name] ?? [name, false];
          if (name === "held.edit")
            return one.readable && one.payloads ? (
              <Button key={name} barred={barred(name)} onClick={edit}>
                {label}…
              </Button>
            ) : null;
          const force = name === "held.retry" && one.state === "skipped" ? { force: true } : {};
          return <Act key={name} name={name} params={{ service: one.service, id: one.id, ...force }} label={`${force.force ? "Run it out of order" : label}…`} kind={i === 0 ? "main" : danger ? "danger" : "plain"} force={forces(name)} onDone={done} />;
        })}
        {first && (
          <Link class="button button-main" to={at`/held/${one.service}/${first}`}>
            Go to the first one
          </Link>
        )}
      </div>
    </div>
  );
}

const Ids = ({ of }: { of: Held }) => (
  <span class="wrap mono">
    {of.event_id ? <Link to={at`/events/${of.event_id}`}>{of.event_id}</Link> : "none"} {of.event_id && <Copy text={of.event_id} label="Copy the id" />}
  </span>
);

function Neighbours({ of }: { of: Held }) {
  const { older, newer } = of.neighbours;
  const says = failure(of.fingerprint, of.state);
  return (
    <>
      {newer && <Link class="button button-plain button-small" title={says} to={at`/held/${of.service}/${newer}`}>← Newer alike</Link>}
      {older && <Link class="button button-plain button-small" title={says} to={at`/held/${of.service}/${older}`}>Older alike →</Link>}
    </>
  );
}

function Headers({ headers }: { headers?: Record<string, string> | null }) {
  if (!headers) return <p class="muted">You may not see them.</p>;
  const names = Object.keys(headers).sort();
  if (!names.length) return <Empty title="It came without headers." />;
  return <Facts items={names.map((name) => [name, <span class="wrap mono">{headers[name]}</span>] as const)} />;
}

function Line({ one }: { one: Held }) {
  if (one.key === null || one.line.items.length < 2) return null;
  return (
    <Section title="Its key" says={`What is held of ${one.key} by ${one.consumer}, in order.`} actions={<KeyHistory one={one} />}>
      <Table
        caption="Held events of this key, in order"
        rows={one.line.items}
        id={(line) => line.id}
        columns={[
          { title: "No.", cell: (line) => (line.id === one.id ? <strong>{line.sequence ?? "–"} (this one)</strong> : <Link to={at`/held/${line.service}/${line.id}`}>{line.sequence ?? "alone"}</Link>) },
          { title: "Event", wide: true, cell: (line) => <span class="wrap">{line.type || "no event"}</span> },
          { title: "State", cell: (line) => <StateBadge state={line.state} /> },
          { title: "Runs", end: true, cell: (line) => count(line.attempts) },
          { title: "Held", cell: (line) => <Age since={line.first_at} /> },
        ]}
      />
      {one.line.more && <p class="muted">More wait behind these.</p>}
    </Section>
  );
}

const KeyHistory = ({ one }: { one: Held }) => (
  <Link class="button button-plain button-small" to={query("/keys", { topic: one.topic, tenant: one.tenant, key: one.key })}>
    Its whole history
  </Link>
);

function History({ actions }: { actions: Action[] }) {
  return (
    <Section title="What was done with it" says="From the operators' log, newest first.">
      {actions.length === 0 ? (
        <Empty title="Nobody has done anything with it yet." />
      ) : (
        <ol class="history">
          {actions.map((one) => (
            <li key={one.id}>
              <p class="wrap">
                <strong>{one.verb}</strong> by {one.by} <Age since={one.at} />
                {one.outcome !== "done" && <span class="muted"> · {one.outcome}</span>}
              </p>
              {one.why && <p class="wrap muted">“{one.why}”</p>}
              {one.changed.length > 0 && <Diff changes={one.changed} />}
            </li>
          ))}
        </ol>
      )}
    </Section>
  );
}
