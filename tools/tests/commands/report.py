#!/usr/bin/env python3
"""Tests torchtap report: on TorchScript files against counts by hand, on saved reports, and in terminals.

usage: report.py TORCHTAP"""

import csv
import fcntl
import io
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata

import torch
from torch import nn

torchtap = str(pathlib.Path(sys.argv[1]).resolve())
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, status=0, **environment):
    base = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    done = subprocess.run(
        [torchtap, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**base, "LC_ALL": "C.UTF-8", **environment},
    )
    check(
        done.returncode == status,
        f"{' '.join(map(str, arguments))}: exit status {done.returncode} instead of {status}\n{done.stdout}\n{done.stderr}",
    )
    return done.stdout, done.stderr


def never(text):
    raise ValueError(f"{text} is no JSON")


def document(text):
    ((name, model),) = json.loads(text, parse_constant=never).items()
    return name, model


def columns_of(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


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


def check_run(folder):
    torch.manual_seed(0)
    net = Net().eval()
    file, saved, page, table = (
        folder / "net.pt",
        folder / "insight.json",
        folder / "insight.html",
        folder / "insight.csv",
    )
    torch.jit.script(net).save(file)
    out, err = run(
        "report",
        file,
        "--random",
        "2x3x10x10",
        "--repeat",
        "4",
        "--warmup",
        "2",
        "--backward",
        "--save",
        saved,
        "--save",
        table,
        "--html",
        page,
        COLUMNS="80",
    )
    check(err == "", f"nothing on stderr: {err}")
    check(max(map(columns_of, out.splitlines())) <= 80, f"80 columns:\n{out}")
    check("\x1b" not in out, f"no colours without a terminal: {out!r}")
    for part in (
        "Net, input 2x3x10x10 float32 on cpu; 4 repeats",
        "├─ stem Conv2d",
        "└─ unused Linear",
        "parameters: 438",
        "backward",
    ):
        check(part in out, f"{part!r} is not in\n{out}")
    check("never_ran: unused" in out, out)

    name, model = document(saved.read_text())
    report, info = model["report"], dict(rows(model))
    check(name == "Net" and report["repeats"] == 4 and report["warmup"] == 2, str(report))
    check(list(info) == [path for path, _ in net.named_modules()], f"all modules: {list(info)}")
    for path, module in net.named_modules():
        check(info[path]["num_parameters"] == sum(p.numel() for p in module.parameters()), f"parameters of {path}")
        macs = sum(count for where, count in MACS.items() if not path or where == path or where.startswith(path + "."))
        check(
            info[path]["forward"]["work"]["macs"] == macs,
            f"MACs of {path}: {info[path]['forward']['work']} instead of {macs}",
        )
    check(info["fc"]["output_shapes"] == [[2, 2]] and info["stem"]["output_shapes"] == [[2, 4, 8, 8]], "shapes")
    check(info["unused"]["marks"] == ["never_ran"], str(info["unused"]["marks"]))
    whole = info[""]["forward"]["inclusive"]
    check(0 < whole["min_seconds"] <= whole["median_seconds"] <= whole["p90_seconds"], str(whole))
    check(info["blocks"]["forward_latency_seconds"] <= whole["p90_seconds"], "modules take less than the model")
    check(info[""]["gradient_bytes"] > 0 and info["stem"]["gradient_norm"] > 0, "gradients")
    check(len(list(csv.DictReader(io.StringIO(table.read_text())))) == len(info), "the CSV file")
    check(page.read_text().startswith("<!DOCTYPE html>"), "the page")
    return file, saved


def check_saved(folder, saved):
    shown, _ = run("report", saved, COLUMNS="80")
    check("├─ stem Conv2d" in shown, shown)
    name, model = document(run("report", saved, "--json")[0])
    check((name, model) == document(saved.read_text()), "--json is the same document")
    table = list(csv.DictReader(io.StringIO(run("report", saved, "--csv")[0])))
    check([row["path"] for row in table] == [path for path, _ in rows(model)], "--csv")
    run("report", saved, "--html", folder / "again.html", "--save", folder / "again.json")
    check(
        (folder / "again.json").read_text() == saved.read_text(), "a report is the same after it was read and written"
    )
    check(
        (folder / "again.html").read_text() == (folder / "insight.html").read_text(),
        "a page of a saved report is that of the run",
    )
    few, _ = run("report", saved, "--depth", "1")
    check("blocks +6" in few and "stem" in few and "act" not in few, few)
    wide, _ = run("report", saved)
    check("own forward" in wide and "no room" not in wide, f"a file gets everything: {wide}")
    narrow, _ = run("report", saved, COLUMNS="20")
    check(max(map(columns_of, narrow.splitlines())) <= 40, f"at least 40 columns: {narrow}")
    ascii_only, _ = run("report", saved, LC_ALL="C", COLUMNS="80")
    check(ascii_only.isascii() and "|- stem" in ascii_only, ascii_only)


def in_terminal(*arguments, columns=80, **environment):
    base = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    process = subprocess.Popen(
        [torchtap, *map(str, arguments)],
        stdout=follower,
        stderr=subprocess.PIPE,
        env={**base, "LC_ALL": "C.UTF-8", "TERM": "xterm", **environment},
    )
    os.close(follower)
    out = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the end, on Linux
            break
        if not part:
            break
        out += part
    os.close(leader)
    check(process.wait() == 0, f"{arguments} in a terminal")
    process.stderr.close()
    return out.decode().replace("\r\n", "\n")


def check_terminal(saved):
    for columns in (80, 120):
        text = in_terminal("report", saved, columns=columns)
        check("\x1b[1m" in text, f"colours in a terminal: {text!r}")
        plain = re.sub("\x1b\\[[0-9]*m", "", text)
        check(
            "\x1b" not in plain and max(map(columns_of, plain.splitlines())) <= columns, f"{columns} columns: {plain}"
        )
        check(in_terminal("report", saved, columns=columns, NO_COLOR="1") == plain, "NO_COLOR")
    check("\x1b" not in in_terminal("report", saved, TERM="dumb"), "TERM=dumb")


def check_errors(folder, file, saved):
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
        ((saved, "--backward"), "saved report"),
        ((saved, "--json", "--csv"), "--json"),
        ((broken,), "not JSON"),
        ((folder / "other.json",), "not a report"),
        ((folder / "none.json",), "none.json"),
        ((saved, "--depth", "-1"), "--depth"),
    ]:
        _, err = run("report", *arguments, status=2)
        check(words in err, f"{arguments}: {err}")
    check(not list(folder.glob("x.*")), "errors leave nothing")
    torch.jit.script(Fails()).save(folder / "fails.pt")
    out, err = run("report", folder / "fails.pt", "--random", "2x4", "--save", folder / "fails.json", status=2)
    check("shape" in err and re.search("fc +Linear", out), f"a model that throws: {out}\n{err}")
    _, model = document((folder / "fails.json").read_text())
    check(
        model["children"]["fc"]["info"]["forward"]["inclusive"]["calls"] > 0 or model["report"]["warmup"] > 0,
        "what ran before is saved",
    )


