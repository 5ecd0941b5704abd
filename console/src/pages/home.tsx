// Four questions: does it add up, what is stuck, what does it mean, what to press.
import { at, query, useData } from "../api";
import { Sentence } from "../held/states";
import { Age, Badge, Chart, Empty, Figure, Figures, Link, Page, Section, Sparkline, Table, cls, count, counted, rate, span, type Tone } from "../ui";

type Verdict = "adds up" | "does not add up" | "cannot tell";
type Gravity = "now" | "soon" | "wait";

interface Trouble {
  gravity: Gravity;
  kind: string;
  service: string;
  of: string;
  what: string;
  means: string;
  do: string;
  press: { label: string; to: string }[];
  page: string;
  word: string;
  count: number | null;
  seconds: number | null;
}

interface Equation {
  topic: string;
  verdict: Verdict;
  missing: number;
  committed: number | null;
  applied: number;
  in_flight: number | null;
  held: number;
  given_up: number;
  lag: number | null;
}

interface Consumer {
  service: string;
  name: string;
  verdict: Verdict;
  topics: Equation[];
  held: Record<string, number>;
  workers: number | null;
  rate: number | null;
  lag: number | null;
  rates: (number | null)[];
  lags: (number | null)[];
}

interface Service {
  name: string;
  store: boolean | null;
  broker: boolean | null;
  rate: number | null;
  unsent: number | null;
  oldest: number | null;
  stuck: number;
  timers: number | null;
  rates: (number | null)[];
  ages: (number | null)[];
}

interface Home {
  verdict: Verdict;
  sentence: string;
  troubles: Trouble[];
  more: number;
  consumers: Consumer[];
  services: Service[];
  times: number[];
  charts: Record<string, (number | null)[]>;
}

const TONES: Record<Verdict, Tone> = { "adds up": "good", "does not add up": "bad", "cannot tell": "warn" };
const GRAVITY: Record<Gravity, { tone: Tone; word: string }> = {
  now: { tone: "bad", word: "Needs a person" },
  soon: { tone: "warn", word: "Takes too long" },
  wait: { tone: "neutral", word: "Goes on by itself" },
};

const last = (values: (number | null)[] | undefined): number | null => values?.at(-1) ?? null;
const sum = (values: Record<string, number>): number => Object.values(values).reduce((a, b) => a + b, 0);

export default function Home() {
  const home = useData<Home>("/home", { every: 3_000, live: "home" });
  const found = home.data;
  return (
    <Page title="Home" says="Whether all that was committed has arrived, what is stuck, what that means, and what to press." data={home}>
      {found && (
        <>
          <Answer found={found} />
          <Section title={found.troubles.length ? `What is stuck: ${counted(found.troubles.length + found.more, "thing")}` : "What is stuck"}>
            <Stuck troubles={found.troubles} more={found.more} />
          </Section>
          <Section title="The last ten minutes" says="Read every three seconds while somebody looks; kept in the memory of the console.">
            <div class="home-charts">
              <Chart label="Events per second" unit="/s" times={found.times} series={[{ name: "committed", values: found.charts.committed ?? [] }, { name: "applied", values: found.charts.applied ?? [] }]} height={170} />
              <Chart label="On their way, and held" times={found.times} series={[{ name: "in flight", values: found.charts.in_flight ?? [] }, { name: "held", values: found.charts.held ?? [] }]} height={170} />
              <Chart label="Age of the oldest on its way" unit=" s" times={found.times} series={[{ name: "oldest", values: found.charts.lag ?? [] }]} height={170} />
            </div>
          </Section>
          <Section title="Does it add up, per consumer" says="Committed = applied + in flight + held + given up. While events move, the figures are read one after the other; the verdict takes that into account.">
            <Consumers consumers={found.consumers} away={found.services.some((one) => one.store === false)} />
          </Section>
          <Section title="Stores and outboxes" says="What services have committed, and what waits to be sent.">
            <Services services={found.services} />
          </Section>
        </>
      )}
    </Page>
  );
}

