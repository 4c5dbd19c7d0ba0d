// The binary form, bins and what is made of them, against numbers worked out in another way.

import assert from "node:assert/strict";
import { test } from "node:test";
import { below, high, isProper, low, order, quantile, sorted, wasserstein } from "../../src/data/bins";
import { finite, mean, mergeColumns, norm, std, type Column } from "../../src/data/column";
import { decode } from "../../src/data/decode";
import { History } from "../../src/data/history";
import { density } from "../../src/charts/density";
import { fitScale, formatCount, formatShare, formatValue, ValueScale } from "../../src/charts/scale";

/** A generator of numbers that is the same every time. */
function random(seed: number): () => number {
  let s = seed;
  return () => {
    s = (s * 1664525 + 1013904223) >>> 0;
    return s / 2 ** 32;
  };
}
function normal(next: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
}

/** The slot of a number, from the bits of a float32. */
function slotOf(x: number): number {
  return new Uint32Array(new Float32Array([x]).buffer)[0]! >>> 20;
}

function columnOf(values: number[], first = 0, last = first): Column {
  const table = new Map<number, number>();
  const good = values.filter(Number.isFinite);
  for (const v of good) if (v !== 0) table.set(slotOf(v), (table.get(slotOf(v)) ?? 0) + 1);
  const slots = [...table.keys()].sort((a, b) => a - b);
  return {
    first,
    last,
    count: values.length,
    nan: values.filter(Number.isNaN).length,
    posinf: values.filter(v => v === Infinity).length,
    neginf: values.filter(v => v === -Infinity).length,
    zeros: values.filter(v => v === 0).length,
    min: Math.min(...good),
    max: Math.max(...good),
    sum: good.reduce((s, v) => s + v, 0),
    squares: good.reduce((s, v) => s + v * v, 0),
    slots: Uint16Array.from(slots),
    counts: Float64Array.from(slots, s => table.get(s)!),
  };
}

function encode(
  series: { id: number; sequence: number; replace?: boolean; columns: Column[] }[],
  extra: [number, number][] = [],
): ArrayBuffer {
  const bytes: number[] = [];
  const u32 = (v: number) => {
    for (let i = 0; i < 4; i++) bytes.push((v >>> (8 * i)) & 255);
  };
  const u64 = (v: bigint) => {
    for (let i = 0n; i < 8n; i++) bytes.push(Number((BigInt.asUintN(64, v) >> (8n * i)) & 255n));
  };
  const f64 = (v: number) => bytes.push(...new Uint8Array(new Float64Array([v]).buffer));
  const varint = (v: number) => {
    let n = BigInt(v);
    while (n > 127n) {
      bytes.push(Number(n & 127n) | 128);
      n >>= 7n;
    }
    bytes.push(Number(n));
  };
  u32(0x434c5054);
  u32(1);
  u32(3);
  u32(series.length);
  for (const s of series) {
    u32(s.id);
    u64(BigInt(s.sequence));
    u32((s.columns.length + (s.replace ? 0x80000000 : 0)) >>> 0);
    for (const c of s.columns) {
      u64(BigInt(c.first));
      u64(BigInt(c.last));
      for (const v of [c.count, c.nan, c.posinf, c.neginf, c.zeros, c.min, c.max, c.sum, c.squares]) f64(v);
      const bins: [number, number][] = [...[...c.slots].map((slot, i): [number, number] => [slot, c.counts[i]!]), ...extra].sort(
        (a, b) => a[0] - b[0],
      );
      u32(bins.length);
      let before = 0;
      for (const [slot, count] of bins) {
        varint(slot - before);
        varint(count);
        before = slot;
      }
    }
  }
  return Uint8Array.from(bytes).buffer;
}

