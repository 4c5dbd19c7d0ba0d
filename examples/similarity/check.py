#!/usr/bin/env python3
"""Checks what examples/similarity saved against an independent computation, and draws it.

usage: check.py FOLDER [--data FOLDER] [--picture FILE]

Linear CKA is computed again with NumPy in float64, on the pooled rows of all test images at once: it may differ by 1e-10 from
the values that the ranks merged. The rows were computed in float32; they are compared with a forward in float64 by PyTorch
from the saved parameters, for 1000 of the images: they may differ by 1e-5 of the largest value. Exit status 1 if one
differs by more.
"""

import argparse
import gzip
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

BLOCKS = [f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]

failed = []


def report(what, difference, tolerance):
    good = difference <= tolerance  # not so of NaN
    if not good:
        failed.append(what)
    print(f"{what:60} {difference:10.1e} {tolerance:10.0e}   {'ok' if good else 'WRONG'}")


def load(path):
    return torch.load(path, weights_only=True)


def recording(folder):
    """The value of each block, in order."""
    entries = json.loads((folder / "manifest.json").read_text())["entries"]
    if [entry["path"] for entry in entries] != BLOCKS:
        sys.exit(f"{folder}: not a recording of the blocks")
    return [load(folder / entry["file"]) for entry in entries]


def values(folder):
    """The recorded CKA of each block with each, [8, 8]."""
    return np.array([[float(value) for value in block.values()] for block in recording(folder)])


def linear_cka(xs, ys):
    def within(rows):
        return [np.linalg.norm(x.T @ x) for x in rows]

    between = np.array([[np.linalg.norm(x.T @ y) ** 2 for y in ys] for x in xs])
    return between / np.outer(within(xs), within(ys))


def read_idx(folder, name, most):
    """The first `most` entries of an idx file of bytes, plain or gzip."""
    path = pathlib.Path(folder, name)
    content = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    start = 4 + 4 * content[3]
    sizes = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).reshape(sizes)[:most]


def forward(state, x):
    """The pooled output of each block of a ResNet-18."""

    def conv(x, name, stride=1, padding=0):
        return F.conv2d(x, state[f"{name}.weight"], stride=stride, padding=padding)

    def norm(x, name):
        mean, variance, weight, bias = (
            state[f"{name}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * weight + bias

    x = F.max_pool2d(F.relu(norm(conv(x, "conv1", 2, 3), "bn1")), 3, 2, 1)
    for block in BLOCKS:
        stride = 2 if f"{block}.downsample.0.weight" in state else 1
        y = F.relu(norm(conv(x, f"{block}.conv1", stride, 1), f"{block}.bn1"))
        y = norm(conv(y, f"{block}.conv2", 1, 1), f"{block}.bn2")
        if stride == 2:
            x = norm(conv(x, f"{block}.downsample.0", 2), f"{block}.downsample.1")
        x = F.relu(x + y)
        yield x.mean((2, 3))


def check_rows(name, state, rows, images):
    """The rows of every so many images, whichever rank had them."""
    chosen = torch.arange(0, len(images), -(-len(images) // 1000))
    state = {key: tensor.double() for key, tensor in state.items()}
    wanted = [torch.cat(parts) for parts in zip(*(list(forward(state, x)) for x in images[chosen].split(100)))]
    for block, got, want in zip(BLOCKS, rows, wanted):
        worst = (got[chosen] - want).abs().max() / want.abs().max()
        report(f"{name} model, {block}: rows [{len(got)}, {got.shape[1]}]", float(worst), 1e-5)


def accuracy(state, rows, labels):
    scores = rows @ state["fc.weight"].t() + state["fc.bias"]
    return float(scores.argmax(1).eq(labels).double().mean())


def draw(file, title, panels):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "similarity", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 5.2), sharey=True, layout="constrained")
    figure.suptitle(title)
    for axis, (theirs, value) in zip(axes, panels):
        mesh = axis.pcolormesh(value, vmin=0, vmax=1, cmap="viridis")
        for i, row in enumerate(value):
            for j, number in enumerate(row):
                color = "black" if number > 0.6 else "white"
                axis.text(j + 0.5, i + 0.5, f"{number:.2f}", color=color, size=8, ha="center", va="center")
        axis.set(xlabel=f"block of {theirs}", aspect="equal")
        axis.set_xticks(np.arange(8) + 0.5, BLOCKS, rotation=45)
        axis.set_yticks(np.arange(8) + 0.5, BLOCKS)
    axes[0].set_ylabel("block of the first model")
    figure.colorbar(mesh, ax=axes, label="linear CKA", shrink=0.8)
    figure.savefig(file, metadata={"Date": None, "Creator": None} if file.endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="where Fashion-MNIST is")
    parser.add_argument("--picture", help="an SVG or PNG to draw")
    arguments = parser.parse_args()
    folder = arguments.folder
    states = {name: load(folder / f"{name}.pt") for name in ("first", "second")}
    rows = {name: [torch.cat(batches) for batches in recording(folder / name)] for name in states}
    images = read_idx(arguments.data, "t10k-images-idx3-ubyte", len(rows["first"][0]))
    images = (images.double().unsqueeze(1) / 255 - 0.2860) / 0.3530
    labels = read_idx(arguments.data, "t10k-labels-idx1-ubyte", len(images))

    print(f"{'what':60} {'difference':>10} {'tolerated':>10}")
    for name, state in states.items():
        check_rows(name, state, rows[name], images)
    centred = {name: [x.double().numpy() for x in blocks] for name, blocks in rows.items()}
    centred = {name: [x - x.mean(0) for x in blocks] for name, blocks in centred.items()}
    alike, itself = values(folder / "alike"), values(folder / "itself")
    for other, got in ("second", alike), ("first", itself):
        differences = np.abs(got - linear_cka(centred["first"], centred[other])).max(1)
        for block, difference in zip(BLOCKS, differences):
            report(f"CKA of {block} with each block of the {other} model", difference, 1e-10)
    report("CKA of each block with itself is 1", np.abs(itself.diagonal() - 1).max(), 1e-12)
    if failed:
        print(f"\n{len(failed)} of the recorded numbers are wrong: " + "; ".join(failed))
        return 1
    print("\nThe recordings are what Python computes.")
    if arguments.picture:
        right = " and ".join(f"{accuracy(state, rows[name][-1], labels):.1%}" for name, state in states.items())
        title = f"Two ResNet-18 that differ in their seeds, over {len(images)} images of Fashion-MNIST ({right} right)"
        draw(arguments.picture, title, [("the second model", alike), ("the first model itself", itself)])
    return 0


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
