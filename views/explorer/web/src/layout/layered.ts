// A layered layout of one frame: rows, order, columns, routes.

import { placeColumns } from "./columns";
import { assignRanks, type Problem } from "./ranks";
import { orderRows } from "./rows";
import { wrap, type Draft, type Wrapped } from "./wrap";

export interface Placed {
  /** Anchors: x as `left` and `right` are measured from, y of the upper end. */
  x: Float64Array;
  y: Float64Array;
  width: number;
  height: number;
  /**
   * Points of each pair's route. Between two points a line leaves and arrives vertically; between two of the same height
   * it turns back.
   */
  routes: Float64Array[];
}

export interface Spacing {
  gap: number;
  bendGap: number;
  row: number;
  longest: number;
  lane: number;
  aspect: number;
}
export const SPACING: Spacing = { gap: 22, bendGap: 18, row: 30, longest: 14, lane: 9, aspect: 1.2 };

/** `ends` are the offsets from the anchors at which each pair leaves and arrives, flat; anchors if missing. */
export function layered(problem: Problem, ends?: Float64Array, spacing: Spacing = SPACING): Placed {
  const { count, pairs } = problem;
  const { rank, rows: rowCount, backward } = assignRanks(problem);
  const edges = pairs.length / 2;
  // Bends make long edges readable and let chains be wrapped; in a large frame they would outnumber its nodes.
  const longest = count < 400 ? 64 : spacing.longest;
  const rows: number[][] = Array.from({ length: rowCount }, () => []);
  const above: number[][] = [],
    below: number[][] = [];
  for (let v = 0; v < count; v++) {
    rows[rank[v]!]!.push(v);
    above.push([]);
    below.push([]);
  }
  const bends: (number[] | null)[] = new Array(edges).fill(null);
  for (let e = 0; e < edges; e++) {
    const from = pairs[2 * e]!,
      to = pairs[2 * e + 1]!,
      length = rank[to]! - rank[from]!;
    if (backward[e] || length > longest || length < 1) continue;
    const mine: number[] = [];
    let last = from;
    for (let k = 1; k < length; k++) {
      const bend = above.length;
      above.push([last]);
      below.push([]);
      below[last]!.push(bend);
      rows[rank[from]! + k]!.push(bend);
      mine.push(bend);
      last = bend;
    }
    above[to]!.push(last);
    below[last]!.push(to);
    bends[e] = mine;
  }
  orderRows({ rows, above, below });

  const size = above.length;
  const left = new Float64Array(size),
    right = new Float64Array(size),
    bend = new Uint8Array(size);
  left.set(problem.left);
  right.set(problem.right);
  bend.fill(1, count);
  const x = placeColumns({ rows, above, below }, { left, right, bend, gap: spacing.gap, bendGap: spacing.bendGap });

  const top = new Float64Array(rowCount),
    bottom = new Float64Array(rowCount);
  let y = 0;
  for (let k = 0; k < rowCount; k++) {
    let height = 0;
    for (const v of rows[k]!) if (v < count) height = Math.max(height, problem.height[v]!);
    top[k] = y;
    bottom[k] = y + height;
    y += height + spacing.row;
  }
  const ys = new Float64Array(count);
  for (let v = 0; v < count; v++) ys[v] = top[rank[v]!]! + (bottom[rank[v]!]! - top[rank[v]!]! - problem.height[v]!) / 2;
  let max = -Infinity;
  for (let v = 0; v < size; v++) max = Math.max(max, x[v]! + right[v]!);
  const lanes = assignLanes(pairs, rank, bends);
  const draft: Draft = { x, y: ys, left, right, rank: new Int32Array(size), rows, top, bottom, routes: [], at: [] };
  draft.rank.set(rank);
  for (let e = 0; e < edges; e++) {
    const a = pairs[2 * e]!,
      b = pairs[2 * e + 1]!,
      from = rank[a]!,
      to = rank[b]!;
    const route: number[] = [],
      at: number[] = [];
    const add = (px: number, py: number, row: number) => {
      route.push(px, py);
      at.push(row);
    };
    const start = x[a]! + (ends ? ends[2 * e]! : 0),
      end = x[b]! + (ends ? ends[2 * e + 1]! : 0);
    add(start, ys[a]! + problem.height[a]!, from);
    // A node may be lower than its row is high; the line goes straight to the row's end first.
    if (ys[a]! + problem.height[a]! !== bottom[from]) add(start, bottom[from]!, from);
    const mine = bends[e];
    if (mine) {
      mine.forEach((v, k) => {
        draft.rank[v] = from + 1 + k;
        add(x[v]!, top[from + 1 + k]!, from + 1 + k);
        add(x[v]!, bottom[from + 1 + k]!, from + 1 + k);
      });
    } else {
      const lane = max + spacing.gap + lanes.lane[e]! * spacing.lane;
      add(lane, bottom[from]! + spacing.row, from);
      add(lane, Math.max(0, top[to]! - spacing.row), to);
    }
    if (ys[b] !== top[to]) add(end, top[to]!, to);
    add(end, ys[b]!, to);
    draft.routes.push(route);
    draft.at.push(at);
  }
  return finish(draft, count, wrap(draft, pairs, spacing));
}

/** Moves the columns of a draft to their places. */
function finish(draft: Draft, count: number, columns: Wrapped): Placed {
  const { columnOf, dx, dy, width, height } = columns;
  const placed: Placed = { x: new Float64Array(count), y: new Float64Array(count), width, height, routes: [] };
  for (let v = 0; v < count; v++) {
    const column = columnOf[draft.rank[v]!]!;
    placed.x[v] = draft.x[v]! + dx[column]!;
    placed.y[v] = draft.y[v]! + dy[column]!;
  }
  draft.routes.forEach((route, e) => {
    const at = draft.at[e]!,
      points: number[] = [];
    let last = columnOf[at[0]!]!;
    at.forEach((row, i) => {
      const column = columnOf[row]!;
      const px = route[2 * i]! + dx[column]!,
        py = route[2 * i + 1]! + dy[column]!;
      if (column !== last) {
        const lane = columns.lane(e, last);
        const floor = columns.floor[last]!;
        points.push(points[points.length - 2]!, floor, lane, floor, lane, columns.ceiling, px, columns.ceiling);
        last = column;
      }
      points.push(px, py);
    });
    placed.routes.push(Float64Array.from(points));
  });
  return placed;
}

/** Edges too long for bends run beside the frame; those that overlap get lanes of their own. */
function assignLanes(pairs: Int32Array, rank: Int32Array, bends: (number[] | null)[]): { lane: Int32Array; count: number } {
  const long: number[] = [];
  bends.forEach((b, e) => {
    if (!b) long.push(e);
  });
  const from = (e: number) => Math.min(rank[pairs[2 * e]!]!, rank[pairs[2 * e + 1]!]!);
  const to = (e: number) => Math.max(rank[pairs[2 * e]!]!, rank[pairs[2 * e + 1]!]!);
  // Short ones first, so that they lie inside of those that embrace them.
  long.sort((a, b) => to(a) - from(a) - (to(b) - from(b)) || from(a) - from(b));
  const lane = new Int32Array(bends.length);
  const taken: [number, number][][] = [];
  for (const e of long) {
    let k = 0;
    while (k < Math.min(taken.length, 64) && taken[k]!.some(([a, b]) => from(e) < b && a < to(e))) k++;
    // More than 64 side by side cannot be told apart anyway; they share the last lane.
    k = Math.min(k, 63);
    (taken[k] ??= []).push([from(e), to(e)]);
    lane[e] = k;
  }
  return { lane, count: taken.length };
}