test("edges are those of a float32's upper bits", () => {
  const next = random(1);
  for (let i = 0; i < 20000; i++) {
    const x = Math.fround((next() < 0.5 ? -1 : 1) * 2 ** (next() * 250 - 140));
    const slot = slotOf(x);
    if (x === 0) continue;
    assert.ok(isProper(slot));
    if (x > 0) assert.ok(low(slot) <= x && x < high(slot), `${x}`);
    else assert.ok(low(slot) < x && x <= high(slot), `${x}`);
  }
  assert.equal(isProper(slotOf(Infinity)), false);
  assert.equal(isProper(slotOf(-Infinity)), false);
  assert.equal(isProper(slotOf(NaN)), false);
});

test("order is that of values", () => {
  const slots = [-1e30, -2, -1, -1e-30, 1e-30, 0.5, 3, 1e30].map(slotOf);
  assert.deepEqual(
    [...slots].sort((a, b) => order(a) - order(b)),
    slots,
  );
});

test("decoding gives back what was encoded", () => {
  const next = random(2);
  const columns = [0, 7, 5_000_000_000].map(step =>
    columnOf(Array.from({ length: 500 }, () => normal(next) * 3).concat([0, 0, NaN, Infinity, -Infinity]), step, step + 4),
  );
  columns[0] = { ...columns[0]!, first: -3, last: -1 };
  const [first, second] = decode(
    encode([
      { id: 3, sequence: 2 ** 40 + 5, columns },
      { id: 4_000_000_000, sequence: 0, replace: true, columns: [] },
    ]),
  );
  assert.equal(first!.id, 3);
  assert.equal(first!.sequence, 2 ** 40 + 5);
  assert.equal(first!.replace, false);
  assert.deepEqual(first!.columns, columns);
  assert.deepEqual(second, { id: 4_000_000_000, sequence: 0, replace: true, columns: [] });
});

test("zeros, NaN and infinities among the bins are left to the statistics", () => {
  const column = columnOf([1, -1, 0, NaN]);
  const [update] = decode(
    encode(
      [{ id: 1, sequence: 1, columns: [column] }],
      [
        [2040, 5],
        [4088, 5],
        [4096, 1],
        [4097, 1],
      ],
    ),
  );
  assert.deepEqual([...update!.columns[0]!.slots], [...column.slots]);
});

test("bytes that are not columns are errors", () => {
  const good = encode([{ id: 1, sequence: 1, columns: [columnOf([1, 2, 3])] }]);
  const change = (at: number, to: number) => {
    const copy = good.slice(0);
    new Uint8Array(copy)[at] = to;
    return copy;
  };
  assert.throws(() => decode(change(0, 0)), /TPLC/);
  assert.throws(() => decode(change(4, 2)), /version 1, got 2/);
  assert.throws(() => decode(change(8, 5)), /mantissa/);
  assert.throws(() => decode(good.slice(0, good.byteLength - 1)), /more bytes/);
  assert.throws(() => decode(new ArrayBuffer(3)), /more bytes/);
  const longer = new Uint8Array(good.byteLength + 1);
  longer.set(new Uint8Array(good));
  assert.throws(() => decode(longer.buffer), /behind the last/);
});

test("quantiles are right to the width of a bin", () => {
  const next = random(3);
  const values = Array.from({ length: 20000 }, () => {
    const v = normal(next);
    return next() < 0.2 ? 0 : v * v * v;
  });
  const bins = sorted(columnOf(values));
  values.sort((a, b) => a - b);
  assert.equal(bins.total, values.length);
  for (const share of [0.001, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999]) {
    const exact = values[Math.floor(share * values.length)]!,
      found = quantile(bins, share);
    assert.ok(Math.abs(found - exact) <= Math.abs(exact) / 8 + 1e-6, `${share}: ${found} for ${exact}`);
    if (found !== 0) assert.ok(Math.abs(below(bins, found) - share) < 1e-9);
  }
  assert.ok(Number.isNaN(quantile(sorted(columnOf([NaN])), 0.5)));
});

