// The columns of one series, in order of steps, as updates come in.

import type { Column } from "./column";
import type { Update } from "./decode";

export class History {
  columns: Column[] = [];
  sequence = 0;
  /** Grows with each change, so that pictures of it can be kept until then. */
  version = 0;

  apply(update: Update): void {
    if (update.replace) this.columns = [];
    for (const c of update.columns) this.put(c);
    this.sequence = Math.max(this.sequence, update.sequence);
    this.version++;
  }

  private put(c: Column): void {
    const at = this.find(c.first);
    if (at >= 0 && this.columns[at]!.first === c.first) this.columns[at] = c;
    else this.columns.splice(at + 1, 0, c);
  }

  /** The index of the last column that begins at or before a step; -1 if there is none. */
  private find(step: number): number {
    let lo = 0,
      hi = this.columns.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (this.columns[mid]!.first <= step) lo = mid + 1;
      else hi = mid;
    }
    return lo - 1;
  }

  /** The column shown at a step: the last that begins at or before it, else the first. */
  at(step: number): Column | null {
    return this.columns[Math.max(0, this.find(step))] ?? null;
  }

  /** Columns in the range and the next one on either side, so that a picture reaches to its ends. */
  within(from: number, to: number): Column[] {
    return this.columns.slice(Math.max(0, this.find(from)), this.find(to) + 2);
  }
}
