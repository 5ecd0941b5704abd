// Sending again what a broker lost: which events, and what will happen.
import { useState } from "preact/hooks";
import { barred } from "../rights";
import { Button, Check, Field } from "../ui";
import { Acting, type Outcome } from "./act";

interface Topic {
  topic: string;
  service: string;
}

/** A button, and the dialog that asks which events of these topics are sent again. */
export function Resend({ topics, onDone }: { topics: readonly Topic[]; onDone?: (outcome: Outcome) => void }) {
  const [open, show] = useState(false);
  return (
    <>
      <Button barred={barred("outbox.resend")} aria-haspopup="dialog" disabled={topics.length === 0} onClick={() => show(true)}>
        Send again…
      </Button>
      {open && <Resending topics={topics} onDone={onDone} onClose={() => show(false)} />}
    </>
  );
}

function Resending({ topics, onDone, onClose }: { topics: readonly Topic[]; onDone?: (outcome: Outcome) => void; onClose: () => void }) {
  const services = [...new Set(topics.map((one) => one.service))].sort();
  const [service, setService] = useState(services[0] ?? "");
  const [topic, setTopic] = useState("");
  const [tenant, setTenant] = useState("");
  const [key, setKey] = useState("");
  const [since, setSince] = useState(anHourAgo);
  const [until, setUntil] = useState("");
  const [missing, setMissing] = useState(false);
  const [force, setForce] = useState(false);
  const params = { service, topic: topic || null, tenant: tenant.trim() || null, key: key || null, since: moment(since), until: moment(until), missing, force };
  const asked = (
    <div class="act-fields">
      {services.length > 1 && <Field label="Service" value={service} onInput={(name) => (setService(name), setTopic(""))} choices={services.map((value) => ({ value, label: value }))} />}
      <Field label="Topic" value={topic} onInput={setTopic} choices={[{ value: "", label: "all of them" }, ...topics.filter((one) => one.service === service).map((one) => ({ value: one.topic, label: one.topic }))]} />
      <Field label="Tenant" value={tenant} onInput={setTenant} placeholder="any" />
      <Field label="Key" value={key} onInput={setKey} placeholder="any" />
      <Field label="Said from" kind="datetime-local" value={since} onInput={setSince} />
      <Field label="Said until" kind="datetime-local" value={until} onInput={setUntil} />
      <Check label="Only what some consumer lacks" checked={missing} onChange={setMissing} />
      <Check label="Also unordered ones that consumers may have forgotten" checked={force} onChange={setForce} />
    </div>
  );
  return <Acting name="outbox.resend" params={params} title="Send again" asked={asked} onDone={onDone} onClose={onClose} />;
}

/** A time in the reader's zone, as the server takes it. */
function moment(local: string): string | null {
  const at = new Date(local);
  return local && !Number.isNaN(at.getTime()) ? at.toISOString() : null;
}

/** As a field for a time takes it, in the reader's zone. */
function anHourAgo(): string {
  const at = new Date(Date.now() - 3_600_000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
