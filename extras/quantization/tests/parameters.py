"""Compares scales and zero points with torch.ao's observers, and with percentiles and divergences of its own.

usage: parameters.py write DIRECTORY     tensors that the C++ test takes: activations of Fashion-MNIST, and random ones
       parameters.py check DIRECTORY     NAME.pt for each tensor: what a reduction has counted, and for each method,
                                         dtype and symmetry the parameters that were made of it
"""

import copy
import gzip
import os
import pathlib
import sys
import warnings

import numpy as np
import torch
from torch.ao.quantization.observer import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver

EVEN = 2048
data = pathlib.Path(os.environ.get("TORCHTAP_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))


def images(count):
    """The first test images, [count, 1, 28, 28]; noise of the same kind where there are none."""
    path = data / "t10k-images-idx3-ubyte.gz"
    if path.exists():
        with gzip.open(path) as file:
            pixels = np.frombuffer(file.read(16 + count * 784), np.uint8, offset=16).copy()
    else:
        noise = np.random.default_rng(1).normal(60, 90, count * 784)
        pixels = np.clip(noise, 0, 255).astype(np.uint8)
    return torch.from_numpy(pixels).float().reshape(count, 1, 28, 28) / 255


def write(directory):
    torch.manual_seed(7)
    inputs = images(256)
    first, second = torch.nn.Conv2d(1, 8, 3), torch.nn.Conv2d(8, 12, 3, stride=2)
    with torch.no_grad():
        convolved = first(inputs)
        rectified = convolved.relu()
        convolved2 = second(rectified)
        logits = torch.nn.Linear(12 * 12 * 12, 10)(convolved2.relu().flatten(1))
    heavy = torch.distributions.StudentT(2.0).sample((64, 4, 500)) * torch.tensor([1.0, 0.1, 10.0, 1e-4])[:, None]
    outliers = torch.randn(64, 3, 400)
    outliers[3, 1, 7] = 900.0
    whole = torch.randn(64, 3, 400).clamp(-5, 7)  # bounds are integers, for observers that truncate them
    whole[0, 0, :2] = torch.tensor([-5.0, 7.0])
    gelu = torch.nn.functional.gelu(torch.randn(64, 6, 300) * 2)
    mixed = torch.randn(8, 5, 100)
    mixed[:, 1] = 0.0
    mixed[:, 2] = -2.5
    mixed[:, 3] = mixed[:, 3].abs() + 1
    mixed[:, 4] *= 1e-9
    tensors = {
        "images": inputs,
        "convolved": convolved,
        "rectified": rectified,
        "convolved2": convolved2,
        "logits": logits,
        "heavy": heavy,
        "outliers": outliers,
        "whole": whole,
        "gelu": gelu,
        "mixed": mixed,
        "large": torch.randn(16, 3, 50) * 1e9,
        "small": torch.rand(16, 3, 50) * 1e-6,
        "half": torch.randn(32, 2, 64).half(),
        "few": torch.tensor([[-1.0, 0.25], [3.0, 0.5]]),
    }
    torch.save(tensors, directory / "tensors.pt")


def settings(key):
    symmetric = key["symmetric"]
    dtype = torch.quint8 if key["dtype"] == "uint8" else torch.qint8
    quant = {"quant_min": -8, "quant_max": 7} if key["dtype"] == "int4" else {}
    return dtype, symmetric, quant


def observed(observer, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        observer(x)
        return observer.calculate_qparams()


def check_min_max(x, key, got):
    dtype, symmetric, quant = settings(key)
    if key["channels"]:
        scheme = torch.per_channel_symmetric if symmetric else torch.per_channel_affine
        observer = PerChannelMinMaxObserver(ch_axis=1, dtype=dtype, qscheme=scheme, **quant)
    else:
        scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
        observer = MinMaxObserver(dtype=dtype, qscheme=scheme, **quant)
    scale, zero_point = observed(observer, x)
    assert torch.equal(got["scale"].reshape(-1), scale), (key, got, scale)
    assert torch.equal(got["zero_point"].reshape(-1).long(), zero_point.long()), (key, got, zero_point)
    assert torch.equal(got["low"], observer.min_val) and torch.equal(got["high"], observer.max_val), key


def search(observer, fixed, dtype):
    """The range that torch.ao chooses for these counts, however its version makes counts of data."""
    torch.set_default_dtype(dtype)
    observer = copy.deepcopy(observer)
    observer.histogram = fixed["counts"].to(dtype)
    observer.min_val, observer.max_val = fixed["edges"][0].to(dtype), fixed["edges"][-1].to(dtype)
    ends = [end.float() for end in observer._non_linear_param_search()]
    torch.set_default_dtype(torch.float32)
    return ends


class Bins:
    """What a reduction has counted: the ends and counts of bins in ascending order, zeros as a bin [0, 0]."""

    def __init__(self, results):
        named = {name.split(".")[-1]: tensor.double().numpy() for name, tensor in results.items()}
        if "rows" in named:  # of Blocks
            named |= {"counts": named["counts"].sum(0), "zeros": named["zeros"].sum()}
        low, high = (named["edges"][:-1], named["edges"][1:]) if "edges" in named else (named["low"], named["high"])
        bins = [*zip(low, high, named["counts"]), (0.0, 0.0, float(named.get("zeros", 0)))]
        used = sorted(bin for bin in bins if bin[2] > 0)
        self.bins = np.array([bin for bin in sorted(bins) if used[0] <= bin <= used[-1]])
        for names, row, column, bound in (("min.value", "min"), 0, 0, np.min), (("max.value", "max"), -1, 1, np.max):
            for name, tensor in results.items():
                if name.endswith(names):
                    self.bins[row, column] = bound(tensor.double().numpy())
        self.low, self.high, self.counts = self.bins.T
        self.total = self.counts.sum()

    def width(self, x):
        """Of the bins beside x."""
        beside = (self.low <= x * (1 + 1e-6 * np.sign(x))) & (self.high >= x * (1 - 1e-6 * np.sign(x)))
        return float((self.high - self.low)[beside].max(initial=0.0))

    def magnitudes(self):
        """Bins of the absolute values, which may overlap."""
        parts = []
        for low, high, count in self.bins:
            if low == high:
                parts.append((abs(low), abs(low), count))
                continue
            density = count / (high - low)
            if low < 0:
                parts.append((max(-high, 0.0), -low, density * (min(high, 0.0) - low)))
            if high > 0:
                parts.append((max(low, 0.0), high, density * (high - max(low, 0.0))))
        return parts


def percentile_range(bins, percent, symmetric):
    """By interpolation in the cumulative counts."""

    def end(bins, rest):
        """What is left when the first `rest` of the counts of bins are taken off."""
        for low, high, count in bins:
            if count > rest * (1 + 1e-12) + 1e-12:
                return low + (high - low) * (rest / count)
            rest -= count
        return bins[-1][1]

    clipped = bins.total * (100 - percent) / 100
    if not symmetric:
        return end(bins.bins, clipped / 2), end(bins.bins[::-1, [1, 0, 2]], clipped / 2)
    folded = bins.magnitudes()
    edges = sorted({0.0, *(edge for part in folded for edge in part[:2])})
    low, high, count = np.array(folded).T
    points = low == high
    narrow = [((low[points] == edges[0]) * count[points]).sum()]
    between = [(edges[0], edges[0], narrow[0])]
    for a, b in zip(edges, edges[1:]):
        covers = ~points & (low <= a) & (high >= b)
        between.append((a, b, (count[covers] * (b - a) / (high - low)[covers]).sum()))
        between.append((b, b, count[points & (low == b)].sum()))
    return end(np.array(between)[::-1, [1, 0, 2]], clipped)


def entropy_threshold(bins, levels):
    """The candidates one by one, as distributions of probabilities. Returns all losses."""
    folded = np.array(bins.magnitudes())
    top = folded[:, 1].max()
    counts = np.zeros(EVEN)
    edges = np.linspace(0, top, EVEN + 1)
    for low, high, count in folded:
        if high > low:
            counts += count * np.diff(np.clip((edges - low) / (high - low), 0, 1))
        else:
            counts[min(int(low / top * EVEN), EVEN - 1)] += count
    counts[counts < 1e-9] = 0  # of bins that only touch, after rounding
    counts[0] = counts[1]
    losses = np.full(EVEN + 1, np.inf)
    for n in range(levels, EVEN + 1):
        kept = counts[:n]
        reference = kept.copy()
        reference[-1] += counts[n:].sum()
        level = np.arange(n) * levels // n
        used = kept > 0
        mass = np.bincount(level, kept, levels)
        number = np.bincount(level, used, levels)
        merged = np.where(used, (mass / np.maximum(number, 1))[level], 0)
        if (merged[reference > 0] == 0).any() or merged.sum() == 0:
            continue
        p, q = reference / reference.sum(), merged / merged.sum()
        losses[n] = (p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum()
    return top, losses


def check_percentile(x, bins, key, got, cache):
    at = ("percentile", key["symmetric"])
    if at not in cache:
        cache[at] = percentile_range(bins, 99.5, key["symmetric"])
    expected = cache[at]
    if key["symmetric"]:
        most = max(abs(float(got["low"])), abs(float(got["high"])))
        assert np.isclose(most, expected, rtol=1e-5, atol=0), (key, got, expected)
    else:
        top = np.abs(expected).max()
        ends = [float(got["low"]), float(got["high"])]
        assert np.allclose(ends, expected, rtol=1e-5, atol=1e-6 * top), (key, got, expected)
        values = np.sort(x.double().numpy(), axis=None)
        place = (len(values) - 1) * 0.0025
        for end, rank in ((ends[0], place), (ends[1], len(values) - 1 - place)):
            low, high = values[[int(rank), -int(-rank // 1)]]
            width = bins.width(end) + 1e-6 * top
            assert low - width <= end <= high + width, (key, end, low, high, width)


def check_entropy(bins, key, got, cache):
    levels = 8 if key["dtype"] == "int4" else 128
    if key["kind"] not in ("fixed", "fine") and (levels == 8 or key["kind"] != "log"):
        return  # each takes long here
    if ("entropy", levels) not in cache:
        cache["entropy", levels] = entropy_threshold(bins, levels)
    top, losses = cache["entropy", levels]
    most = max(abs(float(got["low"])), abs(float(got["high"])))
    n = most / top * EVEN
    assert abs(n - round(n)) < 1e-2, (key, n)
    assert losses[round(n)] <= losses.min() + 1e-9, (key, round(n), losses.argmin(), losses[round(n)], losses.min())


def rounding_error(x, scale, zero_point, key):
    first, last = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7)}[key["dtype"]]
    rounded = torch.fake_quantize_per_tensor_affine(x.float(), float(scale), int(zero_point), first, last)
    return float((x.double() - rounded.double()).square().mean())


def check_mse(x, bins, key, got, cache):
    fixed = cache["fixed"]
    dtype, symmetric, quant = settings(key)
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    observer = HistogramObserver(dtype=dtype, qscheme=scheme, **quant)
    observer.dst_nbins = 16 if quant else 256
    if ("mse", observer.dst_nbins) not in cache:
        cache["mse", observer.dst_nbins] = search(observer, fixed, torch.float32)
    low, high = cache["mse", observer.dst_nbins]
    ends = float(got["low"]), float(got["high"])
    width = float(fixed["edges"][1] - fixed["edges"][0])
    if key["kind"] == "fixed":  # the same bins
        if max(abs(ends[0] - low), abs(ends[1] - high)) > 1e-3 * width:
            # The errors of neighbouring ranges may differ by less than float32's rounding.
            low, high = search(observer, fixed, torch.float64)
        assert max(abs(ends[0] - low), abs(ends[1] - high)) <= 1e-3 * width, (key, got, low, high)
        scale, zero_point = observer._calculate_qparams(low, high)
        assert np.isclose(float(got["scale"]), float(scale), rtol=1e-6, atol=0), (key, got, scale)
        assert int(got["zero_point"]) == int(zero_point), (key, got, zero_point)
        if key["tensor"] == "whole" and not quant:  # and with counts of its own, in float32
            observed(observer, x)
            for end, other in zip(ends, observer._non_linear_param_search()):
                assert abs(end - float(other)) <= 2 * width, (key, got, other)
        return
    # The search is that of affine parameters. It is left out for so few values that their places in bins decide.
    if key["symmetric"] or key["tensor"] in ("mixed", "few"):
        return
    # The search ends where the error first grows, which may be by chance: where it went on, or ended before, the error
    # on the data is about as low.
    within = all(abs(end - other) <= bins.width(end) + width for end, other in zip(ends, (low, high)))
    scale, zero_point = observer._calculate_qparams(low, high)
    error = rounding_error(x, got["scale"], got["zero_point"], key)
    assert within or error <= 1.05 * rounding_error(x, scale, zero_point, key), (key, got, low, high)


def check(directory):
    tensors = torch.load(directory / "tensors.pt")
    for name, x in tensors.items():
        file = torch.load(directory / f"{name}.pt")
        shared = {"fixed": file["counted"]["fixed"]}
        caches = {}
        for text, got in file["parameters"].items():
            kind, method, dtype, symmetry = text.split("/")
            key = {"tensor": name, "kind": kind, "method": method, "dtype": dtype}
            key |= {"symmetric": symmetry == "symmetric", "channels": kind.startswith("channels")}
            if method == "min_max":
                if kind.endswith(("exact", "fine", "blocks", "channels_log")):
                    check_min_max(x, key, got)
                continue
            if key["channels"]:
                continue
            cache = caches.setdefault(kind, {"bins": Bins(file["counted"][kind])})
            bins = cache["bins"]
            if method == "percentile":
                check_percentile(x, bins, key, got, cache)
            elif method == "entropy":
                check_entropy(bins, key, got, cache)
            else:
                check_mse(x, bins, key, got, shared)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
