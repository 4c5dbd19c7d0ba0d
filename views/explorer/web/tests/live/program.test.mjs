// The page with trainings of C++ programs, as their server sends them.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { calls, clickCall, launch, open, place, ready, settled, text, waitFor } from "../browser/page.mjs";
import { near, numbers, parse } from "../browser/reading.mjs";
import { Program } from "./program.mjs";

const GONE = [/WebSocket|ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|Failed to fetch|ERR_EMPTY_RESPONSE/];
let browser, program, graph;
before(async () => {
  browser = await launch();
  program = await Program.start();
  graph = await program.json("runs/r0/graph?mode=train");
});
after(async () => {
  await browser?.close();
  await program?.end();
});
const byPath = path => graph.calls.find(c => c.path === path && c.call === 0);
const inside = id => graph.calls.filter(c => c.parent === id).map(c => c.id);
const steps = async run => (await program.json("runs")).find(r => r.id === run).step;
const shownStep = page => page.evaluate(() => document.querySelector("#step-now").textContent);

/** The numbers of a series in its panel are those of the column. */
async function shows(page, series, column) {
  const wanted = parse(column);
  await page.waitForFunction(
    (selector, mean) => {
      const found = document
        .querySelector(selector)
        ?.textContent.replaceAll("−", "-")
        .match(/-?\d[\d.]*(e-?\d+)?/);
      return found && Math.abs(found[0] - mean) <= 0.006 * Math.abs(mean) + 1e-12;
    },
    { timeout: 15000 },
    `[data-series="${series}"] .numbers`,
    wanted.mean,
  );
  const [, deviation] = numbers(await text(page, `[data-series="${series}"] .numbers`));
  assert.ok(near(deviation, wanted.std), `${deviation} is not ${wanted.std}`);
}

test("opening three levels and closing all shows what the graph has", async () => {
  const { page, close } = await open(browser, program.url("&run=r0&open="));
  await ready(page);
  let shown = inside(0);
  assert.ok(graph.calls.length > 60, "a ResNet-18");
  assert.deepEqual(await calls(page), shown);
  const opened = [0];
  for (const path of ["layer2", "layer2.0", "layer2.0.downsample"]) {
    const { id } = byPath(path);
    await clickCall(page, id, { count: 2 });
    shown = [...shown, ...inside(id)].sort((a, b) => a - b);
    await waitFor(page, n => window.torchtapGraph.stage.nodeOf.size === n, shown.length);
    assert.deepEqual(await calls(page), shown);
    opened.push(id);
  }
  const edges = await page.evaluate(() => [...window.torchtapGraph.stage.laid.scene.edge]);
  assert.deepEqual(
    edges.sort((a, b) => a - b),
    graph.edges.flatMap((e, i) => (opened.includes(e.caller) ? [i] : [])),
  );
  await page.click("#collapse-all");
  await waitFor(page, n => window.torchtapGraph.stage.nodeOf.size === n, inside(0).length);
  await page.click("#expand-all");
  await waitFor(page, n => window.torchtapGraph.stage.nodeOf.size === n, graph.calls.length - 1);
  await close();
});

test("a tooltip has shapes, attributes, parameters", async () => {
  const { page, close } = await open(browser, program.url("&run=r0&open="));
  await ready(page);
  const call = byPath("conv1"),
    { x, y } = await place(page, call.id);
  await settled(page);
  await page.mouse.move(x, y);
  await page.waitForSelector(".tip");
  const shown = await text(page, ".tip");
  for (const port of [...call.inputs, ...call.outputs]) assert.ok(shown.includes(port.shape.join("×")), shown);
  assert.ok(call.attributes && shown.includes(call.attributes), shown);
  assert.ok(shown.includes(`weight ${call.parameters[0].shape.join("×")}`), shown);
  await close();
});

