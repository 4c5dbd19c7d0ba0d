"""Tests torchtap record --rows, show --rows, convert, merge and compare of dumps, against the model in Python."""

import json

import numpy
import pytest
import torch
from harness import document, run
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(6, 5)
        self.layer2 = nn.ReLU()

    def forward(self, x):
        return self.layer2(self.layer1(x))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    torch.manual_seed(0)
    net = Net().eval()
    torch.jit.script(net).save(folder / "net.pt")
    x, mask = torch.randn(21, 4, 6), torch.rand(21, 4) > 0.4
    label, ids = torch.randint(10, (21,)), torch.arange(84).view(21, 4)
    for name, value in (("x", x), ("mask", mask), ("label", label), ("id", ids)):
        numpy.save(folder / f"{name}.npy", value.numpy())
    run("record", folder / "net.pt", "--input", folder / "x.npy", "--batch", 8, "--rows", "0,1", "--where",
        f"mask={folder}/mask.npy", "--beside", f"label={folder}/label.npy", "--beside", f"id={folder}/id.npy", "--save",
        folder / "dump")  # fmt: skip
    with torch.no_grad():
        want = net.layer1(x)[mask]
    return folder, net, want, label[:, None].expand(21, 4)[mask], ids[mask]


def test_show(data):
    folder, _, want, label, ids = data
    shown = run("show", folder / "dump").out
    assert "Beside" not in shown and ".calls" not in shown
    assert "beside them: label (int64 scalar), id (int64 scalar), forward, call, place" in shown
    entries = document("show", folder / "dump")["entries"]
    assert [entry["path"] for entry in entries] == ["", "layer1", "layer2"]
    assert {entry["samples"] for entry in entries} == {len(want)}
    rows = document("show", folder / "dump", "--module", "layer1", "--rows", "2:7", "--beside")
    assert rows["rows"] == len(want)
    for i, row in zip(range(2, 7), rows["values"]):
        assert row["row"] == i and torch.allclose(torch.tensor(row["value"]), want[i], atol=1e-5)
        assert row["beside"] == {"label": label[i], "id": ids[i]}
        assert (row["forward"], row["call"], row["place"]) == (ids[i] // 32, 0, ids[i] % 32)
    assert (
        f"layer1 row 2 forward 0 call 0 place {ids[2] % 32} id={ids[2]} label={label[2]} float32 5\n"
        in run("show", folder / "dump", "--module", "layer1", "--rows", "2", "--beside").out
    )
    assert len(document("show", folder / "dump", "--entry", "layer1", "--rows", "-3:")["values"]) == 3


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["show", "dump", "--rows", "0:5"], "--entry"),
        (["show", "dump", "--module", "layer1", "--beside"], "--rows"),
        (["show", "dump", "--module", "layer1", "--rows", "5:2000"], "there are"),
        (["show", "dump", "--module", "layer1", "--rows", "a"], "expected BEGIN:END"),
        (["show", "dump", "--module", "layer9", "--rows", "0"], "layer1"),
        (["convert", "dump", "--to", "parquet", "--save", "out"], '["PATH"].rows.parquet("PATH.parquet")'),
        (["record", "net.pt", "--input", "x.npy", "--where", "mask=mask.npy", "--save", "out"], "--rows"),
        (
            ["record", "net.pt", "--input", "x.npy", "--rows", "0", "--beside", "label.npy", "--save", "out"],
            "NAME=FILE",
        ),
        (["record", "net.pt", "--input", "x.npy", "--beside", "net.pt", "--save", "out"], "--reduce"),
        (["record", "net.pt", "--input", "x.npy", "--rows", "0", "--reduce", "mean", "--save", "out"], "--reduce"),
        (["record", "net.pt", "--input", "x.npy", "--rows", "0", "--all-tensors", "--save", "out"], "--all-tensors"),
    ],
)
def test_what_cannot_be_is_said(data, arguments, why):
    assert why in run(*arguments, cwd=data[0], status=None).err
    assert not (data[0] / "out").exists()


def test_convert(data):
    folder, _, want, label, ids = data
    run("convert", folder / "dump", "--to", "npy", "--save", folder / "npy")
    assert torch.allclose(torch.from_numpy(numpy.load(folder / "npy/layer1.npy")), want, atol=1e-5)
    for name, column in (("label", label), ("id", ids), ("forward", ids // 32), ("place", ids % 32)):
        assert (numpy.load(folder / f"npy/beside/{name}.npy") == column.numpy()).all()
    files = {item["file"] for item in json.loads((folder / "npy/index.json").read_text())}
    assert "beside/call.npy" in files and "layer2.npy" in files
    run("convert", folder / "dump", "--to", "safetensors", "--save", folder / "dump.safetensors")
    held = document("show", folder / "dump.safetensors", "--entry", "dump", "--result", "beside/label")["values"]
    assert held == label.tolist()


def test_merge_and_compare(data):
    folder, _, want, _, ids = data
    said = run("merge", folder / "dump", folder / "dump", "--save", folder / "two").out
    assert said.startswith(f"3 modules, {6 * len(want)} samples")
    rows = document("show", folder / "two", "--module", "layer2", "--rows", ":", "--beside")["values"]
    assert [row["beside"]["id"] for row in rows] == [*ids.tolist(), *ids.tolist()]
    run("compare", folder / "dump", folder / "dump", status=0)
    run("recover", folder / "two", status=0)


def test_a_wrong_length_is_left_out_and_said(data):
    folder, *_ = data
    numpy.save(folder / "wrong.npy", numpy.zeros((21, 3)))
    done = run("record", folder / "net.pt", "--input", folder / "x.npy", "--batch", 8, "--rows", "0,1", "--beside",
               f"label={folder}/wrong.npy", "--save", folder / "left_out", status=None)  # fmt: skip
    assert done.status == 1 and "row dimensions have [8, 4]" in done.err
