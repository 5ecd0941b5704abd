import { useState } from "preact/hooks";
import { Act } from "../acting";
import { at, query, useData } from "../api";
import { Diff, Editor } from "../held/editor";
import { Payload, useLook } from "../held/payload";
import { type Bounded, failure, type HeldLine, type Meaning, Sentence, StateBadge } from "../held/states";
import type { PageProps } from "../routes";
import { Age, Button, Code, Copy, count, Empty, Facts, Link, Notice, Page, Section, Table, Tabs, Time } from "../ui";
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
  const held = useData<Held>(at`/held/${service}/${id}`, { live: "held" });
  const one = held.data;
  const look = useLook(one?.payloads ? at`/held/${service}/${id}/payload` : null);
  const [editing, edit] = useState(false);
  const [tab, pick] = useState("payload");
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
              <Button key={name} onClick={edit}>
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
