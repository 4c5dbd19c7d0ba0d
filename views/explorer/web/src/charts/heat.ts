// A heat map over time: one column of pixels shows the distribution in the steps that it stands for.

import { finite, type Column } from "../data/column";
import type { Family } from "../data/model";
import { ramp, rgb } from "../theme";
import { density, peak } from "./density";
import type { ValueScale } from "./scale";

export interface Span {
  from: number;
  to: number;
}

/** Which column stands at each pixel; null before the first one, and behind the last one's steps. */
export function columnsAt(columns: readonly Column[], span: Span, width: number): (Column | null)[] {
  const result: (Column | null)[] = [];
  let k = -1;
  const end = columns.length ? columns[columns.length - 1]! : null;
  // The last column is as wide as the one before it, so that a new one does not widen all.
  const before = columns[columns.length - 2];
  const until = end ? Math.max(end.last, end.first + (before ? end.first - before.first : 1)) : 0;
  for (let x = 0; x < width; x++) {
    const step = span.from + ((x + 0.5) / width) * (span.to - span.from);
    while (k + 1 < columns.length && columns[k + 1]!.first <= step) k++;
    result.push(k < 0 || step > until ? null : columns[k]!);
  }
  return result;
}

/** Colours by density, relative to the column's densest row; exact zeros have a line of their own. */
export function heatImage(
  columns: readonly Column[],
  span: Span,
  scale: ValueScale,
  kind: Family,
  dark: boolean,
  width: number,
  height: number,
  bad: string,
): ImageData {
  const image = new ImageData(Math.max(1, width), Math.max(1, height));
  const pixels = image.data,
    table = ramp(kind, dark),
    red = rgb(bad);
  const line = new Float32Array(height);
  const strip = new Uint8ClampedArray(height * 4);
  let drawn: Column | null = null;
  const zeroRow = Math.round((1 - scale.at(0)) * height);
  columnsAt(columns, span, width).forEach((column, x) => {
    if (!column) return;
    if (column !== drawn) {
      paintStrip(column, scale, line, strip, table, zeroRow, red);
      drawn = column;
    }
    for (let y = 0; y < height; y++) {
      const to = 4 * (y * width + x);
      pixels[to] = strip[4 * y]!;
      pixels[to + 1] = strip[4 * y + 1]!;
      pixels[to + 2] = strip[4 * y + 2]!;
      pixels[to + 3] = strip[4 * y + 3]!;
    }
  });
  return image;
}

function paintStrip(
  column: Column,
  scale: ValueScale,
  line: Float32Array,
  strip: Uint8ClampedArray,
  table: Uint8ClampedArray,
  zeroRow: number,
  red: readonly number[],
): void {
  const height = line.length;
  density(column, scale, height, line);
  const top = peak(line);
  const put = (y: number, colour: number) => {
    if (y < 0 || y >= height) return;
    strip[4 * y] = table[3 * colour]!;
    strip[4 * y + 1] = table[3 * colour + 1]!;
    strip[4 * y + 2] = table[3 * colour + 2]!;
    strip[4 * y + 3] = 255;
  };
  for (let y = 0; y < height; y++) {
    const v = line[height - 1 - y]!;
    put(y, v > 0 ? Math.round(14 + 241 * Math.sqrt(v / top)) : 0);
  }
  const zeros = finite(column) ? column.zeros / finite(column) : 0;
  if (zeros > 0.002) {
    const colour = Math.round(60 + 195 * Math.sqrt(zeros)),
      half = Math.max(1, Math.round(height / 90));
    for (let y = zeroRow - half; y < zeroRow + half; y++) put(y, colour);
  }
  const broken = column.nan + column.posinf + column.neginf;
  if (broken) {
    // NaN and infinities have no place on the axis: a red bar from the top, as high as their share, with a bold edge.
    const high = Math.max(5, Math.round((height * broken) / Math.max(1, column.count)));
    for (let y = 0; y < high; y++) {
      const bold = y < 5 || y >= high - 1;
      for (let c = 0; c < 3; c++) strip[4 * y + c] = red[c]!;
      strip[4 * y + 3] = bold ? 255 : 90;
    }
  }
}
