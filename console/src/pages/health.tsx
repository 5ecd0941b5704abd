// What the doctor finds about each store and each broker.
import { useData } from "../api";
import { Badge, Button, Notice, Page, Section, Table, type Tone } from "../ui";

type Judgement = "ok" | "warn" | "fail";

interface Check {
  name: string;
  found: string;
  judgement: Judgement;
  fix: string;
}

interface Examined {
  service: string;
  part: "store" | "broker";
  place: string;
  judgement: Judgement;
  checks: Check[];
  promise: { text: string; holds: boolean; because: string }[];
}

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
      says="What `posthouse doctor` finds about each store and each broker: settings, rights, tables, open transactions, and the promise that results. Nothing is changed."
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
          {found.examined.map((one) => (
            <Place key={`${one.service} ${one.part}`} one={one} />
          ))}
        </>
      )}
    </Page>
  );
}

function Place({ one }: { one: Examined }) {
  const open = one.judgement !== "ok";
  return (
    <details class="place" open={open}>
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
            { title: "How to mend it", wide: true, cell: (check) => check.fix || "–" },
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
