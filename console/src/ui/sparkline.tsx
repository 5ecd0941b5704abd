import { cls, type Tone } from "./types";

const WIDTH = 120;
const HEIGHT = 28;

/** The last while of one figure, drawn small. `label` says what it is; gaps are null. */
export function Sparkline({ points, label, tone = "info", most }: { points: readonly (number | null)[]; label: string; tone?: Tone; most?: number }) {
  const known = points.filter((one): one is number => one !== null);
  const top = Math.max(most ?? 0, ...known, 1e-9);
  const x = (i: number): number => (points.length < 2 ? WIDTH : (i / (points.length - 1)) * WIDTH);
  const y = (value: number): number => HEIGHT - 2 - (value / top) * (HEIGHT - 4);
  let path = "";
  let pen = false;
  points.forEach((value, i) => {
    if (value === null) pen = false;
    else {
      path += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
    }
  });
  const last = known.at(-1);
  const said = last === undefined ? `${label}: nothing known yet` : `${label}: now ${round(last)}, at most ${round(Math.max(...known))}`;
  return (
    <svg class={cls("sparkline", `tone-${tone}`)} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={said}>
      <title>{said}</title>
      {known.length > 1 && !points.includes(null) && <path class="sparkline-area" d={`${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`} />}
      {known.length > 0 && <path class="sparkline-line" d={path} />}
    </svg>
  );
}

const round = (value: number): string => value.toLocaleString("en", { maximumSignificantDigits: 3 });
