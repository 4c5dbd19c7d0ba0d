#!/usr/bin/env python3
"""Tests torchtap record --learn and torchtap check --against: T², PSI and the rest computed again with NumPy.

usage: drift.py TORCHTAP"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

torchtap = str(pathlib.Path(sys.argv[1]).resolve())
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, status=0):
    done = subprocess.run([torchtap, *map(str, arguments)], capture_output=True, text=True)
    check(done.returncode == status, f"{arguments}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout, done.stderr


def recording(folder):
    """Results of each entry's slots, by path and kind."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return {
        (entry["path"], entry["kind"]): {
            slot: {name: tensor.double().numpy() for name, tensor in results.items()}
            for slot, results in torch.load(folder / entry["file"]).items()
        }
        for entry in manifest["entries"]
    }


class Reference:
    """What views::monitor::DriftTest does, written from the documentation of it."""

    def __init__(self, results):
        zeros = results["zeros"]
        ends = list(zip(results["low"], results["high"]))
        self.bins = sorted([*ends, (0.0, 0.0)] if zeros.sum() > 0 else ends)
        blocks = self.ordered(results)
        total = blocks.sum()
        groups, zero_group, group, gathered = [], None, 0, 0.0
        of_zeros = zeros.sum() / total
        enough = max(0.02, 0.1 * (1 - of_zeros)) if of_zeros > 0.02 else 0.1  # tenths of what is beside the zeros
        for bin_ends, mass in zip(self.bins, blocks.sum(0) / total):
            zero = bin_ends == (0.0, 0.0) and of_zeros > 0.02
            if zero and gathered > 0:
                group, gathered = group + 1, 0.0
            groups.append(group)
            gathered += mass
            if zero:
                zero_group = group
            if zero or gathered >= enough:
                group, gathered = group + 1, 0.0
        groups = numpy.array(groups)
        share = numpy.bincount(groups, blocks.sum(0) / total)
        at = 0
        while at < len(share):  # rare ones go to a neighbour
            if share[at] >= 0.02 or len(share) == 1:
                at += 1
                continue
            before = at > 0 and (at + 1 == len(share) or at - 1 != zero_group)
            into = at - 1 if before else at
            groups[groups > into] -= 1
            share = numpy.bincount(groups, blocks.sum(0) / total)
            if zero_group is not None and zero_group > into:
                zero_group -= 1
            at = into
        self.matrix = numpy.eye(len(share))[groups]
        self.groups, self.zero_group = groups, zero_group
        n = blocks.sum(1)
        h = blocks @ self.matrix / n[:, None]
        self.mean, self.n = share, total
        by = h - share
        self.covariance = (by * n[:, None]).T @ by / (len(n) - 1)
        self.sum, self.squares = results["sum"].sum(), results["sum_squares"].sum()

    def ordered(self, results):
        """Counts in the bins of the reference, [blocks, bins]; None where there are others."""
        ends = {bin_ends: i for i, bin_ends in enumerate(self.bins)}
        counts = numpy.zeros((len(results["zeros"]), len(self.bins)))
        for i, bin_ends in enumerate(zip(results["low"], results["high"])):
            if bin_ends in ends:
                counts[:, ends[bin_ends]] += results["counts"][:, i]
            elif results["counts"][:, i].any():
                counts[:, self.beside(bin_ends)] += results["counts"][:, i]
        if (0.0, 0.0) in ends:
            counts[:, ends[0.0, 0.0]] += results["zeros"]
        return counts

    def beside(self, bin_ends):
        at = sum(one < bin_ends for one in self.bins)
        before = at > 0 and (at == len(self.bins) or self.groups[at - 1] != self.zero_group)
        return at - 1 if before else at

    def t2(self, results):
        blocks = self.ordered(results)
        n = blocks.sum()
        by = blocks.sum(0) @ self.matrix / n - self.mean
        return by @ numpy.linalg.pinv(self.covariance, rcond=1e-6, hermitian=True) @ by / (1 / n + 1 / self.n)

    def shift(self, results):
        n = results["counts"].sum() + results["zeros"].sum()
        mean = self.sum / self.n
        return (results["sum"].sum() / n - mean) / math.sqrt(self.squares / self.n - mean**2)


