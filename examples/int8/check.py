#!/usr/bin/env python3
"""Checks what examples/int8 calculated, and draws it.

usage: check.py FOLDER [--data FOLDER] [--picture FILE]

Rebuilds each network in PyTorch from the saved parameters and runs the calibration images through it, in float32 as the
program did. Compares with what torch.ao's observers and NumPy say of these activations:
  - ranges: the recorded minima and maxima, which may differ by 1e-5 of the largest value, as other machines round
    otherwise;
  - min_max: scale and zero point of MinMaxObserver for the recorded range, and of PerChannelMinMaxObserver for weights:
    the same bits;
  - percentile: between the activations of the ranks around it, to the width of the recorded bins, 1/64 of a value;
  - mse: where no activation is zero, HistogramObserver's own estimate of the error in the recorded distribution, which is at
    most a thousandth larger than with the bounds that it finds there itself. It takes zeros for values that are rounded,
    although they are exact, and ends its search at the first step that is worse, which depends on the bins: the mean squared
    error on the activations is at most a tenth larger than with the bounds that it finds in these;
  - entropy: the loss of the chosen threshold by the divergence of the activations' own histogram, which may exceed the
    least one by 5 % and one hundredth.
Then rounds activations and weights with the parameters in the files by hooks of PyTorch's own: as many test images have to be
right, but for 0.5 % of them. So many have to be right in the file in int8, run by Python.
"""

import argparse
import json
import math
import pathlib
import sys
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.ao.quantization.observer import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fashion_mnist"))
import check as fashion  # noqa: E402

METHODS = ("min_max", "percentile", "mse", "entropy")
RANGES = {"int8": (-128, 127), "int4": (-8, 7)}
BATCH, MIXED = 64, "mixed.mse"
MANTISSA = 2.0**-6  # the width of a recorded bin, relative to its values

load, report, require = fashion.load, fashion.report, fashion.require


def classifier():
    layers = OrderedDict()
    sizes = {"conv1": (1, 16), "conv2": (16, 32), "fc1": (1568, 64), "fc2": (64, 10)}
    for name, kind in fashion.MODULES.items():
        layers[name] = {
            "Conv2d": lambda: nn.Conv2d(*sizes[name], 5, padding=2),
            "ReLU": nn.ReLU,
            "MaxPool2d": lambda: nn.MaxPool2d(2),
            "Flatten": nn.Flatten,
            "Linear": lambda: nn.Linear(*sizes[name]),
        }[kind]()
    return nn.Sequential(layers)


def resnet():
    """torchvision's, whose batch norms are folded into the convolutions."""
    import torchvision

    model = torchvision.models.resnet18(weights=None, num_classes=10)
    for path, module in list(model.named_modules()):
        if isinstance(module, (nn.BatchNorm2d, nn.Conv2d)):
            parent, _, name = path.rpartition(".")
            if isinstance(module, nn.BatchNorm2d):
                new = nn.Identity()
            else:
                new = nn.Conv2d(
                    module.in_channels, module.out_channels, module.kernel_size, module.stride, module.padding
                )
            setattr(model.get_submodule(parent), name, new)
    return model


def rebuilt(model, parameters):
    wanted = model.state_dict()
    model.load_state_dict({name: parameters[name] for name in wanted})
    return model.eval().requires_grad_(False)


def activations(model, paths, images):
    """The input of conv1, and the outputs of these modules over all calls, one flat tensor each."""
    seen = {path: [] for path in ["images", *paths]}
    hooks = [model.conv1.register_forward_pre_hook(lambda module, inputs: seen["images"].append(inputs[0].clone()))]
    for path in paths:  # in-place modules may follow
        hook = lambda module, inputs, output, path=path: seen[path].append(output.clone())  # noqa: E731
        hooks.append(model.get_submodule(path).register_forward_hook(hook))
    for batch in images.split(BATCH):
        model(batch)
    for hook in hooks:
        hook.remove()
    return {path: torch.cat([values.flatten() for values in calls]) for path, calls in seen.items()}


