// Opens the page in Chromium. Any error on the console, any report of the CSP, any request that leaves this machine fails
// the test.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import puppeteer from "puppeteer-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

export async function launch() {
  assert.ok(existsSync(CHROMIUM), `${CHROMIUM} is missing: apt-get install chromium, or set CHROMIUM`);
  return puppeteer.launch({
    executablePath: CHROMIUM,
    args: [
      "--no-sandbox",
      "--disable-background-networking",
      "--force-color-profile=srgb",
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ],
  });
}

/** `problems` must be empty at the end; `allow` are patterns of what a test provokes on purpose. */
export async function open(browser, address, { width = 1440, height = 900, dark = false, allow = [], touch = false } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  const problems = [],
    requests = [];
  // Reading pixels back is the tests' own doing.
  const complain = text => {
    if (!/willReadFrequently/.test(text) && !allow.some(pattern => pattern.test(text))) problems.push(text);
  };
  page.on("console", message => {
    if (["error", "warn", "assert"].includes(message.type())) complain(`console: ${message.text()}`);
  });
  page.on("pageerror", error => complain(`error: ${error.stack ?? error}`));
  page.on("request", request => {
    requests.push(request.url());
    if (!/^(http:\/\/127\.0\.0\.1:\d+\/|data:|blob:|file:)/.test(request.url())) complain(`request: ${request.url()}`);
  });
  await page.evaluateOnNewDocument(() => {
    addEventListener("securitypolicyviolation", e => console.error("CSP", e.violatedDirective, e.blockedURI, e.sourceFile));
  });
  await page.setViewport({ width, height, hasTouch: touch });
  await page.emulateMediaFeatures([
    { name: "prefers-color-scheme", value: dark ? "dark" : "light" },
    { name: "prefers-reduced-motion", value: "reduce" },
  ]);
  await page.goto(address);
  return {
    page,
    problems,
    requests,
    close: async () => {
      await context.close();
      assert.deepEqual(problems, []);
    },
  };
}

export async function ready(page) {
  await page.waitForFunction(() => window.torchtapGraph?.stage.laid && window.torchtapGraph.stage.progress === 1);
  await settled(page);
}
/** Two frames: what a change asked for has been drawn. */
export async function settled(page) {
  await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** The calls that are on the canvas, in order of their ids. */
export async function calls(page) {
  return page.evaluate(() => [...window.torchtapGraph.stage.nodeOf.keys()].sort((a, b) => a - b));
}

/** Where a call is, in the window; brought into view first. */
export async function place(page, call, { at = [0.5, 0.5] } = {}) {
  return page.evaluate(
    (call, at) => {
      const { stage, camera } = window.torchtapGraph;
      const i = stage.nodeOf.get(call);
      if (i === undefined) throw new Error(`call ${call} is not shown`);
      const { x, y, w, h } = stage.box(i);
      const inside = p => p[0] > 60 && p[1] > 20 && p[0] < camera.width - 60 && p[1] < camera.height - 70;
      let to = camera.screen(x + w * at[0], y + h * at[1]);
      if (!inside(to) || camera.k < 0.5) {
        camera.go([x + w / 2 - camera.width / 2, y + Math.min(h, 400) / 2 - camera.height / 2, 1], false);
        window.torchtapGraph.redraw();
        to = camera.screen(x + w * at[0], y + h * at[1]);
      }
      const box = document.querySelector(".graph canvas").getBoundingClientRect();
      return { x: box.left + to[0], y: box.top + to[1] };
    },
    call,
    at,
  );
}

export async function clickCall(page, call, options = {}) {
  const { x, y } = await place(page, call, options);
  await settled(page);
  await page.mouse.click(x, y, options);
  await settled(page);
}

export async function waitFor(page, condition, ...args) {
  await page.waitForFunction(condition, { timeout: 15000 }, ...args);
}

export const text = (page, selector) => page.$eval(selector, e => e.textContent);
