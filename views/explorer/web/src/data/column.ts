// One column of a series: the distribution of all elements seen in some steps.

/** Statistics and sparse bins; slots ascend. */
export interface Column {
  first: number;
  last: number;
  count: number;
  nan: number;
  posinf: number;
  neginf: number;
  zeros: number;
  min: number;
  max: number;
  sum: number;
  squares: number;
  slots: Uint16Array;
  counts: Float64Array;
}

export function finite(c: Column): number {
  return c.count - c.nan - c.posinf - c.neginf;
}
export function mean(c: Column): number {
  return finite(c) ? c.sum / finite(c) : NaN;
}
export function std(c: Column): number {
  const n = finite(c);
  return n ? Math.sqrt(Math.max(0, c.squares / n - (c.sum / n) ** 2)) : NaN;
}
export function norm(c: Column): number {
  return Math.sqrt(c.squares);
}

/** Columns as one, exactly: bins and statistics add. */
export function mergeColumns(columns: readonly Column[]): Column | null {
  const head = columns[0];
  if (!head) return null;
  if (columns.length === 1) return head;
  const table = new Map<number, number>();
  const result: Column = { ...head, min: NaN, max: NaN, count: 0, nan: 0, posinf: 0, neginf: 0, zeros: 0, sum: 0, squares: 0 };
  for (const c of columns) {
    for (const key of ["count", "nan", "posinf", "neginf", "zeros", "sum", "squares"] as const) result[key] += c[key];
    result.first = Math.min(result.first, c.first);
    result.last = Math.max(result.last, c.last);
    if (!(result.min <= c.min) && !Number.isNaN(c.min)) result.min = c.min;
    if (!(result.max >= c.max) && !Number.isNaN(c.max)) result.max = c.max;
    for (let i = 0; i < c.slots.length; i++) table.set(c.slots[i]!, (table.get(c.slots[i]!) ?? 0) + c.counts[i]!);
  }
  const slots = Uint16Array.from(table.keys()).sort();
  result.slots = slots;
  result.counts = Float64Array.from(slots, slot => table.get(slot)!);
  return result;
}
