import { deepEqual } from "node:assert/strict";
import { test } from "node:test";
import { routes } from "../src/routes";

const twice = (names: readonly (string | undefined)[]): (string | undefined)[] => names.filter((name, i) => name !== undefined && names.indexOf(name) !== i);

test("no two pages have one address or one key", () => {
  deepEqual(twice(routes.map((one) => one.path)), []);
  deepEqual(twice(routes.map((one) => one.key)), []);
});

test("pages with a key can be gone to, and are in the rail", () => {
  deepEqual(routes.filter((one) => one.key && (!one.nav || one.path.includes("{"))), []);
});
