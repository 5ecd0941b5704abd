import type { ComponentChildren } from "preact";
import { Act } from "../acting";
import { at, query as asked, useData } from "../api";
import { Unmask } from "../held/payload";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Badge, Code, Facts, Link, Notice, Page, Section, Time, counted, span } from "../ui";
import { Diagram, type Drawn } from "./diagram";
import { STATUS, type SagaLine, State, type Status, to } from "./sagas";

interface Turn {
  turn: number;
  at: string;
  kind: "event" | "deadline" | "start" | "operator" | "call" | "answer";
  type: string;
  event_id: string;
  method: string;
  status: Status;
  error: string | null;
  published: { type: string; event_id: string; after: number; at: string | null; undoes: string | null }[];
  set: { name: string; at: string }[];
  cleared: string[];
  done: string[];
  undone: string[];
  undo_failed: string | null;
  late: boolean;
  waits_for: string;
  note: string | null;
}

interface Saga extends SagaLine {
  note: string | null;
  correlation: string | null;
  parent: { saga: string; id: string; attempt: number } | null;
  purged_at: string | null;
  done: { step: string; late: boolean; undoable: boolean }[];
  undoing: { step: string; attempts: number; waiting: boolean; error: string | null } | null;
  advice: { words: string; act: string | null }[];
  deadlines: { name: string; due_at: string; due_in: number }[];
  waiting: { type: string; event_id: string; since: string; until: string; woken: boolean; waits_for: string }[];
  calls: { step: string; tries: number; begun_at: string | null; due_at: string; due_in: number; given_up: boolean; error: string | null }[];
  tasks: { by: string; step: string | null; waits_for: string[]; since: string }[];
  held: { id: string; state: string; type: string }[];
  held_more: boolean;
  others: SagaLine[];
  children: { saga: string; id: string; attempt: number; status: Status }[];
  turns: Turn[];
  state: { text: string | null; withheld: string; unmaskable: boolean };
  diagram: Drawn;
}

const PRESS: Record<string, string> = { "saga.retry": "Retry", "saga.resume": "Go on", "saga.cancel": "Compensate" };
/** Where there is nothing left to go on with: who did it by hand completes it, as in the list. */
const RESTS: readonly Status[] = ["partial", "compensation_failed"];

export default function OneSaga({ params, query }: PageProps) {
  const { service = "", saga = "", id = "" } = params;
  const given = { tenant: query.get("tenant"), attempt: query.get("attempt"), unmask: query.get("unmask"), why: query.get("why") };
  const found = useData<Saga>(asked(at`/sagas/${service}/${saga}/${id}`, given), given.unmask ? {} : { live: `sagas:${service}` });
  const one = found.data;
  return (
    <Page title={`${saga} ${one?.name ?? id}`} says={one ? STATUS[one.status][2] : "One saga: how it stands, what it did, and what to press."} path={[["Sagas", "/sagas"], [saga, asked("/sagas", { service, saga })]]} badge={one && <State status={one.status} />} data={found}>
      {one && <Shown one={one} service={service} done={found.refresh} />}
    </Page>
  );
}

/** Since when it stands where it stands: its status may be older than its last turn. */
export function standsSince(one: { status: Status; changed_at: string; started_at: string; turns: readonly { at: string; status: Status }[] }): string {
  let since = one.turns.length ? one.changed_at : one.started_at;
  for (const turn of [...one.turns].reverse()) {
    if (turn.status !== one.status) break;
    since = turn.at;
  }
  return since;
}

