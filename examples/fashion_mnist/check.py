#!/usr/bin/env python3
"""Checks the recordings of examples/fashion_mnist against an independent computation.

usage: check.py FOLDER [--data FOLDER]

Reads every file with torch.load(weights_only=True), rebuilds the classifier from the saved parameters, runs the same
test images through it in float64, and compares sums, means per class, moments, histograms, extrema and counts. Repeats
the first and the last training step and compares the gradients. Prints the largest differences beside their tolerances,
and exits with status 1 if one is exceeded.

The recordings were computed in float32, so they differ from float64 by rounding. The tolerances are:
  - for values, 1e-5 of the largest value (1e-4 for skewness, kurtosis, gradients);
  - for counts of values (bins, zeros), 1e-5 of all values, as values on an edge may be counted elsewhere;
  - for other counts, zero.
"""

import argparse
import gzip
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

MODULES = {
    "conv1": "Conv2d",
    "relu1": "ReLU",
    "pool1": "MaxPool2d",
    "conv2": "Conv2d",
    "relu2": "ReLU",
    "pool2": "MaxPool2d",
    "flatten": "Flatten",
    "fc1": "Linear",
    "relu3": "ReLU",
    "fc2": "Linear",
}
VALUES, SHAPES, EDGES = 1e-5, 1e-4, 1e-5

failed = []


def report(what, difference, tolerance):
    good = difference <= tolerance
    if not good:
        failed.append(what)
    print(f"{what:44} {difference:12.2e} {tolerance:12.0e}   {'ok' if good else 'WRONG'}")


def relative(got, want):
    """Returns the largest difference divided by the largest value."""
    got, want = got.double(), want.double()
    if got.shape != want.shape or not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got - want).abs().max() / want.abs().max().clamp_min(1e-30))


def require(what, condition):
    if not condition:
        report(what, math.inf, 0)


def forward(parameters, images):
    """Returns the output of each module."""
    x, outputs = images, {}
    for name, kind in MODULES.items():
        weight, bias = parameters.get(f"{name}.weight"), parameters.get(f"{name}.bias")
        if kind == "Conv2d":
            x = F.conv2d(x, weight, bias, padding=2)
        elif kind == "ReLU":
            x = F.relu(x)
        elif kind == "MaxPool2d":
            x = F.max_pool2d(x, 2)
        elif kind == "Flatten":
            x = x.flatten(1)
        else:
            x = F.linear(x, weight, bias)
        outputs[name] = x
    return outputs


def read_idx(folder, name, most):
    """Returns the first `most` entries of an idx file of bytes, plain or gzip."""
    path = pathlib.Path(folder, name)
    content = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    dimensions = content[3]
    sizes = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    data = torch.frombuffer(bytearray(content[4 + 4 * dimensions :]), dtype=torch.uint8)
    return data.reshape(sizes)[:most]


def load(path):
    return torch.load(path, weights_only=True)


def recording(folder, kind, expected):
    """Returns the values of a recording by path. `expected`: for each path, in order, type and samples."""
    manifest = json.loads((folder / "manifest.json").read_text())
    found = [(e["path"], e["type"], e["kind"], e["samples"]) for e in manifest["entries"]]
    require(f"{folder.name}: manifest", found == [(path, MODULES[path], kind, n) for path, n in expected.items()])
    return {e["path"]: load(folder / e["file"]) for e in manifest["entries"] if e["file"]}


class Statistics:
    """Accumulates sums of powers, extrema and counts of all outputs of one module, in float64."""

    def __init__(self, edges=None):
        self.powers = [0.0] * 5
        self.least, self.most, self.zeros = math.inf, -math.inf, 0
        self.edges = edges
        self.bins = torch.zeros(len(edges) - 1, dtype=torch.int64) if edges is not None else None

    def update(self, x):
        x = x.flatten()
        power = torch.ones((), dtype=torch.float64)
        for k in range(5):
            self.powers[k] += float(power.sum()) if k > 0 else x.numel()
            power = power * x
        self.least = min(self.least, float(x.min()))
        self.most = max(self.most, float(x.max()))
        self.zeros += int((x == 0).sum())
        if self.edges is not None:
            # The edges are exact multiples of a power of two, so this finds the bin exactly.
            bins = torch.floor((x - self.edges[0]) / (self.edges[1] - self.edges[0])).long()
            self.bins += torch.bincount(bins.clamp(0, len(self.bins) - 1), minlength=len(self.bins))

    def moments(self):
        n, *sums = self.powers
        m1, m2, m3, m4 = (s / n for s in sums)
        variance = m2 - m1**2
        third = m3 - 3 * m1 * m2 + 2 * m1**3
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        return {
            "mean": m1,
            "variance": variance * n / (n - 1),
            "skewness": third / variance**1.5,
            "kurtosis": fourth / variance**2 - 3,
        }


