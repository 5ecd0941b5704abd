import { useEffect, useRef, useState } from "preact/hooks";
import { moments, nearest, pen, steps } from "./scale";

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

const LEFT = 46;
const RIGHT = 8;
const TOP = 8;
const BELOW = 20;
const TICK = 76;

const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const seconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Figures over time, drawn as SVG. The legend has the last values, or those under the pointer; arrows walk through them. */
export function Chart({ label, times, series, unit = "", height = 170 }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [at, point] = useState<number | null>(null);
  const drawn = times.length > 1; // one point has no length of time to be drawn over
  useEffect(() => {
    const room = frame.current;
    if (!room) return;
    const resize = new ResizeObserver(() => setWidth(room.clientWidth));
    resize.observe(room);
    return () => resize.disconnect();
  }, [drawn]);

  const from = times[0] ?? 0;
  const until = Math.max(times.at(-1) ?? 1, from + 1);
  const known = series.flatMap((one) => one.values.filter((value): value is number => value !== null));
  const marks = steps(Math.min(0, ...known), Math.max(1e-6, ...known));
  const low = marks[0] ?? 0;
  const top = marks.at(-1) ?? 1;
  const x = (time: number): number => LEFT + ((time - from) / (until - from)) * Math.max(width - LEFT - RIGHT, 1);
  const y = (value: number): number => TOP + (1 - (value - low) / (top - low)) * (height - TOP - BELOW);
  const said = (value: number | null | undefined): string => (value === null || value === undefined ? "–" : short.format(value) + unit);
  const shown = at === null ? times.length - 1 : Math.min(at, times.length - 1);
  const clock = until - from < 240 ? seconds : minutes;
  const key = (event: KeyboardEvent): void => {
    const next = { ArrowLeft: shown - 1, ArrowRight: shown + 1, Home: 0, End: times.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    point(Math.max(0, Math.min(next, times.length - 1)));
  };
  return (
    <figure class="chart">
      <figcaption class="chart-label">
        {label}
        <span class="unseen">: now {series.map((one) => `${one.name} ${said(one.values.at(-1))}`).join(", ")}</span>
      </figcaption>
      {!drawn ? (
        <p class="chart-wait muted">The first figures come in a moment.</p>
      ) : (
        <>
          <div
            ref={frame}
            class="chart-frame"
            role="group"
            aria-label={`${label}, over time: arrows walk through it`}
            tabIndex={0}
            onKeyDown={key}
            onBlur={() => point(null)}
            onPointerMove={(event) => point(nearest(times, from + ((event.offsetX - LEFT) / Math.max(width - LEFT - RIGHT, 1)) * (until - from)))}
            onPointerLeave={() => point(null)}
          >
            {width > 0 && (
              <svg width={width} height={height} aria-hidden="true">
                {marks.map((mark) => (
                  <g key={mark}>
                    <path class="chart-grid" d={`M${LEFT} ${y(mark)}H${width - RIGHT}`} />
                    <text class="chart-tick" x={LEFT - 6} y={y(mark)} dy="0.32em" text-anchor="end">
                      {said(mark)}
                    </text>
                  </g>
                ))}
                {moments(from, until, Math.floor((width - LEFT) / TICK)).map((time) => (
                  <text key={time} class="chart-tick" x={x(time)} y={height - 4} text-anchor={x(time) > width - 34 ? "end" : "middle"}>
                    {clock.format(time * 1000)}
                  </text>
                ))}
                {series.map((one, i) => (
                  <path key={one.name} class={`chart-line series-${i + 1}`} d={pen(one.values, (j) => x(times[j] ?? from), y)} />
                ))}
                {at !== null && <path class="chart-cursor" d={`M${x(times[shown] ?? from)} ${TOP}V${height - BELOW}`} />}
                {at !== null &&
                  series.map((one, i) => {
                    const value = one.values[shown];
                    return value === null || value === undefined ? null : <circle key={one.name} class={`chart-dot series-${i + 1}`} cx={x(times[shown] ?? from)} cy={y(value)} r={3.5} />;
                  })}
              </svg>
            )}
          </div>
          <p class="chart-legend" aria-live={at === null ? "off" : "polite"}>
            {series.map((one, i) => (
              <span key={one.name}>
                <span class={`chart-key series-${i + 1}`} aria-hidden="true" /> {one.name} <strong>{said(one.values[shown])}</strong>
              </span>
            ))}
            <span class="muted">{at === null ? "now" : seconds.format((times[shown] ?? 0) * 1000)}</span>
          </p>
        </>
      )}
    </figure>
  );
}
