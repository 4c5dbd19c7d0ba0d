// Where data comes from: a server, or this file itself. Nothing else in the page knows the difference.

import type { Update } from "./decode";
import type { Control, Difference, Graph, Health, Notice, Run, Scalars, Series } from "./protocol";

export type Connection = "connecting" | "live" | "polling" | "lost" | "refused" | "file";

export interface ColumnQuery {
  since?: number;
  from?: number;
  to?: number;
  columns?: number;
}

export interface Source {
  /** Whether new data may come. */
  readonly live: boolean;
  runs(): Promise<Run[]>;
  graph(run: string, mode: string): Promise<Graph>;
  series(run: string): Promise<Series[]>;
  scalars(run: string, since: number): Promise<Scalars>;
  health(run: string): Promise<Health>;
  columns(run: string, ids: readonly number[], query: ColumnQuery): Promise<Update[]>;
  /** Null if the page has to compare by itself. */
  compare(a: string, b: string, step: number | null): Promise<Difference[] | null>;
  control(run: string, change: Control): Promise<void>;
  /** Calls back for each notice and each change of the connection; returns a function that ends it. */
  listen(onNotice: (notice: Notice) => void, onConnection: (state: Connection) => void): () => void;
}

/** The server wants a token, or another one. */
export class NeedsToken extends Error {}
/** The server is away for now, or has no such thing any more. */
export class Unanswered extends Error {}
