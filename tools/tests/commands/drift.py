"""Tests torchtap record --learn and torchtap check --against: T², PSI and the rest computed again with NumPy."""

import json
import math

import numpy
import pytest
import torch
from harness import document, recording, run


def results(folder):
    """Results of each entry's slots, by path and kind."""
    return {
        (entry["path"], entry["kind"]): {
            slot: {name: tensor.double().numpy() for name, tensor in of_slot.items()} for slot, of_slot in value.items()
        }
        for entry, value in recording(folder)
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


@pytest.fixture(scope="module")
def recorded(folder):
    """Recordings of a model with images as usual and with others."""
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

    return folder


@pytest.fixture
def images(recorded):
    return torch.load(recorded / "validation.pt").double().reshape(125, -1).numpy()


def test_learned(recorded, images):
    reference = results(recorded / "validation")
    kinds = {("", "ForwardPre"), *((path, "ForwardOutput") for path in ("", "0", "2", "4", "5", "6", "7"))}
    assert set(reference) == kinds
    of_input = reference["", "ForwardPre"]["0"]
    rounding = 1e-7 * abs(images).sum(1)  # float32 is summed in pieces
    assert (abs(of_input["sum"] - images.sum(1)) < rounding).all(), "sums of the input"
    assert (of_input["samples"] == 1).all() and (of_input["rows"] == 32).all(), "one block a batch"
    assert (of_input["counts"].sum(1) + of_input["zeros"] == 2048).all(), "all elements are counted"


def drifts(recorded, name, status):
    out = run("check", recorded / name, "--against", recorded / "validation", "--json", status=status).out
    return [finding for finding in json.loads(out)["findings"] if finding["rule"] == "drift"]


def test_the_same_data_does_not_drift(recorded):
    assert drifts(recorded, "usual", 0) == []


def test_other_data_drifts_as_numpy_says(recorded):
    reference, new = results(recorded / "validation"), results(recorded / "new")
    found = drifts(recorded, "new", 1)
    assert any(finding["tensor"] == "input" and finding["path"] == "" for finding in found), "the input drifted"
    assert {finding["path"] for finding in found} >= {"", "0", "2"}, "places that drifted"
    for finding in found:
        key = finding["path"], "ForwardPre" if finding["tensor"] == "input" else "ForwardOutput"
        test = Reference(reference[key]["0"])
        values = [(test.t2(window), test.shift(window)) for window in windows(new[key]["0"])]
        nearest = min(abs(t2 / finding["value"] - 1) for t2, _ in values)
        assert nearest < 1e-9
        shift = next(shift for t2, shift in values if abs(t2 / finding["value"] - 1) < 1e-9)
        assert f"mean {shift:+.2g} std" in finding["sentence"]
        assert finding["limit"] < finding["value"], "beyond the limit"


def test_compare_says_the_same_as_check(recorded):
    """Blocks decide, and not a distance that chance may give, unless a tolerance is asked for."""
    same = document("compare", recorded / "validation", recorded / "usual")
    assert same["agree"] and {entry["judged_by"] for entry in same["entries"]} == {"blocks"}
    far = max(entry["distance"] for entry in same["entries"])
    assert 0 < far < math.inf, "the distance is shown"
    by_distance = document("compare", recorded / "validation", recorded / "usual", "--tolerance", far / 2, status=1)
    assert {entry["judged_by"] for entry in by_distance["entries"]} == {"distance"}
    assert "sets the blocks of A aside" in by_distance["notes"][0]
    new = document("compare", recorded / "validation", recorded / "new", status=1)
    drifted = [(entry["path"], entry["detail"]) for entry in new["entries"] if entry["status"] == "drifted"]
    assert sorted(drifted) == sorted((one["path"], one["sentence"]) for one in drifts(recorded, "new", 1))
    text = run("compare", recorded / "validation", recorded / "new", status=1).out
    assert "as torchtap check --against does" in text.splitlines()[0]


def test_what_cannot_be_compared_is_said(recorded):
    folder = recorded
    run("record", folder / "model.pt", "--input", folder / "new.pt", "--reduce", "mean", "--save", folder / "mean")
    error = run("check", folder / "mean", "--against", folder / "validation", status=2).err
    assert "--reduce blocks" in error
    error = run("check", folder / "new", "--against", folder / "mean", status=2).err
    assert "no distributions" in error
    again = "record", folder / "model.pt", "--input", folder / "new.pt", "--learn", folder / "x"
    error = run(*again, "--reduce", "mean", status=2).err
    assert "--learn" in error


def test_what_was_not_judged_is_no_agreement(recorded):
    """It is said first, and in the exit status."""
    folder = recorded
    record = "record", folder / "model.pt", "--input"
    torch.save(torch.load(folder / "new.pt")[:64], folder / "few.pt")
    run(*record, folder / "few.pt", "--batch", "32", "--learn", folder / "few")
    out = run("check", folder / "few", "--against", folder / "validation", status=3).out
    assert (
        out.startswith("Not all was judged:")
        and "or more batches" in out
        and "nothing found in what was judged, in" in out
    )
    told = document("check", folder / "few", "--against", folder / "validation", status=3)
    assert told["agree"] is None and told["gaps"] and told["findings"] == []
    run(*record, folder / "usual.pt", "--batch", "32", "--names", "0", "--learn", folder / "part")
    told = document("check", folder / "part", "--against", folder / "validation", status=3)
    assert len(told["gaps"]) == 1 and told["gaps"][0].startswith("in the reference alone: ")
    told = document("check", folder / "usual", "--against", folder / "validation", status=0)
    assert told["agree"] is True and told["gaps"] == []


def test_show_reads_all_blocks_as_one_distribution(recorded, images):
    shown = document("show", recorded / "validation")["entries"]
    moments = [entry["statistics"] for entry in shown if entry["kind"] == "ForwardPre"]
    assert moments
    assert abs(moments[0]["mean"] - images.mean()) < 1e-9
    assert abs(moments[0]["std"] - images.std()) < 1e-9