test("the distance of distributions is that of sorted samples", () => {
  const next = random(4);
  const a = Array.from({ length: 30000 }, () => normal(next)),
    b = Array.from({ length: 30000 }, () => 1.5 * normal(next) + 2);
  const sa = [...a].sort((x, y) => x - y),
    sb = [...b].sort((x, y) => x - y);
  const exact = sa.reduce((sum, v, i) => sum + Math.abs(v - sb[i]!), 0) / a.length;
  const found = wasserstein(sorted(columnOf(a)), sorted(columnOf(b)));
  assert.ok(Math.abs(found - exact) < 0.03 * exact, `${found} for ${exact}`);
  assert.equal(wasserstein(sorted(columnOf(a)), sorted(columnOf(a))), 0);
  const zeros = wasserstein(sorted(columnOf([0, 0, 0, 0])), sorted(columnOf([0, 0, 4, 4])));
  assert.ok(Math.abs(zeros - 2) < 0.3, `${zeros}`);
});

test("merged columns are the column of all values", () => {
  const next = random(5);
  const parts = [0, 4, 8].map(step => Array.from({ length: 1000 }, () => normal(next) * (1 + step)).concat([0, NaN]));
  const merged = mergeColumns(parts.map((values, i) => columnOf(values, i * 4, i * 4 + 3)))!;
  const all = columnOf(parts.flat(), 0, 11);
  for (const key of ["first", "last", "count", "nan", "zeros", "min", "max", "slots", "counts"] as const)
    assert.deepEqual(merged[key], all[key], key);
  const good = parts.flat().filter(Number.isFinite);
  assert.equal(finite(merged), good.length);
  assert.ok(Math.abs(mean(merged) - good.reduce((s, v) => s + v, 0) / good.length) < 1e-9);
  assert.ok(Math.abs(norm(merged) - Math.hypot(...good)) < 1e-6);
  assert.ok(Math.abs(std(merged) - Math.sqrt(good.reduce((s, v) => s + (v - mean(merged)) ** 2, 0) / good.length)) < 1e-9);
  assert.equal(mergeColumns([]), null);
});

test("a history takes new columns, replaces those of the same step, and starts anew when told", () => {
  const history = new History();
  const put = (firsts: [number, number, number][], replace = false) =>
    history.apply({
      id: 1,
      sequence: firsts.length,
      replace,
      columns: firsts.map(([first, last, count]) => ({ ...columnOf([1]), first, last, count })),
    });
  const seen = () => history.columns.map(c => [c.first, c.last, c.count]);
  put([
    [0, 0, 1],
    [4, 4, 1],
    [8, 8, 1],
  ]);
  put([
    [8, 9, 2],
    [12, 12, 1],
  ]);
  assert.deepEqual(seen(), [
    [0, 0, 1],
    [4, 4, 1],
    [8, 9, 2],
    [12, 12, 1],
  ]);
  put([[2, 2, 7]]);
  assert.deepEqual(seen(), [
    [0, 0, 1],
    [2, 2, 7],
    [4, 4, 1],
    [8, 9, 2],
    [12, 12, 1],
  ]);
  assert.equal(history.at(11)!.first, 8);
  assert.equal(history.at(-5)!.first, 0);
  assert.equal(history.at(1e9)!.first, 12);
  assert.deepEqual(
    history.within(3, 9).map(c => c.first),
    [2, 4, 8, 12],
  );
  assert.deepEqual(
    history.within(8, 8).map(c => c.first),
    [8, 12],
  );
  assert.deepEqual(
    history.within(-9, -8).map(c => c.first),
    [0],
  );
  assert.deepEqual(
    history.within(50, 60).map(c => c.first),
    [12],
  );
  const version = history.version;
  put(
    [
      [0, 7, 3],
      [8, 15, 3],
    ],
    true,
  );
  assert.deepEqual(seen(), [
    [0, 7, 3],
    [8, 15, 3],
  ]);
  assert.ok(history.version > version);
});

