"""Tests torchtap convert --to tensorboard: what a parser of the format finds, against the samples themselves."""

import json
import math
import sys

import torch
from harness import SOURCE, document, recording, run
from torch import nn

sys.path.insert(0, str(SOURCE / "views/monitor/tests/monitor_surfaces"))
from event_file import events


def series(folder):
    """{tag: {step: value}}; a histogram is a dict."""
    (file,) = folder.iterdir()
    assert file.name.startswith("events.out.tfevents.")
    first, *rest = events(file)
    assert first["file_version"] == "brain.Event:2"
    found = {}
    for event in rest:
        (value,) = event["summary"]
        of_tag = found.setdefault(value["tag"], {})
        assert event["step"] not in of_tag
        of_tag[event["step"]] = value["histo"] if "histo" in value else value["simple_value"]
    return found


def samples(folder):
    """{path: all values of its samples}"""
    return {entry["path"]: torch.cat([one.flatten() for one in value]).double() for entry, value in recording(folder)}


def check_histogram(histogram, values):
    limits, counts = histogram["bucket_limit"], histogram["bucket"]
    left = [-math.inf, *limits[:-1]]
    mine = [int(((values >= a) & (values < b)).sum()) for a, b in zip(left, limits)]
    assert counts == mine
    assert histogram["num"] == len(values) == sum(counts)
    assert histogram["min"] <= histogram["max"]


def near(got, want):
    return math.isclose(got, want, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(got) and math.isnan(want))


def test_recording(folder):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU()).eval()
    torch.jit.script(net).save(folder / "net.pt")
    inputs = ["--random", "8x6", "--count", 20, "--what", "output"]
    run("record", folder / "net.pt", *inputs, "--save", folder / "kept")
    run("record", folder / "net.pt", *inputs, "--reduce", "log_histogram,moments,histogram:8:-1:0.5,min,max",
        "--save", folder / "stats")  # fmt: skip
    out = run("convert", folder / "stats", "--to", "tensorboard", "--save", folder / "runs/a").out
    found = series(folder / "runs/a")
    scalars = sum(isinstance(steps[0], float) for steps in found.values())
    assert out.startswith(f"6 histograms and {scalars} scalars of 3 modules in ")
    for path, values in samples(folder / "kept").items():
        name = path or "root"
        check_histogram(found[name + "/log_histogram"][0], values)
        check_histogram(found[name + "/histogram"][0], values)
        want = {
            "log_histogram.zeros": int((values == 0).sum()),
            "log_histogram.nan": 0,
            "moments.mean": values.mean().item(),
            "moments.std": values.std().item(),
            "histogram.overflow": int((values > 0.5).sum()),
            "min": values.min().item(),
            "max": values.max().item(),
        }
        for tag, value in want.items():
            assert near(found[f"{name}/{tag}"][0], value)

    run("convert", folder / "stats", "--to", "tensorboard", "--save", folder / "runs/a", status=2)
    run("convert", folder / "stats", "--to", "tensorboard", "--entry", "1", "--save", folder / "runs/a", "--overwrite")
    assert {tag.split("/")[0] for tag in series(folder / "runs/a")} == {"1"}, "one entry"
    told = document("convert", folder / "stats", "--to", "tensorboard", "--save", folder / "runs/b")
    assert {tag["tag"]: (tag["path"], tag["steps"]) for tag in told["tags"]} == {
        tag: ("" if tag.startswith("root") else tag.split("/")[0], 1) for tag in found
    }
    said = run("convert", folder / "kept", "--to", "tensorboard", "--save", folder / "runs/c", status=2).err
    assert "log_histogram" in said and not (folder / "runs/c").exists(), "nothing to write"
    # A folder with anything else in it is not replaced.
    (folder / "runs/b/notes.txt").write_text("mine")
    run("convert", folder / "stats", "--to", "tensorboard", "--save", folder / "runs/b", "--overwrite", status=2)
    assert (folder / "runs/b/notes.txt").read_text() == "mine", "a foreign folder"


def test_numbers(folder):
    """Kept samples of one element are a curve over their numbers, and lines of CSV."""
    torch.manual_seed(0)

    class Losses(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 1)

        def forward(self, x):
            y = self.fc(x[:1])
            return y.sum(), y.sum() > 0, x

    torch.jit.script(Losses()).save(str(folder / "losses.pt"))
    inputs = ("--random", "8x4", "--count", 5)
    run("record", folder / "losses.pt", *inputs, "--all-tensors", "--save", folder / "numbers")
    kept = {entry["path"]: value for entry, value in recording(folder / "numbers")}
    told = run("convert", folder / "numbers", "--to", "tensorboard", "--save", folder / "numbers_events").out
    assert told.startswith("0 histograms and 3 scalars of 2 modules in ")
    found = series(folder / "numbers_events")
    want = {"root[0]/value": kept[""]["0"], "root[1]/value": kept[""]["1"], "fc[0]/value": kept["fc"]["0"]}
    want = {tag: {step: one.item() for step, one in enumerate(list)} for tag, list in want.items()}
    assert set(found) == set(want)
    for tag, steps in want.items():
        assert set(found[tag]) == set(steps) and all(near(found[tag][step], steps[step]) for step in steps)
    run("convert", folder / "numbers", "--to", "csv", "--save", folder / "numbers_csv")
    lines = (folder / "numbers_csv/values.csv").read_text().splitlines()
    assert lines[0] == "step,path,value"
    rows = {}
    for step, path, value in (line.split(",") for line in lines[1:]):
        rows.setdefault(path, {})[int(step)] = float(value)
    want = {tag.replace("root", "(root)").replace("/value", ""): steps for tag, steps in want.items()}
    assert set(rows) == set(want)
    for path, steps in want.items():  # the digits of float32
        assert {step: torch.tensor(value).item() for step, value in rows[path].items()} == steps
    index = json.loads((folder / "numbers_csv/index.json").read_text())
    assert [(one["path"], one["result"], one["file"]) for one in index] == [
        ("", "0", "values.csv"),
        ("", "1", "values.csv"),
        ("", "2", "root/2.csv"),
        ("fc", "0", "values.csv"),
    ]
    # A module of that name, and samples that are missing.
    other = folder / "other"
    other.mkdir()
    torch.save(torch.ones(2, 2), other / "values.pt")
    torch.save([torch.tensor(2), torch.tensor([[0.5]])], other / "a,b.pt")
    run("convert", other, "--to", "csv", "--save", folder / "other_csv")
    assert (folder / "other_csv/values.csv").read_text() == 'step,path,value\n0,"a,b",2\n1,"a,b",0.5\n'
    assert (folder / "other_csv/values~2.csv").read_text() == "1,1\n1,1\n"


