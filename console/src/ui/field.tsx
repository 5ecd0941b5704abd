import type { ComponentChildren, InputHTMLAttributes, TargetedEvent } from "preact";
import { useId } from "preact/hooks";
import { cls } from "./types";

export interface Choice {
  value: string;
  label: string;
}

interface Props {
  label: string;
  value: string;
  onInput: (value: string) => void;
  /** What is meant, before it is wrong. */
  hint?: string;
  /** What is wrong. */
  error?: string;
  kind?: "text" | "number" | "search" | "datetime-local" | "password";
  /** More than one line. */
  lines?: number;
  /** One of these. */
  choices?: readonly Choice[];
  required?: boolean;
  mono?: boolean;
  placeholder?: string;
  autofocus?: boolean;
  disabled?: boolean;
  min?: number;
  max?: number;
}

/** A question to the reader, with its label, what is meant and what is wrong. */
export function Field({ label, value, onInput, hint, error, kind = "text", lines, choices, required, mono, autofocus, ...rest }: Props) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  const common = {
    id,
    value,
    required,
    autoFocus: autofocus,
    class: cls("input", mono && "mono"),
    "aria-invalid": error ? true : undefined,
    "aria-describedby": described,
    ...rest,
  };
  const input = (event: TargetedEvent<HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement>): void => onInput(event.currentTarget.value);
  const own = { ...common, type: kind, autocomplete: "off", spellcheck: false, onInput: input };
  return (
    <div class="field">
      <label for={id}>
        {label}
        {required && <span class="muted"> (needed)</span>}
      </label>
      {choices ? (
        <select {...common} onChange={input}>
          {choices.map((choice) => (
            <option key={choice.value} value={choice.value}>
              {choice.label}
            </option>
          ))}
        </select>
      ) : lines ? (
        <textarea {...common} rows={lines} spellcheck={!mono} onInput={input} />
      ) : (
        <input {...(own as InputHTMLAttributes<HTMLInputElement>)} />
      )}
      {hint && (
        <p class="field-hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p class="field-error" id={`${id}-error`}>
          {error}
        </p>
      )}
    </div>
  );
}

/** A yes or no, said in a sentence. */
export function Check({ label, checked, onChange, disabled }: { label: string; checked: boolean; onChange: (on: boolean) => void; disabled?: boolean }) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} disabled={disabled} onChange={(event) => onChange(event.currentTarget.checked)} /> {label}
    </label>
  );
}

/** Filters and searches in a row above a list. */
export function Bar({ children }: { children: ComponentChildren }) {
  return <div class="bar">{children}</div>;
}