test("rows of an axis hold the shares that a histogram of the values has", () => {
  const next = random(6);
  const values = Array.from({ length: 50000 }, () => normal(next));
  const scale = new ValueScale(-3, 3, 0),
    rows = 12;
  const found = density(columnOf(values), scale, rows);
  const exact = new Float64Array(rows);
  for (const v of values) {
    const row = Math.floor(scale.at(v) * rows);
    if (row >= 0 && row < rows) exact[row]! += 1 / values.length;
  }
  found.forEach((share, i) => assert.ok(Math.abs(share - exact[i]!) < 0.03, `row ${i}: ${share} for ${exact[i]}`));
  const all = density(columnOf(values), new ValueScale(-50, 50, 0.5), 40).reduce((s, v) => s + v, 0);
  assert.ok(Math.abs(all - 1) < 1e-5, `${all}`);
});

test("an axis is linear for plain data, symlog for long tails, and goes there and back", () => {
  const next = random(7);
  const plain = fitScale([columnOf(Array.from({ length: 5000 }, () => normal(next)))], "auto");
  assert.equal(plain.unit, 0);
  const tails = fitScale([columnOf(Array.from({ length: 5000 }, () => normal(next) ** 9))], "auto");
  assert.ok(tails.unit > 0);
  for (const scale of [plain, tails]) {
    for (const at of [0, 0.1, 0.5, 0.93]) assert.ok(Math.abs(scale.at(scale.value(at)) - at) < 1e-9);
    const ticks = scale.ticks(5);
    assert.ok(ticks.length >= 2, `${ticks}`);
    ticks.forEach((v, i) => {
      assert.ok(scale.at(v) >= 0 && scale.at(v) <= 1);
      if (i) assert.ok(v > ticks[i - 1]!);
    });
  }
  const none = fitScale([columnOf([NaN, NaN])], "auto");
  assert.ok(none.to > none.from);
  const same = fitScale([columnOf([3, 3, 3])], "auto");
  assert.ok(same.at(3) > 0 && same.at(3) < 1);
});

test("numbers are written as people do", () => {
  assert.deepEqual([0, 1.5, -0.25, 12345, 1e6, -2.5e-7, NaN, Infinity].map(formatValue), [
    "0",
    "1.5",
    "−0.25",
    "12345",
    "1e6",
    "−2.5e−7",
    "NaN",
    "∞",
  ]);
  assert.deepEqual([12, 1200, 3.4e6, 9e9].map(formatCount), ["12", "1.2 k", "3.4 M", "9 G"]);
  assert.deepEqual([formatShare(0, 10), formatShare(1, 3), formatShare(1, 1e7)], ["0", "33.3 %", "< 0.01 %"]);
});

test("the outer bins reach no further than the smallest and the largest element", () => {
  const next = random(5);
  const values = Array.from({ length: 4000 }, () => Math.fround(1 + 0.007 * normal(next))); // a norm's weights
  const column = columnOf(values),
    bins = sorted(column),
    ascending = [...values].sort((a, b) => a - b);
  assert.equal(bins.low[0], ascending[0]);
  assert.equal(bins.high[bins.high.length - 1], ascending[ascending.length - 1]);
  const width = ascending[ascending.length - 1]! - ascending[0]!;
  for (const share of [0.01, 0.25, 0.75, 0.99]) {
    const right = ascending[Math.floor(share * ascending.length)]!;
    assert.ok(Math.abs(quantile(bins, share) - right) < width / 2, `${share}: ${quantile(bins, share)}, and not ${right}`);
  }
  const scale = new ValueScale(0.9, 1.2, 0);
  const rows = density(column, scale, 300);
  rows.forEach((share, row) => {
    const value = scale.value((row + 0.5) / 300);
    assert.equal(share > 0, value > ascending[0]! - 0.00055 && value < ascending[ascending.length - 1]! + 0.00055, String(value));
  });
  assert.ok(Math.abs(rows.reduce((s, v) => s + v) - 1) < 1e-5);
});

test("a column of one value lies in one row", () => {
  const rows = density(columnOf([0.3, 0.3, 0.3]), new ValueScale(0, 1, 0), 10);
  assert.deepEqual([...rows], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
  assert.equal(quantile(sorted(columnOf([0.3, 0.3])), 0.5), 0.3);
});
