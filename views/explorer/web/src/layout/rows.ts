// Order of the nodes in each row: sweeps that move a node to the mean place of its neighbours, fewest crossings kept.

/** Nodes and, behind them, the bends of edges that pass rows. Neighbours are in the row above and below. */
export interface Rows {
  rows: number[][];
  above: number[][];
  below: number[][];
}

export function orderRows({ rows, above, below }: Rows): void {
  const size = above.length;
  if (rows.every(row => row.length < 2)) return;
  const place = new Float64Array(size),
    key = new Float64Array(size);
  const settle = (row: number[]) =>
    row.forEach((v, i) => {
      place[v] = i;
    });
  rows.forEach(settle);

  const sweep = (near: number[][], up: boolean) => {
    for (let k = 0; k < rows.length; k++) {
      const row = rows[up ? rows.length - 1 - k : k]!;
      if (row.length < 2) continue;
      for (const v of row) {
        const others = near[v]!;
        let sum = 0;
        for (const u of others) sum += place[u]!;
        key[v] = others.length ? sum / others.length : place[v]!;
      }
      row.sort((a, b) => key[a]! - key[b]! || place[a]! - place[b]!);
      settle(row);
    }
  };

  const careful = size < 3000;
  let best = careful ? crossings(rows, below, place) : 0;
  let kept = careful ? rows.map(row => row.slice()) : null;
  for (let round = 0; round < (careful ? 6 : 3) && !(careful && best === 0); round++) {
    sweep(above, false);
    sweep(below, true);
    if (!kept) continue;
    const now = crossings(rows, below, place);
    if (now < best) {
      best = now;
      kept = rows.map(row => row.slice());
    }
  }
  if (kept)
    kept.forEach((row, i) => {
      rows[i] = row;
    });
}

/** Crossings between neighbouring rows: inversions among the ends below, counted by a Fenwick tree. */
function crossings(rows: number[][], below: number[][], place: Float64Array): number {
  let sum = 0;
  for (let k = 0; k + 1 < rows.length; k++) {
    const width = rows[k + 1]!.length;
    if (width < 2 || rows[k]!.length < 2) continue;
    const tree = new Int32Array(width + 1);
    let seen = 0;
    for (const v of rows[k]!) {
      const ends = below[v]!.map(u => place[u]!).sort((a, b) => a - b);
      for (const end of ends) {
        let less = 0;
        for (let i = end + 1; i > 0; i -= i & -i) less += tree[i]!;
        sum += seen - less;
      }
      for (const end of ends) {
        for (let i = end + 1; i <= width; i += i & -i) tree[i]!++;
        seen++;
      }
    }
  }
  return sum;
}
