// What a chart needs to know about numbers.

/** Round steps from 0 (or below) to `top`: about `most` of them, the last at or above it. */
export function steps(low: number, top: number, most = 4): number[] {
  const room = Math.max(top - low, 1e-9) / most;
  const ten = 10 ** Math.floor(Math.log10(room));
  const step = ten * ([1, 2, 5].find((one) => one * ten >= room * 0.999) ?? 10);
  const first = Math.floor(low / step);
  const last = Math.ceil(top / step - 1e-9);
  return Array.from({ length: Math.max(last - first, 1) + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

const LENGTHS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400];

/** Round moments between two, in seconds: at most `most`. */
export function moments(from: number, until: number, most: number): number[] {
  const step = LENGTHS.find((one) => (until - from) / one <= Math.max(most, 1)) ?? 86_400 * Math.ceil((until - from) / 86_400 / Math.max(most, 1));
  const found: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= until; at += step) found.push(at);
  return found;
}

/** The way of a pen through points, lifted where one is not known. A lone point is a dot. */
export function pen(values: readonly (number | null | undefined)[], x: (i: number) => number, y: (value: number) => number): string {
  let path = "";
  values.forEach((value, i) => {
    if (value === null || value === undefined) return;
    const before = i > 0 ? values[i - 1] : null;
    const after = values[i + 1];
    const place = `${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    path += before === null || before === undefined ? `M${place}${after === null || after === undefined ? "h.01" : ""}` : `L${place}`;
  });
  return path;
}

/** The index of the value that is nearest to a moment. */
export function nearest(times: readonly number[], at: number): number {
  let best = 0;
  times.forEach((time, i) => {
    if (Math.abs(time - at) < Math.abs((times[best] ?? 0) - at)) best = i;
  });
  return best;
}
