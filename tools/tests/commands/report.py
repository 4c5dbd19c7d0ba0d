"""Tests torchtap report: on TorchScript files against counts by hand, on saved reports, and in terminals."""

import csv
import io
import json
import re

import harness
import pytest
import torch
from harness import TORCHTAP, columns_of, rows_of, run
from torch import nn


def never(text):
    raise ValueError(f"{text} is no JSON")


def model_of(text):
    ((name, model),) = json.loads(text, parse_constant=never).items()
    return name, model


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.conv(x)) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.blocks = nn.Sequential(Block(), Block())
        self.fc = nn.Linear(4, 2)
        self.unused = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean([2, 3]))


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor):
        return self.fc(x).view(3, 5)


MACS = {
    "stem": 2 * 4 * 3 * 9 * 64,
    "blocks.0.conv": 2 * 4 * 4 * 9 * 64,
    "blocks.1.conv": 2 * 4 * 4 * 9 * 64,
    "fc": 2 * 4 * 2,
}


def rows(model):
    yield model["info"]["path"], model["info"]
    for child in model["children"].values():
        yield from rows(child)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def file(folder, net):
    file = folder / "net.pt"
    torch.jit.script(net).save(file)
    return file


@pytest.fixture(scope="module")
def done(folder, file):
    to = ("--save", folder / "insight.json", "--save", folder / "insight.csv", "--html", folder / "insight.html")
    how = ("--random", "2x3x10x10", "--repeat", 4, "--warmup", 2, "--backward")
    return run("report", file, *how, *to, COLUMNS="80")


@pytest.fixture
def saved(folder, done):
    return folder / "insight.json"


