// Comparing two runs without a server.

import { sorted, wasserstein } from "./bins";
import { std, type Column } from "./column";
import type { Update } from "./decode";
import type { Difference } from "./protocol";
import type { RunData } from "./run_data";
import type { Source } from "./source";

/** Calls are matched by path and call. Distances are in units of the mean of both standard deviations, as a server's. */
export async function compareHere(source: Source, a: RunData, b: RunData, step: number | null): Promise<Difference[]> {
  const one = a.model.value,
    two = b.model.value;
  if (!one || !two) return [];
  const pairs: { a: number; b: number; call: number; what: Difference["what"]; index: number }[] = [];
  for (const call of one.graph.calls) {
    const twin = two.byKey.get(one.key(call.id));
    if (!twin) continue;
    const theirs = b.index.value.slots(two, twin);
    for (const slot of a.index.value.slots(one, call)) {
      const other = theirs.find(s => s.what === slot.what && s.index === slot.index);
      if (other && (slot.what === "output" || slot.what === "parameter")) {
        pairs.push({ a: slot.id, b: other.id, call: call.id, what: slot.what, index: slot.index });
      }
    }
  }
  const [left, right] = await Promise.all([
    source.columns(
      a.run.id,
      pairs.map(p => p.a),
      {},
    ),
    source.columns(
      b.run.id,
      pairs.map(p => p.b),
      {},
    ),
  ]);
  const shown = (updates: Update[]) => new Map(updates.map(u => [u.id, at(u.columns, step)]));
  const mine = shown(left),
    theirs = shown(right);
  return pairs
    .flatMap(pair => {
      const x = mine.get(pair.a),
        y = theirs.get(pair.b);
      if (!x || !y) return [];
      const area = wasserstein(sorted(x), sorted(y)),
        distance = area === 0 ? 0 : area / ((std(x) + std(y)) / 2);
      return Number.isNaN(distance) ? [] : [{ ...pair, wasserstein: distance, kl: NaN, first_step: null }];
    })
    .sort((x, y) => y.wasserstein - x.wasserstein);
}

function at(columns: readonly Column[], step: number | null): Column | undefined {
  return step === null ? columns[columns.length - 1] : (columns.findLast(c => c.first <= step) ?? columns[0]);
}
