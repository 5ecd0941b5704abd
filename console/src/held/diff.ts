// The lines of two texts that differ, by their longest common subsequence.
import { laidOut, tokens } from "../ui/tokens";

export interface Line {
  kind: "same" | "gone" | "new";
  text: string;
}

const MOST = 1_500;

/** All lines of both, in order. Very long texts are compared from both ends only. */
export function diff(before: string, after: string): Line[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const left = a.slice(head, a.length - tail);
  const right = b.slice(head, b.length - tail);
  const same = (text: string): Line => ({ kind: "same", text });
  return [...a.slice(0, head).map(same), ...middle(left, right), ...a.slice(a.length - tail).map(same)];
}

function middle(a: string[], b: string[]): Line[] {
  const gone = (text: string): Line => ({ kind: "gone", text });
  const fresh = (text: string): Line => ({ kind: "new", text });
  if (a.length > MOST || b.length > MOST) return [...a.map(gone), ...b.map(fresh)];
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  const at = (i: number, j: number): number => lengths[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const lines: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i] as string });
      i++;
      j++;
    } else if (i < a.length && (j >= b.length || at(i + 1, j) >= at(i, j + 1))) lines.push(gone(a[i++] as string));
    else lines.push(fresh(b[j++] as string));
  }
  return lines;
}

/** JSON text on lines of its own, every token as it is written; any other text as it is. */
export function pretty(text: string): string {
  const pieces = tokens(text);
  return pieces ? laidOut(pieces).map((one) => one.text).join("") : text;
}
