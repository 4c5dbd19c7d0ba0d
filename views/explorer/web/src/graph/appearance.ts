// How calls look at the shown step: colours by a statistic, findings, distributions, what a search found.

import { computed } from "@preact/signals";
import { density, peak } from "../charts/density";
import { fitScale, ValueScale } from "../charts/scale";
import { finite, mean, norm, std, type Column } from "../data/column";
import type { History } from "../data/history";
import { family, type Model } from "../data/model";
import { toNumber, type Call } from "../data/protocol";
import { rankOf } from "../data/rules";
import type { RunData } from "../data/run_data";
import { laid } from "../layout/client";
import * as state from "../state";
import { rampColour } from "../theme";
import type { Badge, Look } from "./paint";

const MOST_COLOURED = 600,
  BINS = 30;

/** The series that stands for a call: its first output, or the gradient of it. */
export function seriesOf(call: Call | undefined, gradient: boolean): number {
  const list = gradient ? call?.series.grad_output : (call?.series.output ?? call?.series.attach);
  return list?.find(id => id >= 0) ?? call?.series.attach?.find(id => id >= 0 && !gradient) ?? -1;
}

let wantedShapes = "";
/** Distributions are fetched for the calls that are seen large enough. */
export function wantShapes(calls: readonly number[]): void {
  const run = state.a.value,
    model = run?.model.value;
  if (!run || !model || state.colour.value !== "type") return;
  const ids = calls.flatMap(id => {
    const s = seriesOf(model.byId.get(id), false);
    return s >= 0 ? [s] : [];
  });
  const key = run.run.id + ids.join();
  if (key === wantedShapes || !ids.length) return;
  wantedShapes = key;
  run.want("graph", ids);
}

interface Shape {
  version: number;
  scale: ValueScale;
  column: Column | null;
  heights: Float32Array | null;
}
const shapes = new WeakMap<History, Shape>();

function shapeOf(run: RunData, id: number, step: number): Float32Array | null {
  const history = run.history(id);
  if (!history?.columns.length) return null;
  const column = history.at(step);
  let shape = shapes.get(history);
  if (shape?.version !== history.version) {
    shape = { version: history.version, scale: fitScale(history.columns, "auto"), column: null, heights: null };
    shapes.set(history, shape);
  }
  if (column && shape.column !== column) {
    shape.column = column;
    const heights = density(column, shape.scale, BINS);
    // Zeros belong to the hill; a share of half or more reaches its top.
    const zero = Math.floor(shape.scale.at(0) * BINS);
    if (column.zeros && zero >= 0 && zero < BINS) heights[zero]! += column.zeros / Math.max(1, finite(column));
    const top = peak(heights);
    if (top > 0) for (let i = 0; i < BINS; i++) heights[i] = Math.sqrt(heights[i]! / top);
    shape.heights = top > 0 ? heights : null;
  }
  return column && finite(column) ? shape.heights : null;
}

/** A statistic of a call's series at the shown step, from its columns or, at the newest step, from the index. */
function statistic(run: RunData, id: number, what: state.Colour, step: number, newest: boolean): number {
  const column = run.at(id, step);
  if (column) {
    switch (what) {
      case "std":
        return std(column);
      case "mean":
        return mean(column);
      case "zeros":
        return finite(column) ? column.zeros / finite(column) : NaN;
      default:
        return norm(column);
    }
  }
  const last = newest ? run.index.value.byId.get(id)?.last : null;
  if (!last) return NaN;
  return what === "std"
    ? toNumber(last.std)
    : what === "mean"
      ? toNumber(last.mean)
      : what === "zeros"
        ? last.zeros / Math.max(1, last.count)
        : toNumber(last.norm);
}

export interface Legend {
  from: number;
  to: number;
  family: "value" | "gradient" | "parameter";
  log: boolean;
  title: string;
}
export const TITLES: Record<state.Colour, string> = {
  type: "kind of module",
  std: "standard deviation of output",
  mean: "|mean| of output",
  norm: "norm of output",
  zeros: "zeros in output",
  grad: "norm of ∂ output",
  difference: "difference of the runs, in standard deviations",
};

interface Coloured {
  legend: Legend;
  of: (call: number) => string | null;
}

