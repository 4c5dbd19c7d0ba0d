// The page in a browser, with the data of real trainings.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { calls, clickCall, launch, open, place, ready, settled, text, waitFor } from "./page.mjs";
import { correlation, near, numbers, parse, rank } from "./reading.mjs";
import { readRun, Server } from "../server.mjs";

const RUNS = new URL("../../build/runs/", import.meta.url).pathname;
let browser, runs;
before(async () => {
  browser = await launch();
  runs = await Promise.all(["r0", "r1", "r2"].map(id => readRun(RUNS + id)));
});
after(() => browser?.close());

async function serve(run, list = runs) {
  const server = new Server(list);
  await server.start();
  try {
    await run(server);
  } finally {
    await server.stop();
  }
}

const graphOf = r => r.graph.train;
const byPath = (r, path, n = 0) => graphOf(r).calls.find(c => c.path === path && c.call === n);
test("opening three levels and closing all shows what the graph has", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url("&open="));
    await ready(page);
    const { calls: all } = graphOf(runs[0]);
    const inside = id => all.filter(c => c.parent === id).map(c => c.id);
    let shown = inside(0);
    assert.deepEqual(await calls(page), shown);
    const opened = [];
    for (const path of ["layer2", "layer2.0", "layer2.0.downsample"]) {
      const { id } = byPath(runs[0], path);
      await clickCall(page, id, { count: 2 });
      await waitFor(page, n => window.torchtapGraph.stage.nodeOf.size === n, shown.length + inside(id).length);
      shown = [...shown, ...inside(id)].sort((a, b) => a - b);
      opened.push(id);
      assert.deepEqual(await calls(page), shown);
    }
    const edges = await page.evaluate(() => [...window.torchtapGraph.stage.laid.scene.edge]);
    const frames = new Set([0, ...opened]);
    assert.deepEqual(
      edges.sort((a, b) => a - b),
      graphOf(runs[0]).edges.flatMap((e, i) => (frames.has(e.caller) ? [i] : [])),
    );
    await page.click("#collapse-all");
    await waitFor(page, n => window.torchtapGraph.stage.nodeOf.size === n, inside(0).length);
    await page.click("#expand-all");
    await waitFor(page, n => window.torchtapGraph.stage.nodeOf.size === n, all.length - 1);
    await close();
  }));

test("a panel by dragging, by keys and by a double click, its pixels as the columns say", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url("&open="));
    await ready(page);
    const conv = byPath(runs[0], "conv1"),
      from = await place(page, conv.id);
    await settled(page);
    await page.mouse.move(from.x, from.y);
    await page.mouse.down();
    await page.mouse.move(from.x + 30, from.y + 10, { steps: 4 });
    assert.equal(await text(page, ".ghost"), "conv1");
    await page.mouse.move(1250, 500, { steps: 6 });
    await page.waitForSelector(".panels.target");
    await page.mouse.up();
    await page.waitForSelector('[data-panel="conv1#0"] .plot[data-axis] canvas');
    const dropped = await place(page, byPath(runs[0], "bn1").id);
    await page.mouse.move(dropped.x, dropped.y);
    await page.mouse.down();
    await page.mouse.move(dropped.x + 90, dropped.y + 60, { steps: 4 });
    await page.mouse.up();
    assert.equal((await page.$$("[data-panel]")).length, 1, "dropped beside the panels, it makes none");

    await page.focus(".tree");
    await page.keyboard.press("End");
    await page.keyboard.press("p");
    await page.waitForSelector('[data-panel="fc#0"]');
    await clickCall(page, byPath(runs[0], "maxpool").id, { count: 2 });
    await page.waitForSelector('[data-panel="maxpool#0"]');
    await page.keyboard.press("p");
    await waitFor(page, () => !document.querySelector('[data-panel="maxpool#0"]'));

    for (const [series, selector] of [
      [conv.series.output[0], '[data-panel="conv1#0"] [data-what="output"]'],
      [conv.parameters[0].series, '[data-panel="conv1#0"] [data-what="parameter"]'],
    ]) {
      await waitFor(page, s => document.querySelector(`${s} .plot`)?.dataset.axis?.split(",")[0] !== "-1.1", selector);
      await settled(page);
      const seen = await page.$eval(`${selector} .plot`, plot => {
        const canvas = plot.querySelector("canvas"),
          over = plot.querySelector(".u-over");
        const [x, y, w, h] = [over.offsetLeft, over.offsetTop, over.clientWidth, over.clientHeight];
        const { data } = canvas.getContext("2d").getImageData(x, y, w, h);
        return {
          axis: plot.dataset.axis.split(",").map(Number),
          w,
          h,
          light: Array.from({ length: w * h }, (_, i) => 765 - data[4 * i] - data[4 * i + 1] - data[4 * i + 2]),
        };
      });
      const columns = runs[0].columns.get(series).map(c => ({ first: c.first, ...parse(c) }));
      const [lo, hi, unit] = seen.axis,
        place = v => (((unit ? Math.asinh(v / unit) : v) - lo) / (hi - lo)) * seen.h;
      let sum = 0,
        tried = 0;
      for (let x = 10; x < seen.w - 20; x += 37) {
        const step = ((x + 0.5) / seen.w) * (runs[0].run.step + 1),
          column = columns.findLast(c => c.first <= step);
        const expected = new Float64Array(seen.h);
        for (const { slot, low, high, count } of column.bins) {
          if ((slot & 2047) >= 2040 || slot >= 4096) continue;
          const a = place(Math.max(low, column.min)),
            b = place(Math.min(high, column.max));
          for (let row = Math.max(0, Math.floor(a)); row < Math.min(seen.h, b); row++)
            expected[row] += (count * (Math.min(b, row + 1) - Math.max(a, row))) / (b - a);
        }
        const found = expected.map((_, row) => seen.light[(seen.h - 1 - row) * seen.w + x]);
        // Darker where denser: the ranks agree but at the line for zeros and the rounded corners.
        sum += correlation(rank([...expected]), rank([...found]));
        tried++;
      }
      assert.ok(sum / tried > 0.97, `ranks of densities and of colours agree by ${sum / tried} only`);
    }
    await close();
  }));

