import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { blocks, inline } from "../src/markdown";

test("words, code, links and emphasis are told apart", () => {
  deepEqual(inline("**What** is `held list`, see [the store](store.md)."), [
    { kind: "strong", text: "What" },
    { kind: "text", text: " is " },
    { kind: "code", text: "held list" },
    { kind: "text", text: ", see " },
    { kind: "link", text: "the store", to: "store.md" },
    { kind: "text", text: "." },
  ]);
});

test("an item goes on over lines, and has items of its own", () => {
  const [list] = blocks("1. one\n   goes on\n   - inner\n2. two\n");
  if (list?.kind !== "list") throw new Error("no list");
  equal(list.ordered, true);
  deepEqual(list.items.map((item) => [item.inlines[0]?.text, item.inside.length]), [["one goes on", 1], ["two", 0]]);
});

test("headings, tables, commands and remarks are told apart", () => {
  const text = "# Title\n\nOne\ntwo.\n\n<!-- alerts -->\n| a | b |\n|---|---|\n| `x` | [y](y.md) |\n<!-- /alerts -->\n\n```\n$ held list\n# no heading\n```\n\n- one\n";
  const found = blocks(text);
  deepEqual(found.map((one) => one.kind), ["heading", "paragraph", "table", "code", "list"]);
  ok(found[1]?.kind === "paragraph" && found[1].inlines[0]?.text === "One two.");
  ok(found[2]?.kind === "table" && found[2].rows.length === 1);
  ok(found[3]?.kind === "code" && found[3].text === "$ held list\n# no heading");
});
