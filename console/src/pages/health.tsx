// What the doctor finds about each store and each broker.
import { useData } from "../api";
import { Sentence } from "../held/states";
import { Badge, Button, Notice, Page, Section, Table, type Tone } from "../ui";
import { type Examined, type Judgement, findings, where } from "./findings";

interface Health {
  sentence: string;
  failed: number;
  warned: number;
  examined: Examined[];
}

const TONES: Record<Judgement, Tone> = { ok: "good", warn: "warn", fail: "bad" };
const WORDS: Record<Judgement, string> = { ok: "fine", warn: "weaker", fail: "broken" };

export default function HealthPage() {
  const health = useData<Health>("/health", { every: 30_000 });
  const found = health.data;
  return (
    <Page
      title="Health"
      says={<>What <code>posthouse doctor</code> finds about each store and each broker: settings, rights, tables, open transactions, and the promise that results. Nothing is changed.</>}
      data={health}
      actions={
        <Button onClick={health.refresh} busy={health.loading}>
          Look again
        </Button>
      }
    >
      {found && (
        <>
          <Notice tone={found.failed ? "bad" : found.warned ? "warn" : "good"}>{found.sentence}</Notice>
          <ToMend examined={found.examined} />
          <Section title="Each store and broker" says="Open one for all that was looked at.">
            {found.examined.map((one) => (
              <Place key={`${one.service} ${one.part}`} one={one} />
            ))}
          </Section>
        </>
      )}
    </Page>
  );
}

function ToMend({ examined }: { examined: readonly Examined[] }) {
  const rows = findings(examined);
  if (!rows.length) return null;
  return (
    <Section title="What to mend">
      <Table
        caption="What to mend, the gravest first"
        rows={rows}
        id={({ check, places }) => `${check.name} ${check.found} ${places[0]?.service} ${places[0]?.part}`}
        columns={[
          { title: "Check", cell: ({ check }) => check.name },
          { title: "State", cell: ({ check }) => <Badge tone={TONES[check.judgement]}>{WORDS[check.judgement]}</Badge> },
          { title: "Where", cell: ({ places }) => <span class="wrap">{where(places)}</span> },
          { title: "Found", wide: true, cell: ({ check }) => check.found },
          { title: "How to mend it", wide: true, cell: ({ check }) => check.fix ? <Sentence text={check.fix} /> : "–" },
        ]}
      />
    </Section>
  );
}

function Place({ one }: { one: Examined }) {
  return (
    <details class="place">
      <summary>
        <Badge tone={TONES[one.judgement]}>{WORDS[one.judgement]}</Badge>
        <strong class="wrap">
          {one.part === "store" ? "Store" : "Broker"} of {one.service}
        </strong>
        <code class="muted wrap">{one.place}</code>
      </summary>
      <Section>
        <Table
          caption={`Checks of the ${one.part} of ${one.service}`}
          rows={one.checks}
          id={(check) => check.name}
          columns={[
            { title: "Check", cell: (check) => check.name },
            { title: "State", cell: (check) => <Badge tone={TONES[check.judgement]}>{WORDS[check.judgement]}</Badge> },
            { title: "Found", wide: true, cell: (check) => check.found },
            { title: "How to mend it", wide: true, cell: (check) => check.fix ? <Sentence text={check.fix} /> : "–" },
          ]}
        />
        {one.promise.length > 0 && (
          <Table
            caption={`The promise that results from the broker of ${one.service}`}
            rows={one.promise}
            id={(clause) => clause.text}
            columns={[
              { title: "The promise", cell: (clause) => clause.text },
              { title: "Holds", cell: (clause) => <Badge tone={clause.holds ? "good" : "warn"}>{clause.holds ? "yes" : "no"}</Badge> },
              { title: "Because", wide: true, cell: (clause) => clause.because },
            ]}
          />
        )}
      </Section>
    </details>
  );
}
