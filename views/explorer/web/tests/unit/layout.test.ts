// Layouts of real shapes of models: nothing overlaps, everything is inside of what it belongs to, lines end at nodes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { HEADER, Nested, portCode, portNumber, type Scene } from "../../src/layout/nested";
import { distance } from "../../src/graph/lines";
import { call, edge, flat, items, residual } from "../graphs";
import type { Graph } from "../../src/data/protocol";

function lay(graph: Graph, open: Iterable<number> = graph.calls.map(c => c.id)): Scene {
  return new Nested(items(graph), graph.edges).lay({ open: new Set(open) });
}

function check(graph: Graph, scene: Scene): void {
  const parent = new Map(graph.calls.map(c => [c.id, c.parent]));
  const at = new Map<number, number>();
  for (let i = 0; i < scene.call.length; i++) if (scene.port[i]! < 0) at.set(scene.call[i]!, i);
  const byFrame = new Map<number, number[]>();
  for (let i = 0; i < scene.call.length; i++) {
    const frame = scene.port[i]! < 0 ? parent.get(scene.call[i]!)! : scene.call[i]!;
    byFrame.set(frame, [...(byFrame.get(frame) ?? []), i]);
    const around = at.get(frame);
    const [left, top, right, bottom] =
      around === undefined
        ? [0, 0, scene.width, scene.height]
        : [scene.x[around]!, scene.y[around]! + HEADER, scene.x[around]! + scene.w[around]!, scene.y[around]! + scene.h[around]!];
    const slack = 0.01 * Math.max(1, scene.height / 1000);
    assert.ok(scene.x[i]! >= left - slack && scene.x[i]! + scene.w[i]! <= right + slack, `node ${scene.call[i]} leaves its frame sideways`);
    assert.ok(scene.y[i]! >= top - slack && scene.y[i]! + scene.h[i]! <= bottom + slack, `node ${scene.call[i]} leaves its frame`);
  }
  for (const list of byFrame.values()) {
    // Sorted by their upper ends, only neighbours in height can overlap.
    list.sort((a, b) => scene.y[a]! - scene.y[b]!);
    list.forEach((a, i) => {
      for (let k = i + 1; k < list.length && scene.y[list[k]!]! < scene.y[a]! + scene.h[a]! - 0.5; k++) {
        const b = list[k]!;
        const apart = scene.x[a]! + scene.w[a]! <= scene.x[b]! + 0.5 || scene.x[b]! + scene.w[b]! <= scene.x[a]! + 0.5;
        assert.ok(apart, `${scene.call[a]} and ${scene.call[b]} overlap`);
      }
    });
  }
  for (let e = 0; e < scene.edge.length; e++) {
    const { caller, from, to } = graph.edges[scene.edge[e]!]!;
    const end = (side: { call: number; port: number }, out: boolean) => {
      if (side.call !== caller) return at.get(side.call)!;
      for (let i = 0; i < scene.call.length; i++)
        if (scene.call[i] === caller && scene.port[i] === portCode(side.port, out ? 1 : 0)) return i;
      return -1;
    };
    const a = end(from, false),
      b = end(to, true);
    const [x0, y0] = [scene.points[scene.begin[e]!]!, scene.points[scene.begin[e]! + 1]!];
    const [x1, y1] = [scene.points[scene.begin[e + 1]! - 2]!, scene.points[scene.begin[e + 1]! - 1]!];
    const slack = 0.02 * Math.max(1, scene.height / 1000);
    assert.ok(
      Math.abs(y0 - scene.y[a]! - scene.h[a]!) < slack && x0 >= scene.x[a]! - slack && x0 <= scene.x[a]! + scene.w[a]! + slack,
      `edge ${e} does not leave its node`,
    );
    assert.ok(
      Math.abs(y1 - scene.y[b]!) < slack && x1 >= scene.x[b]! - slack && x1 <= scene.x[b]! + scene.w[b]! + slack,
      `edge ${e} does not reach its node`,
    );
  }
}

test("a residual network, closed, half open, open", () => {
  const graph = residual(4, 2);
  for (const open of [[], [1], [1, 2], graph.calls.map(c => c.id)]) {
    const scene = lay(graph, open);
    check(graph, scene);
    const calls = [...scene.call].filter((_, i) => scene.port[i]! < 0);
    // Shown is what has only open modules around it.
    const shown = new Set([0]);
    for (const c of graph.calls)
      if (c.parent !== null && shown.has(c.parent) && (c.parent === 0 || open.includes(c.parent))) shown.add(c.id);
    shown.delete(0);
    assert.deepEqual(new Set(calls), shown);
    assert.equal(calls.length, shown.size);
  }
});

