"""Tests `torchtap list` and `torchtap record` on packages that AOTInductor compiled. With a torchtap that was built
without torchtap::exported: that they say so.

usage: package.py TORCHTAP [DIRECTORY]     DIRECTORY: where extras/exported/tests/models.py wrote its packages
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

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
    return done.stdout if status == 0 else done.stderr


def recorded(folder):
    """{path: value} of a recording."""
    entries = json.loads((folder / "manifest.json").read_text())["entries"]
    files = (
        {entry["name"]: entry["file"] for entry in entries}
        if "name" in entries[0]
        else {entry["path"]: entry["file"] for entry in entries}
    )
    return {path: torch.load(folder / file, weights_only=True) for path, file in files.items()}


def without(folder):
    for top in ("package/", ""):  # newer and older versions
        with zipfile.ZipFile(folder / "package.pt2", "w") as package:
            package.writestr(top + "data/aotinductor/model/x.cpp", "{}")
        for arguments in (("list",), ("record", "--random", "4x16", "--save", folder / "out")):
            said = run(arguments[0], folder / "package.pt2", *arguments[1:], status=2)
            check("AOTInductor" in said and "torchtap::exported" in said and "2.6" in said, said)


def listed(models):
    table = run("list", models / "twice.pt2")
    check("act = same" in table and "inputs, outputs" in table and "tapped   5 modules" in table, table)
    document = json.loads(run("list", models / "dynamic.pt2", "--json"))
    check([one["path"] for one in document["modules"]] == ["", "a", "act", "b", "norm", "c"], document)
    check(
        document["modules"][3]
        == {
            "index": 3,
            "path": "b",
            "aliases": [],
            "type": "Linear",
            "qualified_type": "torch.nn.modules.linear.Linear",
            "depth": 1,
            "calls": 1,
            "inputs": True,
            "outputs": True,
            "replaceable": False,
        },
        document["modules"][3],
    )
    check(document["inputs"][0]["dtype"] == "float32" and document["inputs"][0]["shape"][1] == "16", document["inputs"])
    check("replaceable" in run("list", models / "replaceable.pt2"), "replaceable")
    check("no taps" in run("list", models / "mlp.plain.pt2", status=2), "a package without taps")
    check("TorchScript" in run("list", models / "mlp.pt2", "--random", "4x16", status=2), "list --random")


def record(models, folder):
    data = torch.load(models / "mlp.data.pt")
    torch.save(data["inputs"][0], folder / "x.pt")
    x = ("--input", folder / "x.pt")
    run("record", models / "mlp.pt2", *x, *x, "--what", "output", "--save", folder / "raw")
    raw = recorded(folder / "raw")
    check(set(raw) == {"", "a", "act", "b", "norm", "c"}, sorted(raw))
    for path, samples in raw.items():
        expected = data["seen"][f"out {path}#0#0"]
        check(
            len(samples) == 2 and all(torch.allclose(one, expected, atol=1e-5) for one in samples), f"output of {path}"
        )
    run(
        "record",
        models / "mlp.pt2",
        *x,
        "--names",
        "b,c",
        "--types",
        "Linear",
        "--reduce",
        "moments",
        "--over",
        "0",
        "--save",
        folder / "moments",
    )
    moments = recorded(folder / "moments")
    check(set(moments) == {"b", "c"}, sorted(moments))
    check(torch.allclose(moments["b"]["mean"].float(), data["seen"]["out b#0#0"].mean(0), atol=1e-5), "mean of b")
    run("record", models / "dynamic.pt2", "--random", "7x16", "--what", "input", "--save", folder / "inputs")
    check(recorded(folder / "inputs")["a"][0].shape == (7, 16), "inputs of a dynamic batch")

    def error(*arguments):
        return run("record", models / "mlp.pt2", *arguments, "--save", folder / "no", status=2)

    check("inputs=True" in error(*x, "--what", "input"), "inputs that are not tapped")
    check("no gradients" in error(*x, "--what", "grad-output"), "gradients")
    check("--train" in error(*x, "--train"), "--train")
    check("[4, 16] float32" in error("--random", "3x16"), "another batch")
    check("nearest" in error(*x, "--names", "bb"), "a name that is not there")


with tempfile.TemporaryDirectory() as folder:
    if len(sys.argv) > 2:
        listed(pathlib.Path(sys.argv[2]))
        record(pathlib.Path(sys.argv[2]), pathlib.Path(folder))
    else:
        without(pathlib.Path(folder))
sys.exit(1 if failures else 0)
