import { useState } from "preact/hooks";
import { ApiError } from "../api";
import { Age, Badge, Bar, Button, Chart, Check, Code, Dialog, Empty, Facts, Failure, Field, Figure, Figures, Link, Menu, Notice, Page, Problems, Search, Section, Skeleton, Sparkline, Table, Tabs, Time, toast } from "../ui";

const LONG = "eu-central.billing-and-invoicing.customer-ledger.reconciliation-with-partners.v12";
const NOW = Date.now();
const ago = (seconds: number): string => new Date(NOW - seconds * 1000).toISOString();
const TIMES = Array.from({ length: 60 }, (_, i) => NOW / 1000 - (60 - i) * 10);
const WAVE = TIMES.map((_, i) => 40 + 30 * Math.sin(i / 7) + (i % 5));
const JSON_TEXT = '{"order_id":"o-1","total_cents":9007199254740993,"paid":false,"note":"<script>alert(1)</script>","lines":[{"sku":"A","n":1.10},{}],"at":null,"tags":[]}';
const ROWS = [
  { id: "9007199254740993", key: "order/7", state: "dead", since: ago(4_000), n: 12 },
  { id: "9007199254740994", key: LONG, state: "waiting", since: ago(86_400 * 3), n: 1_204_331 },
  { id: "9007199254740995", key: "guest/Žofie", state: "applied", since: ago(3), n: 0 },
];
const TONES = { dead: "bad", waiting: "warn", applied: "good" } as const;

/** Every part of the interface, to look at. It is in no menu. */
export default function Style() {
  const [open, set] = useState(false);
  const [tab, pick] = useState("one");
  const [why, say] = useState("");
  const [marked, mark] = useState<ReadonlySet<string>>(new Set());
  const [on, turn] = useState(true);
  return (
    <Page
      title="Style"
      badge={<Badge tone="info">for those who build it</Badge>}
      says="Every part of the interface, in both themes and at any width."
      path={[["Home", "/"]]}
      actions={
        <>
          <Button onClick={() => toast("Retried 3 events.", { tone: "good", stay: true, to: "/log", label: "See the operators' log" })}>A toast</Button>
          <Button kind="main" onClick={() => set(true)}>
            A dialog
          </Button>
        </>
      }
    >
      <Problems problems={[{ service: "billing", what: "its store gave no answer within 5 s", do: "is the server up, and the URL right?" }]} />
      <Notice tone="good" title="It adds up.">Everything that was committed is applied, in flight or held.</Notice>
      <Notice tone="warn" title="Three keys wait." action={<Button small>Look</Button>}>
        The oldest since two hours.
      </Notice>
      <Notice tone="bad" title="Nobody runs the relay.">Events stay in the outbox.</Notice>
      <Figures>
        <Figure label="Applied" value="1,204,331" says="312/s" tone="good">
          <Sparkline label="Applied per second" points={WAVE} tone="good" />
        </Figure>
        <Figure label="Held" value="12" says="3 keys wait behind" tone="bad" to="/held" />
        <Figure label="In the outbox" value="10,000+" says="oldest 4 min" tone="warn">
          <Sparkline label="In the outbox" points={[1, 2, null, 4, 9]} tone="warn" />
        </Figure>
        <Figure label={LONG} value="–" says="nothing known yet" />
      </Figures>
      <Section title="Buttons and states">
        <Bar>
          <Button kind="main">Retry</Button>
          <Button>Skip</Button>
          <Button kind="danger">Delete for good</Button>
          <Button kind="quiet">Cancel</Button>
          <Button busy>Working</Button>
          <Button disabled>Not now</Button>
          <Menu label="More" items={[{ label: "Quarantine", onPick: () => toast("Quarantined.") }, { label: "Release", onPick: () => toast("It failed: the store is away.", { tone: "bad" }) }, { label: "Drop", danger: true, onPick: () => undefined }]} />
        </Bar>
        <p>
          <Badge>neutral</Badge> <Badge tone="good">applied</Badge> <Badge tone="warn">waiting</Badge> <Badge tone="bad">dead</Badge> <Badge tone="info">in flight</Badge> <Time at={ago(50)} /> <Age since={ago(4_000)} /> <Age since={ago(-90)} /> <Age seconds={0.042} /> <Link to="/style">a link</Link> <code>posthouse held retry</code>
        </p>
      </Section>
      <Section title="Rows" says="Cards on a phone." actions={<Button small>Retry {marked.size}</Button>}>
        <Bar>
          <Search label="Search by id or key" value="" onSearch={(text) => toast(`Searched ${text}.`)} />
          <Field label="State" value="dead" onInput={() => undefined} choices={[{ value: "dead", label: "dead" }, { value: "waiting", label: "waiting" }]} />
        </Bar>
        <Table
          caption="Some events"
          rows={ROWS}
          id={(row) => row.id}
          picked={marked}
          onPick={mark}
          next="x"
          columns={[
            { title: "Event", cell: (row) => <Link to={`/style?id=${row.id}`}>{row.id}</Link> },
            { title: "Key", wide: true, cell: (row) => row.key },
            { title: "State", cell: (row) => <Badge tone={TONES[row.state as "dead"]}>{row.state}</Badge> },
            { title: "Since", cell: (row) => <Age since={row.since} /> },
            { title: "Behind it", end: true, spare: true, cell: (row) => row.n.toLocaleString("en") },
          ]}
        />
      </Section>
      <Section title="Facts">
        <Facts items={[["Event", <code>0199a8f0-0000-7000-8000-000000000000</code>], ["Consumer", LONG], ["Written", <Time at={ago(100_000)} />], ["Attempts", "3 of 5"]]} />
        <Code label="Payload" text={JSON_TEXT} />
        <Code label="Stack" kind="text" text={'Traceback (most recent call last):\n  File "shop.py", line 7, in invoice\n    raise ValueError(total)\nValueError: -1'} />
      </Section>
      <Section title="Views">
        <Tabs label="Views" tabs={[{ id: "one", title: "Dead", count: 12 }, { id: "two", title: "Waiting", count: "10,000+" }, { id: "three", title: "Quarantined" }]} current={tab} onPick={pick}>
          <p>{tab}</p>
        </Tabs>
        <Chart label="Events per second" times={TIMES} series={[{ name: "published", values: WAVE }, { name: "applied", values: WAVE.map((one) => one * 0.8) }]} unit="/s" />
      </Section>
      <Section title="Nothing, not yet, not at all">
        <Empty title="Nothing is held." action={<Button>Look at the outbox</Button>}>
          Every event that was read is applied.
        </Empty>
        <Skeleton lines={3} />
        <Failure error={new ApiError(503, "orders: its store gave no answer within 5 s", "Look at what the database does.")} retry={() => undefined} />
      </Section>
      <Dialog
        open={open}
        title="Retry 12 events of orders?"
        onClose={() => set(false)}
        onSubmit={() => set(false)}
        actions={
          <>
            <Button onClick={() => set(false)}>Cancel</Button>
            <Button kind="main" type="submit">
              Retry 12
            </Button>
          </>
        }
      >
        <p>They are applied again in their order, one key at a time. 3 keys wait behind them.</p>
        <Field label="Why" value={why} onInput={say} lines={2} required hint="It is written into the operators' log." error={why ? undefined : "Say why: others read it."} autofocus />
        <Check label="Try one first, and stop when it fails" checked={on} onChange={turn} />
      </Dialog>
    </Page>
  );
}