class FakeQuantized:
    """The model with the tensors in a file rounded, by PyTorch alone."""

    def __init__(self, model, tensors):
        self.hooks, self.weights = [], []
        for tensor in tensors:
            module = model.get_submodule(tensor["path"])
            numbers = tensor["scale"], tensor["zero_point"], *RANGES[tensor["dtype"]]
            if tensor["kind"] == "input":
                hook = lambda module, inputs, q=numbers: (torch.fake_quantize_per_tensor_affine(inputs[0], *q),)  # noqa: E731
                self.hooks.append(module.register_forward_pre_hook(hook))
            else:
                hook = lambda module, inputs, output, q=numbers: torch.fake_quantize_per_tensor_affine(output, *q)  # noqa: E731
                self.hooks.append(module.register_forward_hook(hook))
            weight = getattr(module, "weight", None)
            if weight is not None and "weights" in tensor:
                scale = weight_scale(weight, tensor["weights"])
                zero, range_ = torch.zeros(len(scale), dtype=torch.int32), RANGES[tensor["weights"]]
                self.weights.append((weight, weight.clone()))
                weight.copy_(torch.fake_quantize_per_channel_affine(weight, scale, zero, 0, *range_))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()
        for weight, original in self.weights:
            weight.copy_(original)


def observed(observer, *values):
    for value in values:
        observer(value)
    scale, zero_point = observer.calculate_qparams()
    return scale, zero_point


def limits(name):
    low, high = RANGES[name]
    return {"dtype": torch.qint8, "quant_min": low, "quant_max": high}


def weight_scale(weight, name):
    observer = PerChannelMinMaxObserver(qscheme=torch.per_channel_symmetric, ch_axis=0, **limits(name))
    return observed(observer, weight.detach())[0]


def histogram_observer(name):
    observer = HistogramObserver(**limits(name))
    observer.dst_nbins = 1 + RANGES[name][1] - RANGES[name][0]  # it would count those of the dtype
    return observer


def histogram_range(values, name):
    """The bounds that HistogramObserver chooses for the activations."""
    observer = histogram_observer(name)
    observer(values)
    return [float(bound) for bound in observer._non_linear_param_search()]


def recorded_errors(recorded, name, low, high):
    """What HistogramObserver takes for the error of two bounds and of those that it finds, in a recorded distribution without
    zeros."""
    observer = histogram_observer(name)
    least, largest = (float(recorded[f"{end}.value"]) for end in ("min", "max"))
    counts, begin, end = (recorded[f"log_histogram.{part}"].double().numpy() for part in ("counts", "low", "high"))
    for outermost in np.flatnonzero(counts)[[0, -1]]:
        counts[outermost] -= 1  # the value at the bound, which is known
    begin, end, passed = begin.clip(least, largest), end.clip(least, largest), counts.cumsum()
    edges = np.linspace(least, largest, observer.bins + 1)  # of equal bins, which the observer has
    below = np.interp(edges, np.stack([begin, end], 1).ravel(), np.stack([passed - counts, passed], 1).ravel())
    histogram = np.diff(below)
    histogram[[0, -1]] += 1
    observer.histogram = torch.tensor(histogram.astype(np.float32))
    observer.min_val, observer.max_val = torch.tensor(least), torch.tensor(largest)
    found = [float(bound) for bound in observer._non_linear_param_search()]
    first, last, its_first, its_last = (round((x - least) / (edges[1] - edges[0])) for x in (low, high, *found))
    return (
        observer._compute_quantization_error(first, last - 1),
        observer._compute_quantization_error(its_first, its_last - 1),
    )


def mean_squared_error(values, tensor, low, high):
    """Of rounding the values with the parameters that follow from a range."""
    scale, zero_point = observed(MinMaxObserver(**limits(tensor["dtype"])), torch.tensor([low, high]))
    rounded = torch.fake_quantize_per_tensor_affine(values, float(scale), int(zero_point), *RANGES[tensor["dtype"]])
    return float((rounded - values).double().square().mean())


def divergences(values, levels):
    """For each number of 2048 equal bins of magnitudes, how much is lost if all beyond goes to the last of them, and these are
    merged to `levels`: the Kullback-Leibler divergence. Zeros are no loss, so that the first bin counts as the second."""
    counts, edges = np.histogram(np.abs(values), 2048, (0, np.abs(values).max()))
    counts = counts.astype(np.float64)
    counts[0] = counts[1]
    result = {}
    for n in range(levels, 2049):
        kept = counts[:n]
        p = kept.copy()
        p[-1] += counts[n:].sum()
        if kept[-1] == 0 and p[-1] > 0:
            continue
        part = np.arange(n) * levels // n
        mass = np.bincount(part, kept, levels)
        used = np.bincount(part, kept > 0, levels)
        q = np.where(kept > 0, (mass / np.maximum(used, 1))[part], 0)
        p, q = p / p.sum(), q / q.sum()
        some = p > 0
        result[edges[n]] = float((p[some] * np.log(p[some] / q[some])).sum())
    return result


