// A column's bins spread over the rows of an axis.

import { ends } from "../data/bins";
import { finite, type Column } from "../data/column";
import type { ValueScale } from "./scale";

/**
 * The share of the finite elements in each row, without zeros, from the lowest value to the highest. Rows at the ends
 * take no share of what lies beyond them.
 */
export function density(column: Column, scale: ValueScale, rows: number, into: Float32Array = new Float32Array(rows)): Float32Array {
  into.fill(0);
  const total = finite(column);
  if (!total) return into;
  const { slots, counts } = column;
  for (let i = 0; i < slots.length; i++) {
    const [least, most] = ends(column, i);
    const from = scale.at(least) * rows,
      to = scale.at(most) * rows,
      share = counts[i]! / total;
    if (to === from && from >= 0 && from <= rows) {
      into[Math.min(rows - 1, Math.floor(from))]! += share;
      continue;
    }
    if (to <= 0 || from >= rows) continue;
    const first = Math.max(0, Math.floor(from)),
      last = Math.min(rows - 1, Math.floor(to));
    if (first === last && from >= first) {
      into[first]! += (share * (Math.min(to, rows) - from)) / (to - from);
      continue;
    }
    for (let row = first; row <= last; row++) {
      into[row]! += (share * Math.max(0, Math.min(to, row + 1) - Math.max(from, row))) / (to - from);
    }
  }
  return into;
}

export function peak(values: Float32Array): number {
  let most = 0;
  for (const v of values) if (v > most) most = v;
  return most;
}
