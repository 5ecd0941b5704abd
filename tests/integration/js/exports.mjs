// Reads one JSON task on stdin, answers one JSON value. The folder of the packages is the first argument.
//   {"asyncapi": text}        -> {accepted, diagnostics, channels, operations, messages}, by the official parser
//   {"eventcatalog": folder}  -> {domains, services, events, channels, teams, flows}, by EventCatalog's own SDK
//   {"mdx": {path: text}}     -> {path: null or why it does not compile}
//   {"mermaid": [text]}       -> [the kind of diagram, or why it cannot be read]
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.argv[2]);
const load = (name) => import(pathToFileURL(require.resolve(name)));
// Some packages have no entry for `require`.
const loadModule = (path) => import(new URL(`node_modules/${path}`, pathToFileURL(process.argv[2])));

async function asyncapi(text) {
  const { Parser } = require("@asyncapi/parser");
  const parser = new Parser();
  parser.registerSchemaParser(require("@asyncapi/avro-schema-parser").AvroSchemaParser());
  const { document, diagnostics } = await parser.parse(text);
  const ids = (found) => found.all().map((one) => one.id()).sort();
  const seen = document && {
    channels: ids(document.channels()),
    operations: ids(document.operations()),
    messages: document.components().messages().all().map((one) => one.name()).sort(),
  };
  return { accepted: document !== undefined, diagnostics, ...seen };
}

async function eventcatalog(folder) {
  const { default: utils } = await load("@eventcatalog/sdk");
  const sdk = (utils.default ?? utils)(folder);
  const [domains, services, events, channels, teams, flows] = await Promise.all(
    [sdk.getDomains(), sdk.getServices(), sdk.getEvents(), sdk.getChannels(), sdk.getTeams(), sdk.getFlows()],
  );
  return { domains, services, events, channels, teams, flows };
}

async function mdx(pages) {
  const { compile } = await loadModule("@mdx-js/mdx/index.js");
  const { default: gfm } = await loadModule("remark-gfm/index.js");
  const answers = {};
  for (const [path, text] of Object.entries(pages)) {
    answers[path] = await compile(text, { remarkPlugins: [gfm] }).then((made) => String(made), (error) => ({ error: String(error) }));
  }
  return answers;
}

async function mermaid(texts) {
  const { JSDOM } = require("jsdom"); // it cleans labels with what only a browser has
  globalThis.window = new JSDOM().window;
  globalThis.document = window.document;
  const { default: reader } = await loadModule("mermaid/dist/mermaid.core.mjs");
  const answers = [];
  for (const text of texts) {
    answers.push(await reader.parse(text).then((found) => found.diagramType, (error) => `refused: ${error.message ?? error}`));
  }
  return answers;
}

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const task = JSON.parse(Buffer.concat(chunks).toString("utf8"));
const [[name, value]] = Object.entries(task);
console.log(JSON.stringify(await { asyncapi, eventcatalog, mdx, mermaid }[name](value)));