def windows(results, rows=256):
    ends, gathered = [0], 0
    for i, more in enumerate(results["rows"]):
        gathered += more
        if gathered >= rows:
            ends, gathered = [*ends, i + 1], 0
    ends = [*ends[: -1 if gathered and len(ends) > 1 else None], *([len(results["rows"])] if gathered else [])]
    for begin, end in zip(ends, ends[1:]):
        yield {name: of if name in ("low", "high") else of[begin:end] for name, of in results.items()}


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(),
        torch.nn.Flatten(), torch.nn.Linear(4 * 6 * 6, 5), torch.nn.GELU(), torch.nn.Sigmoid(),
    )  # fmt: skip
    torch.jit.script(net.eval()).save(folder / "model.pt")
    for name, shift in (("validation", 0.0), ("usual", 0.0), ("new", 0.3)):
        images = torch.randn(4000, 1, 8, 8) * (0.5 + torch.rand(4000, 1, 1, 1)) + shift
        torch.save(images, folder / f"{name}.pt")
        batch = 32 if name == "validation" else 20
        run("record", folder / "model.pt", "--input", folder / f"{name}.pt", "--batch", batch, "--learn", folder / name)

    reference, new = recording(folder / "validation"), recording(folder / "new")
    kinds = {("", "ForwardPre"), *((path, "ForwardOutput") for path in ("", "0", "2", "4", "5", "6", "7"))}
    check(set(reference) == kinds, f"modules are {set(reference)}")
    of_input = reference["", "ForwardPre"]["0"]
    images = torch.load(folder / "validation.pt").double().reshape(125, -1).numpy()
    rounding = 1e-7 * abs(images).sum(1)  # float32 is summed in pieces
    check((abs(of_input["sum"] - images.sum(1)) < rounding).all(), "sums of the input")
    check((of_input["samples"] == 1).all() and (of_input["rows"] == 32).all(), "one block a batch")
    check((of_input["counts"].sum(1) + of_input["zeros"] == 2048).all(), "all elements are counted")

    out, _ = run("check", folder / "usual", "--against", folder / "validation", "--json")
    found = [finding for finding in json.loads(out)["findings"] if finding["rule"] == "drift"]
    check(found == [], f"drift of the same data: {found}")
    out, _ = run("check", folder / "new", "--against", folder / "validation", "--json", status=1)
    found = [finding for finding in json.loads(out)["findings"] if finding["rule"] == "drift"]
    check(any(finding["tensor"] == "input" and finding["path"] == "" for finding in found), "the input drifted")
    check({finding["path"] for finding in found} >= {"", "0", "2"}, f"places that drifted: {found}")
    for finding in found:
        key = finding["path"], "ForwardPre" if finding["tensor"] == "input" else "ForwardOutput"
        test = Reference(reference[key]["0"])
        values = [(test.t2(window), test.shift(window)) for window in windows(new[key]["0"])]
        nearest = min(abs(t2 / finding["value"] - 1) for t2, _ in values)
        check(nearest < 1e-9, f"T² of {key}: {finding['value']}, NumPy has {values}")
        shift = next(shift for t2, shift in values if abs(t2 / finding["value"] - 1) < 1e-9)
        check(f"mean {shift:+.2g} std" in finding["sentence"], f"{finding['sentence']}: the mean moved by {shift}")
        check(finding["limit"] < finding["value"], "beyond the limit")

    # What cannot be compared is said.
    run("record", folder / "model.pt", "--input", folder / "new.pt", "--reduce", "mean", "--save", folder / "mean")
    _, error = run("check", folder / "mean", "--against", folder / "validation", status=2)
    check("--reduce blocks" in error, error)
    _, error = run("check", folder / "new", "--against", folder / "mean", status=2)
    check("no distributions" in error, error)
    again = "record", folder / "model.pt", "--input", folder / "new.pt", "--learn", folder / "x"
    _, error = run(*again, "--reduce", "mean", status=2)
    check("--learn" in error, error)

    # show reads all blocks as one distribution.
    shown = json.loads(run("show", folder / "validation", "--json")[0])["entries"]
    moments = [entry["statistics"] for entry in shown if entry["kind"] == "ForwardPre"]
    check(
        moments and abs(moments[0]["mean"] - images.mean()) < 1e-9 and abs(moments[0]["std"] - images.std()) < 1e-9,
        f"show: {moments}",
    )
    sys.exit(1 if failures else 0)


main()