function Shown({ one, service, done }: { one: Saga; service: string; done: () => void }) {
  const acts = { service, saga: one.saga, id: one.id, tenant: one.tenant, attempt: one.attempt };
  const bad = STATUS[one.status][0];
  return (
    <>
      <Notice tone={bad === "good" || bad === "neutral" ? "info" : bad} title={one.advice.filter((each) => !each.act).map((each) => each.words).join(" ")}>
        {one.advice.some((each) => each.act) && (
          <ul class="plain presses-list">
            {one.advice.map((each) => each.act && (
              <li key={each.act}>
                <Act small kind={each.act === "saga.cancel" ? "danger" : "plain"} name={each.act} params={each.act === "saga.cancel" ? { ...acts, reason: "cancelled at the console" } : acts} label={each.act === "saga.resume" && RESTS.includes(one.status) ? "Complete" : (PRESS[each.act] ?? each.act)} onDone={done} /> <span>{each.words}</span>
              </li>
            ))}
          </ul>
        )}
      </Notice>
      {one.held.length > 0 && (
        <Notice tone="warn" title={`${counted(one.held.length, "event")} for it held.`}>
          {one.held.map((each) => (
            <span key={each.id} class="presses">
              <Badge>{each.state}</Badge> <Link to={at`/held/${service}/${each.id}`}>{each.type}</Link>
            </span>
          ))}
        </Notice>
      )}
      <Facts
        items={[
          ["Tenant", one.tenant],
          ["Steps done", one.done.map((each) => each.step).join(" → ") || "none"],
          one.undoing && ["Undoing", <span class="wrap">{one.undoing.step}{one.undoing.waiting ? ", waits for its fact" : one.undoing.attempts ? `, failed ${counted(one.undoing.attempts, "time")}` : ""}{one.undoing.error ? `: ${one.undoing.error}` : ""}</span>],
          !!one.reason && ["Reason", <span class="wrap">{one.reason}</span>],
          !!one.note && ["Note", <span class="wrap">{one.note}</span>],
          [`${STATUS[one.status][1].charAt(0).toUpperCase()}${STATUS[one.status][1].slice(1)} since`, <><Time at={standsSince(one)} /> <span class="muted">(<Age since={standsSince(one)} />)</span></>],
          ["Started", <Time at={one.started_at} />],
          ["Last change", <><Time at={one.changed_at} /> <span class="muted">(<Age since={one.changed_at} />)</span></>],
          !!one.ended_at && ["Ended", <><Time at={one.ended_at} /> <span class="muted">after {span((Date.parse(one.ended_at) - Date.parse(one.started_at)) / 1000)}</span></>],
          !!one.purged_at && ["Purged", <Time at={one.purged_at} />],
          !!one.correlation && ["Correlation", <Link to={asked("/events", { q: one.correlation })}><span class="mono wrap">{one.correlation}</span></Link>],
          one.parent && ["Started by", <Link to={to({ ...one.parent, service, tenant: one.tenant })}>{one.parent.saga} {one.parent.id}</Link>],
          one.children.length > 0 && ["Has started", one.children.map((child) => <span key={`${child.saga} ${child.id}`} class="presses"><Link to={to({ ...child, service, tenant: one.tenant })}>{child.saga} {child.id}</Link> <State status={child.status} /></span>)],
          one.others.length > 0 && ["Other attempts", one.others.map((other) => <span key={other.attempt} class="presses"><Link to={to(other)}>{other.attempt}</Link> <State status={other.status} /></span>)],
        ]}
      />
      {(one.deadlines.length > 0 || one.waiting.length > 0 || one.calls.length > 0 || one.tasks.length > 0) && (
        <Section title="What is to come">
          <ul class="coming">
            {one.deadlines.map((each) => (
              <Coming key={each.name} kind="deadline" tone={each.due_in < -5 ? "bad" : "info"}>
                <strong class="wrap">{each.name}</strong> {each.due_in < -5 ? <>was due <Age since={each.due_at} />: does a process run the timers?</> : <>is due at <Time at={each.due_at} /> (<Age since={each.due_at} />)</>}
              </Coming>
            ))}
            {one.calls.map((each) => (
              <Coming key={each.step} kind="call" tone={each.given_up ? "bad" : "info"}>
                <strong>{each.step}</strong> {each.given_up ? "given up: nobody knows what came of it" : each.begun_at === null ? "noted, not begun" : each.due_in > 0 ? <>{each.error ? "next try" : "an answer is due"} <Age since={each.due_at} /></> : "overdue: it is made again when its process is back"}; begun {counted(each.tries, "time")}{each.error ? `; the last one failed: ${each.error}` : ""}
              </Coming>
            ))}
            {one.waiting.map((each) => (
              <Coming key={each.event_id} kind="early event" tone="warn">
                <Link to={at`/events/${each.event_id}`}><span class="mono wrap">{each.type}</span></Link> {each.woken ? "its turn has come" : <>waits for {each.waits_for}; a dead letter <Age since={each.until} /></>}
              </Coming>
            ))}
            {one.tasks.map((each) => (
              <Coming key={each.step ?? ""} kind="person" tone="warn">
                <strong>{each.by}</strong> {each.step ? `is asked for ${each.step}` : "is asked to decide"}, since <Age since={each.since} />
              </Coming>
            ))}
          </ul>
        </Section>
      )}
      <Section title="Where it stands" says="● it stands here · ✓ done · ↩ undone · ○ waits for this · ◷ a deadline is set · ✕ stuck">
        <Diagram drawn={one.diagram} label={`The steps of ${one.saga}, and where this one stands`} />
      </Section>
      <Section title={`Timeline: ${counted(one.turns.length, "turn")}`} says="What came, and what the saga did about it, in order.">
        <ol class="timeline">
          {one.turns.map((turn) => (
            <Taken key={turn.turn} turn={turn} began={one.turns[0]?.at ?? turn.at} />
          ))}
        </ol>
      </Section>
      <Section title="State">
        {one.state.text !== null ? (
          <Code text={one.state.text} label="State" />
        ) : (
          <Notice tone="info" action={one.state.unmaskable && <Unmask press={async (why) => requery({ unmask: "1", why })} />}>
            {one.state.withheld}
          </Notice>
        )}
      </Section>
    </>
  );
}

