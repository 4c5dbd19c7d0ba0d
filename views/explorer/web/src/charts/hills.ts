// Histograms as hills: one for a step, or many behind each other as a ridgeline. Values run to the right.

import { finite, type Column } from "../data/column";
import type { Family } from "../data/model";
import { FONT } from "../layout/client";
import { rampColour, type Palette } from "../theme";
import { density, peak } from "./density";
import { formatValue, type ValueScale } from "./scale";

export interface Frame {
  c: CanvasRenderingContext2D;
  width: number;
  height: number;
  palette: Palette;
  scale: ValueScale;
  kind: Family;
}

const FLOOR = 20,
  SIDE = 8;

function heights(column: Column, scale: ValueScale, bins: number): Float32Array {
  const result = density(column, scale, bins);
  const zero = Math.floor(scale.at(0) * bins);
  if (column.zeros && zero >= 0 && zero < bins) result[zero]! += column.zeros / Math.max(1, finite(column));
  return result;
}

function axis({ c, width, height, palette, scale }: Frame): void {
  c.font = `10.5px ${FONT}`;
  c.textBaseline = "alphabetic";
  c.textAlign = "center";
  for (const tick of scale.ticks(Math.max(2, Math.floor(width / 84)))) {
    const x = SIDE + scale.at(tick) * (width - 2 * SIDE);
    if (x < 16 || x > width - 16) continue;
    c.fillStyle = palette.grid;
    c.fillRect(x, 2, 1, height - FLOOR - 2);
    c.fillStyle = palette.soft;
    c.fillText(formatValue(tick), x, height - 5);
  }
  c.textAlign = "left";
}

function hill(c: CanvasRenderingContext2D, values: Float32Array, left: number, width: number, floor: number, unit: number): void {
  const step = width / values.length;
  c.moveTo(left, floor);
  for (let i = 0; i < values.length; i++) {
    const x = left + (i + 0.5) * step,
      y = floor - values[i]! * unit;
    if (i === 0) {
      c.lineTo(left, y);
      c.lineTo(x, y);
      continue;
    }
    const before = floor - values[i - 1]! * unit,
      middle = x - step / 2;
    c.bezierCurveTo(middle, before, middle, y, x, y);
  }
  c.lineTo(left + width, floor - values[values.length - 1]! * unit);
  c.lineTo(left + width, floor);
}

/** The distribution at one step, and that of another run as a line over it. */
export function drawSingle(frame: Frame, column: Column | null, other: Column | null): void {
  const { c, width, height, palette, scale, kind } = frame;
  axis(frame);
  const bins = Math.max(24, Math.min(72, Math.floor(width / 7))),
    left = SIDE,
    wide = width - 2 * SIDE,
    floor = height - FLOOR;
  const mine = column && finite(column) ? heights(column, scale, bins) : null;
  const theirs = other && finite(other) ? heights(other, scale, bins) : null;
  const top = Math.max(mine ? crest(mine, scale) : 0, theirs ? crest(theirs, scale) : 0);
  if (!top) {
    nothing(frame, column ? "no finite element at this step" : "no data yet");
    return;
  }
  const unit = (floor - 10) / top,
    step = wide / bins;
  if (mine) {
    for (let i = 0; i < bins; i++) {
      const h = Math.min(mine[i]! * unit, floor - 6);
      if (h < 0.3) continue;
      c.fillStyle = rampColour(kind, palette.dark, (palette.dark ? 0.45 : 0.35) + 0.4 * Math.sqrt(Math.min(1, mine[i]! / top)));
      c.beginPath();
      c.roundRect(left + i * step + 0.5, floor - h, Math.max(1, step - 1), h, [Math.min(2.5, h), Math.min(2.5, h), 0, 0]);
      c.fill();
      if (mine[i]! > top) {
        // Cut off: a gap says that the bar is higher.
        c.fillStyle = palette.surface;
        c.fillRect(left + i * step - 1, 17, step + 2, 3);
      }
    }
  }
  if (theirs) {
    c.beginPath();
    theirs.forEach((v, i) => {
      const y = floor - Math.min(v * unit, floor - 6);
      if (i === 0) c.moveTo(left, y);
      c.lineTo(left + i * step, y);
      c.lineTo(left + (i + 1) * step, y);
    });
    c.lineWidth = 1.6;
    c.strokeStyle = palette.ink;
    c.stroke();
  }
  c.fillStyle = palette.strong;
  c.fillRect(left, floor, wide, 1);
}

