"""Tests torchtap trace, and torchtap compare of traces, on torchvision's AlexNet and small models: tensors and labels
against what PyTorch computes."""

import copy
import re
import signal
import time

import pytest
import torch
import torchvision
from harness import TORCHTAP, document, recording, rows_of, run, start
from torch import nn

LABELS = """input_1_0 conv2d_1_1 relu_1_2 maxpool2d_1_3 conv2d_2_4 relu_2_5 maxpool2d_2_6 conv2d_3_7 relu_3_8 conv2d_4_9
relu_4_10 conv2d_5_11 relu_5_12 maxpool2d_3_13 adaptiveavgpool2d_1_14 flatten_1_15 dropout_1_16 linear_1_17 relu_6_18
dropout_2_19 linear_2_20 relu_7_21 linear_3_22 output_1_23""".split()


@pytest.fixture(scope="module")
def alexnet():
    torch.manual_seed(0)
    model = torchvision.models.alexnet(weights=None).eval()
    # Relu without inplace, so that hooks see what the modules returned.
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    return model


@pytest.fixture(scope="module")
def file(folder, alexnet):
    torch.jit.script(alexnet).save(folder / "alexnet.pt")
    return folder / "alexnet.pt"


@pytest.fixture(scope="module")
def traced(folder, file):
    where = ("--save", folder / "alexnet", "--draw", folder / "alexnet.dot")
    return document("trace", file, "--random", "1x3x224x224", "--seed", "3", *where, "--validate")


@pytest.fixture
def saved(folder, traced):
    return folder / "alexnet"


def test_tensors(alexnet, traced, saved):
    assert [node["label"] for node in traced["nodes"]] == LABELS, "labels"
    for key, value in {"operations": 22, "tensors": 24, "kept": 24, "layers": 24, "error": None}.items():
        assert traced[key] == value

    seen = {}
    hooks = [
        module.register_forward_hook(lambda module, inputs, output, path=path: seen.update({path: output}))
        for path, module in alexnet.named_modules()
    ]
    x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        alexnet(x)
    for hook in hooks:
        hook.remove()  # torch.jit.script would compile them
    *found, _ = recording(saved)
    assert [entry["path"] for entry, _ in found] == LABELS, "an entry for each tensor"
    assert torch.equal(found[0][1], x), "the input"
    compared = 0
    for entry, value in found:
        for path in entry["aliases"]:
            compared += 1
            assert torch.equal(value, seen[path])
    assert compared >= 21, "outputs of modules"
    assert traced["bytes"] == sum(4 * value.numel() for _, value in found)


def test_pictures(folder, saved):
    text = (folder / "alexnet.dot").read_text()
    assert len(re.findall(r"^ *n\d+ \[", text, re.M)) == 24 and text.count(" -> ") == 23, "the picture"
    run("trace", saved, "--draw", folder / "rolled.dot", "--rolled", "--depth", "1", "--direction", "left-right")
    text = (folder / "rolled.dot").read_text()
    assert text.count("box3d") == 3 and '"rankdir"="LR"' in text, "the picture of modules"


def test_rows(traced, saved):
    again = document("trace", saved)
    assert again["nodes"] == traced["nodes"], "a loaded trace has the same rows"
    out = run("trace", saved).out
    assert all(label in out for label in LABELS) and "22 operations" in out, "summary"
    out = run("trace", saved, "--entry", "conv2d_3_7").out
    assert "features.6" in out and "1x384x13x13" in out and "relu_3_8" in out, "one layer"
    for name in ("conv2d_3", "features.6", "7", "-17", "conv2d_3_7:1"):
        assert run("trace", saved, f"--entry={name}").out == out
    third = traced["nodes"][7]
    assert third["shape"] == [1, 384, 13, 13]
    assert third["parents"] == ["maxpool2d_2_6"]
    assert third["children"] == ["relu_3_8"]
    assert third["parameters"] == ["features.6.weight", "features.6.bias"]
    assert [call["path"] for call in third["modules"]] == ["features", "features.6"]
    assert third["output_of"][0]["call"] == 1
    assert {one["name"]: one["value"] for one in third["arguments"]}["padding"] == "[1, 1]"
    assert third["arguments"][0]["nodes"] == [6]
    rows = rows_of("trace", saved)
    assert rows[7]["parents"] == "maxpool2d_2_6"
    assert "stride=[1, 1]; " in rows[7]["arguments"]
    assert rows[7]["output_of"] == "features.6:1"
    assert [row["label"] for row in rows] == LABELS and rows[7]["shape"] == "1x384x13x13", "csv"
    rows = rows_of("trace", saved, "--entry", "conv*")
    assert [row["label"] for row in rows] == [label for label in LABELS if "conv" in label], "csv of a pattern"
    err = run("trace", saved, "--entry", "conv2d_9", status=2).err
    assert "conv2d_" in err, "an unknown name"
    run("show", saved)


