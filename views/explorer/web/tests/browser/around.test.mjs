// The page around the graph: address, token, keys, sizes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { calls, clickCall, launch, open, place, ready, settled, text, waitFor } from "./page.mjs";
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
  try {
    await run(server);
  } finally {
    await server.stop();
  }
}
const graphOf = r => r.graph.train;
const byPath = (r, path) => graphOf(r).calls.find(c => c.path === path && c.call === 0);

test("the address holds the view and not the token", () =>
  serve(async server => {
    const first = await open(browser, server.url("&open="));
    await ready(first.page);
    await clickCall(first.page, byPath(runs[0], "layer3").id, { count: 2 });
    await first.page.focus(".tree");
    await first.page.keyboard.press("p");
    await first.page.click('[data-view="bands"]');
    await first.page.focus(".ruler");
    for (let i = 0; i < 5; i++) await first.page.keyboard.press("ArrowLeft");
    await first.page.click("#theme");
    await waitFor(first.page, () =>
      ["open=layer3", "panels=layer3", "view=bands", "step=", "theme=dark"].every(part => decodeURIComponent(location.hash).includes(part)),
    );
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

test("a wrong token is told, not retried", () =>
  serve(async server => {
    const { page, close } = await open(browser, `http://127.0.0.1:${server.port}/#token=wrong`, { allow: [/403/] });
    await page.waitForSelector(".message");
    assert.match(await text(page, ".message"), /token/);
    const before = server.requests.length;
    await new Promise(done => setTimeout(done, 1500));
    assert.equal(server.requests.length, before);
    await close();
  }));

test("two tabs of two servers do not disturb each other", () =>
  serve(one =>
    serve(async two => {
      two.token = "fedcba9876543210fedcba9876543210";
      two.until = 20;
      const first = await open(browser, one.url()),
        second = await open(browser, two.url());
      await ready(first.page);
      await ready(second.page);
      assert.equal(await text(first.page, "#step-now"), `step ${runs[0].run.step}`);
      assert.equal(await text(second.page, "#step-now"), "step 20");
      await first.page.reload();
      await ready(first.page);
      await first.close();
      await second.close();
    }),
  ));

test("control is offered only where the program allows it", () =>
  serve(async server => {
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

test("keys need no focus: on a page just opened, after a search, beside a button", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url("&open="));
    await ready(page);
    const [first, second] = await calls(page);
    const selected = id => waitFor(page, id => document.querySelector(".row.selected")?.id === `row-${id}`, id);
    assert.ok(await page.evaluate(() => document.activeElement === document.body));
    await page.keyboard.press("ArrowDown");
    await selected(first);
    await page.keyboard.press("ArrowDown");
    await selected(second);
    await page.keyboard.press("p");
    await page.waitForSelector(".panel");
    await page.keyboard.press("p");
    await waitFor(page, () => !document.querySelector(".panel"));
    await page.keyboard.press("Escape");
    await waitFor(page, () => !document.querySelector(".row.selected"));

    await page.keyboard.press("/");
    await page.keyboard.type("fc");
    await page.keyboard.press("Enter");
    await page.keyboard.press("p");
    assert.equal(await page.$eval("#search", e => e.value), "fcp", "letters are the field's");
    await page.keyboard.press("Backspace");
    await page.keyboard.press("Escape");
    await page.keyboard.press("p");
    await page.waitForSelector('[data-panel="fc#0"]');

    const scale = () => page.evaluate(() => window.torchtapGraph.camera.k);
    await page.focus("#collapse-all");
    const before = await scale();
    await page.keyboard.press("+");
    await waitFor(page, k => window.torchtapGraph.camera.k > k, before);
    await page.keyboard.press("P");
    await waitFor(page, () => !document.querySelector(".panel"));
    await page.focus("#expand-all");
    await page.keyboard.press("Enter");
    await waitFor(page, n => window.torchtapGraph.stage.nodeOf.size === n, graphOf(runs[0]).calls.length - 1);
    assert.ok(!(await page.$(".panel")), "Enter is the button's");
    await close();
  }));

test("search, tree and help by keyboard", () =>
  serve(async server => {
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

test("three sizes: nothing is cut off, every pane can be reached", () =>
  serve(async server => {
    for (const [width, height] of [
      [1440, 900],
      [1024, 768],
      [390, 844],
    ]) {
      const { page, close } = await open(browser, server.url("&panels=conv1%230"), { width, height, touch: width < 500 });
      await ready(page);
      assert.ok(
        await page.evaluate(
          () => document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight,
        ),
      );
      for (const selector of [".panels", ".side", ".graph canvas"]) {
        if (width < 500) await page.click(`.panes button:nth-child(${[".side", ".graph canvas", ".panels"].indexOf(selector) + 1})`);
        await settled(page);
        const box = await (await page.$(selector)).boundingBox();
        assert.ok(box && box.width > 150 && box.x >= 0 && box.x + box.width <= width + 1, `${selector} at ${width}`);
      }
      const cut = await page.$$eval("header button, .panels-head button, .panels-head select, .time-buttons button", list =>
        list
          .filter(e => e.offsetParent && (e.getBoundingClientRect().right > innerWidth + 0.5 || e.scrollWidth > e.clientWidth + 1))
          .map(e => e.outerHTML),
      );
      assert.deepEqual(cut, []);
      await close();
    }
  }));

test("a phone has all that a desk has: modes, runs to compare, scalars, keys", async () => {
  const server = new Server([{ ...runs[0], run: { ...runs[0].run, control: true } }, runs[1]]);
  await server.start();
  const { page, close } = await open(browser, server.url(), { width: 390, height: 844, touch: true });
  await ready(page);
  for (const selector of ["#run", "#versus", ".runs [role=radio]", ".scalar", "#keys", "#theme", ".control label", ".control button"]) {
    const box = await (await page.$(selector))?.boundingBox();
    assert.ok(box && box.width > 20 && box.height > 15 && box.x >= 0 && box.x + box.width <= 390, selector);
  }
  assert.ok((await page.$eval("header", e => e.clientHeight)) < 100, "two rows");
  assert.match(await text(page, ".scalars"), /time per step[\d.]+ ms/);
  await close();
  await server.stop();
});

test("without panels their room is the graph's", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url(), { width: 800, height: 700 });
    await ready(page);
    const width = () => page.$eval("main", e => e.clientWidth);
    assert.ok((await width()) > 360, `${await width()}`);
    await page.focus(".tree");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("p");
    await page.waitForSelector(".panel");
    assert.ok((await page.$eval(".panels", e => e.clientWidth)) >= 350);
    await close();
  }));

test("help keeps the focus, and gives it back", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url());
    await ready(page);
    await page.focus("#theme");
    await page.keyboard.press("?");
    await page.waitForSelector(".help[open]");
    for (let i = 0; i < 4; i++) {
      assert.ok(await page.evaluate(() => document.activeElement === document.body || !!document.activeElement.closest(".help")));
      await page.keyboard.press("Tab");
    }
    const theme = await page.$eval("html", e => e.dataset.theme);
    await page.keyboard.press("d");
    assert.equal(await page.$eval("html", e => e.dataset.theme), theme, "keys are the dialog's");
    await page.keyboard.press("Escape");
    await waitFor(page, () => !document.querySelector(".help") && document.activeElement?.id === "theme");
    await close();
  }));

