// Data that stands in the page itself: an exported file, which makes no request at all.

import { decode, type Update } from "./decode";
import type { Graph, Health, Run, Scalars, Series } from "./protocol";
import type { ColumnQuery, Connection, Source } from "./source";

interface Content {
  graph: Record<string, Graph>;
  series: Series[];
  scalars: Scalars;
  health: Health;
  columns: string;
}

export class EmbeddedSource implements Source {
  readonly live = false;
  private readonly updates = new Map<string, Map<number, Update>>();
  constructor(private readonly data: { runs: Run[] } & Record<string, unknown>) {}

  private of(run: string): Content {
    const content = this.data[run];
    if (!content) throw new Error(`this file has no run ${run}`);
    return content as Content;
  }

  async runs(): Promise<Run[]> {
    return this.data.runs;
  }
  async graph(run: string, mode: string): Promise<Graph> {
    const graph = this.of(run).graph[mode];
    if (!graph) throw new Error(`this file has no graph of ${run} in ${mode}`);
    return graph;
  }
  async series(run: string): Promise<Series[]> {
    return this.of(run).series;
  }
  async scalars(run: string): Promise<Scalars> {
    return this.of(run).scalars;
  }
  async health(run: string): Promise<Health> {
    return this.of(run).health;
  }

  async columns(run: string, ids: readonly number[], query: ColumnQuery): Promise<Update[]> {
    if (query.since) return [];
    const all = this.decoded(run);
    const { from = -Infinity, to = Infinity } = query;
    return ids.flatMap(id => {
      const update = all.get(id);
      if (!update) return [];
      return [{ ...update, columns: update.columns.filter(c => c.last >= from && c.first <= to) }];
    });
  }

  private decoded(run: string): Map<number, Update> {
    const known = this.updates.get(run);
    if (known) return known;
    const bytes = Uint8Array.from(atob(this.of(run).columns), c => c.charCodeAt(0));
    const result = new Map(decode(bytes.buffer).map(u => [u.id, u]));
    this.updates.set(run, result);
    return result;
  }

  async compare(): Promise<null> {
    return null;
  }
  async control(): Promise<void> {
    throw new Error("a file cannot be controlled");
  }
  listen(_: unknown, onConnection: (state: Connection) => void): () => void {
    onConnection("file");
    return () => {};
  }
}