function Answer({ found }: { found: Home }) {
  const now = found.troubles.filter((one) => one.gravity === "now").length;
  const held = last(found.charts.held);
  return (
    <>
      <div class={cls("answer", `answer-${now && found.verdict === "adds up" ? "warn" : TONES[found.verdict]}`)} role="status">
        <span class="answer-mark" aria-hidden="true">
          {found.verdict === "adds up" ? "✓" : found.verdict === "cannot tell" ? "?" : "≠"}
        </span>
        <p class="answer-words">{found.sentence}</p>
      </div>
      <Figures>
        <Figure label="Needs a person" value={count(now)} tone={now ? "bad" : "neutral"} says={now ? "See below what it means." : "Nothing does."} />
        <Figure label="Committed" value={rate(last(found.charts.committed))} says={`applied ${rate(last(found.charts.applied))}, counted per consumer`} />
        <Figure label="In flight" value={count(last(found.charts.in_flight))} says={<>oldest {last(found.charts.lag) === null ? "unknown" : span(last(found.charts.lag) ?? 0)}</>} to="/consumers" />
        <Figure label="Held" value={count(held)} tone={held ? "warn" : "neutral"} says={held === null ? "nobody can tell" : held ? "in order, until they can go on" : "nothing waits"} to="/held" />
      </Figures>
    </>
  );
}

function Stuck({ troubles, more }: { troubles: Trouble[]; more: number }) {
  if (!troubles.length) return <Empty title="Nothing is stuck.">Nothing waits for a person, and nothing takes longer than it should.</Empty>;
  return (
    <ul class="troubles">
      {troubles.map((one) => (
        <li key={`${one.kind} ${one.service} ${one.of} ${one.page}`} class={cls("trouble", `trouble-${one.gravity}`)}>
          <div class="trouble-head">
            <Badge tone={GRAVITY[one.gravity].tone}>{one.word || GRAVITY[one.gravity].word}</Badge>
            <strong class="wrap">{one.what}</strong>
          </div>
          <dl class="trouble-words">
            <div>
              <dt>What it means</dt>
              <dd>{one.means}</dd>
            </div>
            <div>
              <dt>What to press</dt>
              <dd><Sentence text={one.do} /></dd>
            </div>
          </dl>
          <div class="trouble-press">
            {one.press.map((press) => (
              <Link key={press.to} to={press.to} class="button button-small" aria-label={`${press.label}: ${one.what}`}>
                {press.label}
              </Link>
            ))}
            <Link to={at`/runbooks/${one.page}`} aria-label={`Runbook: ${one.what}`}>
              Runbook
            </Link>
          </div>
        </li>
      ))}
      {more > 0 && <li class="muted">and {counted(more, "thing")} more, less grave.</li>}
    </ul>
  );
}

interface Row {
  consumer: Consumer;
  of: string;
  whole: boolean;
  line: Equation;
}

/** A line for each consumer, and under it one for each topic that does not add up. */
export function lines(consumers: readonly Consumer[]): Row[] {
  return consumers.flatMap((consumer) => {
    const [only] = consumer.topics;
    if (only && consumer.topics.length === 1) return [{ consumer, of: "1 topic", whole: true, line: only }];
    const odd = consumer.topics.filter((one) => one.verdict !== "adds up");
    return [
      { consumer, of: `${count(consumer.topics.length)} topics`, whole: true, line: together(consumer) },
      ...odd.map((line) => ({ consumer, of: line.topic, whole: false, line })),
    ];
  });
}

function together(consumer: Consumer): Equation {
  const all = (of: (one: Equation) => number | null): number | null => consumer.topics.reduce<number | null>((sum, one) => (sum === null || of(one) === null ? null : sum + (of(one) ?? 0)), 0);
  const lags = consumer.topics.map((one) => one.lag).filter((one): one is number => one !== null);
  return {
    topic: "",
    verdict: consumer.verdict,
    missing: all((one) => one.missing) ?? 0,
    committed: all((one) => one.committed),
    applied: all((one) => one.applied) ?? 0,
    in_flight: all((one) => one.in_flight),
    held: all((one) => one.held) ?? 0,
    given_up: all((one) => one.given_up) ?? 0,
    lag: lags.length ? Math.max(...lags) : null,
  };
}

