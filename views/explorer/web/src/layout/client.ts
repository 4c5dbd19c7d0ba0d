// Asks the worker for layouts; an answer that is out of date by then is dropped.

import { signal } from "@preact/signals";
import { type Model } from "../data/model";
import type { FromWorker, ToWorker } from "./worker";
import type { Scene } from "./nested";

export interface Laid {
  model: Model;
  scene: Scene;
  ms: number;
}
export const laid = signal<Laid | null>(null);

let worker: Worker | null = null;
let model: Model | null = null;
let graph = 0,
  seq = 0;

/** Served pages load the worker beside them; in an exported file its text stands in the page. */
function start(): Worker {
  const text = document.getElementById("torchtap-worker")?.textContent;
  const made = text ? new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" }))) : new Worker("worker.js");
  made.onmessage = ({ data }: MessageEvent<FromWorker>) => {
    if (data.graph === graph && data.seq === seq && model) laid.value = { model, scene: data.scene, ms: data.ms };
  };
  return made;
}

function post(message: ToWorker): void {
  (worker ??= start()).postMessage(message);
}

export function lay(next: Model, open: ReadonlySet<string>): void {
  if (next !== model) {
    model = next;
    const width = measurer();
    post({
      kind: "graph",
      graph: ++graph,
      edges: next.graph.edges,
      items: next.graph.calls.map(call => ({
        id: call.id,
        parent: call.parent ?? -1,
        width: width(next.label(call), call.type, next.canOpen(call.id)),
      })),
    });
  }
  const ids: number[] = [];
  for (const key of open) {
    const call = next.byKey.get(key);
    if (call) ids.push(call.id);
  }
  post({ kind: "lay", graph, seq: ++seq, open: ids });
}

export const FONT = '"Inter", system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';

/** Widths in few sizes, so that chains look calm. Names beyond the widest are cut when drawn. */
function measurer(): (name: string, type: string, group: boolean) => number {
  const context = document.createElement("canvas").getContext("2d")!;
  const known = new Map<string, number>();
  const measure = (font: string, text: string) => {
    const key = font + text;
    let width = known.get(key);
    if (width === undefined) {
      context.font = font;
      known.set(key, (width = context.measureText(text.slice(0, 60)).width));
    }
    return width;
  };
  return (name, type, group) => {
    const width = Math.max(measure(`600 12.5px ${FONT}`, name), measure(`11px ${FONT}`, type)) + (group ? 54 : 34);
    return Math.min(232, Math.max(120, Math.ceil(width / 28) * 28 + 8));
  };
}
