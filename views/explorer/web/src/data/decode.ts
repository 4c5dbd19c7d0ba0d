// The binary form of columns, little-endian. Anything else than that is an error, never a guess.

import { isProper } from "./bins";
import type { Column } from "./column";

const MAGIC = 0x434c5054; // "TPLC"
const REPLACE_ALL = 0x80000000;

export interface Update {
  id: number;
  sequence: number;
  replace: boolean;
  columns: Column[];
}

class Reader {
  private at = 0;
  private readonly view: DataView;
  private readonly bytes: Uint8Array;

  constructor(buffer: ArrayBuffer) {
    this.view = new DataView(buffer);
    this.bytes = new Uint8Array(buffer);
  }

  get ended(): boolean {
    return this.at === this.bytes.length;
  }
  private take(n: number): number {
    const at = this.at;
    if (at + n > this.bytes.length) throw new Error(`columns: expected ${n} more bytes at ${at} of ${this.bytes.length}`);
    this.at += n;
    return at;
  }
  u32(): number {
    return this.view.getUint32(this.take(4), true);
  }
  /** Exact up to 2^53, which no step number and no sequence reaches. */
  u64(): number {
    const at = this.take(8);
    return this.view.getUint32(at, true) + this.view.getUint32(at + 4, true) * 2 ** 32;
  }
  i64(): number {
    const at = this.take(8);
    return this.view.getUint32(at, true) + this.view.getInt32(at + 4, true) * 2 ** 32;
  }
  f64(): number {
    return this.view.getFloat64(this.take(8), true);
  }
  varint(): number {
    let value = 0,
      factor = 1;
    for (let i = 0; i < 10; i++) {
      const byte = this.bytes[this.take(1)]!;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
      factor *= 128;
    }
    throw new Error(`columns: a number of more than 10 bytes ends at ${this.at}`);
  }
}

function column(r: Reader): Column {
  const c = {
    first: r.i64(),
    last: r.i64(),
    count: r.f64(),
    nan: r.f64(),
    posinf: r.f64(),
    neginf: r.f64(),
    zeros: r.f64(),
    min: r.f64(),
    max: r.f64(),
    sum: r.f64(),
    squares: r.f64(),
  };
  const bins = r.u32();
  if (bins > 4098) throw new Error(`columns: expected at most 4098 bins, got ${bins}`);
  const slots = new Uint16Array(bins),
    counts = new Float64Array(bins);
  let slot = 0,
    kept = 0;
  for (let i = 0; i < bins; i++) {
    slot += r.varint();
    const count = r.varint();
    // Zeros, NaN and infinities stand in the statistics.
    if (isProper(slot)) {
      slots[kept] = slot;
      counts[kept++] = count;
    }
  }
  return { ...c, slots: kept === bins ? slots : slots.slice(0, kept), counts: kept === bins ? counts : counts.slice(0, kept) };
}

export function decode(buffer: ArrayBuffer): Update[] {
  const r = new Reader(buffer);
  const magic = r.u32(),
    version = r.u32(),
    mantissa = r.u32();
  if (magic !== MAGIC) throw new Error(`columns: expected the bytes TPLC, got 0x${magic.toString(16)}`);
  if (version !== 1) throw new Error(`columns: this page reads version 1, got ${version}; load the page again`);
  if (mantissa !== 3) throw new Error(`columns: expected 3 bits of mantissa, got ${mantissa}`);
  const result: Update[] = [];
  for (let n = r.u32(); n > 0; n--) {
    const id = r.u32(),
      sequence = r.u64(),
      head = r.u32();
    const count = head % REPLACE_ALL;
    const columns: Column[] = [];
    for (let i = 0; i < count; i++) columns.push(column(r));
    result.push({ id, sequence, replace: head >= REPLACE_ALL, columns });
  }
  if (!r.ended) throw new Error("columns: there are bytes behind the last series");
  return result;
}