def check_testing(folder, run, data):
    parameters = {name: tensor.double() for name, tensor in load(folder / "parameters.pt").items()}
    images = (read_idx(data, "t10k-images-idx3-ubyte", run["test"]).double() / 255 - 0.2860) / 0.3530
    labels = read_idx(data, "t10k-labels-idx1-ubyte", run["test"]).long()
    require("number of test images", len(images) == len(labels) == run["test"])
    batches = -(-run["test"] // run["test_batch"])

    linears = recording(folder / "linear_inputs", "ForwardPre", {"fc1": batches, "fc2": batches})
    relus = recording(folder / "relus", "ForwardOutput", {n: batches for n in MODULES if n.startswith("relu")})
    outputs = recording(folder / "outputs", "ForwardOutput", {name: batches for name in MODULES})
    means = recording(folder / "class_means", "ForwardOutput", {"relu3": batches})["relu3"]

    edges = {name: relus[name]["histogram.edges"] for name in relus}
    statistics = {name: Statistics(edges.get(name)) for name in MODULES}
    sums = {"fc1": 0, "fc2": 0}
    class_sums = torch.zeros(10, 64, dtype=torch.float64)
    right = 0
    for x, y in zip(images.unsqueeze(1).split(200), labels.split(200)):  # not the batches the example ran
        out = forward(parameters, x)
        for name, tensor in out.items():
            statistics[name].update(tensor)
        sums["fc1"] = sums["fc1"] + out["flatten"].sum(0)
        sums["fc2"] = sums["fc2"] + out["relu3"].sum(0)
        class_sums.index_add_(0, y, out["relu3"])
        right += int((out["fc2"].argmax(1) == y).sum())

    report("right answers, per image", abs(right - run["right"]) / run["test"], 2e-4)
    for name, want in sums.items():
        report(f"linear_inputs  {name}  sum", relative(linears[name], want), VALUES)
    for label in range(10):
        rows, got = int((labels == label).sum()), means["value"][label]
        require(f"class_means  class {label}  rows", int(means["labels.count"][label]) == rows)
        if rows:
            report(f"class_means  class {label}  mean", relative(got, class_sums[label] / rows), VALUES)
        else:
            require(f"class_means  class {label}  empty", bool(got.isnan().all()))
    for name in relus:
        got, want = relus[name], statistics[name]
        for key, value in want.moments().items():
            tolerance = VALUES if key in ("mean", "variance") else SHAPES
            report(f"relus  {name}  {key}", relative(got[f"moments.{key}"], torch.tensor(value)), tolerance)
        counts, width = got["histogram.counts"], edges[name].diff()
        moved = (counts - want.bins).abs().sum() / 2 / want.powers[0]
        report(f"relus  {name}  histogram", float(moved), EDGES)
        require(
            f"relus  {name}  every value is in a bin",
            int(counts.sum()) == want.powers[0]
            and float(got["histogram.underflow"])
            == 0
            == float(got["histogram.overflow"])
            == float(got["histogram.nan"]),
        )
        require(
            f"relus  {name}  edges",
            bool((width == width[0]).all())
            and math.frexp(float(width[0]))[0] == 0.5
            and want.most <= float(edges[name][-1]) * (1 + VALUES),
        )

    # The numbers of the table: the largest difference over all modules.
    worst = {}
    for name, want in statistics.items():
        got = outputs[name]
        scale = max(abs(want.least), abs(want.most))
        shape = tuple(forward(parameters, images[:1].unsqueeze(1))[name].shape[1:])
        require(f"outputs  {name}  shape", tuple(got["last.value"].shape) == shape)
        require(f"outputs  {name}  elements", int(got["count.elements"]) == want.powers[0])
        differences = {
            "min": abs(float(got["min.value"]) - want.least) / scale,
            "max": abs(float(got["max.value"]) - want.most) / scale,
            "zeros": abs(int(got["count.zeros"]) - want.zeros) / want.powers[0],
            "nan, inf": int(got["count.nan"]) + int(got["count.inf"]),
        }
        moments = want.moments()
        deviation = math.sqrt(moments["variance"])
        differences["mean"] = abs(float(got["moments.mean"]) - moments["mean"]) / deviation
        differences["variance"] = abs(float(got["moments.variance"]) / moments["variance"] - 1)
        for key, difference in differences.items():
            worst[key] = max(worst.get(key, 0), difference)
    for key, difference in worst.items():
        report(f"outputs  all modules  {key}", difference, {"zeros": EDGES, "nan, inf": 0}.get(key, VALUES))


def check_training(folder, run):
    layers = [name for name, kind in MODULES.items() if kind in ("Conv2d", "Linear")]
    gradients = recording(folder / "gradients", "BackwardOutput", {name: run["steps"] for name in layers})
    epoch = -(-run["samples"] // run["batch"])
    require("gradients  steps", run["steps"] == run["epochs"] * epoch)
    for name in layers:
        norms = torch.stack(gradients[name])
        require(
            f"gradients  {name}  numbers",
            norms.shape == (run["steps"],) and bool(torch.isfinite(norms).all()) and bool((norms > 0).all()),
        )
    for which, index in ("first", 0), ("last", -1):
        step = load(folder / f"{which}_step.pt")
        parameters = {name: tensor.double() for name, tensor in step["parameters"].items()}
        leaves = {name: tensor.requires_grad_() for name, tensor in parameters.items()}
        out = forward(leaves, step["images"].double())
        loss = F.cross_entropy(out["fc2"], step["labels"])
        wanted = torch.autograd.grad(loss, [out[name] for name in layers])
        for name, gradient in zip(layers, wanted):
            report(f"gradients  {name}  {which} step", relative(gradients[name][index], gradient.norm()), SHAPES)


def main():
    parser = argparse.ArgumentParser(description="Checks what examples/fashion_mnist recorded.")
    parser.add_argument("folder", type=pathlib.Path, help="what was given to fashion_mnist as --save")
    parser.add_argument("--data", help="where Fashion-MNIST is (as in the run)")
    arguments = parser.parse_args()
    run = json.loads((arguments.folder / "run.json").read_text())
    print(f"{'what':44} {'difference':>12} {'tolerated':>12}")
    with torch.no_grad():
        check_testing(arguments.folder, run, arguments.data or run["data"])
    check_training(arguments.folder, run)
    if failed:
        print(f"\n{len(failed)} of the recorded numbers are wrong: " + "; ".join(failed))
        return 1
    print("\nThe recordings are what Python computes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
