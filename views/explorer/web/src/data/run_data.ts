// All that the page knows of one run. `changed` grows with anything that is drawn.

import { signal } from "@preact/signals";
import type { Column } from "./column";
import { History } from "./history";
import { Index, Model } from "./model";
import type { Health, Mark, Notice, Run, Scalars } from "./protocol";
import type { Source } from "./source";

const BATCH = 48;
const REFRESH_MS = 900;

export class RunData {
  readonly model = signal<Model | null>(null);
  readonly index = signal(new Index());
  readonly scalars = signal<Scalars>(Object.create(null)); // any name is one, "constructor" too
  readonly health = signal<Health>({ first_bad: null, marks: [] });
  readonly changed = signal(0);
  readonly error = signal("");
  mode = "train";
  private readonly overview = new Map<number, History>();
  private detail = new Map<number, History>();
  private range: readonly [number, number] | null = null;
  private readonly wanted = new Map<string, ReadonlySet<number>>();
  private asked = new Set<number>();
  private busy = false;
  private again = false;
  private slow: ReturnType<typeof setTimeout> | undefined;
  private scalarsUntil = -1;
  private toldGraph = -1;
  private graphStale = false;

  constructor(
    private readonly source: Source,
    public run: Run,
  ) {}

  async load(mode: string): Promise<void> {
    this.mode = mode;
    const [graph, series, health] = await Promise.all([
      this.source.graph(this.run.id, mode),
      this.source.series(this.run.id),
      this.source.health(this.run.id),
    ]);
    this.model.value = new Model(graph);
    this.toldGraph = graph.version;
    this.index.value = new Index(series);
    this.health.value = oneEach(health);
    await this.loadScalars();
    this.changed.value++;
  }

  private async loadScalars(): Promise<void> {
    const fresh = await this.source.scalars(this.run.id, this.scalarsUntil);
    const merged: Scalars = Object.assign(Object.create(null), this.scalars.value);
    let any = false;
    for (const [name, points] of Object.entries(fresh)) {
      const old = merged[name] ?? [];
      const until = old.length ? old[old.length - 1]![0] : -Infinity;
      const more = points.filter(([step]) => step > until);
      if (!more.length && name in merged) continue;
      merged[name] = [...old, ...more];
      any = true;
      for (const [step] of more) this.scalarsUntil = Math.max(this.scalarsUntil, step);
    }
    if (any) this.scalars.value = merged;
  }

  /** All columns of a series; undefined until they come. */
  history(id: number): History | undefined {
    return this.overview.get(id);
  }

  /** Changes whenever the columns do. */
  version(id: number): string {
    return `${this.run.id}.${id}.${this.overview.get(id)?.version ?? 0}.${this.detail.get(id)?.columns.length ?? ""}`;
  }

  /** The columns to draw in a range: at full resolution if they came, with the next ones on either side. */
  columns(id: number, from: number, to: number): readonly Column[] {
    const rough = this.overview.get(id)?.within(from, to) ?? [],
      fine = this.detail.get(id)?.columns;
    if (!fine?.length) return rough;
    const first = fine[0]!.first,
      last = fine[fine.length - 1]!.last;
    return [...rough.filter(c => c.last < first), ...fine, ...rough.filter(c => c.first > last)];
  }

  /** The column shown at a step. */
  at(id: number, step: number): Column | null {
    const fine = this.detail.get(id)?.at(step);
    return fine && fine.first <= step ? fine : (this.overview.get(id)?.at(step) ?? null);
  }

  /** Keeps these series up to date for `owner`, until it wants others. */
  want(owner: string, ids: Iterable<number>): void {
    const set = new Set(ids);
    if (set.size) this.wanted.set(owner, set);
    else this.wanted.delete(owner);
    void this.fetch();
  }

  /** Columns at full resolution inside of a range; null goes back to all. */
  zoom(range: readonly [number, number] | null): void {
    if (range?.[0] === this.range?.[0] && range?.[1] === this.range?.[1]) return;
    this.range = range;
    this.detail = new Map();
    this.changed.value++;
    if (range) void this.fetchDetail(range);
  }

