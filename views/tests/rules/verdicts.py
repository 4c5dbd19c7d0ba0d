#!/usr/bin/env python3
"""Judges facts by the rules, as views/rules/README.md states them, with NumPy.

usage: verdicts.py FACTS.json FINDINGS.txt

FACTS.json is a list of models, each a list of facts in the order of execution. A line of FINDINGS.txt is the number of
the model, that of the facts, the rule, its value and limit."""

import json
import sys

import numpy

RELUS = {"ReLU", "ReLU6", "Threshold"}
BOTH_SIDES = {"Tanh", "Softsign", "Hardtanh"}
ONE_SIDE = {"Sigmoid", "Hardsigmoid"}


def known(facts, name):
    value = facts.get(name)
    return numpy.nan if value is None else value


def share_beyond(at, mean):
    """Of numbers between 0 and 1 whose density is exponential, with this mean."""
    if mean <= 0 or mean >= 1:
        return float(mean >= 1)
    low, high = -1e4, 1e4
    with numpy.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for _ in range(100):
            rate = (low + high) / 2
            half = numpy.reciprocal(-numpy.expm1(-abs(rate))) - numpy.reciprocal(abs(rate))
            now = 0.5 + rate / 12 if abs(rate) < 1e-4 else half if rate > 0 else 1 - half
            low, high = (rate, high) if now < mean else (low, rate)
        if abs(low) < 1e-4:
            return 1 - at
        if low > 0:
            return (1 - numpy.exp(low * (at - 1))) / (1 - numpy.exp(-low))
        return (numpy.exp(low) - numpy.exp(low * at)) / numpy.expm1(low)


def share_of_format(facts, least, most):
    """Of the values that are not zero: those that are smaller than `least` or larger than `most`."""
    bins = numpy.array(facts["bins"], dtype=float).reshape(-1, 3)
    if len(bins) == 0 or not bins[:, 2].sum() > 0:
        return numpy.nan
    low, high, counts = bins.T

    def inside(limit):
        overlap = numpy.clip(high, -limit, limit) - numpy.clip(low, -limit, limit)
        with numpy.errstate(invalid="ignore", divide="ignore"):
            return numpy.where(numpy.isfinite(high - low), overlap / (high - low), 0)

    return (counts * (inside(least) + 1 - inside(most))).sum() / counts.sum()


def share_outside(facts, low, high):
    bins = numpy.array(facts["bins"], dtype=float).reshape(-1, 3)
    zeros, count = numpy.nan_to_num(known(facts, "zeros")), known(facts, "count")
    if len(bins) == 0 and not (zeros > 0 and zeros >= count):
        return numpy.nan
    least, most = known(facts, "min"), known(facts, "max")
    begin = bins[:, 0] if numpy.isnan(least) else numpy.minimum(numpy.maximum(bins[:, 0], least), bins[:, 1])
    end = bins[:, 1] if numpy.isnan(most) else numpy.maximum(numpy.minimum(bins[:, 1], most), begin)
    counts = bins[:, 2]
    over, under = (begin < high) & (end > high), (begin < low) & (end > low)
    whole = ((begin >= high) | (end <= low)) & ~over & ~under
    with numpy.errstate(invalid="ignore", divide="ignore"):
        beyond = numpy.maximum(0, end - high) + numpy.maximum(0, low - begin)
        proportion = numpy.where(numpy.isfinite(end - begin), beyond / (end - begin), 0.5)
        part = numpy.where(over | under, proportion, 0)
        near = numpy.where((begin <= 0) & (end >= 0), 0, numpy.minimum(begin**2, end**2))
        far = numpy.maximum(begin**2, end**2)
        even = (begin**2 + begin * end + end**2) / 3
    large = (over | (under & (low < 0))) & numpy.isfinite(far)  # bins whose values outside are the large ones
    total = counts.sum() + zeros
    if not total > 0:
        return numpy.nan
    outside = counts[whole].sum() + (zeros if low > 0 else 0)
    small = part[~large] @ counts[~large]
    cut, estimate = counts[large].sum(), outside + small + part[large] @ counts[large]
    limit, rms = high**2, known(facts, "rms")
    if cut > 0 and not numpy.isnan(rms):
        near_cut = numpy.minimum(near, limit)[large] @ counts[large] / cut
        far_cut = numpy.maximum(far, limit)[large] @ counts[large] / cut
        squares = rms**2 * total
        if far_cut > limit and numpy.isfinite(squares) and numpy.isfinite(far[~large]).all():
            mean = [
                min(max((squares - of[~large] @ counts[~large]) / cut, near_cut), far_cut) for of in (far, even, near)
            ]
            width = far_cut - near_cut
            share = share_beyond((limit - near_cut) / width, (mean[1] - near_cut) / width)
            estimate = outside + small + cut * share
            lower = outside + cut * max(0, (mean[0] - limit) / (far_cut - limit))
            upper = outside + counts[(over | under) & ~large].sum() + cut
            if limit > near_cut:
                upper -= cut * (1 - min(1, (mean[2] - near_cut) / (limit - near_cut)))
            estimate = min(max(estimate, lower), upper)
    return estimate / total