test("every view draws something, in light and in dark", () =>
  serve(async server => {
    for (const dark of [false, true]) {
      const { page, close } = await open(browser, server.url("&panels=conv1%230&vs=r1"), { dark });
      await ready(page);
      for (const view of ["ridge", "bands", "single", "heat"]) {
        await page.click(`[data-view="${view}"]`);
        await waitFor(
          page,
          () =>
            [...document.querySelectorAll(".series canvas")].length >= 3 &&
            [...document.querySelectorAll(".series canvas")].every(canvas => {
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              const colours = new Set();
              for (let i = 0; i < data.length; i += 16) colours.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
              return colours.size > 12;
            }),
        );
      }
      // Two runs, two heat maps.
      await waitFor(page, () => document.querySelectorAll('[data-what="output"] .plot[data-axis]').length === 2);
      await close();
    }
  }));

test("live: steps and columns grow without a reload, also after the server was away", () =>
  serve(async server => {
    server.until = 40;
    const { page, close } = await open(browser, server.url("&panels=conv1%230"), {
      allow: [/WebSocket|ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|Failed to fetch|ERR_EMPTY_RESPONSE/],
    });
    await ready(page);
    const series = byPath(runs[0], "conv1").series.output[0];
    const shown = () => page.evaluate(() => document.querySelector("#step-now").textContent);
    const mean = () => text(page, `[data-series="${series}"] .numbers`);
    const expect = async step => {
      await waitFor(page, s => document.querySelector("#step-now").textContent === `step ${s}`, step);
      const column = runs[0].columns.get(series).findLast(c => c.first <= step);
      const wanted = parse(column);
      await page.waitForFunction(
        (selector, a) => {
          const found = document
            .querySelector(selector)
            ?.textContent.replaceAll("−", "-")
            .match(/-?\d+\.?(\d*)(?:e(-?\d+))?/);
          // Half a unit of the last digit that is shown.
          return found && Math.abs(found[0] - a) <= 0.501 * 10 ** ((found[2] ?? 0) - found[1].length);
        },
        { timeout: 15000 },
        `[data-series="${series}"] .numbers`,
        wanted.mean,
      );
    };
    await waitFor(page, () => document.querySelector(".state.live.running"));
    await expect(40);
    server.advance(60);
    await expect(60);
    const port = server.port;
    await server.stop();
    await waitFor(page, () => document.querySelector(".state.lost, .state.polling"));
    server.until = 72;
    await server.start(port);
    await waitFor(page, () => document.querySelector(".state.live"));
    await expect(72);
    server.advance(Infinity);
    await expect(runs[0].run.step);
    await waitFor(page, () => document.querySelector(".state.finished"));
    assert.match(await mean(), /±/);
    assert.match(await shown(), /step/);
    assert.ok(
      server.requests.some(r => /columns.*since=[1-9]/.test(r)),
      "only what is new is asked for",
    );
    await close();
  }));

test("without WebSockets the page asks once a second", () =>
  serve(async server => {
    server.refuseSockets = true;
    server.until = 20;
    const { page, close } = await open(browser, server.url(), { allow: [/WebSocket/] });
    await ready(page);
    await waitFor(page, () => document.querySelector(".state.polling"));
    server.until = 48;
    await waitFor(page, () => document.querySelector("#step-now").textContent === "step 48");
    await close();
  }));