class Worst:
    """The largest difference of each kind, for one line each."""

    def __init__(self):
        self.kinds = {}

    def note(self, kind, difference, tolerance):
        self.kinds[kind] = max(self.kinds.get(kind, (0.0, tolerance)), (float(difference), tolerance))

    def report(self, network):
        for kind, (difference, tolerance) in self.kinds.items():
            report(f"{network}  {kind}", difference, tolerance)


def check_tensor(worst, what, method, tensor, values, recorded):
    name, low, high = tensor["dtype"], tensor["low"], tensor["high"]
    scale, zero_point = observed(MinMaxObserver(**limits(name)), torch.tensor([low, high]))
    worst.note(f"{what}  scale", abs(float(scale) - np.float32(tensor["scale"])), 0)
    worst.note(f"{what}  zero point", abs(int(zero_point) - tensor["zero_point"]), 0)
    width = float(recorded["max.value"] - recorded["min.value"])
    least, largest = float(values.min()), float(values.max())
    if method == "min_max":
        difference = abs(low - float(recorded["min.value"])) + abs(high - float(recorded["max.value"]))
        worst.note(f"{what}  the recorded range", difference, 0)
        worst.note(f"{what}  the activations' range", (abs(low - least) + abs(high - largest)) / width, 1e-5)
    elif method == "percentile":
        for bound, q in (low, 0.5e-4), (high, 1 - 0.5e-4):
            least_rank = max(math.floor(q * len(values)) - 1, 0)
            most_rank = min(math.ceil(q * len(values)), len(values) - 1)
            ranked = np.partition(values.numpy(), (least_rank, most_rank))
            beyond = max(ranked[least_rank] - bound, bound - ranked[most_rank], 0)
            worst.note(f"{what}  quantiles, in bins", beyond / max(MANTISSA * abs(bound), 1e-6 * width), 1.01)
    elif method == "mse":
        if int(recorded["log_histogram.zeros"]) == 0:
            mine, its = recorded_errors(recorded, name, low, high)
            worst.note(f"{what}  recorded error over torch.ao's", mine / its, 1.05)
        mine, its = (mean_squared_error(values, tensor, *ends) for ends in ((low, high), histogram_range(values, name)))
        worst.note(f"{what}  error over torch.ao's", mine / its, 1.1)
    else:
        magnitudes = divergences(values.numpy(), -RANGES[name][0])
        chosen = min(magnitudes, key=lambda threshold: abs(threshold - max(-low, high)))
        best = min(magnitudes.values())
        worst.note(f"{what}  divergence above the least", magnitudes[chosen] - 1.05 * best, 0.01)


def right_of(model, images, labels):
    return sum(int(model(x).argmax(1).eq(y).sum()) for x, y in zip(images.split(BATCH), labels.split(BATCH)))


def few(labels):
    return math.ceil(0.005 * len(labels))


def check_accuracy(model, folder, images, labels):
    results = load(folder / "results.pt")
    differences = {"float": abs(right_of(model, images, labels) - int(results["float"]))}
    for file in sorted(folder.glob("int*.json")) + [folder / f"{MIXED}.json"]:
        with FakeQuantized(model, json.loads(file.read_text())["tensors"]):
            differences[file.stem] = abs(right_of(model, images, labels) - int(results[file.stem]))
    for name, difference in differences.items():
        report(f"{folder.name}  right with {name}, images", difference, few(labels))


def check(folder, model, calibration, test, labels):
    print()
    parameters = load(folder / "parameters.pt")
    model = rebuilt(model, parameters)
    recorded = {}
    for part in "images", "outputs":
        for entry in json.loads((folder / part / "manifest.json").read_text())["entries"]:
            if entry["samples"]:
                path = "images" if part == "images" else entry["path"]
                recorded[path] = load(folder / part / entry["file"])
    paths = [path for path in recorded if path != "images"]
    values = activations(model, paths, calibration)

    worst = Worst()
    for path, numbers in recorded.items():
        counted = sum(int(numbers[f"log_histogram.{part}"].sum()) for part in ("counts", "zeros"))
        worst.note("number of values", abs(counted - values[path].numel()), 0)
    for name in RANGES:
        for method in METHODS:
            content = json.loads((folder / f"{name}.{method}.json").read_text())
            found = {tensor["path"]: tensor for tensor in content["tensors"] if tensor["kind"] == "output"}
            require(f"{folder.name}  tensors of {name}.{method}", list(found) == paths and content["method"] == method)
            for path in paths:
                check_tensor(worst, f"{name} {method}", method, found[path], values[path], recorded[path])
            (images,) = (tensor for tensor in content["tensors"] if tensor["kind"] == "input")
            check_tensor(worst, "images", "min_max", images, values["images"], recorded["images"])
    scales = load(folder / "weight_scales.pt")
    for name in RANGES:
        for path in paths:
            if f"{path}.weight" in parameters:
                want = weight_scale(parameters[f"{path}.weight"], name)
                worst.note(f"{name}  scales of weights", (scales[f"{name}.{path}.weight"] - want).abs().max(), 0)
    worst.report(folder.name)
    check_accuracy(model, folder, test, labels)
    return paths


