// The page around the graph: address, token, keys, sizes.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { calls, clickCall, launch, open, ready, settled, text, waitFor } from "./page.mjs";
import { readRun, Server } from "../server.mjs";

const RUNS = new URL("../../build/runs/", import.meta.url).pathname;
let browser, runs;
before(async () => {
  browser = await launch();
  runs = await Promise.all(["r0", "r1"].map(id => readRun(RUNS + id)));
});
after(() => browser?.close());

async function serve(run) {
  const server = new Server(runs);
  await server.start();
  try { await run(server); } finally { await server.stop(); }
}
const graphOf = r => r.graph.train;
const byPath = (r, path) => graphOf(r).calls.find(c => c.path === path && c.call === 0);

test("the address holds the view and not the token", () => serve(async server => {
  const first = await open(browser, server.url("&open="));
  await ready(first.page);
  await clickCall(first.page, byPath(runs[0], "layer3").id, { count: 2 });
  await first.page.focus(".tree");
  await first.page.keyboard.press("p");
  await first.page.click('[data-view="bands"]');
  await first.page.focus(".ruler");
  for (let i = 0; i < 5; i++) await first.page.keyboard.press("ArrowLeft");
  await first.page.click("#theme");
  await waitFor(first.page, () => ["open=layer3", "panels=layer3", "view=bands", "step=", "theme=dark"].every(part => decodeURIComponent(location.hash).includes(part)));
  const address = await first.page.evaluate(() => location.hash);
  assert.ok(!address.includes("token"), address);
  await first.page.reload();
  await ready(first.page);
  assert.ok(await first.page.$('[data-panel="layer3#0"]'), "a reload keeps token and view");
  await first.close();

  const second = await open(browser, server.url("&" + address.slice(1)));
  await ready(second.page);
  assert.ok(await second.page.$('[data-panel="layer3#0"]'));
  assert.equal(await second.page.$eval('[data-view="bands"]', e => e.getAttribute("aria-checked")), "true");
  assert.equal(await second.page.$eval("html", e => e.dataset.theme), "dark");
  assert.equal(+(await second.page.$eval(".ruler", e => e.getAttribute("aria-valuenow"))), runs[0].run.step - 5);
  assert.ok((await calls(second.page)).includes(byPath(runs[0], "layer3.0").id));
  await second.close();
}));

test("a wrong token is told, not retried", () => serve(async server => {
  const { page, close } = await open(browser, `http://127.0.0.1:${server.port}/#token=wrong`, { allow: [/403/] });
  await page.waitForSelector(".message");
  assert.match(await text(page, ".message"), /token/);
  const before = server.requests.length;
  await new Promise(done => setTimeout(done, 1500));
  assert.equal(server.requests.length, before);
  await close();
}));

test("two tabs of two servers do not disturb each other", () => serve(one => serve(async two => {
  two.token = "fedcba9876543210fedcba9876543210";
  two.until = 20;
  const first = await open(browser, one.url()), second = await open(browser, two.url());
  await ready(first.page);
  await ready(second.page);
  assert.equal(await text(first.page, "#step-now"), `step ${runs[0].run.step}`);
  assert.equal(await text(second.page, "#step-now"), "step 20");
  await first.page.reload();
  await ready(first.page);
  await first.close();
  await second.close();
})));

test("control is offered only where the program allows it", () => serve(async server => {
  const { page, close } = await open(browser, server.url());
  await ready(page);
  assert.equal(await page.$(".control"), null);
  await close();
  server.runs.get("r0").run.control = true;
  const allowed = await open(browser, server.url());
  await ready(allowed.page);
  await allowed.page.click(".control button");
  await allowed.page.waitForNetworkIdle({ idleTime: 100 });
  assert.deepEqual(server.controls, [{ paused: true }]);
  server.runs.get("r0").run.control = false;
  await allowed.close();
}));

test("search, tree and help by keyboard", () => serve(async server => {
  const { page, close } = await open(browser, server.url("&open="));
  await ready(page);
  await page.keyboard.press("/");
  await page.keyboard.type("layer4 batchnorm");
  const wanted = graphOf(runs[0]).calls.filter(c => c.path.startsWith("layer4") && c.type === "BatchNorm2d");
  await waitFor(page, n => document.querySelectorAll(".row").length === n, wanted.length);
  await page.keyboard.press("Enter");
  await waitFor(page, id => window.torchtapGraph.stage.nodeOf.has(id), wanted[0].id);
  await page.keyboard.press("Escape");
  await page.focus(".tree");
  await page.keyboard.press("Home");
  for (let i = 0; i < 4; i++) await page.keyboard.press("ArrowDown");
  await waitFor(page, () => document.querySelector(".row.selected")?.dataset.key === "layer1#0");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await waitFor(page, () => document.querySelector(".row.selected")?.dataset.key === "layer1.0#0");
  await page.keyboard.press("?");
  await page.waitForSelector(".help");
  await page.keyboard.press("Escape");
  await waitFor(page, () => !document.querySelector(".help"));
  await close();
}));

test("three sizes: nothing is cut off, every pane can be reached", () => serve(async server => {
  for (const [width, height] of [[1440, 900], [1024, 768], [390, 844]]) {
    const { page, close } = await open(browser, server.url("&panels=conv1%230"), { width, height, touch: width < 500 });
    await ready(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight));
    for (const selector of [".panels", ".side", ".graph canvas"]) {
      if (width < 500) await page.click(`.panes button:nth-child(${[".side", ".graph canvas", ".panels"].indexOf(selector) + 1})`);
      await settled(page);
      const box = await (await page.$(selector)).boundingBox();
      assert.ok(box && box.width > 150 && box.x >= 0 && box.x + box.width <= width + 1, `${selector} at ${width}`);
    }
    const cut = await page.$$eval("header button, .panels-head button, .panels-head select, .time-buttons button", list => list.filter(e => e.offsetParent &&
      (e.getBoundingClientRect().right > innerWidth + 0.5 || e.scrollWidth > e.clientWidth + 1)).map(e => e.outerHTML));
    assert.deepEqual(cut, []);
    await close();
  }
}));