test("live: steps and columns grow without a reload, also after the server was away", async () => {
  const { page, close } = await open(browser, program.url("&run=r0&panels=conv1%230"), { allow: GONE });
  await ready(page);
  await waitFor(page, () => document.querySelector(".state.live.running"));
  const loaded = await page.evaluate(() => performance.timeOrigin);
  const series = byPath("conv1").series.output[0],
    weight = byPath("conv1").parameters[0].series;
  const expect = async () => {
    const step = await steps("r0");
    await waitFor(page, s => document.querySelector("#step-now").textContent === `step ${s}`, step);
    for (const id of [series, weight]) {
      const column = (await program.columns("r0", id)).at(-1);
      assert.equal(column.last, step);
      await shows(page, id, column);
    }
    return step;
  };
  const first = await expect();
  await program.tell("train 3");
  assert.equal(await expect(), first + 3);
  await program.tell("stop");
  await waitFor(page, () => document.querySelector(".state.lost, .state.polling"));
  await program.tell("train 2");
  await program.tell("start");
  await waitFor(page, () => document.querySelector(".state.live"));
  assert.equal(await expect(), first + 5);
  await program.tell("train 1");
  assert.equal(await expect(), first + 6);
  assert.equal(await page.evaluate(() => performance.timeOrigin), loaded, "no reload");
  await close();
});

test("the first value that is not finite leads to the convolution that overflowed", async () => {
  const health = await program.json("runs/r1/health");
  const bad = (await program.json("runs/r1/graph?mode=train")).calls.find(c => c.path === "layer3.0.conv1");
  assert.deepEqual(
    [health.first_bad.step, health.first_bad.what, health.first_bad.call, health.first_bad.producer],
    [7, "inf", bad.id, true],
  );
  const { page, close } = await open(browser, program.url("&run=r1&open=&step=0"));
  await ready(page);
  const red = (selector, within) =>
    page.$eval(
      selector,
      (canvas, box) => {
        const ratio = canvas.width / canvas.clientWidth;
        const [x, y, w, h] = box ?? [0, 0, canvas.clientWidth, canvas.clientHeight];
        const { data } = canvas.getContext("2d").getImageData(x * ratio, y * ratio, w * ratio, h * ratio);
        let n = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i] > 190 && data[i + 1] < 60 && data[i + 2] < 90) n++;
        return n;
      },
      within,
    );
  assert.equal(await red(".graph canvas"), 0, "nothing is wrong at step 0");
  assert.ok((await red(".ruler canvas")) > 20, "time is marked");
  await page.click("#first-bad");
  await waitFor(page, () => document.querySelector(".ruler").getAttribute("aria-valuenow") === "7");
  await waitFor(page, id => window.torchtapGraph.stage.nodeOf.has(id), bad.id);
  await settled(page);
  assert.ok(await page.$('[data-panel="layer3.0.conv1#0"]'), "its panel is open");
  const { x, y } = await page.evaluate(id => {
    const { stage, camera } = window.torchtapGraph,
      { x, y } = stage.box(stage.nodeOf.get(id));
    const [sx, sy] = camera.screen(x, y);
    return { x: sx, y: sy };
  }, bad.id);
  assert.ok((await red(".graph canvas", [x - 6, y - 12, 170, 70])) > 100, "the module is red");
  await page.click('[data-tab="findings"]');
  assert.match(await text(page, ".finding-first"), /It made it/);
  await close();
});

