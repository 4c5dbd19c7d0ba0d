"""torchtap preload --report: programs that know nothing of torchtap behave as without it, and their repeats, calls and
work are those that the program's text says."""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch import nn

torchtap, passes, foreign, scripted = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])

CONV = 2 * 4 * 36 * 9  # multiply-accumulates of one call
FC = 2 * 4 * 36 * 10


def run(command, folder):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def measured(program, what, folder, name="insight.json", options=()):
    """The report of a program, which behaves as it does without."""
    bare = run([program, what], folder)
    done = run([torchtap, "preload", "--report", folder / name, "--overwrite", *options, "--", program, what], folder)
    for part, a, b in zip(("exit status", "output"), bare, done):
        assert a == b
    path = folder / name
    assert path.exists()
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


def test_passes(folder):
    report, err = measured(passes, "train", folder)
    assert repeats(report) == 9, "train"
    assert totals(report, "conv") == (9, CONV) and totals(report, "fc") == (9, FC), "train"
    assert totals(report, "fc", "backward") == (5, 2 * FC)
    assert calls(modules(report)["unused"]) == 0, "train: a module that never ran"
    assert err == "torchtap: measured 9 repeats: " + str(folder / "insight.json") + "\n", "train"

    # The model's own forward is compiled into the program: its row is the sum of the modules inside.
    root = modules(report)[""]
    assert root["summed"] and calls(root) == 0 and root["marks"] == []
    assert root["forward"]["work"]["macs"] == CONV + FC
    for way in ("forward", "backward"):
        inside = [modules(report)[path][way] for path in ("conv", "fc")]
        assert root[way]["work"]["macs"] == sum(one["work"]["macs"] for one in inside), "train"
        total, parts = (sum(one["inclusive"]["total_seconds"] for one in which) for which in ([root[way]], inside))
        assert abs(total - parts) < 1e-6 and root[f"{way}_latency_seconds"] > 0, "train"
    (whole,) = report.values()
    assert not any('""' in note for note in whole["report"]["notes"]), "train"
    table = run([torchtap, "report", folder / "insight.json"], folder)[1]
    assert "the sum of the modules inside" in " ".join(table.split()) and "not measured" not in table

    report, err = measured(passes, "shared fakes", folder)
    generator, critic = (report, json.load(open(folder / "insight-2.json")))
    if "up" not in modules(generator):
        generator, critic = critic, generator
    assert (repeats(generator), repeats(critic)) == (3, 9), "shared fakes"
    assert totals(generator, "up") == (3, 2 * 5 * 64) and totals(generator, "up", "backward") == (3, 2 * 5 * 64)
    assert all(info["marks"] == [] and info["gradient_norm"] for path, info in modules(generator).items() if path)
    assert totals(generator, "", "backward")[1] == 2 * 5 * 64, "shared fakes: the generator's own row"

    report, _ = measured(passes, "siamese", folder)
    assert repeats(report) == 9 and calls(modules(report)["conv"]) == 14, "siamese"

    report, _ = measured(passes, "sequences", folder)
    assert repeats(report) == 4 and calls(modules(report)["state"]) == 3 + 4 + 5 + 6, "sequences"

    report, err = measured(passes, "adversaries", folder)
    other = json.load(open(folder / "insight-2.json"))
    assert "insight-2.json is the report of another model, Net" in err, "adversaries"
    assert calls(modules(other)["conv"]) == 9 and calls(modules(report)["up"]) == 6, "adversaries: calls"
    assert calls(modules(report)["up"], "backward") == 3, "adversaries: a generator's output that was detached"
    assert repeats(report) == 6 and repeats(other) == 6, "adversaries"

    report, err = measured(passes, "anew", folder)
    others = [json.load(open(folder / f"insight-{i}.json")) for i in (2, 3)]
    assert [repeats(one) for one in (report, *others)] == [2, 2, 2], "anew: a report for each model"

    # The model has a module that never runs, so its first three passes are not told apart.
    report, _ = measured(passes, "threads", folder)
    assert (repeats(report), calls(modules(report)["conv"])) == (1 + 3, 6), "threads"

    # What is no repeat of its own is said.
    _, err = measured(passes, "at once", folder)
    assert "forwards that began while another thread was in a pass are no repeats" in err, "at once"

    # Threads whose work main waits for have their turn, as main has after them.
    report, _ = measured(passes, "workers", folder)
    other = json.load(open(folder / "insight-2.json"))
    assert (repeats(report), calls(modules(report)["conv"])) == (5, 5), "workers"
    assert calls(modules(other)["conv"]) == 22, "workers"
    report, err = measured(passes, "warmed up", folder)
    assert "no repeats" not in err, "warmed up"
    assert calls(modules(report)["conv"]) == 28, "warmed up"

    report, _ = measured(passes, "fails", folder)
    assert (repeats(report), calls(modules(report)["conv"]), calls(modules(report)["fc"])) == (5, 5, 4), "fails"

    report, _ = measured(passes, "fork", folder)
    assert (repeats(report), calls(modules(report)["conv"])) == (1, 2), "fork"
    (child,) = (path for path in folder.glob("insight-*.json") if path.stem not in ("insight-2", "insight-3"))
    report = json.load(open(child))
    assert (repeats(report), calls(modules(report)["conv"])) == (4, 4), "fork"

    report, _ = measured(passes, "terminated", folder)
    assert repeats(report) == 9, "terminated"
    report, err = measured(passes, "killed", folder, "every.json", ["--interval", "0.2"])
    assert repeats(report) >= 8, "killed"
    assert "killed by signal 9" in err and "has the report as of" in err, "killed"

    _, _, err = run([torchtap, "preload", "--report", "none.json", "--", passes, "never asked"], folder)
    assert "nothing was recorded" in err and "Conv2d, Linear" in err and "eval" in err, "never asked"
    for ending in ("csv", "html"):
        run([torchtap, "preload", "--report", f"insight.{ending}", "--", passes, "train"], folder)
        text = (folder / f"insight.{ending}").read_text()
        assert "fc" in text and "Conv2d" in text


def test_models(folder):
    report, err = measured(foreign, "backward", folder)
    found = modules(report)
    convolutions = [info for path, info in found.items() if info["type"] == "Conv2d"]
    # Three steps, and then the first convolution alone.
    assert sorted(calls(info) for info in convolutions) == [3] * 19 + [4], "the convolutions of a ResNet-18"
    assert repeats(report) == 4, "backward"
    assert "Linear" in err, "a module of no model"
    whole = run([torchtap, "report", folder / "insight.json"], folder)
    assert whole[0] == 0 and "conv1" in whole[1], "shown"

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 900, 5)).eval()
    torch.jit.script(net).save(folder / "net.pt")
    report, err = measured(scripted, "net.pt", folder)
    assert repeats(report) == 3 and totals(report, "0") == (3, 2 * 4 * 900 * 27), "TorchScript"
    assert totals(report, "3") == (3, 2 * 4 * 900 * 5), "TorchScript"


def test_errors(folder):
    for arguments, words in (
        [["--report", "a.json", "--save", "b"], "--report"],
        [["--report", "a.json", "--trace", "b"], "--"],
        [["--report", "a.json", "--names", "b"], "--report"],
        [["--report", "a.png"], ".json"],
        [["--report", "nowhere/a.json"], "nowhere"],
    ):
        status, _, err = run([torchtap, "preload", *arguments, "--", passes], folder)
        assert status == 2 and words in err
    status, _, err = run([torchtap, "preload", "--report", "insight.json", "--", passes], folder)
    assert status == 2 and "already exists" in err


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    check_passes(folder)
    check_models(folder)
    check_errors(folder)
