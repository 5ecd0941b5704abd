import { useMemo, useState } from "preact/hooks";
import { Button, Copy } from "./button";
import { laidOut, tokens } from "./tokens";

const MOST = 20_000;
/** Longer ones are not coloured: a browser would stand still. */
const COLOURED = 200_000;

interface Props {
  /** Exactly as it is stored. What is copied is this. */
  text: string;
  /** What it is, for those who hear the page. */
  label: string;
  /** JSON is coloured and laid out; anything else is shown as it is. */
  kind?: "json" | "text";
}

/** A payload, an envelope, a stack. Its text is text and never markup; a long one is cut until one asks for all. */
export function Code({ text, label, kind = "json" }: Props) {
  const [whole, showWhole] = useState(false);
  const [raw, showRaw] = useState(false);
  const long = text.length > MOST && !whole;
  const pieces = useMemo(() => (kind === "json" && !raw && !long && text.length <= COLOURED ? tokens(text) : null), [text, kind, raw, long]);
  const laid = useMemo(() => pieces && laidOut(pieces), [pieces]);
  return (
    <figure class="code">
      <div class="code-tools">
        <figcaption>{label}</figcaption>
        {kind === "json" && !long && (
          <Button kind="quiet" small aria-pressed={raw} onClick={() => showRaw(!raw)}>
            {raw ? "Laid out" : "As stored"}
          </Button>
        )}
        <Copy text={text} label={`Copy ${label.toLowerCase()}`} />
      </div>
      <pre tabIndex={0} aria-label={label}>
        <code>{laid ? laid.map((one, i) => (one.kind === "space" || one.kind === "mark" ? one.text : <span key={i} class={`code-${one.kind}`}>{one.text}</span>)) : long ? text.slice(0, MOST) : text}</code>
      </pre>
      {long && (
        <div class="code-more">
          <span class="muted">{(text.length - MOST).toLocaleString("en")} more characters.</span>
          <Button small onClick={() => showWhole(true)}>
            Show all
          </Button>
        </div>
      )}
    </figure>
  );
}