def check_non_finite(folder):
    torch.manual_seed(0)
    net = Net().eval()
    with torch.no_grad():
        net.blocks[1].conv.weight[0, 0, 0, 0] = float("nan")
    file = folder / "nan.pt"
    torch.jit.script(net).save(file)
    out, _ = run("report", file, "--random", "2x3x10x10", "--save", folder / "nan.json")
    _, model = document((folder / "nan.json").read_text())
    found = model["report"]["findings"]
    check(
        found
        and found[0]["role"] == "source"
        and found[0]["module"] == "blocks.1.conv"
        and "weight" in found[0]["function"],
        f"the source: {found[:2]}",
    )
    check("not finite 1: source" in out and "blocks.1.conv" in out, out)
    top = " ".join(out.split())
    check(
        "the first NaN: blocks.1.conv.weight, which blocks.1.conv reads" in top
        and top.index("the first NaN") < top.index("(the model)"),
        out,
    )
    info = dict(rows(model))
    check(
        info["blocks.1.conv"]["forward_nan"]
        and not info["blocks.0"]["forward_nan"]
        and not info["stem"]["forward_nan"],
        "the modules",
    )
    _, err = run("report", file, "--random", "2x3x10x10", "--non-finite", "raise", status=2)
    check("blocks.1.conv" in err, f"raise: {err}")
    check("--non-finite note goes on" in err and "Options()" not in err, f"raise, in words for a shell: {err}")
    run("report", file, "--random", "2x3x10x10", "--non-finite", "ignore", "--overwrite", "--save", folder / "nan.json")
    check(document((folder / "nan.json").read_text())[1]["report"]["findings"] == [], "ignore")


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


