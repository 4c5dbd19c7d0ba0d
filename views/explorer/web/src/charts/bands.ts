// Percentile bands over time.

import { quantile, sorted } from "../data/bins";
import type { Column } from "../data/column";
import type { Span } from "./heat";
import type { ValueScale } from "./scale";

const SHARES = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99];
const known = new WeakMap<Column, number[]>();

/** The values below which 1, 5, 25, 50, 75, 95 and 99 % of the finite elements lie. */
export function percentiles(column: Column): number[] {
  let result = known.get(column);
  if (!result) {
    const bins = sorted(column);
    known.set(column, (result = SHARES.map(share => quantile(bins, share))));
  }
  return result;
}

interface Area {
  left: number;
  top: number;
  width: number;
  height: number;
}

export function drawBands(
  c: CanvasRenderingContext2D,
  columns: readonly Column[],
  span: Span,
  scale: ValueScale,
  area: Area,
  colour: string,
  outline: boolean,
): void {
  const points = columns
    .map(column => ({
      x: area.left + (((column.first + column.last) / 2 - span.from) / (span.to - span.from)) * area.width,
      values: percentiles(column),
    }))
    .filter(p => p.values.every(Number.isFinite));
  if (!points.length) return;
  const y = (v: number) => area.top + (1 - scale.at(v)) * area.height;
  const path = (k: number, back: boolean) => {
    for (let i = 0; i < points.length; i++) {
      const p = points[back ? points.length - 1 - i : i]!;
      if (i === 0 && !back) c.moveTo(p.x, y(p.values[k]!));
      else c.lineTo(p.x, y(p.values[k]!));
    }
  };
  c.save();
  c.beginPath();
  c.rect(area.left, area.top, area.width, area.height);
  c.clip();
  c.fillStyle = c.strokeStyle = colour;
  if (!outline) {
    for (const [k, alpha] of [
      [0, 0.16],
      [1, 0.2],
      [2, 0.34],
    ] as const) {
      c.globalAlpha = alpha;
      c.beginPath();
      path(k, false);
      path(SHARES.length - 1 - k, true);
      c.closePath();
      c.fill();
    }
  }
  c.globalAlpha = 1;
  c.lineJoin = "round";
  for (const k of outline ? [1, 3, 5] : [3]) {
    c.lineWidth = (k === 3 ? 1.8 : 1) * devicePixelRatio;
    c.setLineDash(outline && k !== 3 ? [3 * devicePixelRatio, 3 * devicePixelRatio] : []);
    c.beginPath();
    path(k, false);
    c.stroke();
  }
  c.restore();
}
