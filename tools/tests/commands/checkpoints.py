"""Tests show, compare and convert on checkpoints of training scripts: texts and numbers beside tensors."""

import argparse
import collections
import io
import json
import os
import pickle
import zipfile

import numpy
import pytest
import torch
from harness import TORCHTAP, document, run, start


@pytest.fixture(scope="module")
def saved():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.25)
    net(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    return {
        "arch": "resnet18",
        "epoch": 90,
        "best": 0.5,
        "done": True,
        "state_dict": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "classes": ["cat", "dog"],
        "note": "zwei\nZeilen, für Menschen",
        "nothing": None,
    }


@pytest.fixture(scope="module")
def file(folder, saved):
    torch.save(saved, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


def test_show(file, saved):
    table = run("show", file).out
    lines = table.splitlines()
    for line in (
        "arch: resnet18",
        "epoch: 90",
        "best: 0.5",
        "done: true",
        "classes[0]: cat",
        "classes[1]: dog",
        r"note: zwei\nZeilen, für Menschen",
    ):
        assert line in lines
    assert document("show", file)["texts"] == {
        "arch": "resnet18",
        "epoch": 90,
        "best": 0.5,
        "done": True,
        "classes[0]": "cat",
        "classes[1]": "dog",
        "note": saved["note"],
    }
    stats = {entry["result"]: entry for entry in document("show", file, "--stats")["stats"]}
    for key, tensor in saved["state_dict"].items():
        assert abs(stats["state_dict." + key]["mean"] - tensor.double().mean().item()) < 1e-9, "show --stats"
    assert "optimizer.state.0.exp_avg" in stats and "arch" not in stats, "show --stats"
    assert run("compare", file, file).out.endswith("atol 1e-08.\n"), "compare with itself"


def test_convert(folder, file, saved):
    run("convert", file, "--to", "npy", "--save", folder / "npy")
    for key, tensor in saved["state_dict"].items():
        assert numpy.array_equal(numpy.load(folder / "npy" / f"state_dict.{key}.npy"), tensor.numpy()), "convert"
    texts = {
        item["result"]: item["text"] for item in json.load(open(folder / "npy/index.json")) if item["file"] is None
    }
    assert texts == {"arch": "resnet18", "classes[0]": "cat", "classes[1]": "dog", "note": saved["note"]}
    run("convert", file, "--to", "safetensors", "--save", folder / "x.safetensors")
    data = (folder / "x.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"]["arch"] == "resnet18"
    assert header["__metadata__"]["note"] == saved["note"]
    assert header["__metadata__"]["format"] == "pt"
    assert all(isinstance(value, str) for value in header["__metadata__"].values()), "safetensors: metadata are texts"


class Settings:
    def __init__(self, **values):
        self.__dict__.update(values)


def test_foreign(folder):
    """Objects of other classes are named; what is beside them is read."""
    torch.manual_seed(1)
    weight = torch.randn(3, 4)
    saved = {
        "args": argparse.Namespace(lr=0.1, seed=2**70, names=["a"]),
        "counts": collections.Counter("abca"),
        "settings": Settings(inner=Settings(x=1)),
        "state_dict": {
            "fc.weight": weight,
            "packed": torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
            "coo": weight.to_sparse(),
        },
        "array": numpy.arange(3),
        "scalar": numpy.float64(2),
        "labels": {1, 2},
        "dtype": torch.float16,
        "epoch": 3,
        ("a", 1): weight,
        "bytes": b"xy",
    }
    torch.save(saved, folder / "foreign.pt")
    table = run("show", folder / "foreign.pt").out
    for line in (
        "args: <argparse.Namespace>",
        "counts: <collections.Counter>",
        f"settings: <{__name__}.Settings>",
        "epoch: 3",
        "array: <numpy.",
        "dtype: <torch.float16>",
        "state_dict.packed.scheme: torch.per_tensor_affine",
        "state_dict.coo.layout: torch.sparse_coo",
    ):
        assert line in table
    same = run("compare", folder / "foreign.pt", folder / "foreign.pt", "--rtol", "0", "--atol", "0", status=3)
    assert "Not all was compared: args (<argparse.Namespace>)" in same.out
    run("convert", folder / "foreign.pt", "--to", "npy", "--save", folder / "foreign-npy")
    assert numpy.array_equal(numpy.load(folder / "foreign-npy/state_dict.fc.weight.npy"), weight.numpy())
    torch.save(Settings(x=1), folder / "only.pt")
    err = run("show", folder / "only.pt", status=2).err
    assert "Settings" in err or "an object" in err, "nothing but a foreign object"


def test_complex(folder):
    values = torch.tensor([[1 + 2j, 3 - 4j], [-0.5j, 6 + 8j]])
    torch.save(values, folder / "complex.pt")
    _, out, err = run("show", folder / "complex.pt", "--entry", "#0")
    assert all(text in out for text in ("1+2j", "3-4j", "0-0.5j", "6+8j")) and err == "", "complex numbers"
    stats = document("show", folder / "complex.pt", "--stats")["stats"][0]
    assert stats["elements"] == 4
    assert abs(stats["mean"] - values.abs().double().mean().item()) < 1e-6
    assert stats["max"] == 10
    assert "magnitude" in stats["result"]
    assert abs(stats["std"] - values.abs().double().std().item()) < 1e-6, "complex"
    drawn = document("show", folder / "complex.pt", "--histogram")["histograms"][0]
    assert sum(drawn["counts"]) == 4, "complex histogram"


def test_many(folder):
    """Statistics of many small samples, of large and of expanded tensors, which need memory for a part only."""
    torch.manual_seed(2)
    samples = [torch.randn(3) for _ in range(5000)] + [
        torch.randn(2, 2),
        torch.arange(3),
        torch.tensor([float("nan"), float("inf"), 0.0]),
    ]
    torch.save(samples, folder / "many.pt")
    stats = document("show", folder / "many.pt", "--stats")["stats"][0]
    flat = torch.cat([sample.double().flatten() for sample in samples])
    finite = flat[flat.isfinite()]
    assert stats["elements"] == flat.numel() and stats["nan"] == 1 and stats["inf"] == 1, "many"
    for name in ("mean", "std", "min", "max"):
        assert abs(stats[name] - getattr(finite, name)().item()) < 1e-5, "many"
    torch.save(torch.tensor([1.0, 3.0]).reshape(2, 1).expand(2, 2**25), folder / "expanded.pt")

    def peak(file):
        """Returns the output and the most memory in bytes."""
        with start(TORCHTAP, "show", file, "--stats", "--json", env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return json.loads(out)["stats"][0], usage.ru_maxrss * 1024

    stats, most = peak(folder / "expanded.pt")
    assert stats["elements"] == 2**26 and abs(stats["mean"] - 2) < 1e-6 and abs(stats["std"] - 1) < 1e-6
    torch.save(torch.ones(4), folder / "small.pt")
    base = peak(folder / "small.pt")[1]
    assert most - base < 2**26 * 4


def test_bombs(folder):
    """A text referenced a million times takes no more memory than the file."""

    def archive(name, value):
        buffer = io.BytesIO()
        pickle.Pickler(buffer, protocol=2).dump(value)
        with zipfile.ZipFile(folder / name, "w") as file:
            file.writestr("archive/data.pkl", buffer.getvalue())
            file.writestr("archive/version", "3\n")
        return folder / name

    long = "x" * 1000000
    for name, value in (("texts.pt", [long] * 100000), ("keys.pt", [{long: None}] * 100000)):
        errors = run("show", archive(name, value), status=2).err
        assert "far more entries than its size" in errors
    # A legitimate repetition: the few names of many optimizer states.
    ordinary = collections.OrderedDict(
        (str(i), {"a name of the usual length": "a value of the usual length"}) for i in range(1000)
    )
    assert len(document("show", archive("ordinary.pt", ordinary))["texts"]) == 1000
