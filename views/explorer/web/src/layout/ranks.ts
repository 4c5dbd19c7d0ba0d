// Which row a node stands in: the longest path from the start, in order of execution.

export interface Problem {
  count: number;
  /** Pairs (from, to) of nodes, flat. */
  pairs: Int32Array;
  /** Extent of each node to the left and right of its anchor, and its height. */
  left: Float64Array;
  right: Float64Array;
  height: Float64Array;
  /** 1 stands in the first row (an input), 2 in the last one (an output), 0 between. */
  fixed: Uint8Array;
}

export interface Ranks {
  rank: Int32Array;
  rows: number;
  backward: Uint8Array;
}

/** Pairs that lead back (a loop, or graphs of several forwards put together) get no say in ranks: `backward` is 1. */
export function assignRanks({ count, pairs, fixed }: Problem): Ranks {
  const n = pairs.length / 2;
  const backward = new Uint8Array(n);
  const place = (v: number) => (fixed[v] === 1 ? -1 : fixed[v] === 2 ? count : v);
  const begin = new Int32Array(count + 2),
    degree = new Int32Array(count);
  for (let e = 0; e < n; e++) {
    if (place(pairs[2 * e]!) >= place(pairs[2 * e + 1]!)) {
      backward[e] = 1;
      continue;
    }
    begin[pairs[2 * e]! + 2]!++;
    degree[pairs[2 * e + 1]!]!++;
  }
  for (let v = 2; v < count + 2; v++) begin[v]! += begin[v - 1]!;
  const target = new Int32Array(n);
  for (let e = 0; e < n; e++) if (!backward[e]) target[begin[pairs[2 * e]! + 1]!++] = pairs[2 * e + 1]!;

  const rank = new Int32Array(count),
    queue = new Int32Array(count);
  let head = 0,
    tail = 0,
    rows = 0;
  const hasInputs = fixed.includes(1);
  for (let v = 0; v < count; v++) {
    if (degree[v]) continue;
    queue[tail++] = v;
    rank[v] = hasInputs && fixed[v] !== 1 ? 1 : 0;
  }
  while (head < tail) {
    const v = queue[head++]!;
    rows = Math.max(rows, rank[v]! + 1);
    for (let i = begin[v]!; i < begin[v + 1]!; i++) {
      const to = target[i]!;
      rank[to] = Math.max(rank[to]!, rank[v]! + 1);
      if (--degree[to]! === 0) queue[tail++] = to;
    }
  }
  // A node that nothing in this frame leads to stands just above the first that reads it.
  const fed = new Uint8Array(count);
  for (let e = 0; e < n; e++) if (!backward[e]) fed[pairs[2 * e + 1]!] = 1;
  for (let v = count - 1; v >= 0; v--) {
    if (fed[v] || fixed[v] || begin[v] === begin[v + 1]) continue;
    let least = rows;
    for (let i = begin[v]!; i < begin[v + 1]!; i++) least = Math.min(least, rank[target[i]!]!);
    rank[v] = Math.max(rank[v]!, least - 1);
  }
  if (fixed.includes(2)) {
    let last = 0,
      others = 0;
    for (let v = 0; v < count; v++)
      if (fixed[v] === 2) last = Math.max(last, rank[v]!);
      else others = Math.max(others, rank[v]! + 1);
    last = Math.max(last, others);
    for (let v = 0; v < count; v++) if (fixed[v] === 2) rank[v] = last;
    rows = last + 1;
  }
  return { rank, rows: Math.max(1, rows), backward };
}
