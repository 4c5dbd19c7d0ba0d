// How calls are named: lists of modules are no calls, so that their names would be missing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Model } from "../../src/data/model";
import { call } from "../graphs";

test("a call is named by its path below the call around it", () => {
  const calls = [
    call(0, null, "", "Net", "Net"),
    call(1, 0, "enc.0.a", "Linear"),
    call(2, 0, "dec.0.a", "Linear"),
    call(3, 0, "blocks.0", "Block"),
    call(4, 3, "blocks.0.mlp.fc", "Linear"),
    call(5, 0, "head", "Linear"),
    call(6, 3, "head", "Linear"), // called from elsewhere
  ];
  calls[5]!.call = 1;
  const model = new Model({ version: 1, mode: "train", forwards: 1, calls, edges: [] });
  assert.deepEqual(
    calls.map(c => model.label(c)),
    ["Net", "enc.0.a", "dec.0.a", "blocks.0", "mlp.fc", "head · 2", "head"],
  );
  assert.deepEqual(
    calls.map(c => model.lists(c)),
    ["", "enc.0", "dec.0", "blocks", "mlp", "", ""],
  );
});