def draw(path, folders, tests):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "int8", "font.size": 9})
    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    colours = {"min_max": "#8d99ae", "percentile": "#f4a261", "mse": "#1d6fa5", "entropy": "#c8553d"}
    titles = {"classifier": "Classifier", "script": "torchvision's ResNet-18"}
    sizes = [max(len(paths), 8) for paths in folders.values()]
    figure, axes = pyplot.subplots(
        2, len(folders), figsize=(11, 6.2), sharex="col", sharey="row", squeeze=False, layout="constrained",
        gridspec_kw={"width_ratios": sizes},
    )  # fmt: skip
    figure.suptitle("Squared error of the scores, relative to the scores, if one layer alone is rounded")
    for column, (folder, paths) in zip(axes.T, folders.items()):
        results = load(folder / "results.pt")
        for axis, name in zip(column, RANGES):
            for method, colour in colours.items():
                costs = [max(float(results[f"cost.{name}.{method}.{path}"]), 1e-9) for path in paths]
                right = 100 * int(results[f"{name}.{method}"]) / tests
                axis.plot(costs, "o-", color=colour, markersize=3.5, linewidth=1, label=f"{method}: {right:.1f} %")
            axis.set(yscale="log", title=f"{titles[folder.name]}, {name}")
            axis.grid(axis="y", color="#e6e8ee")
            in_float = 100 * int(results["float"]) / tests
            title = f"all layers rounded, right of {tests}\n(in float: {in_float:.1f} %)"
            axis.legend(frameon=False, fontsize=7.5, title=title, title_fontsize=7.5, loc="lower left")
        column[1].set_xticks(range(len(paths)), paths, rotation=90, fontsize=7)
    for row in axes:  # room for the legends
        costs = [cost for axis in row for line in axis.lines for cost in line.get_ydata()]
        row[0].set_ylim(min(costs) / 200, 2 * max(costs))
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description="Checks what examples/int8 calculated.")
    parser.add_argument("folder", type=pathlib.Path, help="what was given to int8 as --save")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="where Fashion-MNIST is")
    parser.add_argument("--picture", help="the picture to draw: FILE.svg, FILE.png")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)

    def images(name, most):
        read = fashion.read_idx(arguments.data, f"{name}-images-idx3-ubyte", most)
        return ((read.float() / 255 - 0.2860) / 0.3530).unsqueeze(1)

    counts = load(arguments.folder / "counts.pt")
    calibration, test = images("train", int(counts["calibration"])), images("t10k", int(counts["test"]))
    labels = fashion.read_idx(arguments.data, "t10k-labels-idx1-ubyte", len(test))
    print(f"{'what':44} {'difference':>12} {'tolerated':>12}")
    folders = {}
    folder = arguments.folder / "classifier"
    folders[folder] = check(folder, classifier(), calibration, test, labels)
    folder = arguments.folder / "script"
    if folder.exists():
        colours = (calibration.expand(-1, 3, -1, -1), test.expand(-1, 3, -1, -1))
        folders[folder] = check(folder, resnet(), *colours, labels)
        right = right_of(torch.jit.load(folder / "int8.pt"), colours[1], labels)  # in LibTorch's operators
        report("script  right with int8.pt, images", abs(right - int(load(folder / "int8_right.pt"))), few(labels))
    if arguments.picture:
        draw(arguments.picture, folders, len(labels))
    print(f"\n{len(fashion.failed)} are wrong." if fashion.failed else "\nPython computes the same.")
    return 1 if fashion.failed else 0


if __name__ == "__main__":
    sys.exit(main())
