// One version of one event: its fields, who reads them, its schema, its versions.
import { useState } from "preact/hooks";
import { ApiError, ask, at, query, useData } from "../api";
import type { PageProps } from "../routes";
import { Badge, Button, Code, Facts, Field, Link, Notice, Page, Section, Table, Time } from "../ui";
import { laidOut, tokens } from "../ui/tokens";
import { type Line, type Rights, RightsOf } from "./catalogue";

interface Event {
  subject: string;
  line: Line;
  schema: string;
  schema_uri: string;
  hash: string;
  content_type: string;
  envelope: string;
  cross_tenant: boolean;
  beside: string | null;
  fields: { name: string; type: string; required: boolean; personal: boolean; readers: string[]; perhaps: string[] }[];
  readers: { consumer: string; handler: string; fields: string[] | null; last: string | null }[];
  published: Record<string, string | null>;
  versions: string[];
  steps: { old: string; new: string; outcome: string; findings: string[] }[];
  rights: Rights[];
}

export default function SchemaPage({ params }: PageProps) {
  const subject = params.subject ?? "";
  const event = useData<Event>(at`/catalogue/events/${subject}`);
  const found = event.data;
  return (
    <Page
      title={subject}
      path={[["Catalogue", "/catalogue"]]}
      badge={found && (found.line.deprecated ? <Badge tone="warn">deprecated from {found.line.deprecated}</Badge> : <Badge tone="good">current</Badge>)}
      says={found?.line.description || "One version of one event, as its service declares it."}
      data={event}
    >
      {found && (
        <>
          <Facts
            items={[
              ["Service", found.line.service],
              ["Owner", found.line.owner || "nobody said"],
              ["Topic", found.line.topic],
              ["Ordered by", found.line.key ? <code>{found.line.key}</code> : "no order"],
              ["Kept", found.line.retention],
              ["Stays in", found.line.residency ?? "anywhere"],
              ["Format", `${found.line.format}, ${found.content_type}, ${found.envelope}`],
              ["Schema", <code class="wrap">{found.schema_uri}</code>],
              found.cross_tenant && ["Tenants", "it is about several, or for readers of all"],
              found.beside !== null && ["Published beside", <Link to={at`/catalogue/${found.beside}`}>{found.beside}</Link>],
              found.line.successor !== null && ["Next version", <Link to={at`/catalogue/${found.line.successor}`}>{found.line.successor}</Link>],
            ]}
          />
          <Section title="What a change would break" says="Each field with those who would be touched if it changed or went. Who never said what they read may read anything.">
            <Table
              caption="Fields and their readers"
              rows={found.fields}
              id={(one) => one.name}
              empty="The schema names no fields that can be shown here: see its text."
              columns={[
                { title: "Field", cell: (one) => <code>{one.name}</code> },
                { title: "Type", cell: (one) => `${one.type}${one.required ? "" : ", may be left out"}` },
                { title: "Personal", cell: (one) => (one.personal ? <Badge tone="info">personal</Badge> : "–") },
                { title: "Breaks for certain", wide: true, cell: (one) => one.readers.join(", ") || "nobody" },
                { title: "Perhaps", wide: true, cell: (one) => one.perhaps.join(", ") || "–" },
              ]}
            />
          </Section>
          <Compare subject={found.subject} declared={found.schema} />
          <Section title="Who reads it">
            <Table
              caption="Readers"
              rows={found.readers}
              id={(one) => `${one.consumer} ${one.handler}`}
              empty="No consumer that is listed reads it."
              columns={[
                { title: "Consumer", cell: (one) => <Link to={`/consumers?consumer=${encodeURIComponent(one.consumer)}`}>{one.consumer}</Link> },
                { title: "Handler", cell: (one) => <code class="wrap">{one.handler}</code> },
                { title: "Fields", wide: true, cell: (one) => (one.fields === null ? "any, it did not say" : one.fields.join(", ")) },
                { title: "Applied last", cell: (one) => <Time at={one.last} none="never seen" /> },
              ]}
            />
          </Section>
          <Section title="Who says it">
            <Table
              caption="Producers"
              rows={Object.entries(found.published)}
              id={(one) => one[0]}
              columns={[
                { title: "Service", cell: (one) => one[0] },
                { title: "Published last", cell: (one) => <Time at={one[1]} none="not watched: a fact with one version and no date" /> },
              ]}
            />
          </Section>
          {found.rights.length > 0 && (
            <Section title="Who may" says={`With the topic ${found.line.topic}, as the rights of the Apps say. Whoever is not listed is refused.`}>
              <RightsOf rights={found.rights} any />
            </Section>
          )}
          {found.versions.length > 1 && (
            <Section title="Versions" says="Whom each step would have broken, had it been made without a new version.">
              <p class="page-actions">
                {found.versions.map((one) => (
                  <Link key={one} to={at`/catalogue/${one}`} current={one === found.subject} class="button button-small">
                    {one}
                  </Link>
                ))}
              </p>
              {found.steps.map((step) => (
                <div key={step.new} class="stack">
                  <p>
                    <code>{step.old}</code> to <code>{step.new}</code>: <Badge tone={step.outcome === "compatible" ? "good" : "warn"}>{step.outcome}</Badge>
                  </p>
                  {step.findings.length > 0 && (
                    <ul class="bullets">
                      {step.findings.map((one) => (
                        <li key={one}>{one}</li>
                      ))}
                    </ul>
                  )}
                </div>
              ))}
            </Section>
          )}
          <Section title="Schema">
            <Code text={found.schema} label={`Schema of ${found.subject}`} />
          </Section>
        </>
      )}
    </Page>
  );
}

