import { at, query, useData } from "../api";
import { type HeldLine, StateBadge } from "../held/states";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Badge, Button, count, Empty, Link, Notice, Page, Section, Table, Time } from "../ui";

interface Key {
  topic: string;
  tenant: string;
  key: string;
  consumers: { service: string; consumer: string; sequence: string | null; lineage: string | null; event_id: string; ordered: boolean; held: number; first: { id: string; state: string; sequence: string } | null; missing: [string, string] | null }[];
  numbers: {
    sequence: string;
    lineage: string;
    event_id: string;
    type: string;
    at: string | null;
    correlation: string | null;
    places: string[];
    fork: boolean;
    consumers: { service: string; consumer: string; state: string; held: string | null }[];
  }[];
  unknown: [string, string][];
  more: boolean;
  held: HeldLine[];
  notes: string[];
}

export default function KeyPage({ query: asked }: PageProps) {
  const named = { topic: asked.get("topic"), tenant: asked.get("tenant"), key: asked.get("key"), log: asked.get("log") };
  const key = useData<Key>(query("/keys", named), named.log ? {} : { live: "held" });
  const one = key.data;
  return (
    <Page
      title={named.key ?? "A key"}
      path={[["Event search", "/events"]]}
      says={`Everything that happened to one thing, in order: ${named.tenant ?? ""} in ${named.topic ?? ""}.`}
      data={key}
      actions={!named.log && <Button onClick={() => requery({ log: "1" }, { replace: false })}>Read the log too</Button>}
    >
      {one && (
        <>
          {one.consumers.filter((consumer) => consumer.first || consumer.missing).map((consumer) => (
            <Notice
              key={`${consumer.service} ${consumer.consumer}`}
              tone={consumer.first?.state === "dead" ? "bad" : "warn"}
              title={`${consumer.consumer} does not go on with this key.`}
              action={consumer.first && <Link class="button button-plain button-small" to={at`/held/${consumer.service}/${consumer.first.id}`}>Deal with it</Link>}
            >
              {stopped(consumer)}
            </Notice>
          ))}
          <Section title="Where each consumer stands">
            <Table
              caption="Consumers of this key"
              rows={one.consumers}
              id={(consumer) => `${consumer.service} ${consumer.consumer}`}
              empty="No consumer of these services reads it."
              columns={[
                { title: "Consumer", wide: true, cell: (consumer) => <span class="wrap strong">{consumer.consumer}</span> },
                { title: "Service", cell: (consumer) => consumer.service },
                { title: "Came to no.", end: true, cell: (consumer) => consumer.sequence ?? <span class="muted">{consumer.ordered ? "none yet" : "keeps no order"}</span> },
                { title: "Held", end: true, cell: (consumer) => (consumer.held ? count(consumer.held) : "–") },
                { title: "Stands", cell: (consumer) => (consumer.first ? <StateBadge state={consumer.first.state} /> : <Badge tone="good">goes on</Badge>) },
              ]}
            />
          </Section>
          <Section title="Numbers, in order" says={one.more ? "The last of them." : undefined}>
            <Table
              caption="Events of this key by number"
              rows={one.numbers}
              id={(number) => `${number.lineage} ${number.sequence} ${number.event_id}`}
              empty={<Empty title="No store has an event of this key any more.">Its numbers are kept by the broker's log, if at all: read it with the button above.</Empty>}
              columns={[
                {
                  title: "No.",
                  cell: (number) => (
                    <>
                      {number.sequence}
                      {number.lineage !== "1" && <span class="muted"> (lineage {number.lineage})</span>} {number.fork && <Badge tone="bad">fork</Badge>}
                    </>
                  ),
                },
                { title: "Event", wide: true, cell: (number) => <Link class="wrap" to={at`/events/${number.event_id}`}>{number.type || number.event_id}</Link> },
                { title: "Said", cell: (number) => <Time at={number.at} /> },
                {
                  title: "Consumers",
                  cell: (number) => (
                    <span class="stands">
                      {number.consumers.map((consumer) => (
                        <span key={`${consumer.service} ${consumer.consumer}`} class="wrap">
                          {consumer.consumer} {consumer.held !== null ? <Link to={at`/held/${consumer.service}/${consumer.held}`}><StateBadge state={consumer.state} /></Link> : <StateBadge state={consumer.state} />}
                        </span>
                      ))}
                    </span>
                  ),
                },
                { title: "Found in", spare: true, cell: (number) => number.places.join(", ") },
              ]}
            />
            {one.unknown.length > 0 && (
              <p class="muted">
                Not found in what was looked at: {one.unknown.slice(0, 20).map(([first, last]) => (first === last ? `no. ${first}` : `no. ${first} to ${last}`)).join(", ")}
                {one.unknown.length > 20 ? " and more" : ""}. {named.log ? "They were forgotten everywhere, or never came." : "The outbox forgets what was sent; the broker's log may have them."}
              </p>
            )}
          </Section>
          {one.notes.map((note) => (
            <p key={note} class="muted wrap">{note}.</p>
          ))}
        </>
      )}
    </Page>
  );
}

function stopped({ first, missing }: Key["consumers"][number]): string {
  if (missing) {
    const which = missing[0] === missing[1] ? `Number ${missing[0]} never came` : `Numbers ${missing[0]} to ${missing[1]} never came`;
    return `${which}; number ${first?.sequence} waits for ${missing[0] === missing[1] ? "it" : "them"}.`;
  }
  return `Number ${first?.sequence} is ${first?.state}, and what follows waits behind it.`;
}
