import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { led } from "../src/acting/led";
import { reason } from "../src/reason";

test("what was done is linked to: its job, its thing, or the log", () => {
  const service = "a/b";
  equal(led("held.retry.all", { service }, "j1").to, "/jobs/a%2Fb/j1");
  equal(led("held.skip", { service, id: "7" }, null).to, "/held/a%2Fb/7");
  equal(led("saga.retry", { service, saga: "stay", id: "b 1", tenant: "t", attempt: 2 }, null).to, "/sagas/a%2Fb/stay/b%201?tenant=t&attempt=2");
  deepEqual(led("timers.cancel", { service, timer: "x" }, null).to, "/log");
});

test("whoever may not press is told which role it needs", () => {
  equal(reason("operator", ["reader"]), "You may not press this: it needs the role operator, and yours is reader.");
  ok(reason("operator", ["admin"]).includes("tenants or payloads"));
});
