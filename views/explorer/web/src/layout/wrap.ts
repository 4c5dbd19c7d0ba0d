// A long chain is set in columns, like the text of a newspaper, so that a deep model fits on a screen.

import type { Spacing } from "./layered";

/** A frame before it is cut: nodes and bends, rows, and for each point of each route the row that it belongs to. */
export interface Draft {
  x: Float64Array;
  y: Float64Array;
  left: Float64Array;
  right: Float64Array;
  rank: Int32Array;
  rows: number[][];
  top: Float64Array;
  bottom: Float64Array;
  routes: number[][];
  at: number[][];
}

export interface Wrapped {
  columnOf: Int32Array;
  dx: number[];
  dy: number[];
  width: number;
  height: number;
  /** Where lines turn back, below each column and above all. */
  floor: number[];
  ceiling: number;
  /** Where edge `e` runs up behind a column. */
  lane: (e: number, column: number) => number;
}

const MOST_CROSSING = 6,
  TURN = 26;
/** Lower frames are cut only where a single edge passes: several lines turning back are harder to follow than a long chain. */
const LOW = 1600;
/** A column of ports alone would be odd. */
const LEAST = 60;

/** Columns begin where few edges pass from one row to the next. */
export function wrap(draft: Draft, pairs: Int32Array, spacing: Spacing): Wrapped {
  const { top, bottom } = draft;
  const rows = top.length,
    height = rows ? bottom[rows - 1]! : 0;
  const whole = extent(draft, 0, rows);
  const width = whole[1] - whole[0];
  const starts = height > 560 && height > 2.1 * width ? bestCut(draft, pairs, spacing, width, height) : [0];

  const columnOf = new Int32Array(rows);
  starts.forEach((start, c) => columnOf.fill(c, start));
  const passing = passers(pairs, draft.rank, columnOf, starts.length);
  const several = starts.length > 1;
  const dx: number[] = [],
    dy: number[] = [],
    lanes: number[] = [],
    floor: number[] = [];
  let right = 0,
    lowest = 0;
  starts.forEach((start, c) => {
    const end = starts[c + 1] ?? rows;
    const [min, max] = extent(draft, start, end);
    dx.push(right - min);
    dy.push((several ? TURN : 0) - (top[start] ?? 0));
    right += max - min;
    floor.push((rows ? bottom[end - 1]! : 0) + dy[c]!);
    lowest = Math.max(lowest, floor[c]!);
    if (c + 1 === starts.length) return;
    lanes.push(right + spacing.gap);
    right += 2 * spacing.gap + Math.max(0, passing[c]!.length - 1) * spacing.lane;
  });
  return {
    columnOf,
    dx,
    dy,
    width: right,
    height: lowest + (several ? TURN : 0),
    floor,
    ceiling: several ? TURN : 0,
    lane: (e, column) => lanes[column]! + passing[column]!.indexOf(e) * spacing.lane,
  };
}

/** The cut whose columns fill a screen best: fewer of them unless more are clearly better. */
function bestCut(draft: Draft, pairs: Int32Array, spacing: Spacing, width: number, height: number): number[] {
  const about = Math.max(2, Math.round(Math.sqrt(height / ((width + 40) * spacing.aspect))));
  let best = [0],
    least = Math.max(width / spacing.aspect, height);
  const first = about > 12 ? about : 2,
    last = about > 12 ? about : about + 3;
  for (let wanted = first; wanted <= last; wanted++) {
    const starts = cut(draft, pairs, wanted);
    let wide = 0,
      high = 0;
    starts.forEach((start, c) => {
      const end = starts[c + 1] ?? draft.top.length;
      const [min, max] = extent(draft, start, end);
      wide += max - min + (c ? 2 * spacing.gap : 0);
      high = Math.max(high, draft.bottom[end - 1]! - draft.top[start]!);
    });
    const size = Math.max(wide / spacing.aspect, high + 2 * TURN);
    if (size < 0.88 * least) {
      best = starts;
      least = size;
    }
  }
  return best;
}

/** The first rows of the columns, about equally high. */
function cut({ rank, at, top, bottom }: Draft, pairs: Int32Array, wanted: number): number[] {
  const rows = top.length;
  const crossing = new Int32Array(rows + 1);
  for (let e = 0; e < pairs.length / 2; e++) {
    const a = Math.min(rank[pairs[2 * e]!]!, rank[pairs[2 * e + 1]!]!),
      b = Math.max(rank[pairs[2 * e]!]!, rank[pairs[2 * e + 1]!]!);
    // An edge without bends runs beside all rows between; it cannot be cut.
    const steps = at[e]!;
    const bent = b - a < 2 || steps.includes(a + 1);
    crossing[a + 1]! += bent ? 1 : 1000;
    crossing[b + 1]! -= bent ? 1 : 1000;
  }
  const starts = [0];
  const goal = bottom[rows - 1]! / wanted;
  let now = 0;
  for (let row = 1; row < rows; row++) {
    now += crossing[row]!;
    const high = bottom[row - 1]! - top[starts[starts.length - 1]!]!;
    const left = bottom[rows - 1]! - top[row]!;
    // Stop before a row that would reach further over the goal than this one falls short of it.
    const next = bottom[row]! - top[starts[starts.length - 1]!]!;
    if (
      now <= (bottom[rows - 1]! < LOW ? 1 : MOST_CROSSING) &&
      next - goal > goal - high &&
      left > Math.max(LEAST, goal * 0.3) &&
      high > LEAST
    )
      starts.push(row);
  }
  return starts;
}

function extent({ x, left, right, rows }: Draft, start: number, end: number): [number, number] {
  let min = Infinity,
    max = -Infinity;
  for (let row = start; row < end; row++) {
    for (const v of rows[row]!) {
      min = Math.min(min, x[v]! - left[v]!);
      max = Math.max(max, x[v]! + right[v]!);
    }
  }
  return min > max ? [0, 0] : [min, max];
}

/** The edges that go from each column to the next. */
function passers(pairs: Int32Array, rank: Int32Array, columnOf: Int32Array, columns: number): number[][] {
  const result: number[][] = Array.from({ length: columns }, () => []);
  for (let e = 0; e < pairs.length / 2; e++) {
    const a = columnOf[rank[pairs[2 * e]!]!]!,
      b = columnOf[rank[pairs[2 * e + 1]!]!]!;
    for (let c = Math.min(a, b); c < Math.max(a, b); c++) result[c]!.push(e);
  }
  return result;
}
