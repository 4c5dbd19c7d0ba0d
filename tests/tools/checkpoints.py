#!/usr/bin/env python3
"""Tests show, diff and convert on checkpoints of training scripts: texts and numbers beside tensors.

usage: checkpoints.py TORCHTAP"""
import collections
import io
import json
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
    check(done.returncode == status, f"{' '.join(map(str, arguments))}: exit status {done.returncode} instead of {status}\n{done.stderr}")
    return done.stdout, done.stderr


def checkpoint():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.25)
    net(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    return {"arch": "resnet18", "epoch": 90, "best": 0.5, "done": True, "state_dict": net.state_dict(), "optimizer": optimizer.state_dict(),
            "classes": ["cat", "dog"], "note": "zwei\nZeilen, für Menschen", "nothing": None}


def check_show(file, saved):
    table, _ = run("show", file)
    lines = table.splitlines()
    for line in ("arch: resnet18", "epoch: 90", "best: 0.5", "done: true", "classes[0]: cat", "classes[1]: dog", r"note: zwei\nZeilen, für Menschen"):
        check(line in lines, f"show: \"{line}\" is not in\n{table}")
    check(json.loads(run("show", file, "--json")[0])["texts"] == {"arch": "resnet18", "epoch": 90, "best": 0.5, "done": True, "classes[0]": "cat", "classes[1]": "dog",
                                                                  "note": saved["note"]}, "show --json")
    stats = {entry["result"]: entry for entry in json.loads(run("show", file, "--stats", "--json")[0])["stats"]}
    for key, tensor in saved["state_dict"].items():
        check(abs(stats["state_dict." + key]["mean"] - tensor.double().mean().item()) < 1e-9, f"show --stats: {key}")
    check("optimizer.state.0.exp_avg" in stats and "arch" not in stats, f"show --stats: {sorted(stats)}")
    check(run("diff", file, file)[0].endswith("atol 1e-08.\n"), "diff with itself")


def check_convert(folder, file, saved):
    run("convert", file, "--to", "npy", "--save", folder / "npy")
    for key, tensor in saved["state_dict"].items():
        check(numpy.array_equal(numpy.load(folder / "npy/checkpoint" / f"state_dict.{key}.npy"), tensor.numpy()), f"convert: {key}")
    texts = {item["result"]: item["text"] for item in json.load(open(folder / "npy/index.json")) if item["file"] is None}
    check(texts == {"arch": "resnet18", "classes[0]": "cat", "classes[1]": "dog", "note": saved["note"]}, f"convert: texts {texts}")
    run("convert", file, "--to", "safetensors", "--save", folder / "x.safetensors")
    data = (folder / "x.safetensors").read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    check(header["__metadata__"]["arch"] == "resnet18" and header["__metadata__"]["note"] == saved["note"] and header["__metadata__"]["format"] == "pt",
          f"safetensors: {header['__metadata__']}")
    check(all(isinstance(value, str) for value in header["__metadata__"].values()), "safetensors: metadata are texts")


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
    ordinary = collections.OrderedDict((str(i), {"a name of the usual length": "a value of the usual length"}) for i in range(1000))
    check(len(json.loads(run("show", archive("ordinary.pt", ordinary), "--json")[0])["texts"]) == 1000, "the same texts a thousand times")


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    saved = checkpoint()
    torch.save(saved, folder / "checkpoint.pt")
    check_show(folder / "checkpoint.pt", saved)
    check_convert(folder, folder / "checkpoint.pt", saved)
    check_bombs(folder)

print("FAILED" if failures else "texts and numbers stand beside tensors")
sys.exit(1 if failures else 0)
