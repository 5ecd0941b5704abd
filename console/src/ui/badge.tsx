import type { ComponentChildren } from "preact";
import { cls, type Tone } from "./types";

/** A state, in a word. */
export function Badge({ tone = "neutral", children, title }: { tone?: Tone; children: ComponentChildren; title?: string }) {
  return (
    <span class={cls("badge", `badge-${tone}`)} title={title}>
      {children}
    </span>
  );
}
