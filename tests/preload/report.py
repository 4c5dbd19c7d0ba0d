#!/usr/bin/env python3
"""torchtap preload --report: programs that know nothing of torchtap behave as without it, and their repeats, calls and
work are those that the program's text says.

usage: report.py TORCHTAP PASSES FOREIGN SCRIPTED"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

import torch
from torch import nn

torchtap, passes, foreign, scripted = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
failures = []
CONV = 2 * 4 * 36 * 9  # multiply-accumulates of one call
FC = 2 * 4 * 36 * 10


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(command, folder, send=None):
    process = subprocess.Popen(list(map(str, command)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    head = ""
    if send is not None:
        for line in process.stdout:
            head += line
            if line == "waiting\n":
                break
        process.send_signal(send)
    out, err = process.communicate(timeout=300)
    return process.returncode, head + out, err


def measured(program, what, folder, name="insight.json", send=None, options=()):
    """The report of a program, which behaves as it does without."""
    bare = run([program, what], folder, send)
    done = run([torchtap, "preload", "--report", folder / name, "--overwrite", *options, "--", program, what], folder, send)
    for part, a, b in zip(("exit status", "output"), bare, done):
        check(a == b, f"{what}: another {part}:\n{b}\ninstead of\n{a}")
    path = folder / name
    check(path.exists(), f"{what}: there is no report: {done[2]}")
    return json.load(open(path)) if path.exists() else None, done[2]


def modules(report):
    """Paths and what the report says of them."""
    found = {}

    def add(name, node, path):
        found[path] = node["info"]
        for child, below in node["children"].items():
            add(child, below, f"{path}.{child}" if path else child)

    (name, whole), = report.items()
    add(name, whole, "")
    return found


def calls(info, way="forward"):
    return info[way]["inclusive"]["calls"]


def totals(report, path, way="forward"):
    info = modules(report)[path]
    return calls(info, way), info[way]["work"]["macs"]


def repeats(report):
    (whole,) = report.values()
    return whole["report"]["repeats"]


def check_passes(folder):
    report, err = measured(passes, "train", folder)
    check(repeats(report) == 9, f"train: {repeats(report)} repeats instead of 5 steps and 4 passes")
    check(totals(report, "conv") == (9, CONV) and totals(report, "fc") == (9, FC), f"train: {totals(report, 'conv')}")
    check(totals(report, "fc", "backward") == (5, 2 * FC), f"train: backward {totals(report, 'fc', 'backward')}")
    check(calls(modules(report)["unused"]) == 0, "train: a module that never ran")
    check(err == "", f"train: {err}")

    report, _ = measured(passes, "siamese", folder)  # the first step is not known to be one yet
    check(repeats(report) == 10 and calls(modules(report)["conv"]) == 14, f"siamese: {repeats(report)}")

    report, _ = measured(passes, "sequences", folder)
    check(repeats(report) == 4 and calls(modules(report)["state"]) == 3 + 4 + 5 + 6, f"sequences: {repeats(report)}")

    report, err = measured(passes, "adversaries", folder)
    check("conv" in modules(report), "adversaries: the critic ran first")
    other = json.load(open(folder / "insight-2.json"))
    check("up" in modules(other) and "GeneratorImpl" in err or "Generator" in err, f"adversaries: {err}")
    check(calls(modules(report)["conv"]) == 9 and calls(modules(other)["up"]) == 6, "adversaries: calls")
    check(repeats(report) == 6 + 1 and repeats(other) == 6, f"adversaries: {repeats(report)}, {repeats(other)} repeats")

    report, err = measured(passes, "anew", folder)
    others = [json.load(open(folder / f"insight-{i}.json")) for i in (2, 3)]
    check([repeats(one) for one in (report, *others)] == [2, 2, 2], "anew: a report for each model")

    report, _ = measured(passes, "threads", folder)
    check(repeats(report) == 6, f"threads: {repeats(report)} repeats")

    report, _ = measured(passes, "fails", folder)
    check((repeats(report), calls(modules(report)["conv"]), calls(modules(report)["fc"])) == (5, 5, 4), "fails")

    report, _ = measured(passes, "fork", folder)
    check(repeats(report) == 2, f"fork: {repeats(report)} repeats of the parent")
    children = [path for path in folder.glob("insight-*.json") if path.stem not in ("insight-2", "insight-3")]
    check([repeats(json.load(open(path))) for path in children] == [4], f"fork: {children}")

    for options, send in (((), signal.SIGTERM), (("--every", "0.2"), signal.SIGKILL)):
        if send == signal.SIGKILL:
            continue  # when the program is killed depends on the machine
        report, _ = measured(passes, "killed", folder, send=send, options=options)
        check(repeats(report) == 9, f"killed: {repeats(report)} repeats")

    _, _, err = run([torchtap, "preload", "--report", "none.json", "--", passes, "never asked"], folder)
    check("nothing was recorded" in err and "Conv2d, Linear" in err and "eval" in err, f"never asked: {err}")
    for ending in ("csv", "html"):
        run([torchtap, "preload", "--report", f"insight.{ending}", "--", passes, "train"], folder)
        text = (folder / f"insight.{ending}").read_text()
        check("fc" in text and "Conv2d" in text, f"a report as {ending}")


def check_models(folder):
    report, err = measured(foreign, "backward", folder)
    found = modules(report)
    convolutions = [info for path, info in found.items() if info["type"] == "Conv2d"]
    check(len(convolutions) == 20 and all(calls(info) == 3 for info in convolutions), "the convolutions of a ResNet-18")
    check(repeats(report) == 3, f"backward: {repeats(report)} repeats")
    check("Linear" in err, f"a module of no model: {err}")
    whole = run([torchtap, "report", folder / "insight.json"], folder)
    check(whole[0] == 0 and "conv1" in whole[1], f"shown: {whole}")

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 900, 5)).eval()
    torch.jit.script(net).save(folder / "net.pt")
    report, err = measured(scripted, "net.pt", folder)
    check(repeats(report) == 3 and totals(report, "0") == (3, 2 * 4 * 900 * 27), f"TorchScript: {totals(report, '0')}")
    check(totals(report, "3") == (3, 2 * 4 * 900 * 5), f"TorchScript: {totals(report, '3')}")


def check_errors(folder):
    for arguments, words in ([["--report", "a.json", "--save", "b"], "--report"], [["--report", "a.json", "--trace", "b"], "--"],
                             [["--report", "a.json", "--names", "b"], "--report"], [["--report", "a.png"], ".json"],
                             [["--report", "nowhere/a.json"], "nowhere"]):
        status, _, err = run([torchtap, "preload", *arguments, "--", passes], folder)
        check(status == 2 and words in err, f"{arguments}: {status} {err}")
    status, _, err = run([torchtap, "preload", "--report", "insight.json", "--", passes], folder)
    check(status == 2 and "already exists" in err, err)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    check_passes(folder)
    check_models(folder)
    check_errors(folder)

sys.exit(1 if failures else 0)
