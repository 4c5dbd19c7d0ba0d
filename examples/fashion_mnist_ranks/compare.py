#!/usr/bin/env python3
"""Compares the recordings of many ranks with those of one process: the same files, entries and numbers of samples; values
but for the rounding of another order of sums; counts and extrema exactly.

usage: compare.py RANKS ONE
"""

import json
import math
import pathlib
import sys

import torch

EXACT = ("counts", "count", "edges", "min.value", "max.value", "zeros", "elements", "samples")


def tensors(value, name=""):
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors(part, f"{name}/{key}")
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from tensors(part, f"{name}/{number}")


def differences(name, got, want):
    if name.endswith("last.value"):  # the last batch of the last rank is another one
        return None if got.shape[1:] == want.shape[1:] else "another shape"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {tuple(got.shape)} and not {want.dtype} {tuple(want.shape)}"
    if name.endswith(EXACT) or not got.is_floating_point():
        return None if got.equal(want) else "other values"
    got, want = got.double(), want.double()
    largest = float((got - want).abs().max() / want.abs().max().clamp_min(1e-30)) if got.numel() else 0.0
    return None if math.isfinite(largest) and largest < 1e-5 else f"differs by {largest:.2e}"


def main():
    ranks, one = (pathlib.Path(folder) for folder in sys.argv[1:3])
    files = [
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) for folder in (ranks, one)
    ]
    wrong = [] if files[0] == files[1] else [f"other files: {sorted(set(files[0]) ^ set(files[1]))}"]
    compared = 0
    for name in files[1]:
        if name.endswith("manifest.json") and name in files[0]:
            lists = [
                [
                    (e["path"], e["type"], e["kind"], e["samples"], e["file"])
                    for e in json.loads((folder / name).read_text())["entries"]
                ]
                for folder in (ranks, one)
            ]
            if lists[0] != lists[1]:
                wrong.append(f"{name}: {lists[0]} and not {lists[1]}")
        if not name.endswith(".pt") or name not in files[0]:
            continue
        got, want = (dict(tensors(torch.load(folder / name, weights_only=True))) for folder in (ranks, one))
        if got.keys() != want.keys():
            wrong.append(f"{name}: other names: {sorted(got.keys() ^ want.keys())}")
        for key in got.keys() & want.keys():
            compared += 1
            what = differences(key, got[key], want[key])
            if what:
                wrong.append(f"{name}{key}: {what}")
    print(f"{compared} tensors in {len(files[1])} files compared, {len(wrong)} differences")
    for line in wrong:
        print(line)
    return 1 if wrong or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
