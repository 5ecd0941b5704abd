import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";

export interface Series {
  name: string;
  values: readonly (number | null)[];
}

interface Props {
  label: string;
  /** Moments, in seconds since 1970, one for each value. */
  times: readonly number[];
  series: readonly Series[];
  /** After every value: "/s", " s". */
  unit?: string;
  height?: number;
}

/** A colour as the page has it now: canvas knows no custom properties. */
function colour(name: string, of: HTMLElement): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  of.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const seconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Figures over time. Those who cannot see it get the last values in a sentence. */
export function Chart({ label, times, series, unit = "", height = 180 }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [theme, setTheme] = useState(0);
  const names = series.map((one) => one.name).join("\n");
  const data = [times, ...series.map((one) => one.values)] as unknown as uPlot.AlignedData;
  const drawn = times.length > 1; // one point has no length of time to be drawn over
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const changed = (): void => setTheme((was) => was + 1);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const watch = new MutationObserver(changed);
    dark.addEventListener("change", changed);
    watch.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      dark.removeEventListener("change", changed);
      watch.disconnect();
    };
  }, []);

  useEffect(() => {
    const room = frame.current;
    if (!room || !drawn) return;
    let over = false;
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: room.clientWidth, height }));
    import("./plot").then(({ default: Plot }) => {
      if (over) return;
      const axis: uPlot.Axis = { stroke: colour("--muted", room), grid: { stroke: colour("--line", room), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      plot.current = new Plot(
        {
          width: room.clientWidth,
          height,
          cursor: { y: false, points: { size: 6 } },
          legend: { live: true },
          scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 1e-6) * 1.1] } },
          axes: [{ ...axis, space: 70, values: (_, ticks, __, ___, step) => ticks.map((tick) => (step < 60 ? seconds : minutes).format(tick * 1000)) }, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => short.format(tick) + unit) }],
          series: [
            { value: (_, at) => (at === null ? "" : new Date(at * 1000).toLocaleTimeString(undefined, { hourCycle: "h23" })) },
            ...names.split("\n").map((name, i) => ({
              label: name,
              stroke: colour(`--series-${(i % 4) + 1}`, room),
              width: 1.5,
              dash: i >= 4 ? [6, 3] : undefined,
              points: { show: false },
              value: (_: uPlot, value: number | null) => (value === null ? "–" : short.format(value) + unit),
            })),
          ],
        },
        latest.current,
        room,
      );
      resize.observe(room);
    });
    return () => {
      over = true;
      resize.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, unit, height, theme, drawn]);

  useEffect(() => plot.current?.setData(data), [times, series]);

  const said = series.map((one) => `${one.name} ${one.values.at(-1) ?? "unknown"}${unit}`).join(", ");
  return (
    <figure class="chart">
      <figcaption class="chart-label">
        {label}
        <span class="unseen">: now {said}</span>
      </figcaption>
      {!drawn && <p class="chart-wait muted">The first figures come in a moment.</p>}
      <div ref={frame} class="chart-frame" aria-hidden="true" hidden={!drawn} />
    </figure>
  );
}
