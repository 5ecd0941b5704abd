// Grants: who may replay or edit what for a while, because somebody else said so.
import { useState } from "preact/hooks";
import { Act, Acting, type Params, useSettled } from "../acting";
import { useData } from "../api";
import { barred } from "../rights";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Badge, Button, count, Empty, Field, Notice, Page, Table, Tabs, Time, type Tone } from "../ui";

interface Grant {
  id: string;
  service: string;
  verb: "replay" | "edit";
  state: "asked" | "running" | "expired" | "revoked" | "spent";
  covers: string;
  why: string;
  asked_by: string;
  asked_at: string;
  mine: boolean;
  minutes: number;
  most: number;
  rate: number;
  used: number;
  approved_by: string | null;
  approved_at: string | null;
  revoked_by: string | null;
  revoked_at: string | null;
  ends_at: string | null;
}

interface Grants {
  items: Grant[];
  /** Services whose rights ask for one. */
  needed: string[];
}

const TONES: Record<Grant["state"], Tone> = { asked: "warn", running: "good", expired: "neutral", revoked: "bad", spent: "neutral" };
const isOpen = (one: Grant): boolean => one.state === "asked" || one.state === "running";

export default function GrantsPage({ query }: PageProps) {
  const grants = useData<Grants>("/grants", { every: 5_000, live: "log" });
  const found = grants.data;
  const view = query.get("view") === "ended" ? "ended" : "open";
  const open = found?.items.filter(isOpen) ?? [];
  const ended = found?.items.filter((one) => !isOpen(one)) ?? [];
  return (
    <Page
      title="Grants"
      says="For a while, somebody may replay or edit so many events, because somebody else approved it. Whoever asked never approves."
      data={grants}
      actions={found && found.needed.length > 0 && <Request services={found.needed} done={grants.refresh} />}
    >
      {found && (
        <>
          {found.needed.length === 0 && (
            <Notice tone="info" title="No service here asks for a grant.">
              Whoever has the role may replay and edit. <code>Rights(grants=True)</code> asks for somebody else's word.
            </Notice>
          )}
          <Tabs
            label="Which are listed"
            current={view}
            onPick={(id) => requery({ view: id === "open" ? null : id })}
            tabs={[
              { id: "open", title: "Asked and running", count: open.length },
              { id: "ended", title: "Ended", count: ended.length },
            ]}
          >
            <List grants={view === "open" ? open : ended} done={grants.refresh} ended={view === "ended"} />
          </Tabs>
        </>
      )}
    </Page>
  );
}

function List({ grants, done, ended }: { grants: Grant[]; done: () => void; ended: boolean }) {
  return (
    <Table
      caption={ended ? "Grants that ended" : "Grants that are asked for, or run"}
      rows={grants}
      id={(one) => one.id}
      empty={<Empty title={ended ? "None has ended yet." : "Nobody has asked for one, and none runs."} />}
      columns={[
        {
          title: "Who",
          cell: (one) => (
            <>
              <Badge tone={TONES[one.state]}>{one.state}</Badge> <span class="wrap">{one.asked_by}</span>
            </>
          ),
        },
        { title: "May", wide: true, cell: (one) => <span class="wrap">{one.verb} {one.covers}, in {one.service}</span> },
        { title: "Why", wide: true, cell: (one) => <span class="wrap">{one.why}</span> },
        { title: "Used", end: true, cell: (one) => <Used one={one} /> },
        { title: "How long", cell: (one) => <Until one={one} /> },
        { title: "Said by", cell: (one) => <Said one={one} /> },
        ...(ended ? [] : [{ title: "Press", cell: (one: Grant) => <Press one={one} done={done} /> }]),
      ]}
    />
  );
}

const Used = ({ one }: { one: Grant }) => (
  <>
    {count(one.used)} of {count(one.most)} <span class="muted">at {one.rate}/s</span>
  </>
);

function Until({ one }: { one: Grant }) {
  if (one.state === "asked") return <>{one.minutes} min from its approval</>;
  if (one.state === "running") return <>ends <Age since={one.ends_at} /></>;
  return one.state === "revoked" ? <>revoked <Time at={one.revoked_at} /></> : <>over <Time at={one.ends_at} /></>;
}

function Said({ one }: { one: Grant }) {
  if (one.revoked_by) return <span class="wrap">revoked by {one.revoked_by}</span>;
  if (one.approved_by) return <span class="wrap">approved by {one.approved_by} <Age since={one.approved_at} /></span>;
  return <span class="muted">nobody yet, asked <Age since={one.asked_at} /></span>;
}

function Press({ one, done }: { one: Grant; done: () => void }) {
  const params = { service: one.service, grant: one.id };
  const mine = one.mine ? "You asked for it: somebody else approves it." : "";
  return (
    <span class="held-press">
      {one.state === "asked" &&
        (mine ? (
          <Button small barred={mine}>
            Approve…
          </Button>
        ) : (
          <Act small name="grant.approve" params={params} label="Approve…" onDone={done} />
        ))}
      <Act small name="grant.revoke" params={params} label="Revoke…" onDone={done} />
    </span>
  );
}

const FILTERS = ["consumer", "topic", "tenant", "type", "key"] as const;

/** The button that asks for one, and its dialog. What is left empty is any. */
function Request({ services, done }: { services: string[]; done: () => void }) {
  const [open, show] = useState(false);
  const [service, setService] = useState(services[0] ?? "");
  const [verb, setVerb] = useState("replay");
  const [minutes, setMinutes] = useState("30");
  const [most, setMost] = useState("100");
  const [rate, setRate] = useState("10");
  const [scope, setScope] = useState<Record<string, string>>({});
  const said = Object.fromEntries(FILTERS.flatMap((name) => (scope[name]?.trim() ? [[name, scope[name].trim()]] : [])));
  const settled = useSettled(JSON.stringify({ service, verb, minutes: Math.trunc(Number(minutes) || 0), most: Math.trunc(Number(most) || 0), rate: Number(rate) || 0, ...said }));
  const asked = (
    <>
      <div class="act-how">
        <Field label="In" value={service} onInput={setService} choices={services.map((value) => ({ value, label: value }))} />
        <Field label="To" value={verb} onInput={setVerb} choices={[{ value: "replay", label: "replay" }, { value: "edit", label: "edit" }]} />
        <Field label="Minutes" value={minutes} onInput={setMinutes} kind="number" min={1} max={60} />
        <Field label="Events, at most" value={most} onInput={setMost} kind="number" min={1} />
        <Field label="Per second" value={rate} onInput={setRate} kind="number" min={0} max={1000} />
      </div>
      <div class="act-how">
        {FILTERS.map((name) => (
          <Field key={name} label={`Only ${name}`} value={scope[name] ?? ""} onInput={(text) => setScope({ ...scope, [name]: text })} placeholder="any" />
        ))}
      </div>
    </>
  );
  return (
    <>
      <Button kind="main" barred={barred("grant.request")} aria-haspopup="dialog" onClick={() => show(true)}>
        Ask for a grant…
      </Button>
      {open && <Acting name="grant.request" params={JSON.parse(settled) as Params} title="Ask for a grant" asked={asked} onDone={done} onClose={() => show(false)} />}
    </>
  );
}