/** The highest bin, but not much above the others if it is that of zeros, which would flatten all else. */
function crest(values: Float32Array, scale: ValueScale): number {
  const zero = Math.floor(scale.at(0) * values.length);
  let others = 0;
  values.forEach((v, i) => {
    if (i !== zero) others = Math.max(others, v);
  });
  return others > 0 && (values[zero] ?? 0) > 2.5 * others ? 1.35 * others : peak(values);
}

/** Hills of sampled columns, the newest in front; returns the step of the hill at each height, for clicks. */
export function drawRidge(frame: Frame, columns: readonly Column[], step: number): { y: number; step: number }[] {
  const { c, width, height, palette, scale, kind } = frame;
  axis(frame);
  const most = Math.max(6, Math.min(34, Math.floor(height / 8)));
  const stride = Math.max(1, columns.length / most);
  const picked: Column[] = [];
  for (let i = 0; Math.floor(i) < columns.length; i += stride) picked.push(columns[Math.floor(i)]!);
  if (picked.length && picked[picked.length - 1] !== columns[columns.length - 1]) picked.push(columns[columns.length - 1]!);
  if (!picked.length) {
    nothing(frame, "no data yet");
    return [];
  }
  const bins = Math.max(32, Math.min(90, Math.floor(width / 5)));
  const lift = Math.min(58, height * 0.3),
    floor = height - FLOOR - 3,
    gap = picked.length > 1 ? (floor - lift - 4) / (picked.length - 1) : 0;
  const near = picked.reduce((best, column) => (Math.abs(column.first - step) < Math.abs(best.first - step) ? column : best));
  const rows: { y: number; step: number }[] = [];
  picked.forEach((column, i) => {
    const y = picked.length > 1 ? lift + 4 + i * gap : floor;
    rows.push({ y, step: column.first });
    const values = heights(column, scale, bins),
      top = peak(values);
    if (!top) return;
    for (let k = 0; k < bins; k++) values[k] = (Math.sqrt(values[k]! / top) * values[k]! ** 0.2) / top ** 0.2;
    c.beginPath();
    hill(c, values, SIDE, width - 2 * SIDE, y, lift);
    c.closePath();
    const age = picked.length > 1 ? i / (picked.length - 1) : 1;
    const fill = c.createLinearGradient(0, y - lift, 0, y);
    fill.addColorStop(0, rampColour(kind, palette.dark, palette.dark ? 0.35 + 0.4 * age : 0.2 + 0.42 * age));
    fill.addColorStop(1, rampColour(kind, palette.dark, palette.dark ? 0.08 + 0.1 * age : 0.03 + 0.12 * age));
    c.fillStyle = fill;
    c.globalAlpha = 0.94;
    c.fill();
    c.globalAlpha = 1;
    const lit = column === near;
    c.lineWidth = lit ? 2 : 0.9;
    c.strokeStyle = lit ? palette.ink : palette.dark ? palette.back : palette.surface;
    c.stroke();
  });
  return rows;
}

function nothing({ c, width, height, palette }: Frame, text: string): void {
  c.font = `11.5px ${FONT}`;
  c.textAlign = "center";
  c.textBaseline = "middle";
  c.fillStyle = palette.soft;
  c.fillText(text, width / 2, (height - FLOOR) / 2);
  c.textAlign = "left";
}