test("the scrubber shows the column of its step", async () => {
  const { page, close } = await open(browser, program.url("&run=r2&panels=layer1.0.relu%230&view=single"));
  await ready(page);
  const series = byPath("layer1.0.relu").series.output[0],
    columns = await program.columns("r2", series);
  const last = await steps("r2"),
    loss = (await program.json("runs/r2/scalars")).loss;
  assert.equal(columns.length, last + 1);
  for (const step of [last, 7, 3, 0]) {
    await page.evaluate(s => {
      location.hash = location.hash.replace(/&?step=\d+/, "") + `&step=${s}`;
    }, step);
    await page.focus(".ruler");
    for (let i = 0; i < 40 && +(await page.$eval(".ruler", e => e.getAttribute("aria-valuenow"))) > step; i++)
      await page.keyboard.press("ArrowLeft");
    assert.equal(+(await page.$eval(".ruler", e => e.getAttribute("aria-valuenow"))), step);
    await shows(page, series, columns[step]);
    const zeros = numbers(await text(page, `[data-series="${series}"] .numbers`))[2],
      wanted = parse(columns[step]);
    assert.ok(near(zeros, (100 * wanted.zeros) / wanted.count), `${zeros}`);
    assert.ok(near(numbers(await text(page, ".scalar b"))[0], loss[step][1]));
  }
  await close();
});

test("two runs: the module that was changed leads the list", async () => {
  const { page, close } = await open(browser, program.url("&run=r0&step=0&open="));
  await ready(page);
  await page.select("#versus", "r2");
  await page.waitForSelector(".difference");
  assert.equal(await text(page, ".difference .row-name"), "layer4.1.bn2");
  await page.click(".difference");
  await page.waitForSelector('[data-panel="layer4.1.bn2#0"]');
  await waitFor(page, id => window.torchtapGraph.stage.nodeOf.has(id), byPath("layer4.1.bn2").id);
  await close();
});

test("a page that may control a run pauses it, and is told after a reload", async () => {
  const { page, close } = await open(browser, program.url("&run=r0"));
  await ready(page);
  const columns = async () => (await program.columns("r0", byPath("conv1").series.output[0])).length;
  const before = await columns();
  await page.click(".control button");
  await page.waitForNetworkIdle({ idleTime: 100 });
  await program.tell("train 2");
  assert.equal(await columns(), before, "nothing is recorded while it is paused");
  await page.reload();
  await ready(page);
  assert.equal(await page.$eval(".control button", e => e.title), "Log again");
  await page.click(".control button");
  await page.waitForNetworkIdle({ idleTime: 100 });
  await program.tell("train 1");
  assert.equal(await columns(), before + 1);
  await page.select("#run", "r1");
  await waitFor(page, () => !document.querySelector(".control"), "a run that has ended takes none");
  await close();
});

test("two tabs, two programs", async () => {
  const other = await Program.start();
  try {
    assert.notEqual(new URL(other.address).port, new URL(program.address).port);
    const first = await open(browser, program.url("&run=r0")),
      second = await open(browser, other.url("&run=r0"));
    await ready(first.page);
    await ready(second.page);
    await program.tell("train 1");
    await waitFor(first.page, s => document.querySelector("#step-now").textContent === `step ${s}`, await steps("r0"));
    assert.equal(await shownStep(second.page), "step 11");
    await first.close();
    await second.close();
  } finally {
    await other.end();
  }
});

test("what the library exports opens from a file, and asks for nothing", async () => {
  const folder = await mkdtemp(join(tmpdir(), "torchtap-page-")),
    file = join(folder, "page.html");
  try {
    await program.tell(`export ${file}`);
    const address = `${pathToFileURL(file)}#panels=conv1%230&open=`;
    const { page, requests, close } = await open(browser, address);
    await ready(page);
    assert.deepEqual(await calls(page), inside(0));
    const series = byPath("conv1").series.output[0];
    await shows(page, series, (await program.columns("r0", series)).at(-1));
    assert.ok(await page.$eval(".state", e => e.classList.contains("file")));
    assert.deepEqual(
      requests.filter(r => !r.startsWith("blob:") && !r.startsWith("data:")),
      [address],
    );
    await close();
  } finally {
    await rm(folder, { recursive: true });
  }
});

// The last one: the training ends.
test("a run that ends is shown as finished", async () => {
  const { page, close } = await open(browser, program.url("&run=r0"));
  await ready(page);
  await waitFor(page, () => document.querySelector(".state.running"));
  await program.tell("finish");
  await waitFor(page, () => document.querySelector(".state.finished"));
  await close();
});
