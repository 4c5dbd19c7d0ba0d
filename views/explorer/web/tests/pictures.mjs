// Takes the pictures of the docs: runs of tests/make_runs.py in an exported file, in Chromium.
//
// usage: node tests/pictures.mjs RUNS FOLDER   RUNS as tests/make_runs.py RUNS made them; FOLDER/explorer*.png

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch, ready } from "./browser/page.mjs";
import { exportPage } from "./export.mjs";
import { readRun } from "./server.mjs";

const [from, to] = process.argv.slice(2);
if (!to) throw new Error("usage: node tests/pictures.mjs RUNS FOLDER");
mkdirSync(to, { recursive: true });
const key = path => encodeURIComponent(encodeURIComponent(path));
const keys = (...paths) => paths.map(p => key(p)).join("|");
const PICTURES = [
  [
    "explorer",
    "light",
    `panels=${keys("layer1.0.conv1#0", "fc#0")}&at=${key("layer1.0.conv1#0").replaceAll("%25", "%")}&open=${keys("layer1#0", "layer1.0#0")}`,
  ],
  ["explorer-ridges", "dark", `panels=${keys("layer2.0.conv1#0", "fc#0")}&view=ridge&open=${keys("layer2#0", "layer2.0#0")}`],
  ["explorer-nan", "light", "run=r2&step=76&side=findings"],
  [
    "explorer-compare",
    "dark",
    `run=r0&vs=r1&side=differences&colour=difference&open=${keys("layer1#0", "layer2#0", "layer3#0", "layer4#0")}&panels=${keys("conv1#0", "layer4.1.bn2#0")}`,
  ],
];
const file = resolve(join(to, "explorer.html"));
writeFileSync(file, await exportPage(await Promise.all(["r0", "r1", "r2"].map(id => readRun(join(from, id))))));
const browser = await launch();
for (const [name, scheme, view] of PICTURES) {
  const page = await browser.newPage();
  await page.emulateMediaFeatures([
    { name: "prefers-color-scheme", value: scheme },
    { name: "prefers-reduced-motion", value: "reduce" },
  ]);
  await page.setViewport({ width: 1440, height: 900 });
  await page.goto(`${pathToFileURL(file)}#${view}`);
  await ready(page);
  if (name.endsWith("nan")) await page.click("#first-bad");
  if (name.endsWith("compare")) await page.waitForSelector(".difference");
  await new Promise(done => setTimeout(done, 2500));
  await page.screenshot({ path: join(to, `${name}.png`), type: "png" });
  await page.close();
}
await browser.close();
rmSync(file);