def test_nothing(folder):
    """A dead ReLU has no bins, and what saw only empty tensors has no value: both are as good as any other module."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.relu, self.rows = nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)
            nn.init.constant_(self.fc.bias, -100)

        def forward(self, x):
            y = self.relu(self.fc(x))
            return y + self.rows(y[:0]).sum()

    torch.jit.script(Net()).save(str(folder / "dead.pt"))
    torch.save(torch.rand(8, 4), folder / "rows.pt")
    for reduce in ("log_histogram", "histogram:8", "blocks", "moments,log_histogram"):
        name = "dead_" + reduce.replace(",", "_").replace(":", "_")
        run("record", folder / "dead.pt", "--input", folder / "rows.pt", "--reduce", reduce, "--save", folder / name)
        run("show", folder / name)
        run("convert", folder / name, "--to", "tensorboard", "--save", folder / f"{name}_events")
        found = series(folder / f"{name}_events")
        assert any(tag.startswith("relu/") for tag in found)


def test_blocks(folder):
    """The results of blocks, as Python makes them: the bins of float32's upper three bits of the mantissa."""
    torch.manual_seed(1)
    blocks = [torch.randn(400, dtype=torch.float64).float().relu().double() for _ in range(3)]
    blocks += [torch.cat([torch.randn(50).double(), torch.tensor([math.nan, math.inf, -math.inf, 0]).double()])]
    bins = set()
    for block in blocks:
        for value in block[block.isfinite() & (block != 0)].tolist():
            exponent = math.floor(math.log2(abs(value)))
            step = 2.0 ** (exponent - 3)
            low = math.floor(abs(value) / step) * step
            bins.add((low, low + step) if value > 0 else (-low - step, -low))
    bins = sorted(bins)

    def of(block, low, high):
        inside = (block >= low) & (block < high) if low > 0 else (block > low) & (block <= high)
        return int(inside.sum())

    finite = [block[block.isfinite()] for block in blocks]
    value = {
        "samples": torch.tensor([1] * 4),
        "rows": torch.tensor([len(block) for block in blocks]),
        "low": torch.tensor([low for low, _ in bins], dtype=torch.float64),
        "high": torch.tensor([high for _, high in bins], dtype=torch.float64),
        "counts": torch.tensor([[of(block, low, high) for low, high in bins] for block in blocks]),
        "zeros": torch.tensor([int((block == 0).sum()) for block in blocks]),
        "nan": torch.tensor([int(block.isnan().sum()) for block in blocks]),
        "negative_infinity": torch.tensor([int((block == -math.inf).sum()) for block in blocks]),
        "positive_infinity": torch.tensor([int((block == math.inf).sum()) for block in blocks]),
        "min": torch.tensor([block.min().item() for block in finite], dtype=torch.float64),
        "max": torch.tensor([block.max().item() for block in finite], dtype=torch.float64),
        "sum": torch.tensor([block.sum().item() for block in finite], dtype=torch.float64),
        "sum_squares": torch.tensor([(block * block).sum().item() for block in finite], dtype=torch.float64),
    }
    torch.save(value, folder / "fc.pt")
    run("convert", folder / "fc.pt", "--to", "tensorboard", "--save", folder / "blocks")
    found = series(folder / "blocks")
    assert set(found) == {
        f"fc/{tag}" for tag in ("histogram", "mean", "rms", "std", "min", "max", "zero_ratio", "nan", "inf")
    }
    for step, (block, part) in enumerate(zip(blocks, finite)):
        histogram = found["fc/histogram"][step]
        check_histogram(histogram, part)
        assert (histogram["min"], histogram["max"]) == (part.min().item(), part.max().item())
        assert near(histogram["sum"], part.sum().item())
        want = {
            "mean": part.mean().item(),
            "rms": part.square().mean().sqrt().item(),
            "std": part.std(unbiased=False).item(),
            "zero_ratio": (block == 0).double().mean().item(),
            "nan": block.isnan().sum().item(),
            "inf": block.isinf().sum().item(),
        }
        for tag, number in want.items():
            assert near(found[f"fc/{tag}"][step], number)
