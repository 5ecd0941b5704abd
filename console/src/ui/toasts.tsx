import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { place } from "../router";
import { Link } from "./link";
import { cls, type Tone } from "./types";

interface More {
  tone?: Tone;
  /** Where one sees what was done. */
  to?: string;
  label?: string;
  /** Stays until it is closed, or its page is left. */
  stay?: boolean;
}

interface Toast extends More {
  id: number;
  at: number;
  text: string;
}

const MOST = 4;
const SHOWN = 6_000;

const shown = signal<readonly Toast[]>([]);
let last = 0;

/** Say what became of something that was pressed, wherever its button has gone. What went wrong stays until it is closed. */
export function toast(text: string, more: More = {}): void {
  const id = ++last;
  shown.value = [...shown.value.filter((one) => one.text !== text).slice(1 - MOST), { id, at: Date.now(), text, ...more }];
  if (more.tone !== "bad" && !more.stay) setTimeout(() => drop(id), SHOWN);
}

const drop = (id: number): void => {
  shown.value = shown.value.filter((one) => one.id !== id);
};

/** The page that it was said on was left: it is seen to its end, and goes. What went wrong stays. */
function leave(): void {
  for (const one of shown.value) if (one.stay && one.tone !== "bad") setTimeout(() => drop(one.id), one.at + SHOWN - Date.now());
}

export function Toasts() {
  const { path } = place.value;
  useEffect(() => leave, [path]);
  return (
    <section class="toasts" role="status" aria-live="polite" aria-label="What was done">
      {shown.value.map((one) => (
        <div key={one.id} class={cls("toast", `toast-${one.tone ?? "neutral"}`)}>
          <div class="toast-text">
            <span class="wrap">{one.text}</span>
            {one.to && (
              <Link to={one.to} onClick={() => drop(one.id)}>
                {one.label}
              </Link>
            )}
          </div>
          <button type="button" class="toast-close" aria-label="Dismiss" onClick={() => drop(one.id)}>
            ✕
          </button>
        </div>
      ))}
    </section>
  );
}
