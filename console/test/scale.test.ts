import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { moments, nearest, pen, steps } from "../src/ui/scale";

test("an axis goes in round steps, and holds what is highest", () => {
  deepEqual(steps(0, 1), [0, 0.5, 1]);
  deepEqual(steps(0, 43), [0, 20, 40, 60]);
  deepEqual(steps(0, 0.000001), [0, 5e-7, 0.000001]);
  deepEqual(steps(-3, 10), [-5, 0, 5, 10]);
  for (const top of [0.003, 1, 7.5, 99, 1234, 9_007_199_254_740_991]) {
    const found = steps(0, top);
    equal((found.at(-1) ?? 0) >= top, true, `${top} is above ${found.join(" ")}`);
    equal(found.length <= 6, true);
  }
});

test("moments stand at round times, and never more of them than there is room for", () => {
  deepEqual(moments(601, 1199, 3), [900]);
  deepEqual(moments(0, 600, 2), [0, 300, 600]);
  for (const length of [5, 61, 600, 86_400, 8_640_000]) equal(moments(7, 7 + length, 5).length <= 6, true);
});

test("a line is broken where nothing is known, and a lone point is seen", () => {
  const through = (values: (number | null)[]) => pen(values, (i) => i, (value) => value);
  equal(through([1, 2, null, 4]), "M0.0 1.0L1.0 2.0M3.0 4.0h.01");
  equal(through([null, null]), "");
});

test("the value under the pointer is the nearest one", () => {
  equal(nearest([10, 20, 30], 26), 2);
  equal(nearest([10, 20, 30], -5), 0);
});
