// What is shown: the state of the page, most of which lives in the address too.

import { batch, computed, signal } from "@preact/signals";
import type { Difference, Run } from "./data/protocol";
import { RunData } from "./data/run_data";
import type { Connection, Source } from "./data/source";

export type View = "heat" | "ridge" | "bands" | "single";
export const VIEWS: readonly View[] = ["heat", "ridge", "bands", "single"];
export type Scale = "auto" | "linear" | "symlog";
export type Theme = "auto" | "light" | "dark";
export type SideTab = "modules" | "findings" | "differences";
/** What colours the nodes: the kind of module, or a statistic of the first output or its gradient. */
export const COLOURS = ["type", "std", "mean", "norm", "zeros", "grad", "difference"] as const;
export type Colour = (typeof COLOURS)[number];
/** On a narrow screen one of these is seen at a time. */
export type Pane = "graph" | "side" | "panels";

export const runs = signal<Run[]>([]);
export const connection = signal<Connection>("connecting");
export const fatal = signal<string>("");
export const needsToken = signal(false);
export const a = signal<RunData | null>(null);
export const b = signal<RunData | null>(null);
export const differences = signal<Difference[]>([]);

export const mode = signal("train");
export const open = signal<ReadonlySet<string>>(new Set());
export const pinned = signal<readonly string[]>([]);
export const selected = signal<string>("");
/** Null follows the newest step. */
export const step = signal<number | null>(null);
export const range = signal<readonly [number, number] | null>(null);
export const colour = signal<Colour>("type");
export const view = signal<View>("heat");
export const scale = signal<Scale>("auto");
export const theme = signal<Theme>("auto");
export const sideTab = signal<SideTab>("modules");
export const pane = signal<Pane>("graph");
export const query = signal("");
export const help = signal(false);
/** Series hidden in panels, as KEY|what|index. */
export const hidden = signal<ReadonlySet<string>>(new Set());
/** Series that are shown beyond those that a panel shows at first. */
export const shown = signal<ReadonlySet<string>>(new Set());
export const dragging = signal<{ key: string; x: number; y: number } | null>(null);
export const sideWidth = signal(264);
export const panelWidth = signal(468);

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(systemDark.matches);
systemDark.addEventListener("change", ({ matches }) => {
  systemIsDark.value = matches;
});
export const dark = computed(() => (theme.value === "auto" ? systemIsDark.value : theme.value === "dark"));

export const lastStep = computed(() => {
  void a.value?.changed.value;
  return Math.max(a.value?.run.step ?? 0, b.value?.run.step ?? 0);
});
export const firstStep = computed(() => Math.min(a.value?.run.first_step ?? 0, b.value?.run.first_step ?? Infinity));
export const shownStep = computed(() => step.value ?? lastStep.value);
export const shownRange = computed<readonly [number, number]>(() => {
  const [from, to] = range.value ?? [firstStep.value, lastStep.value];
  return to > from ? [from, to] : [from, from + 1];
});

export let source: Source;
export function useSource(s: Source): void {
  source = s;
}

export function setStep(to: number | null): void {
  step.value = to === null ? null : Math.round(Math.min(lastStep.value, Math.max(firstStep.value, to)));
}

export function setRange(to: readonly [number, number] | null): void {
  const [first, last] = [firstStep.value, lastStep.value];
  if (to) {
    const from = Math.max(first, Math.min(to[0], to[1])),
      end = Math.min(last, Math.max(to[0], to[1]));
    to = end - from < 1 || (from <= first && end >= last) ? null : [from, end];
  }
  range.value = to;
  a.value?.zoom(to);
  b.value?.zoom(to);
}

export function toggleOpen(key: string): void {
  const now = new Set(open.value);
  if (!now.delete(key)) now.add(key);
  open.value = now;
}

export function pin(key: string): void {
  if (pinned.value.includes(key)) return;
  pinned.value = [...pinned.value, key];
}
export function unpin(key: string): void {
  pinned.value = pinned.value.filter(k => k !== key);
}
export function togglePin(key: string): void {
  if (pinned.value.includes(key)) unpin(key);
  else pin(key);
}
/** Opens what is around a call, so that it can be seen, and selects it. */
export function reveal(id: number): void {
  const model = a.value?.model.value;
  if (!model?.byId.has(id)) return;
  batch(() => {
    const around = model.ancestors(id).map(call => model.key(call.id));
    if (around.some(key => !open.value.has(key))) open.value = new Set([...open.value, ...around]);
    selected.value = model.key(id);
    revealed.value = { id, again: revealed.value.again + 1 };
    pane.value = "graph";
  });
}
/** The graph moves to this call. */
export const revealed = signal({ id: -1, again: 0 });

export function expandAll(): void {
  const model = a.value?.model.value;
  if (model)
    batch(() => {
      open.value = new Set([...model.children.keys()].map(id => model.key(id)));
      wholeAsked.value++;
    });
}
/** The next layout is shown as a whole. */
export const wholeAsked = signal(0);
/** Opens the outer modules as long as what is shown stays small. */
export function openSome(): void {
  const model = a.value?.model.value;
  if (!model?.root) return;
  const now = new Set<string>();
  let seen = model.childrenOf(model.root.id).length;
  let level = model.childrenOf(model.root.id);
  while (level.length) {
    const inside = level.flatMap(call => [...model.childrenOf(call.id)]);
    if (!inside.length || seen + inside.length > FEW) break;
    for (const call of level) if (model.canOpen(call.id)) now.add(model.key(call.id));
    seen += inside.length;
    level = inside;
  }
  open.value = now;
}
const FEW = 26;

export function collapseAll(): void {
  batch(() => {
    open.value = new Set();
    wholeAsked.value++;
  });
}

export async function choose(run: string, other: string | null): Promise<void> {
  const of = (id: string | null) => runs.value.find(r => r.id === id) ?? null;
  const first = of(run) ?? runs.value.find(r => r.modes.length) ?? runs.value[0];
  if (!first) return;
  const second = other === first.id ? null : of(other);
  const make = async (r: Run | null, old: RunData | null): Promise<RunData | null> => {
    if (!r) return null;
    if (old?.run.id === r.id && old.run.identity === r.identity && old.mode === mode.value && old.model.value) return old;
    const data = new RunData(source, r);
    await data.load(r.modes.includes(mode.value) ? mode.value : (r.modes[0] ?? "train"));
    return data;
  };
  const [nextA, nextB] = await Promise.all([make(first, a.value), make(second, b.value)]);
  batch(() => {
    a.value = nextA;
    b.value = nextB;
    if (!nextB) {
      differences.value = [];
      if (sideTab.value === "differences") sideTab.value = "modules";
      if (colour.value === "difference") colour.value = "type";
    }
  });
  nextA?.zoom(range.value);
  nextB?.zoom(range.value);
}
