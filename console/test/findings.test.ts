import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { type Examined, type Judgement, findings, where } from "../src/pages/findings";

const place = (service: string, part: Examined["part"], ...checks: [string, Judgement, string][]): Examined => ({
  service, part, place: "", judgement: "ok", promise: [], checks: checks.map(([name, judgement, found]) => ({ name, judgement, found, fix: "" })),
});

test("what many places have in common is said once, and what is broken first", () => {
  const old: [string, Judgement, string] = ["SQLite", "warn", "3.40.1"];
  const found = findings([place("a", "store", old, ["room", "ok", "much"]), place("b", "store", old), place("b", "broker", old, ["reach", "fail", "none"]), place("c", "store", ["SQLite", "warn", "3.39"])]);
  deepEqual(found.map((one) => [one.check.name, one.check.found, where(one.places)]), [
    ["reach", "none", "broker of b"],
    ["SQLite", "3.40.1", "store of a, store of b, broker of b"],
    ["SQLite", "3.39", "store of c"],
  ]);
});

test("nothing is found where all is fine", () => deepEqual(findings([place("a", "store", ["room", "ok", "much"])]), []));

test("many places are counted, few are named", () => {
  equal(where(["a", "b", "c", "d"].map((name) => place(name, "store"))), "4 stores");
  equal(where([...["a", "b", "c"].map((name) => place(name, "store")), place("a", "broker")]), "3 stores and 1 broker");
});
