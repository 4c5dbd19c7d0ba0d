// Axes of values: linear, or symlog, which is linear near zero and logarithmic further out, on both sides.

import { quantile, sorted } from "../data/bins";
import { mergeColumns, type Column } from "../data/column";
import type { Scale } from "../state";

const SAMPLED = 28;
const TAIL = 0.002;

export class ValueScale {
  readonly from: number;
  readonly to: number;

  /** `unit` is where symlog goes over from linear to logarithmic; 0 is a linear axis. */
  constructor(
    readonly low: number,
    readonly high: number,
    readonly unit: number,
  ) {
    const from = this.raw(low),
      to = this.raw(high);
    const pad = (to - from) * 0.05 || 0.5;
    this.from = from - pad;
    this.to = to + pad;
  }

  private raw(value: number): number {
    return this.unit ? Math.asinh(value / this.unit) : value;
  }
  /** 0 at the lower end of the axis, 1 at the upper one. */
  at(value: number): number {
    return (this.raw(value) - this.from) / (this.to - this.from);
  }
  value(at: number): number {
    const raw = this.from + at * (this.to - this.from);
    return this.unit ? Math.sinh(raw) * this.unit : raw;
  }

  /** Round values about `count` along the axis. */
  ticks(count: number): number[] {
    const lo = this.value(0),
      hi = this.value(1);
    if (!this.unit) {
      const step = niceStep((hi - lo) / Math.max(1, count));
      const result: number[] = [];
      for (let k = Math.ceil(lo / step); k * step <= hi && result.length < 50; k++) result.push(k * step);
      return result;
    }
    const most = Math.max(Math.abs(lo), Math.abs(hi));
    const result = lo <= 0 && hi >= 0 ? [0] : [];
    const taken = result.map(v => this.at(v));
    const apart = 1 / (count + 0.5);
    for (let power = Math.floor(Math.log10(most)); power > Math.log10(this.unit) - 1; power--) {
      for (const v of [10 ** power, -(10 ** power)]) {
        const at = this.at(v);
        if (at < 0.02 || at > 0.98 || taken.some(other => Math.abs(other - at) < apart)) continue;
        result.push(v);
        taken.push(at);
      }
    }
    return result.sort((x, y) => x - y);
  }
}

function niceStep(raw: number): number {
  if (!(raw > 0) || !Number.isFinite(raw)) return 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const rest = raw / power;
  return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

/** An axis that shows all but the outermost 0.2 % at either end. */
export function fitScale(columns: readonly Column[], wanted: Scale): ValueScale {
  const stride = Math.max(1, Math.ceil(columns.length / SAMPLED));
  const sampled = columns.filter((_, i) => i % stride === 0 || i === columns.length - 1);
  const all = mergeColumns(sampled);
  const bins = all && sorted(all);
  if (!bins || !bins.total) return new ValueScale(-1, 1, 0);
  let lo = quantile(bins, TAIL),
    hi = quantile(bins, 1 - TAIL);
  const magnitude = typical(all);
  if (!(hi > lo)) {
    const by = Math.abs(lo) * 0.1 || magnitude || 1;
    lo -= by;
    hi += by;
  }
  const most = Math.max(Math.abs(lo), Math.abs(hi));
  const symlog = wanted === "symlog" || (wanted === "auto" && magnitude > 0 && most / magnitude > 30);
  return new ValueScale(lo, hi, symlog && magnitude > 0 ? magnitude : 0);
}

/** The median magnitude of what is not zero. */
function typical(column: Column): number {
  const { slots, counts } = column;
  const by = new Map<number, number>();
  let total = 0;
  for (let i = 0; i < slots.length; i++) {
    const m = slots[i]! & 2047;
    by.set(m, (by.get(m) ?? 0) + counts[i]!);
    total += counts[i]!;
  }
  let rest = total / 2;
  for (const m of [...by.keys()].sort((x, y) => x - y)) {
    rest -= by.get(m)!;
    if (rest <= 0) return magnitudeOf(m);
  }
  return 0;
}

function magnitudeOf(slot: number): number {
  // 8 bins an octave, linear in each.
  const exponent = slot >> 3;
  return exponent ? 2 ** (exponent - 127) * (1 + (slot & 7) / 8) : (2 ** -126 * (slot & 7 || 1)) / 8;
}

export function formatValue(v: number): string {
  if (v === 0) return "0";
  if (!Number.isFinite(v)) return Number.isNaN(v) ? "NaN" : v > 0 ? "∞" : "−∞";
  const m = Math.abs(v);
  const text =
    m >= 1e5 || m < 1e-3
      ? m
          .toExponential(1)
          .replace(/\.0(?=e)/, "")
          .replace("e+", "e")
          .replace("e-", "e−")
      : m >= 100
        ? m.toFixed(0)
        : String(+m.toPrecision(3));
  return (v < 0 ? "−" : "") + text;
}

export function formatCount(n: number): string {
  if (n < 1000) return String(n);
  for (const [unit, size] of [
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ] as const) {
    if (n >= size) return `${+(n / size).toPrecision(3)} ${unit}`;
  }
  return String(n);
}

export function formatShare(part: number, all: number): string {
  if (!part) return "0";
  const percent = (part / all) * 100;
  return percent < 0.01 ? "< 0.01 %" : `${+percent.toPrecision(3)} %`;
}
