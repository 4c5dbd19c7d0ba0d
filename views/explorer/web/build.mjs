// Builds the page into dist/, or into the folder given. The same sources give the same bytes anywhere.
//
// usage: node build.mjs [FOLDER]

import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "dist");
const LIMIT = 250_000;

const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: "es2021",
  format: "iife",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  outdir: out,
  write: false,
};
const results = [
  ...(await build({ ...common, entryPoints: { app: "src/main.tsx" }, jsx: "automatic", jsxImportSource: "preact" })).outputFiles,
  ...(await build({ ...common, entryPoints: { worker: "src/layout/worker.ts" } })).outputFiles,
];
const files = new Map(results.map(({ path, text }) => [path.split(/[\\/]/).pop(), text]));
for (const name of ["index.html", "favicon.svg"]) files.set(name, await readFile(join(here, name), "utf8"));

const hash = name => `'sha256-${createHash("sha256").update(files.get(name)).digest("base64")}'`;
const total = [...files.values()].reduce((sum, text) => sum + Buffer.byteLength(text), 0);
if (total > LIMIT) throw new Error(`the page has ${total} bytes, more than ${LIMIT}`);
for (const name of ["app.js", "worker.js"]) {
  // In an exported file these stand in the page itself.
  if (/<\/script|<!--/i.test(files.get(name))) throw new Error(`${name} would end or hide the script that it stands in`);
}
if (files.get("app.css").includes("</style")) throw new Error("app.css would end the style that it stands in");
const template = await readFile(join(here, "export.html"), "utf8");
files.set("export.html", template.replace("@APP_HASH@", hash("app.js")).replace("@CSS_HASH@", hash("app.css")));

await mkdir(out, { recursive: true });
for (const [name, text] of files) await writeFile(join(out, name), text);
console.log([...files].map(([name, text]) => `${name} ${Buffer.byteLength(text)}`).join(", ") + `; page ${total} bytes`);