const coloured = computed<Coloured | null>(() => {
  const run = state.a.value,
    model = run?.model.value,
    what = state.colour.value,
    scene = laid.value;
  if (!run || !model || !scene || what === "type" || scene.model !== model) return null;
  void run.changed.value;
  const values = new Map<number, number>();
  if (what === "difference") {
    for (const d of state.differences.value) {
      if (!values.has(d.call) || values.get(d.call)! < d.wasserstein) values.set(d.call, d.wasserstein);
    }
  } else {
    const calls = [...new Set(scene.scene.call)];
    const newest = state.step.value === null;
    const ids = calls.map(id => seriesOf(model.byId.get(id), what === "grad"));
    if (calls.length <= MOST_COLOURED || !newest)
      queueMicrotask(() => run.want("graph", ids.filter(id => id >= 0).slice(0, MOST_COLOURED)));
    calls.forEach((call, i) => {
      if (ids[i]! >= 0) values.set(call, Math.abs(statistic(run, ids[i]!, what, state.shownStep.value, newest)));
    });
  }
  const sorted = [...values.values()].filter(v => Number.isFinite(v)).sort((x, y) => x - y);
  const positive = sorted.filter(v => v > 0);
  const log = what !== "zeros" && positive.length > 1 && positive[positive.length - 1]! / positive[0]! > 50;
  const from = what === "zeros" ? 0 : log ? positive[0]! : Math.min(0, sorted[0] ?? 0),
    to = what === "zeros" ? 1 : (sorted[sorted.length - 1] ?? 1);
  const place = (v: number) => (log ? (v > 0 ? Math.log(v / from) / Math.log(to / from) : 0) : to > from ? (v - from) / (to - from) : 0);
  const kind = family(what === "grad" ? "grad_output" : what === "difference" ? "parameter" : "output");
  const dark = state.dark.value;
  return {
    legend: { from, to, family: kind, log, title: TITLES[what] },
    of: call => {
      const v = values.get(call);
      return v === undefined || Number.isNaN(v) ? null : rampColour(kind, dark, 0.06 + 0.88 * place(v));
    },
  };
});
export const legend = computed(() => coloured.value?.legend ?? null);

/** The worst finding of each call that is on screen; one inside of a closed module stands at that. */
const badges = computed<Map<number, Badge>>(() => {
  const result = new Map<number, Badge>();
  const run = state.a.value,
    scene = laid.value;
  if (!run || !scene) return result;
  const { model } = scene;
  const closed = new Set<number>();
  scene.scene.call.forEach((call, i) => {
    if (scene.scene.port[i]! < 0 && !(scene.scene.flags[i]! & 1)) closed.add(call);
  });
  for (const mark of run.health.value.marks) {
    if (mark.since > state.shownStep.value) continue;
    let at = model.byId.get(mark.call);
    while (at && !closed.has(at.id)) at = at.parent === null ? undefined : model.byId.get(at.parent);
    if (!at) continue;
    const old = result.get(at.id);
    if (old && rankOf(old.kind) <= rankOf(mark.kind)) continue;
    result.set(at.id, { kind: mark.kind, value: toNumber(mark.value), inside: at.id !== mark.call, first: old?.first ?? null });
  }
  const first = run.health.value.first_bad;
  if (first && first.step <= state.shownStep.value) {
    let at = model.byId.get(first.call);
    while (at && !closed.has(at.id)) at = at.parent === null ? undefined : model.byId.get(at.parent);
    if (at) result.set(at.id, { kind: "nonfinite", value: 1, inside: at.id !== first.call, first: first.what });
  }
  return result;
});

export function matches(call: Call, words: readonly string[]): boolean {
  const text = `${call.path} ${call.name} ${call.type}`.toLowerCase();
  return words.every(word => text.includes(word));
}
export const found = computed<Set<number> | null>(() => {
  const words = state.query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const model: Model | null | undefined = state.a.value?.model.value;
  if (!words.length || !model) return null;
  return new Set(model.graph.calls.filter(call => call !== model.root && matches(call, words)).map(call => call.id));
});

/** What is found, and the closed modules in which something is. */
const lit = computed<Set<number> | null>(() => {
  const model = state.a.value?.model.value;
  if (!found.value || !model) return null;
  const result = new Set(found.value);
  for (const id of found.value) for (const around of model.ancestors(id)) result.add(around.id);
  return result;
});

export const appearance = computed<Pick<Look, "fill" | "badges" | "shape" | "found">>(() => {
  const run = state.a.value;
  void run?.changed.value;
  const step = state.shownStep.value;
  const model = run?.model.value;
  return {
    fill: coloured.value?.of,
    badges: badges.value,
    found: lit.value,
    shape: call => {
      const it = model?.byId.get(call);
      return run && it ? shapeOf(run, seriesOf(it, false), step) : null;
    },
  };
});