interface Compared {
  outcome: string;
  sentence: string;
  findings: { path: string; weight: string; breaks: string; sentence: string; way_out: string; readers: string[]; perhaps: string[] }[];
}

/** Another schema in the place of this one: what that would break. Nothing is kept of it. */
function Compare({ subject, declared }: { subject: string; declared: string }) {
  const [open, show] = useState(false);
  const [text, write] = useState("");
  const [busy, wait] = useState(false);
  const [told, tell] = useState<Compared>();
  const [error, fail] = useState<ApiError>();
  const compare = async (): Promise<void> => {
    wait(true);
    fail(undefined);
    tell(undefined);
    try {
      tell((await ask<Compared>(query(at`/catalogue/events/${subject}/comparison`, { schema: text }))).data);
    } catch (failure) {
      fail(failure instanceof ApiError ? failure : new ApiError(0, String(failure)));
    } finally {
      wait(false);
    }
  };
  if (!open)
    return (
      <p>
        <Button onClick={() => (write(pretty(declared)), show(true))}>Try another schema…</Button>
      </p>
    );
  return (
    <Section title="Try another schema" says="Change it, or paste yours: it is compared with what is declared, as `posthouse schema check` does, and nothing is kept.">
      <Field label="New schema" value={text} onInput={write} lines={14} mono />
      <p class="bar">
        <Button kind="main" busy={busy} disabled={!text.trim()} onClick={() => void compare()}>
          What would it break?
        </Button>
        <Button onClick={() => show(false)}>Close</Button>
      </p>
      <div aria-live="polite">
        {error && <Notice tone="bad" title={error.message}>{error.hint}</Notice>}
        {told && <Notice tone={told.findings.some((one) => one.weight !== "note") ? "bad" : "good"} title={told.sentence} />}
      </div>
      {told && told.findings.length > 0 && (
        <Table
          caption="What the other schema would break"
          rows={told.findings}
          id={(one) => `${one.path} ${one.sentence}`}
          columns={[
            { title: "Where", cell: (one) => <code>{one.path || "the message"}</code> },
            { title: "How grave", cell: (one) => <Badge tone={one.weight === "breaks" ? "bad" : one.weight === "unjudged" ? "warn" : "neutral"}>{one.weight}</Badge> },
            { title: "What", wide: true, cell: (one) => one.sentence },
            { title: "Whom it touches", wide: true, cell: (one) => <>{one.readers.join(", ") || "nobody for certain"}{one.perhaps.length > 0 && <span class="muted">; perhaps {one.perhaps.join(", ")}</span>}</> },
            { title: "The way out", wide: true, cell: (one) => one.way_out || "–" },
          ]}
        />
      )}
    </Section>
  );
}

/** Laid out to be read and changed; numbers stay as they are written. */
function pretty(text: string): string {
  const pieces = tokens(text);
  return pieces ? laidOut(pieces).map((one) => one.text).join("") : text; // Protobuf
}
