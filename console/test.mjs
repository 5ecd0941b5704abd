// Runs the tests of what needs no browser: bundles test/*.test.ts and hands them to Node.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const into = mkdtempSync(join(tmpdir(), "posthouse-console-"));
try {
  const entryPoints = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts")).map((name) => join(here, "test", name));
  await build({ entryPoints, outdir: into, outExtension: { ".js": ".mjs" }, bundle: true, format: "esm", platform: "node", define: { DEVELOPMENT: "true" }, logLevel: "warning" });
  const files = readdirSync(into).map((name) => join(into, name));
  process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(into, { recursive: true });
}
