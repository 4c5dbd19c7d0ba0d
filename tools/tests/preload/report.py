#!/usr/bin/env python3
"""torchtap preload --report: programs that know nothing of torchtap behave as without it, and their repeats, calls and
work are those that the program's text says.

usage: report.py TORCHTAP PASSES FOREIGN SCRIPTED"""

import json
import pathlib
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


def run(command, folder):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def measured(program, what, folder, name="insight.json", options=()):
    """The report of a program, which behaves as it does without."""
    bare = run([program, what], folder)
    done = run([torchtap, "preload", "--report", folder / name, "--overwrite", *options, "--", program, what], folder)
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

    ((name, whole),) = report.items()
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
    check(err == "torchtap: measured 9 repeats: " + str(folder / "insight.json") + "\n", f"train: {err}")

    # The model's own forward is compiled into the program: its row is the sum of the modules inside.
    root = modules(report)[""]
    check(
        root["summed"] and calls(root) == 0 and root["marks"] == [],
        f"train: the root {root['summed']}, {root['marks']}",
    )
    check(root["forward"]["work"]["macs"] == CONV + FC, f"train: MACs of the root {root['forward']['work']}")
    for way in ("forward", "backward"):
        inside = [modules(report)[path][way] for path in ("conv", "fc")]
        check(root[way]["work"]["macs"] == sum(one["work"]["macs"] for one in inside), f"train: {way} MACs of the root")
        total, parts = (sum(one["inclusive"]["total_seconds"] for one in which) for which in ([root[way]], inside))
        check(
            abs(total - parts) < 1e-6 and root[f"{way}_latency_seconds"] > 0,
            f"train: {way} of the root takes {total}, not {parts}",
        )
    (whole,) = report.values()
    check(not any('""' in note for note in whole["report"]["notes"]), f"train: {whole['report']['notes']}")
    table = run([torchtap, "report", folder / "insight.json"], folder)[1]
    check("the sum of the modules inside" in " ".join(table.split()) and "not measured" not in table, table)

    report, err = measured(passes, "shared fakes", folder)
    generator, critic = (report, json.load(open(folder / "insight-2.json")))
    if "up" not in modules(generator):
        generator, critic = critic, generator
    check(
        (repeats(generator), repeats(critic)) == (3, 9),
        f"shared fakes: {repeats(generator)}, {repeats(critic)} repeats",
    )
    check(
        totals(generator, "up") == (3, 2 * 5 * 64) and totals(generator, "up", "backward") == (3, 2 * 5 * 64),
        f"shared fakes: {totals(generator, 'up')}, {totals(generator, 'up', 'backward')}",
    )
    check(
        all(info["marks"] == [] and info["gradient_norm"] for path, info in modules(generator).items() if path),
        "shared fakes: gradients were cleared",
    )
    check(totals(generator, "", "backward")[1] == 2 * 5 * 64, "shared fakes: the generator's own row")

    report, _ = measured(passes, "siamese", folder)
    check(repeats(report) == 9 and calls(modules(report)["conv"]) == 14, f"siamese: {repeats(report)}")

    report, _ = measured(passes, "sequences", folder)
    check(repeats(report) == 4 and calls(modules(report)["state"]) == 3 + 4 + 5 + 6, f"sequences: {repeats(report)}")

    report, err = measured(passes, "adversaries", folder)
    other = json.load(open(folder / "insight-2.json"))
    check("insight-2.json is the report of another model, Net" in err, f"adversaries: {err}")
    check(calls(modules(other)["conv"]) == 9 and calls(modules(report)["up"]) == 6, "adversaries: calls")
    check(calls(modules(report)["up"], "backward") == 3, "adversaries: a generator's output that was detached")
    check(repeats(report) == 6 and repeats(other) == 6, f"adversaries: {repeats(report)}, {repeats(other)} repeats")

    report, err = measured(passes, "anew", folder)
    others = [json.load(open(folder / f"insight-{i}.json")) for i in (2, 3)]
    check([repeats(one) for one in (report, *others)] == [2, 2, 2], "anew: a report for each model")

    # The model has a module that never runs, so its first three passes are not told apart.
    report, _ = measured(passes, "threads", folder)
    check((repeats(report), calls(modules(report)["conv"])) == (1 + 3, 6), f"threads: {repeats(report)} repeats")

    # What is no repeat of its own is said.
    _, err = measured(passes, "at once", folder)
    check("forwards that began while another thread was in a pass are no repeats" in err, f"at once: {err}")

    # Threads whose work main waits for have their turn, as main has after them.
    report, _ = measured(passes, "workers", folder)
    other = json.load(open(folder / "insight-2.json"))
    check(
        (repeats(report), calls(modules(report)["conv"])) == (5, 5), f"workers: {repeats(report)} repeats of the first"
    )
    check(calls(modules(other)["conv"]) == 22, f"workers: {calls(modules(other)['conv'])} calls of the second")
    report, err = measured(passes, "warmed up", folder)
    check("no repeats" not in err, f"warmed up: {err}")
    check(calls(modules(report)["conv"]) == 28, f"warmed up: {calls(modules(report)['conv'])} calls")

    report, _ = measured(passes, "fails", folder)
    check((repeats(report), calls(modules(report)["conv"]), calls(modules(report)["fc"])) == (5, 5, 4), "fails")

    report, _ = measured(passes, "fork", folder)
    check((repeats(report), calls(modules(report)["conv"])) == (1, 2), f"fork: {repeats(report)} repeats of the parent")
    (child,) = (path for path in folder.glob("insight-*.json") if path.stem not in ("insight-2", "insight-3"))
    report = json.load(open(child))
    check((repeats(report), calls(modules(report)["conv"])) == (4, 4), f"fork: {repeats(report)} repeats of the child")

    report, _ = measured(passes, "terminated", folder)
    check(repeats(report) == 9, f"terminated: {repeats(report)} repeats")
    report, err = measured(passes, "killed", folder, "every.json", ["--interval", "0.2"])
    check(repeats(report) >= 8, f"killed: {repeats(report)} repeats were saved")
    check("killed by signal 9" in err and "has the report as of" in err, f"killed: {err}")

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
    # Three steps, and then the first convolution alone.
    check(sorted(calls(info) for info in convolutions) == [3] * 19 + [4], "the convolutions of a ResNet-18")
    check(repeats(report) == 4, f"backward: {repeats(report)} repeats")
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
    for arguments, words in (
        [["--report", "a.json", "--save", "b"], "--report"],
        [["--report", "a.json", "--trace", "b"], "--"],
        [["--report", "a.json", "--names", "b"], "--report"],
        [["--report", "a.png"], ".json"],
        [["--report", "nowhere/a.json"], "nowhere"],
    ):
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