function Coming({ kind, tone, children }: { kind: string; tone: "bad" | "info" | "warn"; children: ComponentChildren }) {
  return (
    <li>
      <Badge tone={tone}>{kind}</Badge> <span class="wrap">{children}</span>
    </li>
  );
}

function Taken({ turn, began }: { turn: Turn; began: string }) {
  const after = (Date.parse(turn.at) - Date.parse(began)) / 1000;
  const tone = turn.undo_failed ? "bad" : turn.late || turn.waits_for ? "warn" : STATUS[turn.status][0];
  return (
    <li class={`turn turn-${tone}`}>
      <div class="turn-head">
        <span class="turn-number">{turn.turn}</span>
        <Time at={turn.at} />
        <span class="muted">{after > 0 ? `+${span(after)}` : "start"}</span>
        <Badge>{turn.kind}</Badge>
        {turn.event_id && turn.kind === "event" ? (
          <Link to={at`/events/${turn.event_id}`}>
            <span class="mono wrap">{turn.type}</span>
          </Link>
        ) : (
          <span class="mono wrap">{turn.type}</span>
        )}
        {turn.method && turn.method !== turn.type && <span class="wrap">→ {turn.method}</span>}
        <State status={turn.status} />
      </div>
      <ul class="turn-follows">
        {turn.error && <li class="tone-bad wrap">the call failed: {turn.error}</li>}
        {turn.done.map((step) => <li key={`done ${step}`}>does {step}</li>)}
        {turn.published.map((said) => (
          <li key={said.event_id}>
            says <Link to={at`/events/${said.event_id}`}><span class="mono wrap">{said.type}</span></Link>
            {said.after ? `, ${span(said.after)} later` : said.at ? <>, at <Time at={said.at} /></> : ""}
            {said.undoes && <span class="muted"> to undo {said.undoes}</span>}
          </li>
        ))}
        {turn.undone.map((name) => <li key={`undone ${name}`}>undoes by {name}</li>)}
        {turn.set.map((each) => <li key={`set ${each.name}`}>sets {each.name}, for <Time at={each.at} /></li>)}
        {turn.cleared.map((name) => <li key={`clear ${name}`}>clears {name}</li>)}
        {turn.waits_for && <li class="tone-warn">came early: waits for {turn.waits_for}</li>}
        {turn.undo_failed && <li class="tone-bad wrap">failed: {turn.undo_failed}</li>}
        {turn.late && <li class="tone-warn">came late</li>}
        {turn.note && <li class="wrap">note: {turn.note}</li>}
      </ul>
    </li>
  );
}
