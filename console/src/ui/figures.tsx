import type { ComponentChildren } from "preact";
import { Link } from "./link";
import { cls, type Tone } from "./types";

/** One figure: the words first, the number, what it means. With `to` it leads to where one deals with it. */
export function Figure({ label, value, says, tone = "neutral", to, children }: { label: string; value: ComponentChildren; says?: ComponentChildren; tone?: Tone; to?: string; children?: ComponentChildren }) {
  const inside = (
    <>
      <span class="figure-label">{label}</span>
      <span class={cls("figure-value", `tone-${tone}`)}>{value}</span>
      {says && <span class="figure-says">{says}</span>}
      {children}
    </>
  );
  return to ? (
    <Link to={to} class="figure figure-link">
      {inside}
    </Link>
  ) : (
    <div class="figure">{inside}</div>
  );
}

/** Figures side by side. */
export function Figures({ children }: { children: ComponentChildren }) {
  return <div class="figures">{children}</div>;
}

/** Facts about one thing: words at the left, what they are at the right. Those that are null are left out. */
export function Facts({ items }: { items: readonly (readonly [string, ComponentChildren] | null | false)[] }) {
  return (
    <dl class="facts">
      {items.map((one) => one && one[1] !== null && one[1] !== undefined && (
        <div class="fact" key={one[0]}>
          <dt>{one[0]}</dt>
          <dd>{one[1]}</dd>
        </div>
      ))}
    </dl>
  );
}
