// Runs as one file, as the library exports them.

import { readFile } from "node:fs/promises";
import { pack } from "./server.mjs";

const DIST = new URL("../dist/", import.meta.url);

export async function exportPage(runs) {
  const data = { runs: runs.map(r => r.run) };
  for (const { run, graph, series, scalars, health, columns } of runs) {
    const list = [...columns].map(([id, all]) => ({ id, sequence: all.length, columns: all }));
    data[run.id] = { graph, series, scalars, health, columns: pack(list).toString("base64") };
  }
  const parts = { "@TORCHTAP_DATA@": JSON.stringify(data).replaceAll("<", "\\u003c") };
  for (const [marker, file] of [
    ["CSS", "app.css"],
    ["WORKER", "worker.js"],
    ["APP", "app.js"],
  ]) {
    parts[`@TORCHTAP_${marker}@`] = await readFile(new URL(file, DIST), "utf8");
  }
  const html = await readFile(new URL("export.html", DIST), "utf8");
  for (const marker of Object.keys(parts)) {
    if (html.split(marker).length !== 2) throw new Error(`${marker} does not stand once in export.html`);
  }
  return html.replace(/@TORCHTAP_[A-Z]+@/g, marker => parts[marker]);
}