def test_keep(file):
    some = document("trace", file, "--random", "1x3x224x224", "--keep", "conv*,classifier.6")
    assert [node["label"] for node in some["nodes"] if node["saved"]] == [
        *[label for label in LABELS if "conv" in label],
        "linear_3_22",
    ]
    assert document("trace", file, "--random", "1x3x224x224")["kept"] == 0, "nothing is kept unless saved"


def test_compare(folder, alexnet, file, saved):
    model = copy.deepcopy(alexnet)

    def traced(name, changed, *arguments, shape="1x3x224x224"):
        torch.jit.script(changed).save(folder / f"{name}.pt")
        run("trace", folder / f"{name}.pt", "--random", shape, "--seed", "3", "--save", folder / name, *arguments)
        return folder / name

    same = traced("same", model)
    found = document("compare", saved, same, "--rtol", "0", "--atol", "0")
    assert found["agree"] and [entry["label"] for entry in found["entries"]] == LABELS, "the same model"
    assert all(entry["status"] == "equal" and entry["max_abs"] == 0 for entry in found["entries"]), "the same tensors"

    original = model.features[6].weight.detach().clone()
    with torch.no_grad():
        model.features[6].weight[3, 2, 1, 1] += 0.5
    altered = traced("altered", model)
    found = document("compare", saved, altered, status=1)
    assert found["first"] == "conv2d_3_7", "one weight"
    assert [entry["status"] for entry in found["entries"][:8]] == ["equal"] * 7 + ["different"], "before and at it"
    a, b = (recording(where)[7][1].double() for where in (saved, altered))
    assert abs(found["entries"][7]["max_abs"] - (a - b).abs().max().item()) < 1e-12, "the largest difference"
    out = run("compare", saved, altered, status=1).out
    assert "the first is conv2d_3_7 in features.6: different" in " ".join(out.split()), "in words"
    rows = rows_of("compare", saved, altered, status=1)
    assert [row["label"] for row in rows] == LABELS, "compare --csv"

    with torch.no_grad():
        model.features[6].weight.copy_(original)
    model.classifier[5] = nn.GELU()
    found = document("compare", saved, traced("gelu", model), status=1)
    assert found["first"] == "relu_7_21" and len(found["entries"]) == 24, "another function"
    assert found["entries"][21]["status"] == "another operation" and "gelu" in found["entries"][21]["detail"]

    model.classifier[5] = nn.Sequential(nn.ReLU(), nn.Sigmoid())
    found = document("compare", saved, traced("more", model), status=1)
    missing = [entry["label_b"] for entry in found["entries"] if entry["status"] == "missing in A"]
    assert any("sigmoid" in label for label in missing), "one operation more"
    assert found["entries"][-1]["label"] == "output_1_23" and found["entries"][-1]["status"] == "different"

    unkept = traced("unkept", model, "--keep", "none")
    out = " ".join(run("compare", folder / "more", unkept, status=3).out.split())
    assert (
        "Not all was compared: the values of 25 tensors that a side did not keep. 25 tensors have the same shapes"
        in out
    )
    run("record", file, "--random", "1x3x224x224", "--save", folder / "recording")
    err = run("compare", saved, folder / "recording", status=2).err
    assert "only one of" in err
    err = run("trace", folder / "recording", status=2).err
    assert "not written by" in err
    err = run("compare", saved, same, "--tolerance", "0.1", status=2).err
    assert "--rtol" in err


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(4, 6)
        self.over = nn.Linear(6, 6)

    def forward(self, steps: torch.Tensor):
        h = torch.zeros(steps.size(1), 6)
        for i in range(steps.size(0)):
            h = torch.tanh(self.into(steps[i]) + self.over(h))
        return h


class Gates(nn.Module):
    def forward(self, x: torch.Tensor):
        i, f, o = (x * 2.0).chunk(3, 1)
        i.sigmoid_()
        f.tanh_()
        return (o + 1.0) * (i * 3.0)


class Untaken(nn.Module):
    def forward(self, x: torch.Tensor):
        if bool(x.sum() > 1e6):
            return x + torch.triu(torch.full([6, 6], float("-inf")), 1)
        return x * 2.0


class Numbers(nn.Module):
    def forward(self, x):
        return torch.sin(x * 3).view(x.shape[0] * 3)


class ZeroInit(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: torch.Tensor):
        return torch.softmax(
            x + self.b(torch.relu(self.a(x))).sum(1, keepdim=True).log().mean(1, keepdim=True)[:, :1], 1
        )


