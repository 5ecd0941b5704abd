import { at, query, useData } from "../api";
import type { HeldLine } from "../held/states";
import { go } from "../router";
import type { PageProps } from "../routes";
import { Badge, Empty, Link, Page, Search, Section, Table, Time } from "../ui";
import { Events as HeldEvents, KeyLink } from "./held";

interface Found {
  q: string;
  events: { service: string; id: string; type: string; at: string | null; correlation: string | null; topic: string; tenant: string; key: string | null; sequence: string | null }[];
  held: HeldLine[];
  keys: { topic: string; tenant: string; key: string }[];
  sagas: { service: string; saga: string; id: string; tenant: string; attempt: number; status: string; started_at: string }[];
  notes: string[];
}

export default function Events({ query: asked }: PageProps) {
  const text = asked.get("q") ?? "";
  const found = useData<Found>(query("/events", { q: text }));
  const one = found.data;
  const nothing = one && !one.events.length && !one.held.length && !one.keys.length && !one.sagas.length;
  return (
    <Page title="Event search" says="Find an event by its id, its key or its correlation, and see what it led to." data={found}>
      <Search label="The id, key or correlation of an event" value={text} onSearch={(typed) => go(query("/events", { q: typed }))} autofocus={!text} />
      <p class="muted">Whole words only: no free text is searched in payloads.</p>
      {one && text && (
        <>
          {nothing && (
            <Empty title="No store has it." action={<Trace of={text} main />}>
              It may be in the log of a broker: a trace reads that from the time in the id on.
            </Empty>
          )}
          {!nothing && (
            <p>
              <Trace of={text} main /> <span class="muted">the tree of all that belongs to it, from logs and stores</span>
            </p>
          )}
          {one.keys.length > 0 && (
            <Section title="Keys">
              <ul class="plain">
                {one.keys.map((key) => (
                  <li key={`${key.topic} ${key.tenant}`}>
                    <KeyLink of={key} /> <span class="muted wrap">of {key.tenant}, in {key.topic}</span>
                  </li>
                ))}
              </ul>
            </Section>
          )}
          {one.held.length > 0 && (
            <Section title="Held">
              <HeldEvents lines={one.held} />
            </Section>
          )}
          {one.events.length > 0 && (
            <Section title="In the outbox" says="As they were written by their producers.">
              <Table
                caption="Events in outboxes"
                rows={one.events}
                id={(event) => `${event.service} ${event.id}`}
                columns={[
                  { title: "Event", wide: true, cell: (event) => <Link class="wrap strong" to={at`/events/${event.id}`}>{event.type || event.id}</Link> },
                  { title: "Service", cell: (event) => event.service },
                  { title: "Tenant", cell: (event) => <span class="wrap">{event.tenant}</span> },
                  { title: "Key", cell: (event) => <KeyLink of={event} /> },
                  { title: "Said", cell: (event) => <Time at={event.at} /> },
                ]}
              />
            </Section>
          )}
          {one.sagas.length > 0 && (
            <Section title="Sagas">
              <ul class="plain">
                {one.sagas.map((saga) => (
                  <li key={`${saga.service} ${saga.saga} ${saga.tenant} ${saga.id} ${saga.attempt}`}>
                    <Link class="wrap" to={query(at`/sagas/${saga.service}/${saga.saga}/${saga.id}`, { tenant: saga.tenant, attempt: saga.attempt })}>{saga.saga} {saga.id}</Link> <Badge>{saga.status}</Badge> <span class="muted wrap">of {saga.tenant}, since <Time at={saga.started_at} /></span>
                  </li>
                ))}
              </ul>
            </Section>
          )}
          {one.notes.map((note) => (
            <p key={note} class="muted">{note}.</p>
          ))}
        </>
      )}
    </Page>
  );
}

const Trace = ({ of, main }: { of: string; main?: boolean }) => (
  <Link class={`button button-${main ? "main" : "plain"}`} to={at`/events/${of}`}>
    Trace it
  </Link>
);
