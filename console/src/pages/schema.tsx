// One version of one event: its fields, who reads them, its schema, its versions.
import { at, useData } from "../api";
import type { PageProps } from "../routes";
import { Badge, Code, Facts, Link, Page, Section, Table, Time } from "../ui";
import type { Line } from "./catalogue";

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
