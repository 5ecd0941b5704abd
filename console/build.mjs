// Builds the interface: hashed files and the page that loads them, into the folder that is in the wheel, or into the one
// that is named. The same sources give the same bytes: a test rebuilds and compares.
import { build, context } from "esbuild";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const named = process.argv.slice(2).find((word) => !word.startsWith("--"));
const into = resolve(named ?? join(here, "../src/posthouse/console/static"));

const watching = process.argv.includes("--watch");

const options = {
  absWorkingDir: here,
  entryPoints: ["src/main.tsx"],
  outdir: into,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022", "chrome111", "firefox114", "safari16.4"],
  minify: true,
  charset: "utf8",
  legalComments: "none", // licenses.txt has them
  preserveSymlinks: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { DEVELOPMENT: String(watching || process.argv.includes("--development")) },
  metafile: true,
  logLevel: "warning",
  plugins: [
    { name: "page", setup: (one) => one.onEnd(page) },
    { name: "licences", setup: (one) => one.onEnd(licences) },
  ],
};

// The packages that are in the bundle, with what their authors ask to be handed on.
async function licences({ metafile, errors }) {
  if (errors.length) return;
  const names = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const hit = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (hit) names.add(hit[1]);
  }
  const texts = [];
  for (const name of [...names].sort()) {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((one) => /^licen[cs]e/i.test(one));
    const text = file ? (await readFile(join(folder, file), "utf8")).trim() : `Licence: ${license}`;
    texts.push(`${name} ${version}\n\n${text}\n`);
  }
  await writeFile(join(into, "licenses.txt"), texts.join(`\n${"-".repeat(80)}\n\n`));
}

// `@BASE@` is where the console is mounted: the server writes it. No inline script, no inline style: the policy forbids them.
async function page({ metafile, errors }) {
  if (errors.length) return;
  const [script, entry] = Object.entries(metafile.outputs).find(([, one]) => one.entryPoint === "src/main.tsx");
  const name = (output) => relative(into, resolve(here, output));
  const needed = entry.imports.filter((one) => one.kind === "import-statement").map((one) => name(one.path));
  await writeFile(
    join(into, "index.html"),
    `<!doctype html>
<html lang="en" data-base="@BASE@">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>Posthouse</title>
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='%234a62ec' stroke-width='2.4' stroke-linecap='round' stroke-linejoin='round'%3E%3Ccircle cx='10' cy='14' r='6'/%3E%3Cpath d='M2.5 8H14M10 8h5l6-4v10l-5-3'/%3E%3C/svg%3E">
<link rel="stylesheet" href="@BASE@/static/${name(entry.cssBundle)}">
${needed.map((one) => `<link rel="modulepreload" href="@BASE@/static/${one}">\n`).join("")}<script type="module" src="@BASE@/static/${name(script)}"></script>
</head>
<body>
<div id="app"></div>
<noscript>The console needs JavaScript. The same answers are on the command line: posthouse status, posthouse held list.</noscript>
</body>
</html>
`,
  );
}

await rm(into, { recursive: true, force: true });
await mkdir(into, { recursive: true });
if (watching) await (await context(options)).watch();
else await build(options);
