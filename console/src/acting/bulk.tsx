// Acts over many things: how fast, how many first, when to stop; then what will happen, and why.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { barred } from "../rights";
import { Button, Field } from "../ui";
import { Acting, type Outcome, type Params } from "./act";

interface Props {
  /** Of the table of acts, as `held.retry.all`. */
  name: string;
  /** The filter; what is not said is any. */
  params: Params;
  label: ComponentChildren;
  kind?: "main" | "plain" | "danger" | "quiet";
  small?: boolean;
  disabled?: boolean;
  onDone?: (outcome: Outcome) => void;
}

const SETTLE = 400;

/** A button, and the dialog of a job behind it. */
export function BulkAct({ name, params, label, kind, small, disabled, onDone }: Props) {
  const [open, show] = useState(false);
  return (
    <>
      <Button kind={kind} small={small} disabled={disabled} barred={barred(name)} aria-haspopup="dialog" onClick={() => show(true)}>
        {label}
      </Button>
      {open && <BulkActing name={name} params={params} title={label} onDone={onDone} onClose={() => show(false)} />}
    </>
  );
}

/** The dialog alone. */
export function BulkActing({ name, params, title, onDone, onClose }: { name: string; params: Params; title: ComponentChildren; onDone?: (outcome: Outcome) => void; onClose: () => void }) {
  const judged = name.includes("retry");
  const [rate, setRate] = useState("10");
  const [canary, setCanary] = useState(judged ? "3" : "0");
  const [stop, setStop] = useState(judged ? "5" : "0");
  const how = { rate: positive(rate), ...(judged ? { canary: whole(canary), stop_after: whole(stop) } : {}) };
  const settled = useSettled(JSON.stringify(how));
  const asked = (
    <div class="act-how">
      <Field label="Per second" value={rate} onInput={setRate} kind="number" min={0} max={1000} />
      {judged && <Field label="First, and wait for them" value={canary} onInput={setCanary} kind="number" min={0} max={1000} hint="If one of them fails again, the rest is not touched. 0: none." />}
      {judged && <Field label="Stop after so many new failures" value={stop} onInput={setStop} kind="number" min={0} hint="0: never." />}
    </div>
  );
  return <Acting name={name} params={{ ...params, ...(JSON.parse(settled) as object) }} title={title} asked={asked} onDone={onDone} onClose={onClose} />;
}

/** A value once nobody has typed for a moment: each preview counts. */
export function useSettled(value: string): string {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), SETTLE);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

const positive = (text: string): number => Number(text) || 0;
const whole = (text: string): number => Math.trunc(Number(text) || 0);
