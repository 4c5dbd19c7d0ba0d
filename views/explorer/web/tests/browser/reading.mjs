// Numbers of columns and of the page, read in another way than the page reads them.

/** Statistics and bins of a column, read here in another way than by the page. */
export function parse({ bytes }) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const names = ["count", "nan", "posinf", "neginf", "zeros", "min", "max", "sum", "squares"];
  const column = Object.fromEntries(names.map((name, i) => [name, view.getFloat64(16 + 8 * i, true)]));
  let at = 92,
    slot = 0;
  const varint = () => {
    let v = 0,
      f = 1,
      b;
    do {
      b = bytes[at++];
      v += (b & 127) * f;
      f *= 128;
    } while (b & 128);
    return v;
  };
  column.bins = Array.from({ length: view.getUint32(88, true) }, () => {
    slot += varint();
    return { slot, count: varint() };
  });
  const edge = m => (m >= 2040 ? 2 ** 128 : new Float32Array(new Uint32Array([m << 20]).buffer)[0]);
  for (const b of column.bins)
    [b.low, b.high] = b.slot < 2048 ? [edge(b.slot), edge(b.slot + 1)] : [-edge(b.slot - 2047), -edge(b.slot - 2048)];
  const n = column.count - column.nan - column.posinf - column.neginf;
  column.finite = n;
  column.mean = column.sum / n;
  column.std = Math.sqrt(Math.max(0, column.squares / n - column.mean ** 2));
  return column;
}
/** "0.415 ± 4.23" with its typographic minus, as numbers. */
export const numbers = s =>
  s
    .replaceAll("−", "-")
    .match(/-?\d[\d.]*(e-?\d+)?/g)
    .map(Number);
export const near = (a, b) => Math.abs(a - b) <= 0.006 * Math.max(Math.abs(a), Math.abs(b)) + 1e-12;

/** Equal values share the mean of their ranks. */
export function rank(values) {
  const order = values.map((v, i) => [v, i]).sort((a, b) => a[0] - b[0]);
  const result = new Array(values.length);
  for (let i = 0; i < order.length;) {
    let k = i;
    while (k < order.length && order[k][0] === order[i][0]) k++;
    for (let j = i; j < k; j++) result[order[j][1]] = (i + k - 1) / 2;
    i = k;
  }
  return result;
}
export function correlation(a, b) {
  const mean = l => l.reduce((s, v) => s + v, 0) / l.length,
    ma = mean(a),
    mb = mean(b);
  const dot = (x, mx, y, my) => x.reduce((s, v, i) => s + (v - mx) * (y[i] - my), 0);
  return dot(a, ma, b, mb) / Math.sqrt(dot(a, ma, a, ma) * dot(b, mb, b, mb));
}
