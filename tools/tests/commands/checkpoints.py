#!/usr/bin/env python3
"""Tests show, compare and convert on checkpoints of training scripts: texts and numbers beside tensors.

usage: checkpoints.py TORCHTAP"""

import argparse
import collections
import io
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import zipfile

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
    check(
        done.returncode == status,
        f"{' '.join(map(str, arguments))}: exit status {done.returncode} instead of {status}\n{done.stderr}",
    )
    return done.stdout, done.stderr


def checkpoint():
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


def check_show(file, saved):
    table, _ = run("show", file)
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
        check(line in lines, f'show: "{line}" is not in\n{table}')
    check(
        json.loads(run("show", file, "--json")[0])["texts"]
        == {
            "arch": "resnet18",
            "epoch": 90,
            "best": 0.5,
            "done": True,
            "classes[0]": "cat",
            "classes[1]": "dog",
            "note": saved["note"],
        },
        "show --json",
    )
    stats = {entry["result"]: entry for entry in json.loads(run("show", file, "--stats", "--json")[0])["stats"]}
    for key, tensor in saved["state_dict"].items():
        check(abs(stats["state_dict." + key]["mean"] - tensor.double().mean().item()) < 1e-9, f"show --stats: {key}")
    check("optimizer.state.0.exp_avg" in stats and "arch" not in stats, f"show --stats: {sorted(stats)}")
    check(run("compare", file, file)[0].endswith("atol 1e-08.\n"), "compare with itself")


def check_convert(folder, file, saved):
    run("convert", file, "--to", "npy", "--save", folder / "npy")
    for key, tensor in saved["state_dict"].items():
        check(
            numpy.array_equal(numpy.load(folder / "npy" / f"state_dict.{key}.npy"), tensor.numpy()),
            f"convert: {key}",
        )
    texts = {
        item["result"]: item["text"] for item in json.load(open(folder / "npy/index.json")) if item["file"] is None
    }
    check(
        texts == {"arch": "resnet18", "classes[0]": "cat", "classes[1]": "dog", "note": saved["note"]},
        f"convert: texts {texts}",
    )
    run("convert", file, "--to", "safetensors", "--save", folder / "x.safetensors")
    data = (folder / "x.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    check(
        header["__metadata__"]["arch"] == "resnet18"
        and header["__metadata__"]["note"] == saved["note"]
        and header["__metadata__"]["format"] == "pt",
        f"safetensors: {header['__metadata__']}",
    )
    check(all(isinstance(value, str) for value in header["__metadata__"].values()), "safetensors: metadata are texts")


class Settings:
    def __init__(self, **values):
        self.__dict__.update(values)


def check_foreign(folder):
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
    table, _ = run("show", folder / "foreign.pt")
    for line in (
        "args: <argparse.Namespace>",
        "counts: <collections.Counter>",
        "settings: <__main__.Settings>",
        "epoch: 3",
        "array: <numpy.",
        "dtype: <torch.float16>",
        "state_dict.packed: <torch._utils._rebuild_qtensor>",
        "state_dict.coo: <torch._utils._rebuild_sparse_tensor>",
    ):
        check(line in table, f'show: "{line}" is not in\n{table}')
    check(
        run("compare", folder / "foreign.pt", folder / "foreign.pt", "--rtol", "0", "--atol", "0")[0] != "",
        "compare of foreign objects",
    )
    run("convert", folder / "foreign.pt", "--to", "npy", "--save", folder / "foreign-npy")
    check(
        numpy.array_equal(numpy.load(folder / "foreign-npy/state_dict.fc.weight.npy"), weight.numpy()),
        "convert beside foreign objects",
    )
    torch.save(Settings(x=1), folder / "only.pt")
    _, err = run("show", folder / "only.pt", status=2)
    check("Settings" in err or "an object" in err, f"nothing but a foreign object: {err}")


def check_complex(folder):
    values = torch.tensor([[1 + 2j, 3 - 4j], [-0.5j, 6 + 8j]])
    torch.save(values, folder / "complex.pt")
    out, err = run("show", folder / "complex.pt", "--entry", "#0")
    check(all(text in out for text in ("1+2j", "3-4j", "0-0.5j", "6+8j")) and err == "", f"complex numbers: {out}{err}")
    stats = json.loads(run("show", folder / "complex.pt", "--stats", "--json")[0])["stats"][0]
    check(
        stats["elements"] == 4
        and abs(stats["mean"] - values.abs().double().mean().item()) < 1e-6
        and stats["max"] == 10
        and "magnitude" in stats["result"],
        f"complex: {stats}",
    )
    check(abs(stats["std"] - values.abs().double().std().item()) < 1e-6, f"complex: {stats}")
    drawn = json.loads(run("show", folder / "complex.pt", "--histogram", "--json")[0])["histograms"][0]
    check(sum(drawn["counts"]) == 4, f"complex histogram: {drawn}")


def check_many(folder):
    """Statistics of many small samples, of large and of expanded tensors, which need memory for a part only."""
    torch.manual_seed(2)
    samples = [torch.randn(3) for _ in range(5000)] + [
        torch.randn(2, 2),
        torch.arange(3),
        torch.tensor([float("nan"), float("inf"), 0.0]),
    ]
    torch.save(samples, folder / "many.pt")
    stats = json.loads(run("show", folder / "many.pt", "--stats", "--json")[0])["stats"][0]
    flat = torch.cat([sample.double().flatten() for sample in samples])
    finite = flat[flat.isfinite()]
    check(stats["elements"] == flat.numel() and stats["nan"] == 1 and stats["inf"] == 1, f"many: {stats}")
    for name in ("mean", "std", "min", "max"):
        check(abs(stats[name] - getattr(finite, name)().item()) < 1e-5, f"many: {name} {stats}")
    torch.save(torch.tensor([1.0, 3.0]).reshape(2, 1).expand(2, 2**25), folder / "expanded.pt")

    def peak(file):
        """Returns the output and the most memory in bytes."""
        with subprocess.Popen(
            [torchtap, "show", file, "--stats", "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as process:
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        check(process.returncode == 0, f"stats of {file}: {process.returncode}")
        return json.loads(out)["stats"][0], usage.ru_maxrss * 1024

    stats, most = peak(folder / "expanded.pt")
    check(
        stats["elements"] == 2**26 and abs(stats["mean"] - 2) < 1e-6 and abs(stats["std"] - 1) < 1e-6,
        f"expanded: {stats}",
    )
    base = peak(folder / "complex.pt")[1]
    check(
        most - base < 2**26 * 4,
        f"a file of {os.path.getsize(folder / 'expanded.pt')} bytes takes {most - base} bytes of memory",
    )


def check_bombs(folder):
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
        _, errors = run("show", archive(name, value), status=2)
        check("far more entries than its size" in errors, f"{name}: {errors}")
    # A legitimate repetition: the few names of many optimizer states.
    ordinary = collections.OrderedDict(
        (str(i), {"a name of the usual length": "a value of the usual length"}) for i in range(1000)
    )
    check(
        len(json.loads(run("show", archive("ordinary.pt", ordinary), "--json")[0])["texts"]) == 1000,
        "the same texts a thousand times",
    )


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    saved = checkpoint()
    torch.save(saved, folder / "checkpoint.pt")
    check_show(folder / "checkpoint.pt", saved)
    check_convert(folder, folder / "checkpoint.pt", saved)
    check_foreign(folder)
    check_complex(folder)
    check_many(folder)
    check_bombs(folder)

print("FAILED" if failures else "texts and numbers stand beside tensors")
sys.exit(1 if failures else 0)
