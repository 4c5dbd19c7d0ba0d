// Runs the tests with node's own runner.
//
// usage: node tests/run.mjs unit | browser | live [NAME…]   names of test files, all if none are given
//   live: with the program that TORCHTAP_PAGE_SERVER names, built of tests/explorer_page

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url)),
  scratch = join(here, "../build");
const [kind = "unit", ...names] = process.argv.slice(2);
const folder = join(here, kind);
let files = readdirSync(folder)
  .filter(f => /\.test\.(ts|mjs)$/.test(f))
  .filter(f => !names.length || names.some(n => f.startsWith(n)));
if (!files.length) throw new Error(`there is no test ${names.join(", ")} in ${folder}`);
mkdirSync(scratch, { recursive: true });
if (kind === "unit") {
  await build({
    entryPoints: files.map(f => join(folder, f)),
    bundle: true,
    platform: "node",
    format: "esm",
    outdir: join(scratch, "unit"),
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
    sourcemap: "inline",
  });
  files = files.map(f => join(scratch, "unit", f.replace(/\.ts$/, ".mjs")));
} else {
  files = files.map(f => join(folder, f));
  const runs = join(scratch, "runs");
  if (kind === "browser" && !existsSync(join(runs, "r2/columns.bin"))) {
    console.log("training a small network, to have something to show …");
    const made = spawnSync(process.env.PYTHON ?? "/usr/bin/python3", [join(here, "make_runs.py"), runs, "--steps", "120"], {
      stdio: "inherit",
    });
    if (made.status !== 0) throw new Error("tests/make_runs.py failed; it needs python3-torch and dataset-fashion-mnist");
  }
}
// One at a time: several browsers would measure each other.
const result = spawnSync(process.execPath, ["--test", "--test-concurrency=1", ...files], { stdio: "inherit" });
process.exit(result.status ?? 1);