def test_programs(folder):
    def traced(model, shape, *arguments):
        file = folder / f"{type(model).__name__}.pt"
        torch.jit.script(model.eval()).save(file)
        return document("trace", file, "--random", shape, "--validate", *arguments)["nodes"]

    parents = {node["label"]: node["parents"] for node in traced(Gates(), "2x6")}
    assert parents["tanh_1_6"] == ["chunk_2_3"]
    assert parents["add_1_7"] == ["chunk_3_4"]
    assert parents["mul_2_8"] == ["sigmoid_1_5"]
    types = [node["type"] for node in traced(Untaken(), "6x6")]
    assert "full" not in types and "triu" not in types and types[-2:] == ["mul", "output"]
    traced(ZeroInit(), "3x4")
    # A traced model has a constant for each number.
    torch.jit.trace(Numbers(), torch.rand(2, 3)).save(folder / "numbers.pt")
    nodes = document("trace", folder / "numbers.pt", "--random", "2x3", "--validate")["nodes"]
    assert "outside" not in [node["kind"] for node in nodes]
    assert [node["type"] for node in nodes][:3] == ["input", "mul", "sin"]
    assert {one["name"]: one["value"] for one in nodes[1]["arguments"]}["other"] == "3", "a constant"
    # Before the run.
    for name, words in {"x.gif": ".svg", "missing/x.dot": "no folder"}.items():
        _, out, err = run("trace", folder / "Gates.pt", "--random", "2x6", "--draw", folder / name, status=2)
        assert words in err and not out
    run("trace", folder / "Gates.pt", "--random", "2x6", "--draw", folder / "some.dot", "--max-nodes", "3")
    assert "Reduced from 11 nodes" in (folder / "some.dot").read_text(), "--max-nodes"


def test_interrupt(folder):
    class Many(nn.Module):
        def forward(self, x: torch.Tensor):
            for i in range(3000):
                x = x + 1.0
            return x

    torch.jit.script(Many()).save(folder / "many.pt")
    running = start(TORCHTAP, "trace", folder / "many.pt", "--random", "2x2", "--save", folder / "many")
    while running.poll() is None and not list(folder.glob(".many.torchtap-new-*")):
        time.sleep(0.005)
    running.send_signal(signal.SIGINT)
    running.communicate()
    assert running.returncode in (0, -signal.SIGINT), "interrupted"
    assert not list(folder.glob(".many*")) and document("trace", folder / "many")["operations"] == 3000


class Fails(nn.Module):
    def forward(self, x: torch.Tensor):
        x = torch.sin(x)
        return x.view(3, 5)


def test_others(folder):
    torch.jit.script(Loop().eval()).save(folder / "loop.pt")
    loop = document("trace", folder / "loop.pt", "--random", "5x2x4", "--save", folder / "loop")
    tanhs = [node["label"] for node in loop["nodes"] if node["type"] == "tanh"]
    assert len(tanhs) == 5 and [label.split(":")[1] for label in tanhs] == list("12345"), "passes"
    err = run("trace", folder / "loop", "--entry", tanhs[0].split(":")[0], status=2).err
    assert ":2" in err, "a layer with passes"
    assert run("trace", folder / "loop", "--entry", tanhs[2]).out.startswith(tanhs[2]), "one pass"
    run("trace", folder / "loop", "--draw", folder / "loop.dot", "--rolled")
    assert "\u00d75" in (folder / "loop.dot").read_text(), "the rolled picture"

    torch.jit.script(Fails()).save(folder / "fails.pt")
    _, out, err = run("trace", folder / "fails.pt", "--random", "2x2", "--save", folder / "fails", status=2)
    assert "shape" in err and "sin_1_1" in out, "a model that throws"
    assert document("trace", folder / "fails")["error"] is not None, "the error is saved"

    for arguments, words in {
        ("loop", "--random", "5x2x4"): "saved trace",
        ("loop", "--save", "x"): "saved already",
        ("loop", "--draw", "loop.jpg"): ".svg",
        ("loop", "--rolled"): "--draw",
        ("loop.pt", "--random", "5x2x4", "--keep", "tanhh_1"): "tanhh_1",
        ("loop.pt", "--random", "5x2x4", "--keep", "tanh*", "--validate"): "--keep",
        ("loop.pt", "--random", "5x2x4", "--save", "loop"): "--overwrite",
        ("loop", "--json", "--csv"): "--json",
    }.items():
        err = run(
            *("trace", folder / arguments[0]),
            *[folder / a if a in ("loop", "loop.jpg", "x") else a for a in arguments[1:]],
            status=2,
        ).err
        assert words in err
    assert not (folder / "x").exists() and not (folder / "loop.jpg").exists(), "errors leave nothing"
