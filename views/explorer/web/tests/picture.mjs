// Takes a picture of an exported page, in Chromium.
//
// usage: node tests/picture.mjs PAGE.html PICTURE.png [VIEW [light|dark]]   VIEW: the fragment of the page's address

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch, ready } from "./browser/page.mjs";

const [from, to, view = "", scheme = "light"] = process.argv.slice(2);
if (!to) throw new Error("usage: node tests/picture.mjs PAGE.html PICTURE.png [VIEW [light|dark]]");
const browser = await launch();
const page = await browser.newPage();
await page.emulateMediaFeatures([
  { name: "prefers-color-scheme", value: scheme },
  { name: "prefers-reduced-motion", value: "reduce" },
]);
await page.setViewport({ width: 1440, height: 900 });
await page.goto(`${pathToFileURL(resolve(from))}#${view}`);
await ready(page);
await new Promise(done => setTimeout(done, 2500));
await page.screenshot({ path: to, type: "png" });
await browser.close();
