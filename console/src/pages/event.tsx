import { useState } from "preact/hooks";
import { at, query, useData } from "../api";
import { Payload, useLook } from "../held/payload";
import { StateBadge } from "../held/states";
import type { PageProps } from "../routes";
import { Badge, Button, Code, Copy, count, counted, Empty, Link, Notice, Page, Section, span, Time } from "../ui";
import { KeyLink } from "./held";

interface Heard {
  service: string;
  consumer: string;
  handler: string;
  state: string;
  held: string | null;
  note: string | null;
  saga: { saga: string; id: string; turn: number; attempt: number; method: string; status: string; late: boolean } | null;
}

interface Branch {
  id: string;
  type: string;
  service: string;
  at: string;
  tenant: string;
  key: string | null;
  sequence: string | null;
  topic: string;
  correlation: string | null;
  missing_cause: string | null;
  depth: number;
  place: "log" | "outbox" | "refused" | "held" | "timer";
  refused_because: string | null;
  deadline: string | null;
  consumers: Heard[];
}

interface Trace {
  id: string;
  correlation: string;
  services: string[];
  frames_read: number;
  since: string | null;
  notes: string[];
  events: Branch[];
}

const PLACES: Record<Branch["place"], string> = {
  log: "",
  outbox: "found only in the outbox",
  refused: "the broker refuses it",
  held: "found only among held events",
  timer: "a timer: it will be said then",
};

const LEGEND: Record<string, string> = {
  passed: "passed: the key is past this event, which was applied or was there before the consumer joined",
  waiting: "waiting: it did not reach the consumer yet; are its workers running?",
  unknown: "unknown: so long ago that the consumer's inbox has forgotten it",
};

const DEEPEST = 12;
const SHOWN = 300;

export default function Event({ params }: PageProps) {
  const { id = "" } = params;
  const trace = useData<Trace>(at`/events/${id}`);
  const one = trace.data;
  const [open, show] = useState<string | null>(null);
  const [all, showAll] = useState(false);
  const first = one?.events[0];
  const states = new Set(one?.events.flatMap((event) => event.consumers.map((heard) => heard.state)));
  const stuck = one?.events.flatMap((event) => event.consumers.filter((heard) => heard.held !== null)) ?? [];
  const shown = all ? (one?.events ?? []) : (one?.events.slice(0, SHOWN) ?? []);
  return (
    <Page
      title="What it led to"
      path={[["Event search", "/events"]]}
      says={one && first ? `${counted(one.events.length, "event")} of ${counted(one.services.length, "service")} that belong together, causes before what they caused.` : "The causal tree of one request."}
      data={trace}
      actions={<Button onClick={trace.refresh} busy={trace.loading}>Look again</Button>}
    >
      {one && (
        <>
          <p class="wrap">
            Correlation <span class="mono">{one.correlation}</span> <Copy text={one.correlation} label="Copy the correlation" />
          </p>
          {stuck.length > 0 && (
            <Notice tone="bad" title={stuck.length === 1 ? "It is stuck:" : `It is stuck in ${stuck.length} places:`}>
              {stuck.slice(0, 5).map((heard) => (
                <Link key={`${heard.service} ${heard.held}`} to={at`/held/${heard.service}/${heard.held ?? ""}`} class="wrap">
                  held event {heard.held} of {heard.consumer}{" "}
                </Link>
              ))}
            </Notice>
          )}
          {!first && (
            <Empty title="Nothing of it was found.">
              {one.since ? <>Logs were read from <Time at={one.since} /> on.</> : "All that brokers and stores still keep was looked at."} It may be older than what is kept, or of a service that this console does not know.
            </Empty>
          )}
          <ol class="tree" aria-label="The causal tree">
            {shown.map((event) => (
              <li key={event.id} class={`tree-event depth-${Math.min(event.depth, DEEPEST)}${event.id === one.id ? " tree-this" : ""}`}>
                <p class="tree-head wrap">
                  <span class="unseen">Generation {event.depth + 1}: </span>
                  <button type="button" class="tree-type" aria-expanded={open === event.id} onClick={() => show(open === event.id ? null : event.id)}>
                    {event.type}
                  </button>{" "}
                  <span class="muted">{event.service}</span> {event === first ? <Time at={event.at} /> : <Offset from={first?.at ?? event.at} to={event.at} />} <span class="muted">{event.tenant}</span>{" "}
                  {event.key !== null && <KeyLink of={event} />}
                </p>
                <Remarks event={event} correlation={one.correlation} />
                {event.consumers.length > 0 && (
                  <ul class="heard">
                    {event.consumers.map((heard) => (
                      <li key={`${heard.service} ${heard.consumer}`} class="wrap">
                        {heard.consumer} <StateBadge state={heard.state} />{" "}
                        {heard.held !== null && <Link to={at`/held/${heard.service}/${heard.held}`}>held event {heard.held}</Link>} {heard.note && <span class="muted">{heard.note}</span>}
                        {heard.saga && <Turn saga={heard.saga} service={heard.service} tenant={event.tenant} />}
                      </li>
                    ))}
                  </ul>
                )}
                {open === event.id && <Opened id={event.id} />}
              </li>
            ))}
          </ol>
          {one.events.length > shown.length && <Button onClick={() => showAll(true)}>Show all {count(one.events.length)}</Button>}
          <Section title="How sure this is">
            <ul class="plain muted">
              <li>{counted(one.frames_read, "frame")} of the brokers' logs were read{one.since ? <>, from <Time at={one.since} /> on</> : ""}.</li>
              {Object.entries(LEGEND).map(([state, words]) => states.has(state) && <li key={state}>{words}.</li>)}
              {one.notes.map((note) => (
                <li key={note} class="warn wrap">{note}.</li>
              ))}
            </ul>
          </Section>
        </>
      )}
    </Page>
  );
}