  private async fetchDetail(range: readonly [number, number]): Promise<void> {
    const ids = [...this.wanted].flatMap(([owner, set]) => (owner === "graph" ? [] : [...set]));
    const [from, to] = [Math.floor(range[0]), Math.ceil(range[1])];
    for (let i = 0; i < ids.length; i += BATCH) {
      const updates = await this.source.columns(this.run.id, ids.slice(i, i + BATCH), { from, to, columns: 256 });
      if (this.range !== range) return;
      for (const update of updates) {
        const history = new History();
        history.apply(update);
        this.detail.set(update.id, history);
      }
      this.changed.value++;
    }
  }

  private ids(): Set<number> {
    const result = new Set<number>();
    for (const set of this.wanted.values()) for (const id of set) if (id >= 0) result.add(id);
    return result;
  }

  private async fetch(changed: ReadonlySet<number> | null = null): Promise<void> {
    if (this.busy) {
      this.again = true;
      return;
    }
    // Series that have the same sequence can be asked for together.
    const groups = new Map<number, number[]>();
    for (const id of this.ids()) {
      const history = this.overview.get(id);
      if (history ? !this.source.live || !changed?.has(id) : this.asked.has(id)) continue;
      const since = history?.sequence ?? 0;
      const group = groups.get(since);
      if (group) group.push(id);
      else groups.set(since, [id]);
    }
    this.busy = true;
    try {
      for (const [since, ids] of groups) {
        for (let i = 0; i < ids.length; i += BATCH) {
          const batch = ids.slice(i, i + BATCH);
          for (const id of batch) this.asked.add(id);
          const updates = await this.source.columns(this.run.id, batch, since ? { since } : {});
          for (const update of updates) {
            let history = this.overview.get(update.id);
            if (!history) this.overview.set(update.id, (history = new History()));
            history.apply(update);
          }
          this.changed.value++;
        }
      }
      this.error.value = "";
    } catch (problem) {
      this.asked = new Set();
      this.error.value = String(problem instanceof Error ? problem.message : problem);
    } finally {
      this.busy = false;
    }
    if (this.again) {
      this.again = false;
      void this.fetch(changed);
    }
  }

  /** What a notice says has changed is fetched, the indexes at most about once a second. */
  notice({ step, graph, changed, state }: Notice): void {
    const moved = step !== this.run.step || state !== this.run.state;
    this.run = { ...this.run, step, state };
    const stale = graph >= 0 && graph !== this.toldGraph;
    if (stale) this.toldGraph = graph;
    if (!moved && !stale && !changed?.length) return;
    this.changed.value++;
    this.asked = new Set();
    void this.fetch(changed ? new Set(changed) : this.ids());
    this.graphStale ||= stale || graph < 0;
    this.slow ??= setTimeout(
      () => {
        this.slow = undefined;
        const graphToo = this.graphStale;
        this.graphStale = false;
        void this.refresh(graphToo);
      },
      stale ? 0 : REFRESH_MS,
    );
  }

  private async refresh(graphToo: boolean): Promise<void> {
    try {
      const [series, health] = await Promise.all([this.source.series(this.run.id), this.source.health(this.run.id)]);
      this.index.value = new Index(series);
      this.health.value = oneEach(health);
      await this.loadScalars();
      if (graphToo) {
        const graph = await this.source.graph(this.run.id, this.mode);
        if (graph.version !== this.model.value?.graph.version) this.model.value = new Model(graph);
      }
      if (this.range && this.range[1] >= this.run.step) void this.fetchDetail(this.range);
      this.changed.value++;
    } catch {
      // The connection is gone; its state is shown, and the next notice asks again.
    }
  }
}

/** A call may have the same finding in several series; the earliest stands for them. */
function oneEach({ first_bad, marks }: Health): Health {
  const kept = new Map<string, Mark>();
  for (const mark of marks) {
    const key = `${mark.call} ${mark.kind}`,
      old = kept.get(key);
    if (!old || mark.since < old.since) kept.set(key, mark);
  }
  return { first_bad, marks: [...kept.values()] };
}
