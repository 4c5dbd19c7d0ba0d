// Bins by the bits of a float32: sign, exponent, 3 bits of the mantissa. Slots 0 … 2039 are positive numbers, ascending;
// negative ones are higher by 2048. Zeros, NaN and infinities are counted in a column's statistics instead.

import type { Column } from "./column";

const MANTISSA_BITS = 3;
export const INFINITY_SLOT = 255 << MANTISSA_BITS;
export const NEGATIVE_SLOT = 256 << MANTISSA_BITS;

const bits = new DataView(new ArrayBuffer(4));
const EDGES = new Float64Array(INFINITY_SLOT + 1);
for (let m = 0; m < INFINITY_SLOT; m++) {
  bits.setUint32(0, m << (23 - MANTISSA_BITS));
  EDGES[m] = bits.getFloat32(0);
}
EDGES[INFINITY_SLOT] = 2 ** 128;

/** Whether a slot holds finite numbers other than zero. */
export function isProper(slot: number): boolean {
  return slot < INFINITY_SLOT || (slot >= NEGATIVE_SLOT && slot < NEGATIVE_SLOT + INFINITY_SLOT);
}

/** The bin's end at the lower value. */
export function low(slot: number): number {
  return slot < NEGATIVE_SLOT ? EDGES[slot]! : -EDGES[slot - NEGATIVE_SLOT + 1]!;
}

/** The bin's end at the higher value. */
export function high(slot: number): number {
  return slot < NEGATIVE_SLOT ? EDGES[slot + 1]! : -EDGES[slot - NEGATIVE_SLOT]!;
}

/** The ends of a column's bin: those at the sides reach no further than the smallest and the largest element. */
export function ends({ slots, min, max }: Column, i: number): [number, number] {
  const from = low(slots[i]!),
    to = high(slots[i]!);
  return min <= to && max >= from ? [Math.max(from, min), Math.min(to, max)] : [from, to];
}

/** Where a slot stands when slots are ordered by value. */
export function order(slot: number): number {
  return slot < NEGATIVE_SLOT ? slot + 1 : NEGATIVE_SLOT - 1 - slot;
}

/** Bins by value, zeros among them as a bin without width. */
export interface Sorted {
  low: Float64Array;
  high: Float64Array;
  count: Float64Array;
  total: number;
}

export function sorted(column: Column): Sorted {
  const { slots, counts } = column;
  const n = slots.length;
  let negative = n;
  for (let i = 0; i < n; i++)
    if (slots[i]! >= NEGATIVE_SLOT) {
      negative = i;
      break;
    }
  const zero = column.zeros > 0 ? 1 : 0;
  const result: Sorted = { low: new Float64Array(n + zero), high: new Float64Array(n + zero), count: new Float64Array(n + zero), total: 0 };
  let k = 0;
  const add = (lo: number, hi: number, count: number) => {
    result.low[k] = lo;
    result.high[k] = hi;
    result.count[k++] = count;
    result.total += count;
  };
  for (let i = n - 1; i >= negative; i--) add(...ends(column, i), counts[i]!);
  if (zero) add(0, 0, column.zeros);
  for (let i = 0; i < negative; i++) add(...ends(column, i), counts[i]!);
  return result;
}

/** The value below which a share of the finite elements lies, right to the width of a bin. NaN if there are none. */
export function quantile(bins: Sorted, share: number): number {
  let rest = share * bins.total;
  for (let i = 0; i < bins.count.length; i++) {
    const count = bins.count[i]!;
    if (rest <= count && count > 0) return bins.low[i]! + (bins.high[i]! - bins.low[i]!) * (rest / count);
    rest -= count;
  }
  return bins.count.length ? bins.high[bins.count.length - 1]! : NaN;
}

/** The share of the finite elements below a value. */
export function below(bins: Sorted, value: number): number {
  let sum = 0;
  for (let i = 0; i < bins.count.length; i++) {
    if (bins.high[i]! <= value) {
      sum += bins.count[i]!;
      continue;
    }
    if (bins.low[i]! < value) sum += (bins.count[i]! * (value - bins.low[i]!)) / (bins.high[i]! - bins.low[i]!);
    break;
  }
  return bins.total ? sum / bins.total : NaN;
}

/** The area between two cumulative distributions: how far elements have to move, on average. */
export function wasserstein(a: Sorted, b: Sorted): number {
  if (!a.total || !b.total) return NaN;
  // Both are piecewise linear between these edges; a jump (zeros) has no width and adds no area.
  const edges = new Set<number>();
  for (const s of [a, b])
    for (let i = 0; i < s.low.length; i++) {
      edges.add(s.low[i]!);
      edges.add(s.high[i]!);
    }
  const xs = [...edges].sort((x, y) => x - y);
  const ca = new Walk(a),
    cb = new Walk(b);
  let area = 0;
  for (let i = 1; i < xs.length; i++) {
    const width = xs[i]! - xs[i - 1]!;
    const l = ca.after(xs[i - 1]!) - cb.after(xs[i - 1]!);
    const r = ca.before(xs[i]!) - cb.before(xs[i]!);
    area += l * r >= 0 ? ((Math.abs(l) + Math.abs(r)) / 2) * width : ((l * l + r * r) / (2 * (Math.abs(l) + Math.abs(r)))) * width;
  }
  return area;
}

/** A cumulative distribution, asked at ascending values: just after one, with a jump there, or just before it. */
class Walk {
  private i = 0;
  private sum = 0;
  constructor(private readonly bins: Sorted) {}

  after(x: number): number {
    return this.at(x, true);
  }
  before(x: number): number {
    return this.at(x, false);
  }

  private at(x: number, jump: boolean): number {
    const { low, high, count, total } = this.bins;
    while (this.i < count.length && high[this.i]! <= x && (jump || low[this.i]! < x)) this.sum += count[this.i++]!;
    let sum = this.sum;
    if (this.i < count.length && low[this.i]! < x) {
      sum += (count[this.i]! * (x - low[this.i]!)) / (high[this.i]! - low[this.i]!);
    }
    return sum / total;
  }
}