def check_masks(folder):
    torch.manual_seed(0)
    file, saved, table = folder / "masked.pt", folder / "masked.json", folder / "masked.csv"
    torch.jit.script(Masked(False).eval()).save(file)
    out, _ = run(
        "report", file, "--random", "2x6x8", "--non-finite", "raise", "--repeat", "2", "--save", saved, "--save", table
    )
    check("not finite" not in out and "the first NaN" not in out and "non-finite" not in out, out)
    check("infinities on purpose: from blocks.0.mask in blocks.0" in " ".join(out.split()), out)
    check(
        "used without a call (an operation read their parameters): blocks.0.out" in " ".join(out.split())
        and "never_ran" not in out,
        out,
    )
    _, model = document(saved.read_text())
    info = dict(rows(model))
    check(all(one["marks"] == [] for one in info.values()), "marks of a healthy model")
    check(
        info["blocks"]["summed"]
        and info["blocks"]["forward"]["work"]["macs"] == info[""]["forward"]["work"]["macs"] > 0,
        "a list's work",
    )
    check(
        all(
            row["marks"] == "" and row["forward_nan"] == row["forward_inf"] == "false"
            for row in csv.DictReader(open(table, newline=""))
        ),
        "CSV",
    )

    torch.jit.script(Masked(True).eval()).save(file)
    out, _ = run("report", file, "--random", "2x6x8", "--overwrite", "--save", saved)
    _, model = document(saved.read_text())
    first = model["report"]["findings"][0]
    check(
        (first["role"], first["function"], first["module"], first["values"]["nan"])
        == ("producer", "aten::log", "", 96),
        str(first),
    )
    check(out.count("not finite") == 1 and "the first NaN: aten::log in the model itself" in " ".join(out.split()), out)
    check(
        model["report"]["first_non_finite"].startswith("the first NaN: aten::log"), model["report"]["first_non_finite"]
    )
    _, err = run("report", file, "--random", "2x6x8", "--non-finite", "raise", status=2)
    check("aten::log" in err and "96 NaN" in err, err)


def check_less(folder, file):
    run(
        "report",
        file,
        "--random",
        "2x3x10x10",
        "--no-memory",
        "--no-work",
        "--repeat",
        "1",
        "--warmup",
        "0",
        "--save",
        folder / "less.json",
    )
    _, model = document((folder / "less.json").read_text())
    check(
        model["info"]["forward"]["work"]["macs"] == 0 and model["report"]["forward_memory"]["peak_bytes"] == 0, "less"
    )
    check(model["info"]["backward"]["inclusive"]["calls"] == 0, "no backward")


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    file, saved = check_run(folder)
    check_saved(folder, saved)
    check_terminal(saved)
    check_errors(folder, file, saved)
    check_non_finite(folder)
    check_masks(folder)
    check_less(folder, file)

sys.exit(1 if failures else 0)
