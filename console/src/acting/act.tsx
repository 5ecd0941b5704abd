// Something to press: what will happen, why, and what came of it.
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { act, ApiError, changed } from "../api";
import { barred } from "../rights";
import { Button, Check, Dialog, Field, Notice, Skeleton, toast } from "../ui";
import { led } from "./led";
import { Changes, Counts } from "./shown";

export interface Preview {
  name: string;
  title: string;
  sentence: string;
  danger: string;
  lines: string[];
  counts: Record<string, number | string>;
  changes: { field: string; before: string | null; after: string | null }[];
  bulk: boolean;
  seen: string;
  press: string;
}

export interface Outcome {
  sentence: string;
  job: string | null;
  again: boolean;
}

export type Params = Record<string, unknown> & { service: string };

interface Props {
  /** Of the table of acts, as `held.retry`. */
  name: string;
  params: Params;
  label: ComponentChildren;
  kind?: "main" | "plain" | "danger" | "quiet";
  small?: boolean;
  disabled?: boolean;
  /** Offers "even so", for acts that take `force`; says what that means. */
  force?: string;
  onDone?: (outcome: Outcome) => void;
}

/** A button, and the dialog behind it. */
export function Act({ name, params, label, kind, small, disabled, force, onDone }: Props) {
  const [open, show] = useState(false);
  return (
    <>
      <Button kind={kind} small={small} disabled={disabled} barred={barred(name)} aria-haspopup="dialog" onClick={() => show(true)}>
        {label}
      </Button>
      {open && <Acting name={name} params={params} title={label} force={force} onDone={onDone} onClose={() => show(false)} />}
    </>
  );
}

interface ActingProps {
  name: string;
  params: Params;
  title: ComponentChildren;
  force?: string;
  /** Fields that are asked for before the preview: of bulk acts. */
  asked?: ComponentChildren;
  onDone?: (outcome: Outcome) => void;
  onClose: () => void;
}

/** The dialog: preview, reason, confirmation; what came of it is said beside the page. Each preview has an id for its press, so that a press is done once. */
export function Acting({ name, params, title, force, asked, onDone, onClose }: ActingProps) {
  const [forced, setForced] = useState(false);
  const [seen, setSeen] = useState<Preview>();
  const [error, setError] = useState<ApiError>();
  const [why, setWhy] = useState("");
  const [missing, setMissing] = useState("");
  const [busy, setBusy] = useState(false);
  const body = JSON.stringify({ ...params, ...(forced ? { force: true } : {}) });

  const look = useCallback(() => {
    let current = true;
    setSeen(undefined);
    setError(undefined);
    act<Preview>(name, { ...(JSON.parse(body) as object), dry: true }).then(
      (answer) => current && setSeen(answer.data),
      (failure: unknown) => current && setError(told(failure)),
    );
    return () => void (current = false);
  }, [name, body]);
  useEffect(look, [look]);

  const press = async (): Promise<void> => {
    if (!seen || busy) return;
    if (!why.trim()) return setMissing("Say why: it is kept in the operators' log, and the next one on call will ask.");
    setBusy(true);
    setError(undefined);
    try {
      const done = await act<Outcome>(name, { ...(JSON.parse(body) as object), why, seen: seen.seen, press: seen.press });
      // The row that was pressed may be gone in a moment: what was done is said beside the page, until somebody has read it or went on.
      toast(done.data.sentence, { tone: "good", stay: true, ...led(name, params, done.data.job) });
      onClose();
      changed("*");
      onDone?.(done.data);
    } catch (failure) {
      setError(told(failure));
    } finally {
      setBusy(false);
    }
  };

  const heading = typeof title === "string" ? title : (seen?.title ?? name);
  return (
    <Dialog
      open
      title={heading}
      wide={asked !== undefined || (seen !== undefined && seen.changes.length > 0)}
      onClose={onClose}
      onSubmit={() => void press()}
      actions={
        <>
          <Button onClick={onClose}>Not now</Button>
          {error && (error.status === 409 || !seen) ? (
            <Button kind="main" onClick={() => void look()}>
              Look again
            </Button>
          ) : (
            <Button kind={seen?.danger ? "danger" : "main"} type="submit" busy={busy} disabled={!seen}>
              {seen?.title ?? "Do it"}
            </Button>
          )}
        </>
      }
    >
      {asked}
      <div aria-live="polite" class="act-look">
        {!seen && !error && <Skeleton lines={2} />}
        {seen && <p class="act-sentence">{seen.sentence}</p>}
        {seen?.lines.map((line) => <p key={line}>{line}</p>)}
        {seen && <Counts counts={seen.counts} />}
        {seen && seen.changes.length > 0 && <Changes changes={seen.changes} />}
        {seen?.danger && (
          <Notice tone="warn">
            <p>{seen.danger}</p>
          </Notice>
        )}
        {error && (
          <Notice tone="bad">
            <p>{error.message}</p>
            {error.hint && <p>{error.hint}</p>}
          </Notice>
        )}
      </div>
      {force && <Check label={`Even so: ${force}`} checked={forced} onChange={setForced} />}
      <Field
        label="Why"
        value={why}
        onInput={(text) => {
          setWhy(text);
          setMissing("");
        }}
        lines={2}
        autofocus
        required
        error={missing}
        hint="Kept in the operators' log with your name. A ticket's number says more than a name."
      />
    </Dialog>
  );
}

function told(failure: unknown): ApiError {
  return failure instanceof ApiError ? failure : new ApiError(0, String(failure));
}
