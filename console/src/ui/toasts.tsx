import { signal } from "@preact/signals";
import { cls, type Tone } from "./types";

interface Toast {
  id: number;
  text: string;
  tone: Tone;
}

const shown = signal<readonly Toast[]>([]);
let last = 0;

/** Say what became of something that was pressed. What went wrong stays until it is closed. */
export function toast(text: string, tone: Tone = "neutral"): void {
  const id = ++last;
  shown.value = [...shown.value.slice(-3), { id, text, tone }];
  if (tone !== "bad") setTimeout(() => drop(id), 6_000);
}

const drop = (id: number): void => {
  shown.value = shown.value.filter((one) => one.id !== id);
};

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.value.map((one) => (
        <div key={one.id} class={cls("toast", `toast-${one.tone}`)}>
          <span class="wrap">{one.text}</span>
          <button type="button" class="toast-close" aria-label="Dismiss" onClick={() => drop(one.id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
