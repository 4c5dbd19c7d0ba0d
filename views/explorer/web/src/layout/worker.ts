// The layout runs here, so that the page stays quick however large the model is.

import type { Edge } from "../data/protocol";
import { Nested, type Item, type Scene } from "./nested";

export type ToWorker =
  { kind: "graph"; graph: number; items: Item[]; edges: Edge[] } | { kind: "lay"; graph: number; seq: number; open: number[] };
export interface FromWorker {
  graph: number;
  seq: number;
  scene: Scene;
  ms: number;
}

let nested: Nested | null = null;
let graph = -1;

self.onmessage = ({ data }: MessageEvent<ToWorker>) => {
  if (data.kind === "graph") {
    nested = new Nested(data.items, data.edges);
    graph = data.graph;
    return;
  }
  if (!nested || data.graph !== graph) return;
  const start = performance.now();
  const scene = nested.lay({ open: new Set(data.open) });
  const answer: FromWorker = { graph, seq: data.seq, scene, ms: performance.now() - start };
  const { call, port, flags, depth, x, y, w, h, edge, begin, points } = scene;
  (self as unknown as Worker).postMessage(
    answer,
    [call, port, flags, depth, x, y, w, h, edge, begin, points].map(array => array.buffer as ArrayBuffer),
  );
};
