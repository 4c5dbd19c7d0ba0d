#!/usr/bin/env python3
"""Trains a linear probe on the rows of each layer that the program beside this file dumped, and draws their accuracy by depth.

usage: probes.py [FOLDER] [--picture FILE]     FOLDER, "probes" unless given, has the program's `dump`

A probe is a linear map to the ten classes. Four fifths of the images train it, told apart by the id beside each row; the
table has its accuracy on the others. The model learnt the same labels, so its later layers tell the classes apart. Exit
status 1 if a probe is no better than chance, or if the deepest one tells no more classes apart than the first. Works without
torchtap, too, where extras/python/torchtap/rows.py lies beside this file.
"""

import argparse
import pathlib
import sys

import torch

try:
    from torchtap import rows
except ImportError:  # copied to a machine without it
    import rows


def is_for_training(ids):
    return ids % 5 != 0


def probe_of(layer, epochs, seed):
    """A probe of rows [width], trained on shuffled batches."""
    width, train = layer.shape[0], layer.where(id=is_for_training)
    torch.manual_seed(seed)
    probe = torch.nn.Sequential(torch.nn.BatchNorm1d(width, affine=False), torch.nn.Linear(width, 10))
    torch.nn.init.zeros_(probe[1].weight)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=0.1 / width**0.5, weight_decay=0.1)
    batches = train.shuffled(batch=256, seed=seed, buffer="128 MB", beside="label")
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, epochs * len(batches))
    for _ in range(epochs):
        for x, label in batches:
            loss = torch.nn.functional.cross_entropy(probe(x.float()), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            decay.step()
    return probe.eval()


@torch.no_grad()
def accuracy(probe, layer):
    right = 0
    for i in range(0, len(layer), 1024):
        part = slice(i, i + 1024)
        right += int(probe(layer[part].float()).argmax(1).eq(layer.beside("label", part)).sum())
    return right / len(layer)


def draw(file, layers):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "probes", "font.size": 9})
    from matplotlib import pyplot, ticker

    figure, axis = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    depth = range(len(layers))
    axis.plot(
        depth, [train for _, _, train, _ in layers], "o--", color="#9db4c8", label="images that trained the probe"
    )
    axis.plot(depth, [test for _, _, _, test in layers], "o-", color="#1f5f8b", label="other images")
    for i, (_, _, train, test) in enumerate(layers):  # on the side where the other line is not
        axis.annotate(
            f"{test:.1%}",
            (i, test),
            (0, 6 if train < test else -13),
            textcoords="offset points",
            ha="center",
            size=8,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )
    axis.yaxis.set_major_formatter(ticker.PercentFormatter(1, 0))
    axis.set_xticks([*depth], [f"{path}\n{width}" for path, width, _, _ in layers])
    axis.set(xlabel="layer, and the width of its rows", ylabel="accuracy of a linear probe")
    axis.legend(loc="best")
    axis.grid(axis="y", alpha=0.3)
    axis.margins(y=0.15)
    figure.savefig(file, metadata={"Date": None, "Creator": None} if file.endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="probes", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", help="an SVG or PNG to draw")
    arguments = parser.parse_args()
    dump, layers = rows.open(arguments.folder / "dump"), []
    print(f"{'layer':12}{'rows':>8}{'width':>8}{'training':>10}{'others':>9}")
    for path in dump:
        layer = dump[path]
        probe = probe_of(layer, arguments.epochs, arguments.seed)
        train = accuracy(probe, layer.where(id=is_for_training))
        test = accuracy(probe, layer.where(id=lambda ids: ~is_for_training(ids)))
        layers.append((path, layer.shape[0], train, test))
        print(f"{path:12}{len(layer):8}{layer.shape[0]:8}{train:10.1%}{test:9.1%}", flush=True)
    if arguments.picture:
        draw(arguments.picture, layers)
    if min(test for _, _, _, test in layers) < 0.2 or layers[-1][3] < layers[0][3] - 0.02:
        print("a probe is no better than chance, or the deepest is worse than the first")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