function Offset({ from, to }: { from: string; to: string }) {
  const seconds = (new Date(to).getTime() - new Date(from).getTime()) / 1000;
  return (
    <time dateTime={to} title={to} class="mono">
      {seconds < 0 ? "-" : "+"}
      {span(Math.abs(seconds))}
    </time>
  );
}

function Remarks({ event, correlation }: { event: Branch; correlation: string }) {
  const said = [
    event.deadline && `deadline ${event.deadline}`,
    correlation !== event.id && correlation !== event.correlation && `of another correlation, ${event.correlation ?? event.id}`,
    event.missing_cause && `caused by ${event.missing_cause}, which was not found`,
    PLACES[event.place] && PLACES[event.place] + (event.refused_because ? `: ${event.refused_because}` : ""),
  ].filter(Boolean);
  return said.length ? <p class="muted wrap">{said.join(" · ")}</p> : null;
}

function Turn({ saga, service, tenant }: { saga: NonNullable<Heard["saga"]>; service: string; tenant: string }) {
  return (
    <span class="muted">
      <Link to={query(at`/sagas/${service}/${saga.saga}/${saga.id}`, { tenant, attempt: saga.attempt })}>{saga.saga} {saga.id}</Link>
      {saga.attempt > 1 ? ` attempt ${saga.attempt}` : ""} turn {saga.turn}: {saga.method ? `${saga.method}, ` : ""}
      <Badge>{saga.status}</Badge>
      {saga.late ? " came late" : ""}
    </span>
  );
}

/** One event of the tree: its envelope and payload, asked for when it is opened. */
function Opened({ id }: { id: string }) {
  const look = useLook(at`/events/${id}/payload`);
  return (
    <div class="opened">
      <p class="wrap mono">
        {id} <Copy text={id} label="Copy the id" />
      </p>
      <Payload look={look} />
      {look.looked?.envelope && <Code text={look.looked.envelope} label="Envelope" />}
    </div>
  );
}
