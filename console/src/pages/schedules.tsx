import { Act } from "../acting";
import { query, useData } from "../api";
import { Age, Badge, Empty, Link, Page, Table, Time, type Tone, counted } from "../ui";

interface Schedule {
  service: string;
  name: string;
  state: "removed" | "failing" | "new" | "paused" | "overdue" | "changed" | "runs";
  expression: string | null;
  tz: string | null;
  next_at: string | null;
  due_in: number | null;
  begun_at: string | null;
  done_at: string | null;
  ended_at: string | null;
  paused_at: string | null;
  overdue: number;
  held: Record<string, number>;
  failed: number;
}

const MEANS: Record<Schedule["state"], readonly [Tone, string, string]> = {
  failing: ["bad", "failing", "Runs of it failed for good: look at them in Held, mend the cause, and retry."],
  overdue: ["bad", "overdue", "Its moment has come and nobody has begun a run: does a process run the timers?"],
  paused: ["warn", "paused", "Nothing runs until somebody resumes it; moments that pass are not made up for."],
  new: ["info", "waits for its first worker", "No process that runs the timers has had it yet."],
  changed: ["warn", "changed in the code", "The code here says another time than the processes that run: start them with what is declared now."],
  removed: ["warn", "not declared any more", "The code has no such schedule: forget it, if that is meant."],
  runs: ["good", "runs", ""],
};
const ORDER = ["failing", "overdue", "paused", "changed", "new", "removed", "runs"];

export default function Schedules() {
  const found = useData<{ items: Schedule[] }>("/schedules", { live: "schedules", every: 30_000 });
  const items = [...(found.data?.items ?? [])].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || (a.due_in ?? 0) - (b.due_in ?? 0));
  const bad = items.filter((one) => MEANS[one.state][0] === "bad");
  const paused = items.filter((one) => one.state === "paused");
  return (
    <Page title="Schedules" says="What services do again and again, when it runs next, and what became of the last run." data={found}>
      <p class="verdict">
        {bad.length ? `${counted(bad.length, "schedule")} did not run as they should: ${bad.map((one) => one.name).join(", ")}.` : items.length ? "Every schedule ran when it should." : ""}
        {paused.length ? ` ${counted(paused.length, "schedule")} paused.` : ""}
      </p>
      <Table
        caption="Schedules"
        rows={items}
        id={(row) => `${row.service} ${row.name}`}
        empty={<Empty title="No service declares a schedule." />}
        columns={[
          { title: "Schedule", cell: (row) => <><strong class="wrap">{row.name}</strong> <span class="muted">{row.service}</span></> },
          { title: "State", cell: (row) => <Badge tone={MEANS[row.state][0]}>{MEANS[row.state][1]}</Badge> },
          { title: "Next", cell: (row) => (row.paused_at ? <span class="muted">paused <Age since={row.paused_at} /></span> : row.overdue ? <span>overdue for <Age seconds={row.overdue} /></span> : row.next_at ? <><Time at={row.next_at} /> <span class="muted">(<Age since={row.next_at} />)</span></> : "–") },
          { title: "Last done, for", cell: (row) => <Time at={row.done_at} none="never" /> },
          { title: "Last begun, for", cell: (row) => <Time at={row.begun_at} none="never" />, spare: true },
          { title: "When", cell: (row) => <span class="mono wrap">{row.expression} {row.tz}</span> },
          { title: "What it means", cell: (row) => <span class="wrap muted">{MEANS[row.state][2]} {row.failed > 0 && <Link to={query("/held", { service: row.service })}>{counted(row.failed, "run")} held</Link>}</span>, wide: true },
          { title: "Press", cell: (row) => <Presses one={row} done={found.refresh} /> },
        ]}
      />
    </Page>
  );
}

function Presses({ one, done }: { one: Schedule; done: () => void }) {
  const params = { service: one.service, schedule: one.name };
  if (one.state === "removed") return <Act small name="schedule.forget" params={params} label="Forget" onDone={done} />;
  return (
    <span class="presses">
      {one.paused_at ? <Act small kind="main" name="schedule.resume" params={params} label="Resume" onDone={done} /> : one.next_at && <Act small name="schedule.pause" params={params} label="Pause" onDone={done} />}
      <Act small name="schedule.run" params={params} label="Run now" onDone={done} />
    </span>
  );
}
