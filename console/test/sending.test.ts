import { deepEqual } from "node:assert/strict";
import { test } from "node:test";
import { gravestFirst, state } from "../src/pages/sending";

test("an outbox that waits for a relay comes before those that are sent", () => {
  const sent = { leased: 16, free: 0, unsent: 3 };
  const some = { leased: 8, free: 8, unsent: 3 };
  const idle = { leased: 0, free: 16, unsent: 0 };
  const alone = { leased: 0, free: 16, unsent: 3 };
  deepEqual(gravestFirst([idle, sent, some, alone]).map((one) => state(one).word), ["nobody sends", "some are free", "sending", "nobody leases"]);
});
