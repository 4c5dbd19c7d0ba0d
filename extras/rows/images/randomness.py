#!/usr/bin/env python3
"""Draws randomness.svg: how often rows that were near each other in the dump come in the same batch of `rows.shuffled`, beside a
perfect shuffle, as the buffer grows.

usage: extras/rows/images/randomness.py       writes randomness.svg beside this file
"""

import importlib.util
import json
import pathlib
import tempfile

import numpy
import torch

HERE = pathlib.Path(__file__).resolve().parent
ROWS, BYTES, BATCH = 500_000, 64, 1024  # 32 MB
BUFFERS = [0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2]  # MB
APART = {1: ("neighbours", "#1f5f8b"), 2048: ("half a block apart", "#4d9078"), 8192: ("two blocks apart", "#c0853a")}


def load(path):
    spec = importlib.util.spec_from_file_location("rows", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder):
    """Rows of one module, each with its number."""
    entries = []
    stack = torch.arange(ROWS)[:, None].expand(ROWS, BYTES // 8).contiguous()
    calls = torch.tensor([[1, 0, 0, 0, ROWS]])
    for i, (kind, value) in enumerate({"ForwardOutput": stack, "ForwardOutput.calls": calls}.items()):
        file = folder / f"{i}-0.pt"
        torch.save(value, file)
        shard = {"file": file.name, "slot": -1, "samples": len(value), "bytes": file.stat().st_size, "holds": "tensor"}
        shard.update(dtype="int64", shape=[*value.shape[1:]])
        entries.append({"path": "m", "kind": kind, "type": "rows 1" if i else "Linear", "shards": [shard]})
    (folder / "manifest.json").write_text(json.dumps({"format": 2, "entries": entries}))


def together(rows, buffer):
    """How much more often rows that are so far apart meet in a batch than in a perfect shuffle, which has 1."""
    batch_of = numpy.zeros(len(rows), int)
    for i, x in enumerate(rows.shuffled(BATCH, buffer=buffer)):
        batch_of[x[:, 0].numpy()] = i
    return [(batch_of[apart:] == batch_of[:-apart]).mean() * len(rows) / BATCH for apart in APART]


def draw(lines, file):
    width, height, left, bottom = 640, 330, 64, 46
    right, top = width - 20, 34

    def x(megabytes):
        return left + (right - left) * numpy.log2(megabytes / BUFFERS[0]) / numpy.log2(BUFFERS[-1] / BUFFERS[0])

    def y(value):
        return height - bottom - (height - bottom - top) * numpy.log10(max(value, 0.5) / 0.5) / numpy.log10(300 / 0.5)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    ]
    out.append(f'<rect width="{width}" height="{height}" fill="#fff"/>')
    title = f"Rows in one batch of {BATCH}, beside a perfect shuffle; {ROWS:,} rows of {BYTES} bytes"
    out.append(f'<text x="{left}" y="18" font-size="13">{title}</text>')
    for value in (1, 3, 10, 30, 100, 300):
        out.append(f'<line x1="{left}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value} ×</text>')
    for megabytes in BUFFERS:
        out.append(f'<text x="{x(megabytes):.1f}" y="{height - bottom + 18}" text-anchor="middle">{megabytes:g}</text>')
    out.append(
        f'<text x="{(left + right) / 2}" y="{height - 8}" text-anchor="middle">buffer, MB (all rows: {ROWS * BYTES / 1e6:.0f} MB)</text>'
    )
    for i, ((name, color), values) in enumerate(zip(APART.values(), zip(*lines))):
        points = " ".join(f"{x(m):.1f},{y(v):.1f}" for m, v in zip(BUFFERS, values))
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{x(m):.1f}" cy="{y(v):.1f}" r="3" fill="{color}"/>' for m, v in zip(BUFFERS, values)]
        out.append(f'<text x="{right}" y="{top + 14 + 16 * i}" text-anchor="end" fill="{color}">{name}</text>')
    file.write_text("\n".join([*out, "</svg>"]) + "\n")


def main():
    rows = load(HERE.parents[1] / "python/torchtap/rows.py")
    with tempfile.TemporaryDirectory() as folder:
        write(pathlib.Path(folder))
        of = rows.open(folder)["m"]
        lines = [together(of, megabytes * 1e6) for megabytes in BUFFERS]
    for megabytes, values in zip(BUFFERS, lines):
        print(f"{megabytes:5} MB", *(f"{value:7.2f}" for value in values))
    draw(lines, HERE / "randomness.svg")


if __name__ == "__main__":
    main()
