import type { ButtonHTMLAttributes, ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { copy } from "./copying";
import { toast } from "./toasts";
import { cls } from "./types";

interface Props extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "class" | "disabled" | "type"> {
  /** `main` is what one came for: one in a view. `danger` cannot be taken back. */
  kind?: "main" | "plain" | "danger" | "quiet";
  small?: boolean;
  busy?: boolean;
  disabled?: boolean;
  /** Why this person may not press it: it can be reached and says so, and does nothing. */
  barred?: string;
  type?: "button" | "submit";
  class?: string;
  children: ComponentChildren;
}

/** Something to press. While it is busy it cannot be pressed again, and says so. */
export function Button({ kind = "plain", small, busy, disabled, barred, type = "button", class: more, children, onClick, ...rest }: Props) {
  return (
    <button
      {...rest}
      type={type}
      class={cls("button", `button-${kind}`, small && "button-small", more)}
      aria-disabled={busy || !!barred || undefined}
      aria-busy={busy || undefined}
      disabled={disabled}
      title={barred || rest.title}
      onClick={(event) => {
        if (barred) toast(barred, { tone: "warn" });
        if (busy || barred) event.preventDefault();
        else onClick?.(event);
      }}
    >
      {busy && <span class="spinner" aria-hidden="true" />}
      {children}
      {barred && <span class="unseen">. {barred}</span>}
    </button>
  );
}

/** Copies a text. Works without TLS too. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [said, say] = useState("");
  useEffect(() => {
    if (!said) return;
    const timer = setTimeout(() => say(""), 1_600);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <button type="button" class="copy" aria-label={`${label}${said ? `: ${said}` : ""}`} title={label} onClick={() => copy(text).then((done) => say(done ? "copied" : "not copied"))}>
      <span aria-hidden="true">{said || "copy"}</span>
    </button>
  );
}
