"""Tests `torchtap list` and `torchtap record` on packages that AOTInductor compiled. With a torchtap that was built
without torchtap::exported: that they say so."""

import pathlib
import zipfile

import pytest
import torch
from harness import document, given, recording, run

MODELS = given("exported_models") and pathlib.Path(given("exported_models"))
packages = pytest.mark.skipif(MODELS is None, reason="torchtap::exported is not built")


def recorded(folder):
    return {entry.get("name", entry["path"]): value for entry, value in recording(folder)}


@pytest.mark.skipif(MODELS is not None, reason="torchtap::exported is built")
def test_without(folder):
    for top in ("package/", ""):  # newer and older versions
        with zipfile.ZipFile(folder / "package.pt2", "w") as package:
            package.writestr(top + "data/aotinductor/model/x.cpp", "{}")
        for arguments in (("list",), ("record", "--random", "4x16", "--save", folder / "out")):
            said = run(arguments[0], folder / "package.pt2", *arguments[1:], status=2).err
            assert "AOTInductor" in said and "torchtap::exported" in said and "2.6" in said


@packages
def test_list():
    table = run("list", MODELS / "twice.pt2").out
    assert "act = same" in table and "inputs, outputs" in table and "tapped   5 modules" in table
    told = document("list", MODELS / "dynamic.pt2")
    assert [one["path"] for one in told["modules"]] == ["", "a", "act", "b", "norm", "c"]
    assert told["modules"][3] == {
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
    }
    assert told["inputs"][0]["dtype"] == "float32" and told["inputs"][0]["shape"][1] == "16"
    assert "replaceable" in run("list", MODELS / "replaceable.pt2").out
    assert "no taps" in run("list", MODELS / "mlp.plain.pt2", status=2).err, "a package without taps"
    assert "TorchScript" in run("list", MODELS / "mlp.pt2", "--random", "4x16", status=2).err, "list --random"


@packages
def test_record(folder):
    data = torch.load(MODELS / "mlp.data.pt")
    torch.save(data["inputs"][0], folder / "x.pt")
    x = ("--input", folder / "x.pt")
    run("record", MODELS / "mlp.pt2", *x, *x, "--what", "output", "--save", folder / "raw")
    raw = recorded(folder / "raw")
    assert set(raw) == {"", "a", "act", "b", "norm", "c"}
    for path, samples in raw.items():
        expected = data["seen"][f"out {path}#0#0"]
        assert len(samples) == 2 and all(torch.allclose(one, expected, atol=1e-5) for one in samples)
    run(
        *("record", MODELS / "mlp.pt2", *x, "--names", "b,c", "--types", "Linear", "--reduce", "moments"),
        *("--over", "0", "--save", folder / "moments"),
    )
    moments = recorded(folder / "moments")
    assert set(moments) == {"b", "c"}
    assert torch.allclose(moments["b"]["mean"].float(), data["seen"]["out b#0#0"].mean(0), atol=1e-5), "mean of b"
    run("record", MODELS / "dynamic.pt2", "--random", "7x16", "--what", "input", "--save", folder / "inputs")
    assert recorded(folder / "inputs")["a"][0].shape == (7, 16), "inputs of a dynamic batch"

    def error(*arguments):
        return run("record", MODELS / "mlp.pt2", *arguments, "--save", folder / "no", status=2).err

    assert "inputs=True" in error(*x, "--what", "input"), "inputs that are not tapped"
    assert "no gradients" in error(*x, "--what", "grad-output"), "gradients"
    assert "--train" in error(*x, "--train"), "--train"
    assert "[4, 16] float32" in error("--random", "3x16"), "another batch"
    assert "nearest" in error(*x, "--names", "bb"), "a name that is not there"


@packages
def test_report(folder):
    """Times and shapes of modules that were tapped on both sides; the rest is said to be missing."""
    data = torch.load(MODELS / "mlp.data.pt")
    torch.save(data["inputs"][0], folder / "x.pt")
    ((_, model),) = document("report", MODELS / "dynamic.pt2", "--input", folder / "x.pt", "--repeat", "4").items()
    rows = {"": model["info"], **{path: child["info"] for path, child in model["children"].items()}}
    assert set(rows) == {"", "a", "act", "b", "norm", "c"}
    assert all(row["forward"]["inclusive"]["min_seconds"] > 0 for row in rows.values())
    assert "multiply-accumulates" in model["report"]["notes"][0]
    few = run("report", MODELS / "mlp.pt2", "--input", folder / "x.pt").out
    assert "5 modules" in few and "inputs=True" in few, "modules with taps of outputs alone"
    assert "--backward" in run("report", MODELS / "mlp.pt2", "--random", "4x16", "--backward", status=2).err


@packages
def test_refused(folder):
    x = ("--random", "4x16")
    for command in (("trace",), ("explore",), ("quantize", "--save", folder / "int8.pt")):
        said = run(command[0], MODELS / "mlp.pt2", *x, *command[1:], status=2).err
        assert "AOTInductor package" in said and "torch.jit.trace" in said, command
