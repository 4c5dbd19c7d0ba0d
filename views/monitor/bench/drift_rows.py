#!/usr/bin/env python3
"""Writes what a small CNN makes of each image of Fashion-MNIST, as histograms, for bench_drift_simulation.

usage: drift_rows.py FILE          (needs torch, NumPy, and Debian's dataset-fashion-mnist; set OMP_NUM_THREADS=1)

The CNN is trained on 10 000 images. Of eight places (input, convolutions, ReLUs, linear layers) the file has the counts
of each image in about 40 bins of LogHistogram(3) joined: of a reference (10 000 other images), of 25 000 further ones,
and of test images that were corrupted in the manner of CIFAR-10-C, at severities 1 to 5.

All numbers are little-endian: u64 number of sets, u64 number of places; for each set its name (u64 length, bytes), u64
images, and u8 labels; then for each place its name, u64 bins, f64 low and f64 high ends, and for each set u16 counts
[images, bins + 1], of which the last are zeros.
"""

import gzip
import math
import struct
import sys

import numpy
import torch
import torch.nn.functional as functional
from torch import nn

FOLDER = "/usr/share/datasets/fashion-mnist/"
CORRUPTIONS = {
    "noise": [0.04, 0.06, 0.08, 0.09, 0.10],
    "blur": [0.4, 0.6, 0.7, 0.8, 1.0],
    "brightness": [0.05, 0.1, 0.15, 0.2, 0.3],
    "contrast": [0.75, 0.5, 0.4, 0.3, 0.15],
    "rotation": [5, 10, 15, 20, 30],
}
ZERO, OUTSIDE = 4095, 2.0**128


def images(name):
    data = gzip.open(FOLDER + name + "-images-idx3-ubyte.gz").read()
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=16).reshape(-1, 1, 28, 28).copy()).float() / 255


def labels(name):
    data = gzip.open(FOLDER + name + "-labels-idx1-ubyte.gz").read()
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=8).astype(numpy.int64))


def normal(x):
    return (x - 0.2860) / 0.3530


def corrupt(x, kind, c):
    if kind == "noise":
        return (x + c * torch.randn_like(x)).clamp(0, 1)
    if kind == "blur":
        at = torch.arange(-3, 4).float()
        kernel = torch.exp(-at * at / (2 * c * c))
        kernel /= kernel.sum()
        x = functional.conv2d(x, kernel.view(1, 1, 1, 7), padding=(0, 3))
        return functional.conv2d(x, kernel.view(1, 1, 7, 1), padding=(3, 0))
    if kind == "brightness":
        return (x + c).clamp(0, 1)
    if kind == "contrast":
        mean = x.mean((1, 2, 3), keepdim=True)
        return ((x - mean) * c + mean).clamp(0, 1)
    a = torch.where(torch.rand(len(x)) < 0.5, -1.0, 1.0) * c * math.pi / 180
    turn = torch.stack([torch.stack([a.cos(), -a.sin(), 0 * a], 1), torch.stack([a.sin(), a.cos(), 0 * a], 1)], 1)
    return functional.grid_sample(x, functional.affine_grid(turn, x.shape, align_corners=False), align_corners=False)


def slots(x):
    """Sign, exponent and three bits of the mantissa; zeros apart."""
    numbers = x.detach().flatten(1).contiguous().numpy()
    found = (numbers.view(numpy.uint32) >> 20).astype(numpy.int32)
    found[numbers == 0] = ZERO
    return found


def ends(slot):
    bits = numpy.array([slot << 20, (slot + 1) << 20], numpy.int64).astype(numpy.uint32)
    numbers = bits.view(numpy.float32).astype(numpy.float64)
    return (numbers[1], numbers[0]) if slot >= 2048 else (numbers[0], numbers[1])


class Place:
    """Bins: what came in 1000 images, joined to about 40 of equal mass, and what lies below and above."""

    def __init__(self, name, found):
        self.name = name
        counts = numpy.bincount(found.ravel(), minlength=4096)
        used = sorted((slot for slot in numpy.flatnonzero(counts) if slot != ZERO), key=lambda slot: ends(slot)[0])
        total, bins, gathered = counts.sum() - counts[ZERO], [], 0.0
        for slot in used:
            # No bin has both signs.
            if not bins or gathered >= total / 40 or (bins[-1][0] < 0) != (ends(slot)[0] < 0):
                bins.append(list(ends(slot)))
                gathered = 0.0
            bins[-1][1] = ends(slot)[1]
            gathered += counts[slot]
        for before, after in zip(bins, bins[1:]):
            after[0] = before[1] if (before[0] < 0) == (after[0] < 0) else after[0]
        if bins[0][0] >= 0:
            bins[0][0] = 0.0
        self.bins = [[-OUTSIDE, bins[0][0]], *bins, [bins[-1][1], OUTSIDE]]
        starts = numpy.array([low for low, _ in self.bins])
        with numpy.errstate(invalid="ignore"):  # of NaN, which does not come
            middle = numpy.array([sum(ends(slot)) / 2 for slot in range(4096)])
            self.bin = numpy.clip(numpy.searchsorted(starts, middle, side="right") - 1, 0, len(starts) - 1)
        self.bin[ZERO] = len(self.bins)
        self.parts = {}

    def count(self, name, found):
        width = len(self.bins) + 1
        flat = self.bin[found] + width * numpy.arange(len(found))[:, None]
        counts = numpy.bincount(flat.ravel(), minlength=width * len(found)).reshape(len(found), width)
        self.parts.setdefault(name, []).append(counts.astype(numpy.uint16))


def main(file):
    torch.manual_seed(0)
    x, y, test, test_labels = images("train"), labels("train"), images("t10k"), labels("t10k")
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    for i in torch.randperm(10000).split(64):
        optimizer.zero_grad()
        functional.cross_entropy(net(normal(x[i])), y[i]).backward()
        optimizer.step()
    net.eval()

    outputs = {}
    for name, module in net.named_children():
        if isinstance(module, (nn.Conv2d, nn.ReLU, nn.Linear)):
            module.register_forward_hook(lambda module, i, o, name=name: outputs.__setitem__(name, o))

    def found(part):
        with torch.no_grad():
            outputs["input"] = normal(part)
            net(outputs["input"])
        return {name: slots(output) for name, output in sorted(outputs.items())}

    places = {name: Place(name, one) for name, one in found(x[10000:11000]).items()}
    sets = {"reference": (x[10000:20000], y[10000:20000]), "further": (x[20000:45000], y[20000:45000])}
    for kind, levels in CORRUPTIONS.items():
        for severity, level in enumerate(levels, 1):
            sets[f"{kind} {severity}"] = (corrupt(test[:1000], kind, level), test_labels[:1000])
    for name, (data, _) in sets.items():
        for part in data.split(250):
            for place, one in found(part).items():
                places[place].count(name, one)

    with open(file, "wb") as out:
        out.write(struct.pack("<QQ", len(sets), len(places)))
        for name, (_, of_set) in sets.items():
            out.write(struct.pack("<Q", len(name)) + name.encode() + struct.pack("<Q", len(of_set)))
            out.write(of_set.numpy().astype(numpy.uint8).tobytes())
        for name, place in places.items():
            out.write(struct.pack("<Q", len(name)) + name.encode() + struct.pack("<Q", len(place.bins)))
            out.write(numpy.array(place.bins, "<f8").T.tobytes())
            for part in sets:
                out.write(numpy.concatenate(place.parts[part]).astype("<u2").tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