test("a tooltip has shapes, attributes, parameters", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url("&open="));
    await ready(page);
    const call = byPath(runs[0], "conv1"),
      { x, y } = await place(page, call.id);
    await settled(page);
    await page.mouse.move(x, y);
    await page.waitForSelector(".tip");
    const shown = await text(page, ".tip");
    for (const port of [...call.inputs, ...call.outputs]) assert.ok(shown.includes(port.shape.join("×")), shown);
    assert.ok(shown.includes(call.attributes), shown);
    assert.ok(shown.includes(`weight ${call.parameters[0].shape.join("×")}`), shown);
    // Where a tooltip that was narrower has stood, it is as wide as its words: each shape stands in one line.
    const lines = await page.$eval(".tip", tip => {
      tip.style.left = `${tip.parentElement.clientWidth - 120}px`;
      return [...tip.querySelectorAll(".mono > div")].map(row => {
        const range = document.createRange();
        range.selectNodeContents(row);
        return new Set([...range.getClientRects()].map(rect => Math.round(rect.top))).size;
      });
    });
    assert.ok(lines.length >= 3 && lines.every(count => count === 1), `${lines}`);
    await close();
  }));

test("a dimension that varied is a dash; edges tell their tensors", () => {
  const varied = structuredClone({ ...runs[0], columns: undefined });
  varied.columns = runs[0].columns;
  varied.graph.train.calls[1].inputs[0].shape[0] = null;
  return serve(
    async server => {
      const { page, close } = await open(browser, server.url("&open="));
      await ready(page);
      const box = await place(page, 1);
      await settled(page);
      await page.mouse.move(box.x, box.y);
      await page.waitForSelector(".tip");
      assert.ok((await text(page, ".tip")).includes("–×1×28×28"));
      const below = await place(page, 1, { at: [0.5, 1] });
      await page.mouse.move(below.x, below.y + 12);
      await waitFor(page, () => document.querySelector(".tip")?.textContent.includes("→"));
      assert.ok((await text(page, ".tip")).includes(varied.graph.train.calls[1].outputs[0].shape.join("×")));
      await close();
    },
    [varied],
  );
});

test("the first value that is not finite leads to the module that made it", () =>
  serve(async server => {
    const bad = runs[2].health.first_bad;
    assert.ok(bad.producer && bad.step > 0, "the data has one");
    const { page, close } = await open(browser, server.url("&run=r2&open=&step=0"));
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
    await waitFor(page, step => document.querySelector(".ruler").getAttribute("aria-valuenow") === String(step), bad.step);
    await waitFor(page, id => window.torchtapGraph.stage.nodeOf.has(id), bad.call);
    await settled(page);
    const call = graphOf(runs[2]).calls[bad.call];
    assert.ok(await page.$(`[data-panel="${call.path}#${call.call}"]`), "its panel is open");
    const { x, y } = await page.evaluate(id => {
      const { stage, camera } = window.torchtapGraph,
        { x, y } = stage.box(stage.nodeOf.get(id));
      const [sx, sy] = camera.screen(x, y);
      return { x: sx, y: sy };
    }, bad.call);
    assert.ok((await red(".graph canvas", [x - 6, y - 12, 170, 70])) > 100, "the module is red");
    await page.click('[data-tab="findings"]');
    assert.match(await text(page, ".finding-first"), /It made it/);
    await close();
  }));

test("the scrubber shows the column of its step, in panels and graph", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url("&panels=layer1.0.relu%230&view=single"));
    await ready(page);
    const series = byPath(runs[0], "layer1.0.relu").series.output[0];
    const box = await (await page.$(".ruler")).boundingBox();
    await page.mouse.move(box.x + box.width * 0.9, box.y + 20);
    await page.mouse.down();
    for (const share of [0.75, 0.5, 0.21]) {
      await page.mouse.move(box.x + box.width * share, box.y + 30, { steps: 3 });
      await settled(page);
      const step = +(await page.$eval(".ruler", e => e.getAttribute("aria-valuenow")));
      assert.ok(Math.abs(step - share * runs[0].run.step) <= 1, `${step}`);
      const wanted = parse(runs[0].columns.get(series).findLast(c => c.first <= step));
      const [mean, std, zeros] = numbers(await text(page, `[data-series="${series}"] .numbers`));
      assert.ok(
        near(mean, wanted.mean) && near(std, wanted.std) && near(zeros, (100 * wanted.zeros) / wanted.count),
        `${mean} ${std} ${zeros} at ${step}`,
      );
    }
    await page.mouse.up();
    await page.keyboard.press("Home");
    await settled(page);
    assert.equal(await page.$eval(".ruler", e => e.getAttribute("aria-valuenow")), "0");
    const scalar = await text(page, ".scalar b");
    assert.ok(near(numbers(scalar)[0], runs[0].scalars.loss[0][1]), scalar);
    await page.keyboard.press("End");
    await page.waitForSelector(".follow.on");
    await close();
  }));

