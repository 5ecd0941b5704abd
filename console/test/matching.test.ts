import { deepEqual } from "node:assert/strict";
import { test } from "node:test";
import { match } from "../src/matching";

test("a part may hold anything", () => {
  for (const key of ["plain", "a/b", "100%", "ä ö", "?x=1#y", "{id}"]) deepEqual(match("/keys/{key}", `/keys/${encodeURIComponent(key)}`), { key });
});

test("another length, another word, an empty part or a broken one is no match", () => {
  for (const path of ["/held", "/held/a/b/c", "/hold/a/b", "/held//b", "/held/a/%E0%A4%A"]) deepEqual(match("/held/{service}/{id}", path), null, path);
  deepEqual(match("/", "/"), {});
});
