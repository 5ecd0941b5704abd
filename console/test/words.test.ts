import { equal } from "node:assert/strict";
import { test } from "node:test";
import { brief, count, counted, rate, sentence, span } from "../src/ui/words";

test("lengths of time are short, and never longer than they were", () => {
  const said: [number, string][] = [
    [0, "0 s"], [0.0001, "1 ms"], [0.0426, "42 ms"], [0.9999, "999 ms"], [1, "1 s"], [2.96, "2.9 s"], [9.99, "9.9 s"], [59.9, "59 s"], [60, "1 min"], [3599, "59 min"],
    [3600, "1 h"], [7500, "2 h 5 min"], [36_600, "10 h"], [86_399, "23 h"], [86_400, "1 d"], [97_200, "1 d 3 h"], [86_400 * 5 + 7200, "5 d"], [86_400 * 1234, "1,234 d"], [-90, "-1 min"],
  ];
  for (const [seconds, words] of said) equal(span(seconds), words);
});

test("counts have their thousands apart, and say when there are more", () => {
  equal(count(1234567), "1,234,567");
  equal(count(10_000, true), "10,000+");
  equal(count(null), "–");
  equal(counted(1, "event"), "1 event");
  equal(counted(0, "entry", "entries"), "0 entries");
});

test("a rate that is not nothing is not shown as nothing", () => {
  equal(rate(0), "0/s");
  equal(rate(0.001), "<0.01/s");
  equal(rate(0.05), "0.05/s");
  equal(rate(3.14), "3.1/s");
  equal(rate(1234.6), "1,235/s");
  equal(rate(undefined), "–");
});

test("a message becomes a sentence", () => {
  equal(sentence("its store is away"), "Its store is away.");
  equal(sentence("is it up?"), "Is it up?");
  equal(sentence(""), "");
});

test("of a commit its first twelve digits are read, and other words stay", () => {
  equal(brief("0.1.0 765d53cbfb9aa1d5995fabdc271d9e5338503157-worktree"), "0.1.0 765d53cbfb9a-worktree");
  equal(brief("release-2026"), "release-2026");
});