test("axe finds nothing: contrast, names, headings", () =>
  serve(async server => {
    const axe = readFileSync(new URL("../../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
    for (const dark of [false, true]) {
      for (const width of [1280, 800, 390]) {
        const { page, close } = await open(browser, server.url("&panels=conv1%230"), { width, height: 844, dark });
        await ready(page);
        await page.evaluate(axe);
        const check = async what => {
          const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
          assert.deepEqual(
            found.violations.flatMap(v => v.nodes.map(n => `${v.id}: ${n.html.slice(0, 120)}: ${n.any[0]?.message ?? ""}`)),
            [],
            `${what}, ${width}, ${dark}`,
          );
        };
        await check("a panel");
        await page.select("#versus", "r1");
        await page.waitForSelector("[data-tab=differences][aria-selected=true]");
        await check("two runs");
        await page.click("#keys");
        await page.waitForSelector(".help[open]");
        await check("help");
        await close();
      }
    }
  }));

const AWAY = [/WebSocket|ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|Failed to fetch|ERR_EMPTY_RESPONSE|403|404/];
const named = (run, name, identity) => ({ ...run, run: { ...run.run, id: "r0", name, identity } });

test("a program that was started again: its run is shown, its token asked for, its address opened", async () => {
  const first = new Server([named(runs[0], "first", "1-a")]);
  await first.start();
  const { page, close } = await open(browser, first.url("&panels=conv1%230&step=3"), { allow: AWAY });
  const shown = name => waitFor(page, n => document.querySelector("#run option:checked")?.textContent === n && window.torchtapGraph, name);
  await ready(page);
  await shown("first");
  await first.stop();
  const second = new Server([named(runs[1], "second", "2-b")]);
  await second.start(first.port);
  await shown("second");
  await waitFor(page, s => document.querySelector("#step-now").textContent === `step ${s}`, runs[1].run.step);
  assert.equal(+(await page.$eval(".ruler", e => e.getAttribute("aria-valuenow"))), runs[1].run.step, "the newest step is shown");
  // Whatever the page asked for by the first run's identity, this program does not have.
  assert.ok(second.requests.some(r => r.includes("/runs/2-b/columns")));
  assert.ok(!second.requests.some(r => r.includes("/runs/r0/")));
  await second.stop();
  const third = new Server([named(runs[0], "third", "3-c")]);
  third.token = "f".repeat(32);
  await third.start(first.port);
  await waitFor(page, () => /token/.test(document.querySelector(".message")?.textContent ?? ""));
  await page.evaluate(address => {
    location.href = address;
  }, third.url());
  await shown("third");
  assert.ok(!(await page.evaluate(() => location.hash)).includes("token"));
  await close();
  await third.stop();
});

test("scalars of any name, ports without a tensor, calls without a value", async () => {
  const odd = structuredClone({ ...runs[0], columns: undefined });
  odd.columns = runs[0].columns;
  odd.scalars = JSON.parse('{"constructor": [[0, 1], [1, 2]], "__proto__": [[0, 3], [1, 4]], "toString": [[0, 5]]}');
  odd.run = { ...odd.run, every: 10 };
  const conv = odd.graph.train.calls.find(c => c.path === "conv1"),
    fc = odd.graph.train.calls.find(c => c.path === "fc");
  conv.inputs = [conv.inputs[0], { dtype: "", shape: [] }];
  fc.series = {};
  fc.parameters = [];
  odd.series = odd.series.filter(s => s.call !== fc.id);
  const server = new Server([odd]);
  await server.start();
  const { page, close } = await open(browser, server.url("&panels=fc%230&open="));
  await ready(page);
  const scalars = await text(page, ".scalars");
  for (const name of ["constructor", "__proto__", "toString"]) assert.ok(scalars.includes(name), scalars);
  assert.match(await text(page, '[data-panel="fc#0"]'), /One step in 10 is recorded/);
  const { x, y } = await place(page, conv.id);
  await page.mouse.move(x, y);
  await page.waitForSelector(".tip");
  const tip = await text(page, ".tip");
  assert.match(tip, /undefined/);
  assert.doesNotMatch(tip, /scalar/);
  await close();
  await server.stop();
});

test("the line at the shown step is where the step is, and the newest column has a width", () =>
  serve(async server => {
    const { page, close } = await open(browser, server.url("&panels=conv1%230|fc%230"));
    await ready(page);
    await settled(page);
    const heads = await page.$$eval(".playhead", all =>
      all
        .filter(e => getComputedStyle(e).display !== "none")
        .map(e => {
          const line = e.getBoundingClientRect(),
            over = e.parentElement.getBoundingClientRect();
          return (line.left + line.width / 2 - over.left) / over.width;
        }),
    );
    assert.ok(heads.length > 2);
    const { first_step: from, step: to } = runs[0].run;
    for (const at of heads) assert.ok(Math.abs(at - (to - from) / (to + 1 - from)) < 0.01, `${at}`);
    assert.ok(heads.every(at => at < 1));
    await close();
  }));

test("a call that ran in one mode only: changing the mode draws on", async () => {
  const both = structuredClone({ ...runs[0], columns: undefined });
  both.columns = runs[0].columns;
  both.graph.eval = structuredClone(both.graph.train);
  both.graph.eval.mode = "eval";
  const gone = both.graph.eval.calls.filter(c => c.path.startsWith("layer4")).map(c => c.id);
  both.graph.eval.calls = both.graph.eval.calls.filter(c => !gone.includes(c.id));
  both.graph.eval.edges = both.graph.eval.edges.filter(e => ![e.caller, e.from.call, e.to.call].some(c => gone.includes(c)));
  both.run = { ...both.run, modes: ["train", "eval"] };
  const server = new Server([both]);
  await server.start();
  const { page, close } = await open(browser, server.url()); // no error on the console
  await ready(page);
  for (let i = 0; i < 6; i++) {
    await page.evaluate(k => document.querySelectorAll('[aria-label="Mode"] button')[k].click(), 1 - (i % 2));
    await waitFor(
      page,
      eval_ => window.torchtapGraph.stage.nodeOf.size > 0 && decodeURIComponent(location.hash).includes("mode=eval") === eval_,
      i % 2 === 0,
    );
    await ready(page);
  }
  await close();
  await server.stop();
});