function Consumers({ consumers, away }: { consumers: Consumer[]; away: boolean }) {
  return (
    <Table
      caption="The equation of each consumer"
      rows={lines(consumers)}
      id={(row) => `${row.consumer.service} ${row.consumer.name} ${row.of}`}
      empty={away ? "Nobody can tell: no store of a consumer could be asked." : "No consumer is declared, so there is nothing to add up."}
      columns={[
        { title: "Consumer", cell: (row) => (row.whole ? <Link to={query("/consumers", { q: row.consumer.name, by: "topic" })}>{row.consumer.name}</Link> : <span class="muted">in {row.of}</span>) },
        { title: "Reads", cell: (row) => (row.whole ? <span class="wrap">{row.of}</span> : "") },
        { title: "Verdict", cell: (row) => <Badge tone={TONES[row.line.verdict]}>{said(row.line)}</Badge> },
        { title: "Committed", end: true, cell: (row) => count(row.line.committed) },
        { title: "Applied", end: true, cell: (row) => count(row.line.applied) },
        { title: "In flight", end: true, cell: (row) => count(row.line.in_flight) },
        {
          title: "Held",
          end: true,
          cell: (row) => (row.line.held ? <Link to={query("/held", { consumer: row.consumer.name })}>{count(row.line.held)}</Link> : "0"),
        },
        { title: "Given up", end: true, spare: true, cell: (row) => count(row.line.given_up) },
        { title: "Oldest", end: true, cell: (row) => <Age seconds={row.line.lag} /> },
        { title: "Applied/s", spare: true, cell: (row) => (row.whole ? <Small points={row.consumer.rates} label={`Applied per second by ${row.consumer.name}`} text={rate(row.consumer.rate)} /> : "") },
        { title: "Run by", end: true, spare: true, cell: (row) => (!row.whole ? "" : row.consumer.workers === null ? "–" : row.consumer.workers === 0 ? <Badge tone={sum(row.consumer.held) || row.line.in_flight ? "bad" : "warn"}>nobody</Badge> : count(row.consumer.workers)) },
      ]}
    />
  );
}

const said = (line: Equation): string =>
  line.verdict !== "does not add up" ? line.verdict : line.missing > 0 ? `${count(line.missing)} missing` : `${count(-line.missing)} too many`;

function Small({ points, label, text, tone }: { points: (number | null)[]; label: string; text: string; tone?: Tone }) {
  return (
    <span class="small-chart">
      <Sparkline points={points} label={label} tone={tone} />
      <span>{text}</span>
    </span>
  );
}

function Services({ services }: { services: Service[] }) {
  return (
    <Table
      caption="Stores and outboxes"
      rows={services}
      id={(one) => one.name}
      empty="No service is looked at."
      columns={[
        { title: "Services", cell: (one) => one.name },
        {
          title: "State",
          cell: (one) => (one.store === false ? <Badge tone="bad">store away</Badge> : one.broker === false ? <Badge tone="bad">broker away</Badge> : <Badge tone="good">answers</Badge>),
        },
        { title: "Committed per second", cell: (one) => <Small points={one.rates} label={`Committed per second by ${one.name}`} text={rate(one.rate)} /> },
        { title: "Unsent", end: true, cell: (one) => count(one.unsent) },
        { title: "Oldest unsent", cell: (one) => <Small points={one.ages} label={`Age of the oldest unsent of ${one.name}, in seconds`} tone={one.oldest && one.oldest > 60 ? "warn" : "info"} text={one.oldest === null ? "–" : span(one.oldest)} /> },
        { title: "Refused", end: true, cell: (one) => (one.stuck ? <Link to={`/outbox?service=${encodeURIComponent(one.name.split(", ")[0] ?? "")}`}>{count(one.stuck)}</Link> : "0") },
        { title: "Timers", end: true, spare: true, cell: (one) => count(one.timers) },
      ]}
    />
  );
}