test("every edge between shown nodes is drawn, once", () => {
  const graph = residual(3, 3);
  const scene = lay(graph);
  assert.deepEqual(
    [...scene.edge].sort((a, b) => a - b),
    graph.edges.map((_, i) => i),
  );
  const doubled: Graph = { ...graph, edges: [...graph.edges, ...graph.edges] };
  assert.equal(lay(doubled).edge.length, graph.edges.length);
});

test("blocks of the same structure are laid out once", () => {
  const graph = residual(20, 20);
  const nested = new Nested(items(graph), graph.edges);
  nested.lay({ open: new Set(graph.calls.map(c => c.id)) });
  assert.equal(nested.fresh, 3);
  nested.lay({ open: new Set(graph.calls.map(c => c.id)) });
  assert.equal(nested.fresh, 0);
});

test("20 000 nodes, nested and flat", () => {
  const nested = residual(70, 40);
  check(nested, lay(nested));
  const chain = flat(3000);
  check(chain, lay(chain));
  assert.equal(lay(flat(20000)).call.length, 20002);
});

test("a chain is straight beside its skip", () => {
  const graph = residual(1, 1);
  const scene = lay(graph);
  const middles = graph.calls.slice(3).map(c => {
    const i = [...scene.call].findIndex((id, k) => id === c.id && scene.port[k]! < 0);
    return scene.x[i]! + scene.w[i]! / 2;
  });
  for (const x of middles) assert.ok(Math.abs(x - middles[0]!) < 0.01, middles.join(" "));
});

test("a deep model is set in columns", () => {
  const scene = lay(residual(1, 12), [1]);
  assert.ok(scene.height < 2.2 * scene.width, `${scene.width} × ${scene.height}`);
});

test("branches, several ports, loops, lonely nodes, captured tensors", () => {
  const calls = [call(0, null, "", "Net"), ...Array.from({ length: 9 }, (_, i) => call(i + 1, 0, `m${i}`, "Op"))];
  const edges = [
    edge(0, 0, 1),
    edge(0, 0, 2, 1),
    edge(0, 1, 3),
    edge(0, 2, 3, 0, 1),
    edge(0, 1, 4),
    edge(0, 3, 5),
    edge(0, 4, 5, 0, 1),
    edge(0, 5, 0),
    edge(0, 3, 0, 0, 1),
    edge(0, 0, 6, -1, -1),
    edge(0, 6, 5),
    edge(0, 5, 2),
    edge(0, 7, 5),
    edge(0, 1, 1),
    edge(0, 0, 0),
    edge(0, 42, 1),
  ];
  const graph: Graph = { version: 1, mode: "train", forwards: 1, calls, edges };
  const scene = lay(graph);
  assert.equal([...scene.port].filter(p => p < 0).length, 9);
  assert.deepEqual(
    [...scene.port]
      .filter(p => p >= 0)
      .map(p => [portNumber(p), p % 2])
      .sort(),
    [
      [-1, 0],
      [0, 0],
      [0, 1],
      [1, 0],
      [1, 1],
    ].sort(),
  );
  const kept = new Set(scene.edge);
  assert.ok(!kept.has(13) && !kept.has(15), "an edge to itself and one from nowhere are not drawn");
  assert.equal(kept.size, 14);
});

test("very deep nesting does not exhaust the stack", () => {
  const calls = [call(0, null, "", "Net")],
    edges = [];
  for (let i = 1; i < 3000; i++) {
    calls.push(call(i, i - 1, `m${i}`, "Wrap"));
    edges.push(edge(i - 1, i - 1, i), edge(i - 1, i, i - 1));
  }
  const scene = lay({ version: 1, mode: "train", forwards: 1, calls, edges });
  assert.equal([...scene.port].filter(p => p < 0).length, 2999);
});

test("nothing ran yet", () => {
  assert.equal(lay({ version: 1, mode: "train", forwards: 0, calls: [], edges: [] }).call.length, 0);
  assert.equal(lay({ version: 1, mode: "train", forwards: 0, calls: [call(0, null, "", "Net")], edges: [] }).call.length, 0);
});

test("the distance to a line is that to its nearest point", () => {
  const points = Float32Array.from([0, 0, 0, 100, 50, 140]);
  assert.ok(Math.abs(distance(points, 0, 4, 30, 50) - 900) < 1e-6);
  assert.ok(Math.abs(distance(points, 0, 6, 53, 144) - 25) < 1e-6);
});
