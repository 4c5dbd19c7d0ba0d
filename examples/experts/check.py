#!/usr/bin/env python3
"""Checks what examples/experts recorded, and draws it.

usage: check.py FOLDER [--data FOLDER] [--picture FILE]

Rebuilds both networks in PyTorch from the saved parameters, runs the test images through them in float64, and computes
counts, moments and weights by class and expert with NumPy. Counts are the same, but for images whose second and third
expert are as likely to 1e-6, which rounding may send elsewhere; their classes and experts have no part in the
comparison of values, which may differ by 1e-5 of the largest one.
"""

import argparse
import gzip
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

CLASSES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")
ORDER = [0, 6, 2, 4, 3, 1, 8, 5, 7, 9]  # of the picture: alike beside each other
EXPERTS, CHOSEN = 8, 2
failed = []


def report(what, difference, tolerance):
    good = bool(difference <= tolerance)  # not of NaN
    if not good:
        failed.append(what)
    print(f"{what:32} {difference:10.2e} {tolerance:10.0e}   {'ok' if good else 'WRONG'}")


def read_idx(folder, name, offset):
    path = pathlib.Path(folder, name)
    content = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    return np.frombuffer(content, np.uint8, offset=offset)


def forward(p, images):
    """The output of the mixture, probability and weight of each expert, and the scores of the classes."""
    x = F.relu(F.conv2d(images, p["stem.0.weight"], p["stem.0.bias"], stride=2, padding=2))
    x = F.relu(F.linear(F.max_pool2d(x, 2).flatten(1), p["stem.4.weight"], p["stem.4.bias"]))
    probabilities = F.linear(x, p["moe.router.scores.weight"], p["moe.router.scores.bias"]).softmax(1)
    best = probabilities.topk(CHOSEN, 1)
    weights = torch.zeros_like(probabilities).scatter(1, best.indices, best.values / best.values.sum(1, keepdim=True))
    y = x
    for i in range(EXPERTS):  # all experts of all images: those that were not chosen have the weight 0
        hidden = F.relu(F.linear(x, p[f"moe.experts.{i}.0.weight"], p[f"moe.experts.{i}.0.bias"]))
        out = F.linear(hidden, p[f"moe.experts.{i}.2.weight"], p[f"moe.experts.{i}.2.bias"])
        y = y + weights[:, i : i + 1] * out
    return y.numpy(), probabilities.numpy(), weights.numpy(), F.linear(y, p["head.weight"], p["head.bias"]).numpy()


def check(name, folder, images, labels):
    manifest = json.loads((folder / "experts" / "manifest.json").read_text())
    (entry,) = manifest["entries"]
    got = {key: value.numpy() for key, value in torch.load(folder / "experts" / entry["file"]).items()}
    counts = got["expert.count"]
    images, labels = images[: counts.sum() // CHOSEN], labels[: counts.sum() // CHOSEN]
    parameters = {key: value.double() for key, value in torch.load(folder / "parameters.pt").items()}
    with torch.no_grad():
        y, probabilities, weights, scores = forward(parameters, torch.from_numpy(images).unsqueeze(1))
    chosen = weights > 0
    order = np.sort(probabilities, 1)
    close = order[:, -CHOSEN] - order[:, -CHOSEN - 1] < 1e-6
    print(f"\n{name}: {np.mean(scores.argmax(1) == labels):.4f} right, {close.sum()} images between two experts")

    report("keys", np.abs(got["labels"] - np.arange(10)).max() + np.abs(got["expert"] - np.arange(EXPERTS)).max(), 0)
    report("left out", got["labels.left_out"] + got["expert.left_out"].sum(), 0)
    report("images of each class", np.abs(got["labels.count"] - CHOSEN * np.bincount(labels, minlength=10)).max(), 0)
    difference = {key: 0.0 for key in ("counts", "moments.mean", "moments.variance", "map.mean", "map.variance")}
    for c, e in np.ndindex(10, EXPERTS):
        rows = (labels == c) & chosen[:, e]
        unsure = (close & (labels == c)).sum()
        difference["counts"] = max(difference["counts"], abs(counts[c, e] - rows.sum()) - unsure)
        if unsure:
            continue
        for key, values in ("moments", y[rows]), ("map", weights[rows, e]):
            for statistic, least in ("mean", 1), ("variance", 2):
                mine, its = f"{key}.{statistic}", got[f"{key}.{statistic}"][c, e]
                if len(values) < least:
                    difference[mine] += 0 if np.isnan(its).all() else np.inf
                    continue
                want = values.mean(0) if least == 1 else values.var(0, ddof=1)
                scale = np.abs(y).max() ** least if key == "moments" else 1
                difference[mine] = np.maximum(difference[mine], np.abs(its - want).max() / scale)
    for key, value in difference.items():
        report(key, value, 0 if key == "counts" else 1e-5)
    return counts


def draw(path, counts):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "experts", "font.size": 9, "font.family": "sans-serif"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, 2, figsize=(8.6, 5), gridspec_kw={"height_ratios": [3, 1]}, sharex="col", sharey="row", layout="constrained"
    )
    figure.suptitle("Of 100 images of a class, how many each expert gets (an image goes to two of eight experts)")
    titles = {"free": "trained as it comes", "balanced": "trained with a balancing loss"}
    for (upper, lower), (name, count) in zip(axes.T, counts.items()):
        share = 100 * CHOSEN * count[ORDER] / count[ORDER].sum(1, keepdims=True)
        upper.imshow(share, cmap="Blues", vmin=0, vmax=100, aspect="auto")
        for (c, e), value in np.ndenumerate(share):
            if value >= 1:
                color = "white" if value > 60 else "black"
                upper.text(e, c, f"{value:.0f}", ha="center", va="center", color=color, fontsize=8)
        upper.set_yticks(range(10), [CLASSES[c] for c in ORDER])
        upper.set_title(titles[name])
        load = 100 * count.sum(0) / count.sum()
        for e, value in enumerate(load):
            lower.text(e, max(value, 100 / EXPERTS) + 1, f"{value:.0f}", ha="center", fontsize=8)
        lower.bar(range(EXPERTS), load, color="#4a86b8")
        lower.axhline(100 / EXPERTS, color="black", linewidth=0.8, linestyle=":")
        lower.set_xticks(range(EXPERTS))
        lower.set_ylim(0, 48)
        lower.set_xlabel("expert")
        lower.spines[["top", "right"]].set_visible(False)
    axes[1, 0].set_ylabel("load, %")
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description="Checks what examples/experts recorded.")
    parser.add_argument("folder", type=pathlib.Path, help="what was given to experts as --save")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="where Fashion-MNIST is")
    parser.add_argument("--picture", help="the picture to draw: FILE.svg, FILE.png")
    arguments = parser.parse_args()
    images = read_idx(arguments.data, "t10k-images-idx3-ubyte", 16).reshape(-1, 28, 28)
    images = (images.astype(np.float64) / 255 - 0.2860) / 0.3530
    labels = read_idx(arguments.data, "t10k-labels-idx1-ubyte", 8)
    print(f"{'what':32} {'difference':>10} {'tolerated':>10}")
    counts = {name: check(name, arguments.folder / name, images, labels) for name in ("free", "balanced")}
    if arguments.picture:
        draw(arguments.picture, counts)
    print(f"\n{len(failed)} of the recorded numbers are wrong." if failed else "\nPython computes the same.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
