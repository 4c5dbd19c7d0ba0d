// What a server answers, where JSON has no number for it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { HttpSource } from "../../src/data/http";
import { toNumber } from "../../src/data/protocol";

test("numbers that are not finite come as texts", async () => {
  assert.deepEqual(
    [1.5, "Infinity", "-Infinity"].map(value => toNumber(value as number)),
    [1.5, Infinity, -Infinity],
  );
  for (const value of ["NaN", null, undefined] as const) assert.ok(Number.isNaN(toNumber(value)));
  globalThis.fetch = async () => new Response('[{"a": 0, "wasserstein": "Infinity", "kl": 0.5}]');
  const [difference] = await new HttpSource("", "").compare("r0", "r1", null);
  assert.deepEqual([difference?.wasserstein, difference?.kl], [Infinity, 0.5]);
});