def scales(facts):
    if known(facts, "count") < 8:
        return numpy.full(3, numpy.nan)
    largest = max(abs(known(facts, "min")), abs(known(facts, "max")))
    if numpy.isnan(known(facts, "min")) or numpy.isnan(known(facts, "max")):
        largest = numpy.nan
    sizes = numpy.array([known(facts, "std"), known(facts, "rms"), largest])
    return numpy.where((sizes > 0) & numpy.isfinite(sizes), sizes, numpy.nan)


def scale_outlier(model, at):
    own = model[at]
    for measure in range(3):
        size = scales(own)[measure]
        if numpy.isnan(size):
            continue
        alike = [
            (i, scales(one)[measure])
            for i, one in enumerate(model)
            if i != at
            and one["tensor"] == own["tensor"]
            and one["slot"] == own["slot"]
            and one["type"] == own["type"]
            and not numpy.isnan(scales(one)[measure])
        ]
        before, after = [s for i, s in alike if i < at][::-1][:2], [s for i, s in alike if i > at][:2]
        if len(before) + len(after) < 1 + (not before):
            continue
        pair = [before[0], after[0]] if before and after else before + after
        low, high = min(pair), max(pair)
        if before and after and high < 100 * low:
            low = high = numpy.exp(numpy.mean(numpy.log(pair)))
        if size >= 100 * high:
            return size / high, 100
        if size * 100 <= low:
            return size / low, 1 / 100
    return None


def gradient(model, at, limit, ratio, sign):
    own = model[at]
    rms = known(own, "rms")
    if sign * rms > sign * limit:
        return rms, limit
    if not own["leaf"]:
        return None
    before = [
        known(one, "rms")
        for one in model[:at]
        if one["tensor"] == "gradient"
        and one["leaf"]
        and one["slot"] == own["slot"]
        and 0 < known(one, "rms") < numpy.inf
    ][-1:]
    if before and sign * (rms / before[0]) > sign * ratio:
        return rms / before[0], ratio
    return None


def poor_initialization(model, at):
    deviations = numpy.array(
        [
            scales(one)[0] if one["tensor"] == "output" and one["leaf"] and known(one, "calls") <= 10 else numpy.nan
            for one in model
        ]
    )
    if numpy.all(numpy.isnan(deviations)) or at != numpy.nanargmax(deviations):
        return None
    ratio = numpy.nanmax(deviations) / numpy.nanmin(deviations)
    return (ratio, 10) if ratio > 10 else None


def judge(model, at):
    facts = model[at]
    tensor, type_ = facts["tensor"], facts["type"]
    count, zeros = known(facts, "count"), known(facts, "zeros")
    bad = numpy.nan_to_num(known(facts, "nan")) + numpy.nan_to_num(known(facts, "inf"))
    if bad > 0:
        yield "nonfinite", bad, 0
    vector = tensor == "parameter" and facts["dimensions"] < 2
    if numpy.isnan(count) or numpy.isnan(zeros):
        zero = known(facts, "rms") == 0 or (known(facts, "min") == 0 and known(facts, "max") == 0)
    else:
        zero = count > 0 and zeros >= count
    if zero and not bad > 0 and not vector:
        yield "all_zero", 1, 1
    if tensor == "output" and type_ in RELUS:
        if count > 0 and zeros >= 0.99 * count:
            yield "dead_relu", zeros / count, 0.99
        elif known(facts, "inactive_channels") > 0.5:
            yield "dead_relu", facts["inactive_channels"], 0.5
    if tensor == "output" and type_ in BOTH_SIDES | ONE_SIDE:
        share = share_outside(facts, *((-0.97, 0.97) if type_ in BOTH_SIDES else (0.015, 0.985)))
        if share > 0.9:
            yield "saturated", share, 0.9
    if tensor == "gradient":
        if found := gradient(model, at, 1e-7, 1e-3, -1):
            yield "vanishing_gradient", *found
        if found := gradient(model, at, 1e3, 1e3, 1):
            yield "exploding_gradient", *found
    if tensor in ("output", "parameter") and (found := scale_outlier(model, at)):
        yield "scale_outlier", *found
    variance = known(facts, "std") ** 2
    if (variance <= 0.5 or variance > 2) and count != 1:
        yield "tensor_variance", variance, 0.5 if variance <= 0.5 else 2
    share = share_of_format(facts, 0.25, 0.97)
    if share > 0.1:
        yield "format_range", share, 0.1
    updates = numpy.array(facts["updates"], dtype=float)
    if tensor == "parameter":
        last = updates[-5:]
        if not vector and len(last) == 5 and numpy.all((last < 6e-8) | (last > 0.1)):
            yield "update_ratio", last[-1], 6e-8 if last[-1] < 6e-8 else 0.1
        if len(updates) >= 3 and numpy.all(updates[-3:] == 0):
            yield "unchanged_tensor", 0, 0
    if tensor == "output" and (found := poor_initialization(model, at)):
        yield "poor_initialization", *found
    if tensor == "output" and facts["slot"] == 0 and known(facts, "calls") == 0:
        yield "never_ran", 0, 0


with open(sys.argv[1]) as file:
    models = json.load(file)
with open(sys.argv[2], "w") as file:
    for number, model in enumerate(models):
        for at in range(len(model)):
            for rule, value, limit in judge(model, at):
                print(number, at, rule, repr(float(value)), repr(float(limit)), file=file)