def test_run(folder, net, done, saved):
    _, out, err = done
    assert err == "", "nothing on stderr"
    assert max(map(columns_of, out.splitlines())) <= 80, "80 columns"
    assert "\x1b" not in out, "no colours without a terminal"
    for part in (
        "Net, input 2x3x10x10 float32 on cpu; 4 repeats",
        "├─ stem Conv2d",
        "└─ unused Linear",
        "parameters: 438",
        "backward",
    ):
        assert part in out
    assert "never_ran: unused" in out

    name, model = model_of(saved.read_text())
    report, info = model["report"], dict(rows(model))
    assert name == "Net" and report["repeats"] == 4 and report["warmup"] == 2
    assert list(info) == [path for path, _ in net.named_modules()], "all modules"
    for path, module in net.named_modules():
        assert info[path]["num_parameters"] == sum(p.numel() for p in module.parameters())
        macs = sum(count for where, count in MACS.items() if not path or where == path or where.startswith(path + "."))
        assert info[path]["forward"]["work"]["macs"] == macs
    assert info["fc"]["output_shapes"] == [[2, 2]] and info["stem"]["output_shapes"] == [[2, 4, 8, 8]], "shapes"
    assert info["unused"]["marks"] == ["never_ran"]
    whole = info[""]["forward"]["inclusive"]
    assert 0 < whole["min_seconds"] <= whole["median_seconds"] <= whole["p90_seconds"]
    assert info["blocks"]["forward_latency_seconds"] <= whole["p90_seconds"], "modules take less than the model"
    assert info[""]["gradient_bytes"] > 0 and info["stem"]["gradient_norm"] > 0, "gradients"
    assert len(list(csv.DictReader(io.StringIO((folder / "insight.csv").read_text())))) == len(info), "the CSV file"
    page = (folder / "insight.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and page.count("<main>") == 1, "the page"


def test_saved(folder, saved):
    shown = run("report", saved, COLUMNS="80").out
    assert "├─ stem Conv2d" in shown
    name, model = model_of(run("report", saved, "--json").out)
    assert (name, model) == model_of(saved.read_text()), "--json is the same document"
    table = rows_of("report", saved)
    assert [row["path"] for row in table] == [path or "(root)" for path, _ in rows(model)], "--csv"
    run("report", saved, "--html", folder / "again.html", "--save", folder / "again.json")
    assert (folder / "again.json").read_text() == saved.read_text()
    assert (folder / "again.html").read_text() == (folder / "insight.html").read_text()
    few = run("report", saved, "--depth", "1").out
    assert "blocks +6" in few and "stem" in few and "act" not in few
    wide = run("report", saved).out
    assert "own forward" in wide and "no room" not in wide, "a file gets everything"
    narrow = run("report", saved, COLUMNS="20").out
    assert max(map(columns_of, narrow.splitlines())) <= 40, "at least 40 columns"
    ascii_only = run("report", saved, LC_ALL="C", COLUMNS="80").out
    assert ascii_only.isascii() and "|- stem" in ascii_only


def in_terminal(*arguments, **how):
    return harness.in_terminal(TORCHTAP, *arguments, **how).replace("\r\n", "\n")


def test_terminal(saved):
    for columns in (80, 120):
        text = in_terminal("report", saved, columns=columns)
        assert "\x1b[1m" in text, "colours in a terminal"
        plain = re.sub("\x1b\\[[0-9]*m", "", text)
        assert "\x1b" not in plain and max(map(columns_of, plain.splitlines())) <= columns
        assert in_terminal("report", saved, columns=columns, NO_COLOR="1") == plain, "NO_COLOR"
    assert "\x1b" not in in_terminal("report", saved, TERM="dumb"), "TERM=dumb"


def test_errors(folder, file, saved):
    broken = folder / "broken.json"
    broken.write_text(saved.read_text()[:500])
    (folder / "other.json").write_text('{"entries": []}')
    (folder / "folder.json").mkdir()
    random = ("--random", "2x3x10x10")
    for arguments, words in [
        ((file,), "--input"),
        ((file, *random, "--save", folder / "x.txt"), ".json, .csv or .html"),
        ((file, *random, "--save", folder / "none" / "x.json"), "does not exist"),
        ((file, *random, "--save", folder / "folder.json"), "is a directory"),
        ((file, *random, "--html", folder / "x.json"), ".html"),
        ((file, *random, "--repeat", "0"), "--repeat"),
        ((file, *random, "--non-finite", "loud"), "--non-finite"),
        ((saved, *random), "saved report"),
        ((folder,), "torchtap show reads recordings"),
        ((saved, "--backward"), "saved report"),
        ((saved, "--json", "--csv"), "--json"),
        ((broken,), "not JSON"),
        ((folder / "other.json",), "not a report"),
        ((folder / "none.json",), "none.json"),
        ((saved, "--depth", "-1"), "--depth"),
    ]:
        err = run("report", *arguments, status=2).err
        assert words in err
    assert not list(folder.glob("x.*")), "errors leave nothing"
    torch.jit.script(Fails()).save(folder / "fails.pt")
    _, out, err = run("report", folder / "fails.pt", "--random", "2x4", "--save", folder / "fails.json", status=2)
    assert "shape" in err and re.search("fc +Linear", out), "a model that throws"
    _, model = model_of((folder / "fails.json").read_text())
    assert model["children"]["fc"]["info"]["forward"]["inclusive"]["calls"] > 0 or model["report"]["warmup"] > 0


def test_non_finite(folder):
    torch.manual_seed(0)
    net = Net().eval()
    with torch.no_grad():
        net.blocks[1].conv.weight[0, 0, 0, 0] = float("nan")
    file = folder / "nan.pt"
    torch.jit.script(net).save(file)
    out = run("report", file, "--random", "2x3x10x10", "--save", folder / "nan.json").out
    _, model = model_of((folder / "nan.json").read_text())
    found = model["report"]["findings"]
    assert found
    assert found[0]["role"] == "source"
    assert found[0]["module"] == "blocks.1.conv"
    assert "weight" in found[0]["function"]
    assert "not finite 1: source" in out and "blocks.1.conv" in out
    top = " ".join(out.split())
    assert "the first NaN: blocks.1.conv.weight, which blocks.1.conv reads" in top
    assert top.index("the first NaN") < top.index("(root)")
    info = dict(rows(model))
    assert info["blocks.1.conv"]["forward_nan"]
    assert not info["blocks.0"]["forward_nan"]
    assert not info["stem"]["forward_nan"]
    err = run("report", file, "--random", "2x3x10x10", "--non-finite", "raise", status=2).err
    assert "blocks.1.conv" in err, "raise"
    assert "--non-finite note goes on" in err and "Options()" not in err, "raise, in words for a shell"
    run("report", file, "--random", "2x3x10x10", "--non-finite", "ignore", "--overwrite", "--save", folder / "nan.json")
    assert model_of((folder / "nan.json").read_text())[1]["report"]["findings"] == [], "ignore"


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("mask", torch.triu(torch.full((6, 6), float("-inf")), 1))

    def forward(self, x):
        scores = x @ self.keys(x).transpose(-2, -1)
        past = torch.ones(6, 6).triu(1) == 0
        return nn.functional.linear(
            torch.softmax((scores + self.mask).masked_fill(~past, float("-inf")), -1) @ x, self.out.weight
        )


class Masked(nn.Module):
    def __init__(self, bad):
        super().__init__()
        self.blocks = nn.ModuleList([Attention() for _ in range(6)])
        self.bad = bad

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.log(x - 1000.0) if self.bad else x


def test_masks(folder):
    torch.manual_seed(0)
    file, saved, table = folder / "masked.pt", folder / "masked.json", folder / "masked.csv"
    torch.jit.script(Masked(False).eval()).save(file)
    out = run(
        "report", file, "--random", "2x6x8", "--non-finite", "raise", "--repeat", "2", "--save", saved, "--save", table
    ).out
    assert "not finite" not in out and "the first NaN" not in out and "non-finite" not in out
    assert "infinities on purpose: from blocks.0.mask in blocks.0" in " ".join(out.split())
    assert "used without a call (an operation read their parameters): blocks.0.out" in " ".join(out.split())
    assert "never_ran" not in out
    _, model = model_of(saved.read_text())
    info = dict(rows(model))
    assert all(one["marks"] == [] for one in info.values()), "marks of a healthy model"
    assert info["blocks"]["summed"]
    assert info["blocks"]["forward"]["work"]["macs"] == info[""]["forward"]["work"]["macs"] > 0
    assert all(
        row["marks"] == "" and row["forward_nan"] == row["forward_inf"] == "false"
        for row in csv.DictReader(open(table, newline=""))
    )

    torch.jit.script(Masked(True).eval()).save(file)
    out = run("report", file, "--random", "2x6x8", "--overwrite", "--save", saved).out
    _, model = model_of(saved.read_text())
    first = model["report"]["findings"][0]
    assert (first["role"], first["function"], first["module"], first["values"]["nan"]) == (
        "producer",
        "aten::log",
        "",
        96,
    )
    assert out.count("not finite") == 1 and "the first NaN: aten::log in the model itself" in " ".join(out.split())
    assert model["report"]["first_non_finite"].startswith("the first NaN: aten::log")
    err = run("report", file, "--random", "2x6x8", "--non-finite", "raise", status=2).err
    assert "aten::log" in err and "96 NaN" in err


def test_less(folder, file):
    run(
        *("report", file, "--random", "2x3x10x10", "--no-memory", "--no-work", "--repeat", "1", "--warmup", "0"),
        *("--save", folder / "less.json"),
    )
    _, model = model_of((folder / "less.json").read_text())
    assert model["info"]["forward"]["work"]["macs"] == 0 and model["report"]["forward_memory"]["peak_bytes"] == 0
    assert model["info"]["backward"]["inclusive"]["calls"] == 0, "no backward"