test("dragging in a chart zooms into steps, everywhere, at full resolution; a double click shows all", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url("&panels=conv1%230"));
    await ready(page);
    await page.waitForSelector(".u-over");
    const box = await (await page.$(".u-over")).boundingBox();
    await page.mouse.move(box.x + box.width * 0.25, box.y + 30);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 30, { steps: 5 });
    await page.mouse.up();
    await waitFor(page, () => location.hash.includes("range="));
    const [from, to] = (await page.evaluate(() => new URLSearchParams(location.hash.slice(1)).get("range"))).split("~").map(Number);
    assert.ok(Math.abs(from / runs[0].run.step - 0.25) < 0.03 && Math.abs(to / runs[0].run.step - 0.5) < 0.03, `${from} ${to}`);
    await page.waitForNetworkIdle({ idleTime: 100 });
    assert.ok(
      server.requests.some(r => r.includes(`from=${Math.floor(from)}&to=${Math.ceil(to)}`)),
      "the range is asked for",
    );
    await page.mouse.click(box.x + box.width * 0.5, box.y + 30, { count: 2 });
    await waitFor(page, () => !location.hash.includes("range="));
    await close();
  }));

test("two runs: the list leads with what differs most, a click shows it", () => {
  const changed = { ...runs[0], run: { ...runs[0].run, id: "rx", name: "changed" }, columns: new Map(runs[0].columns) };
  const odd = byPath(runs[0], "layer3.0.conv2"),
    other = byPath(runs[0], "fc");
  return serve(
    async server => {
      server.compare = q =>
        q.get("a") === "r0" && q.get("b") === "rx"
          ? [
              {
                a: odd.series.output[0],
                b: odd.series.output[0],
                call: odd.id,
                what: "output",
                index: 0,
                wasserstein: 2.5,
                kl: 1,
                first_step: 0,
              },
              {
                a: other.series.output[0],
                b: other.series.output[0],
                call: other.id,
                what: "output",
                index: 0,
                wasserstein: 0.1,
                kl: 0,
                first_step: 0,
              },
            ]
          : [];
      const { page, close } = await open(browser, server.url("&run=r0"));
      await ready(page);
      await page.select("#versus", "rx");
      await page.waitForSelector(".difference");
      const listed = await page.$$eval(".difference .row-name", list => list.map(e => e.textContent));
      assert.deepEqual(listed, ["layer3.0.conv2", "fc"]);
      await page.click(".difference");
      await page.waitForSelector('[data-panel="layer3.0.conv2#0"]');
      await waitFor(page, id => window.torchtapGraph.stage.nodeOf.has(id), odd.id);
      await page.select("#colour", "difference");
      await page.waitForSelector(".legend-ramp");
      await close();
    },
    [runs[0], changed],
  );
});

test("nodes are coloured by a statistic at the shown step", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url("&open=&colour=zeros"));
    await ready(page);
    await waitFor(page, () => document.querySelector(".legend-ramp")?.textContent.includes("1"));
    await page.waitForNetworkIdle({ idleTime: 200 });
    await settled(page);
    const shade = async path => {
      const { x, y } = await place(page, byPath(runs[0], path).id, { at: [0.9, 0.85] });
      await settled(page);
      return page.evaluate(
        (x, y) => {
          const canvas = document.querySelector(".graph canvas"),
            box = canvas.getBoundingClientRect();
          const [r, g, b] = canvas.getContext("2d").getImageData(x - box.left, y - box.top, 1, 1).data;
          return 765 - r - g - b;
        },
        x,
        y,
      );
    };
    const zeros = path => {
      const c = parse(runs[0].columns.get(byPath(runs[0], path).series.output[0]).at(-1));
      return c.zeros / c.finite;
    };
    const list = await Promise.resolve(["conv1", "relu", "layer4", "fc"]);
    const found = [];
    for (const path of list) found.push([zeros(path), await shade(path)]);
    found.sort((a, b) => a[0] - b[0]);
    for (let i = 1; i < found.length; i++)
      if (found[i][0] > found[i - 1][0] + 0.02) assert.ok(found[i][1] > found[i - 1][1], JSON.stringify(found));
    await close();
  }));
