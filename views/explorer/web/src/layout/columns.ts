// Horizontal places, after Brandes and Köpf, "Fast and Simple Horizontal Coordinate Assignment" (2001): nodes are aligned
// with a median neighbour, four times from the four corners; the mean of the two middle results is taken. Long edges
// stay straight.

import type { Rows } from "./rows";

export interface Widths {
  left: Float64Array;
  right: Float64Array;
  bend: Uint8Array;
  gap: number;
  bendGap: number;
}

export function placeColumns(graph: Rows, widths: Widths): Float64Array {
  const size = graph.above.length;
  if (graph.rows.every(row => row.length === 1)) return new Float64Array(size);
  const conflicts = findConflicts(graph, widths.bend);
  const chains = findChains(graph, widths.bend);
  const results: Float64Array[] = [];
  for (const down of [true, false]) {
    for (const leftToRight of [true, false]) results.push(align(graph, chains, widths, conflicts, down, leftToRight));
  }
  let narrow = 0,
    least = Infinity;
  const spans = results.map(xs => span(xs, widths));
  spans.forEach(([min, max], i) => {
    if (max - min < least) {
      least = max - min;
      narrow = i;
    }
  });
  results.forEach((xs, i) => {
    const shift = i % 2 === 0 ? spans[narrow]![0] - spans[i]![0] : spans[narrow]![1] - spans[i]![1];
    for (let v = 0; v < size; v++) xs[v]! += shift;
  });
  const x = new Float64Array(size);
  const four = [0, 0, 0, 0];
  for (let v = 0; v < size; v++) {
    for (let i = 0; i < 4; i++) four[i] = results[i]![v]!;
    four.sort((a, b) => a - b);
    x[v] = (four[1]! + four[2]!) / 2;
  }
  return x;
}

function span(xs: Float64Array, { left, right }: Widths): [number, number] {
  let min = Infinity,
    max = -Infinity;
  for (let v = 0; v < xs.length; v++) {
    min = Math.min(min, xs[v]! - left[v]!);
    max = Math.max(max, xs[v]! + right[v]!);
  }
  return [min, max];
}

/** Edges that cross a piece between two bends: those must not be aligned, or a long edge would be bent. */
function findConflicts({ rows, above }: Rows, bend: Uint8Array): Set<number> {
  const size = above.length,
    result = new Set<number>(),
    place = new Int32Array(size);
  for (const row of rows)
    row.forEach((v, i) => {
      place[v] = i;
    });
  for (let k = 1; k < rows.length; k++) {
    const row = rows[k]!;
    let scanned = 0,
      from = 0;
    row.forEach((v, i) => {
      const inner = bend[v] ? above[v]!.find(u => bend[u]) : undefined;
      if (inner === undefined && i !== row.length - 1) return;
      const to = inner === undefined ? rows[k - 1]!.length : place[inner]!;
      for (; scanned <= i; scanned++) {
        const w = row[scanned]!;
        for (const u of above[w]!) {
          if ((place[u]! < from || place[u]! > to) && !(bend[u] && bend[w])) result.add(u * size + w);
        }
      }
      from = to;
    });
  }
  return result;
}

function align(graph: Rows, chains: Chains, widths: Widths, conflicts: Set<number>, down: boolean, leftToRight: boolean): Float64Array {
  const size = graph.above.length;
  const rows = (down ? graph.rows : graph.rows.slice().reverse()).map(row => (leftToRight ? row : row.slice().reverse()));
  const near = down ? chains.above : chains.below;
  const place = new Int32Array(size),
    root = new Int32Array(size),
    next = new Int32Array(size);
  for (const row of rows)
    row.forEach((v, i) => {
      place[v] = i;
      root[v] = next[v] = v;
    });
  for (const row of rows) {
    let last = -1;
    for (const v of row) {
      const others = near[v]!;
      if (!others.length) continue;
      const by = others.length > 1 ? others.slice().sort((a, b) => place[a]! - place[b]!) : others;
      const middle = (by.length - 1) / 2;
      for (let i = Math.floor(middle); i <= Math.ceil(middle); i++) {
        const w = by[i]!;
        const pair = down ? w * size + v : v * size + w;
        if (next[v] === v && last < place[w]! && !conflicts.has(pair)) {
          next[w] = v;
          next[v] = root[v] = root[w]!;
          last = place[w]!;
        }
      }
    }
  }
  return compact(rows, root, widths, leftToRight);
}

interface Chains {
  above: number[][];
  below: number[][];
}

/** A chain stays straight where edges that skip a part of it begin or end: those do not align with it there. */
function findChains({ above, below }: Rows, bend: Uint8Array): Chains {
  const up = above.map(others => preferred(others, bend)),
    down = below.map(others => preferred(others, bend));
  const agreed = (mine: number[][], theirs: number[][]) =>
    mine.map((others, v) => (bend[v] && others.length === 1 && !theirs[others[0]!]!.includes(v) ? [] : others));
  return { above: agreed(up, down), below: agreed(down, up) };
}

function preferred(others: number[], bend: Uint8Array): number[] {
  if (others.length < 2) return others;
  let node = -1;
  for (const u of others) {
    if (bend[u]) continue;
    if (node >= 0) return others;
    node = u;
  }
  return node >= 0 ? [node] : others;
}

/** Blocks of aligned nodes as close as widths allow, then moved towards what follows where there is room. */
function compact(rows: number[][], root: Int32Array, widths: Widths, leftToRight: boolean): Float64Array {
  const size = root.length;
  const { left, right, bend } = widths;
  const from: number[] = [],
    to: number[] = [],
    apart: number[] = [];
  const degree = new Int32Array(size);
  for (const row of rows) {
    for (let i = 1; i < row.length; i++) {
      const u = row[i - 1]!,
        v = row[i]!;
      const gap = bend[u] || bend[v] ? widths.bendGap : widths.gap;
      from.push(root[u]!);
      to.push(root[v]!);
      apart.push(gap + (leftToRight ? right[u]! + left[v]! : left[u]! + right[v]!));
      degree[root[v]!]!++;
    }
  }
  const begin = new Int32Array(size + 2),
    list = new Int32Array(from.length);
  for (const u of from) begin[u + 2]!++;
  for (let v = 2; v < size + 2; v++) begin[v]! += begin[v - 1]!;
  from.forEach((u, e) => {
    list[begin[u + 1]!++] = e;
  });
  const queue: number[] = [],
    xs = new Float64Array(size);
  for (let v = 0; v < size; v++) if (root[v] === v && !degree[v]) queue.push(v);
  for (let head = 0; head < queue.length; head++) {
    const u = queue[head]!;
    for (let i = begin[u]!; i < begin[u + 1]!; i++) {
      const e = list[i]!,
        v = to[e]!;
      xs[v] = Math.max(xs[v]!, xs[u]! + apart[e]!);
      if (--degree[v]! === 0) queue.push(v);
    }
  }
  for (let head = queue.length - 1; head >= 0; head--) {
    const u = queue[head]!;
    let most = Infinity;
    for (let i = begin[u]!; i < begin[u + 1]!; i++) most = Math.min(most, xs[to[list[i]!]!]! - apart[list[i]!]!);
    if (most !== Infinity) xs[u] = Math.max(xs[u]!, most);
  }
  const result = new Float64Array(size);
  for (let v = 0; v < size; v++) result[v] = (leftToRight ? 1 : -1) * xs[root[v]!]!;
  return result;
}
