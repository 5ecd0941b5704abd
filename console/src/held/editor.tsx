// Editing a payload: what it will be, beside what it was, before anything is pressed.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Act } from "../acting";
import { Button, Field, Notice, Section } from "../ui";
import { diff, pretty } from "./diff";
import { type Look, Unmask } from "./payload";

/** Fields that were changed, as they were and as they are. */
export function Diff({ changes }: { changes: readonly { name: string; before: string | null; after: string | null }[] }) {
  return (
    <dl class="changes">
      {changes.map((one) => (
        <div key={one.name}>
          <dt class="wrap">{one.name}</dt>
          <dd class="wrap">
            {one.before === null && one.after === null ? (
              <span class="muted">changed</span>
            ) : (
              <>
                <del>{one.before}</del> → <ins>{one.after}</ins>
              </>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Both texts as one, with what goes and what comes. */
export function Lines({ before, after }: { before: string; after: string }) {
  const lines = useMemo(() => diff(before, after), [before, after]);
  return (
    <pre class="diff" tabIndex={0} aria-label="What would change">
      {lines.map((line, i) => {
        const sign = line.kind === "gone" ? "-" : line.kind === "new" ? "+" : " ";
        const text = `${sign} ${line.text}\n`;
        return line.kind === "gone" ? <del key={i}>{text}</del> : line.kind === "new" ? <ins key={i}>{text}</ins> : text;
      })}
    </pre>
  );
}

/** Where JSON goes wrong, in words; null where it does not. The text itself is what is sent, never what was parsed. */
function wrong(text: string): string | null {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

export function Editor({ service, id, look, done, cancel }: { service: string; id: string; look: Look; done: () => void; cancel: () => void }) {
  const shown = look.looked?.payload;
  const source = shown?.edit ?? shown?.text ?? null;
  const hidden = !!shown?.unmaskable && !look.unmasked && shown.edit === null;
  const was = source === null ? "" : pretty(source);
  const [text, set] = useState(was);
  useEffect(() => set(was), [was]);
  if (!shown) return null;
  if (hidden)
    return (
      <Section title="Edit its payload">
        <Notice title="Parts of this payload are hidden." action={<Unmask press={look.unmask} label="Unmask and edit" />}>
          Whoever edits it writes all of it anew: unmask it first. That is kept in the operators' log, with your name. <Button kind="quiet" small onClick={cancel}>Leave it</Button>
        </Notice>
      </Section>
    );
  if (shown.form !== "json" || (shown.cut && shown.edit === null))
    return (
      <Section title="Edit its payload">
        <Notice title="This payload cannot be edited here." action={<Button small onClick={cancel}>Close</Button>}>
          {shown.cut ? "It is too long for a page." : "It is no JSON."} <code>posthouse held edit --data FILE</code> takes a file.
        </Notice>
      </Section>
    );
  const error = wrong(text);
  const same = text.trim() === was.trim();
  return (
    <Section title="Edit its payload" says="Its id and its place in line stay. It is checked against its contract, and runs again with all its attempts.">
      {shown.edit !== null && (
        <Notice tone="info">
          <code>⟨withheld 1⟩</code> stands for a value that travels encrypted: leave it where it is, and it stays as it is; or write a new one, which is encrypted.
        </Notice>
      )}
      <div class="editor">
        <Field label="Payload as it shall be" value={text} onInput={set} lines={Math.min(28, Math.max(8, text.split("\n").length + 1))} mono error={error ?? undefined} autofocus />
        <div>
          <p class="editor-title">What changes</p>
          {same ? <p class="muted">Nothing yet.</p> : <Lines before={was} after={text} />}
        </div>
      </div>
      <div class="held-press">
        {!same && !error && <Act name="held.edit" params={{ service, id, data: text }} label="Edit and retry…" kind="main" onDone={done} />}
        <Button onClick={cancel}>Leave it as it is</Button>
      </div>
    </Section>
  );
}
