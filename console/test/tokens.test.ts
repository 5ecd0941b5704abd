import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { laidOut, tokens } from "../src/ui/tokens";

const joined = (text: string): string => (laidOut(tokens(text) ?? []) ?? []).map((one) => one.text).join("");

test("integers beyond 2^53 and the digits of a number stay as they were written", () => {
  equal(joined('{"n":9007199254740993,"x":1.10,"e":1E+2}'), '{\n  "n": 9007199254740993,\n  "x": 1.10,\n  "e": 1E+2\n}');
});

test("nothing but space is added or taken away", () => {
  const texts = ['{"a":[1,{"b":[]},{}],"c":"x \\" , : {} \\\\","d":null}', "[]", "{}", '"text"', "-0", "[[[[]]]]", '{"":""}', '{"a":1,"a":2}', '["\\u2028<script>"]'];
  for (const text of texts) equal((tokens(text) ?? []).map((one) => one.text).join(""), text);
});

test("space in strings is kept and space between is not", () => {
  deepEqual(tokens(' [ "a  b" , 1 ] ')?.map((one) => one.text), ["[", '"a  b"', ",", "1", "]"]);
});

test("keys are told from strings", () => {
  deepEqual(tokens('{"a":"b"}')?.map((one) => one.kind), ["mark", "key", "mark", "string", "mark"]);
});

test("what is no JSON is not touched", () => {
  for (const text of ["", "[1 2]", "{a:1}", "Traceback", '{"a":1}{"b":2}', '"', "01", "NaN", "{'a':1}"]) equal(tokens(text), null, text);
});
