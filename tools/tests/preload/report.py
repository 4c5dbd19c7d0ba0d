"""torchtap preload --report: programs that know nothing of torchtap behave as without it, and their repeats, calls and
work are those that the program's text says."""

import json
import pathlib

import pytest
import torch
from harness import given, preload, run
from torch import nn

pytestmark = pytest.mark.usefixtures("inside")
passes, foreign, scripted = given("passes"), given("foreign"), given("scripted")
CONV = 2 * 4 * 36 * 9  # multiply-accumulates of one call
FC = 2 * 4 * 36 * 10


def read(name):
    return json.loads(pathlib.Path(name).read_text())


def measured(program, what, name="insight.json", options=()):
    """The report of a program, which behaves as it does without; and what was said."""
    said = preload(["--report", name, "--overwrite", *options], program, what)
    return read(name), said


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


def test_train():
    report, err = measured(passes, "train")
    assert repeats(report) == 9
    assert totals(report, "conv") == (9, CONV) and totals(report, "fc") == (9, FC)
    assert totals(report, "fc", "backward") == (5, 2 * FC)
    assert calls(modules(report)["unused"]) == 0, "train: a module that never ran"
    assert err == "torchtap: measured 9 repeats: insight.json\n"

    # The model's own forward is compiled into the program: its row is the sum of the modules inside.
    root = modules(report)[""]
    assert root["summed"] and calls(root) == 0 and root["marks"] == []
    assert root["forward"]["work"]["macs"] == CONV + FC
    for way in ("forward", "backward"):
        inside = [modules(report)[path][way] for path in ("conv", "fc")]
        assert root[way]["work"]["macs"] == sum(one["work"]["macs"] for one in inside)
        total, parts = (sum(one["inclusive"]["total_seconds"] for one in which) for which in ([root[way]], inside))
        assert abs(total - parts) < 1e-6 and root[f"{way}_latency_seconds"] > 0
    (whole,) = report.values()
    assert not any('""' in note for note in whole["report"]["notes"])
    table = run("report", "insight.json").out
    assert "the sum of the modules inside" in " ".join(table.split()) and "not measured" not in table


def test_shared_fakes():
    report, err = measured(passes, "shared fakes")
    generator, critic = (report, read("insight-2.json"))
    if "up" not in modules(generator):
        generator, critic = critic, generator
    assert (repeats(generator), repeats(critic)) == (3, 9)
    assert totals(generator, "up") == (3, 2 * 5 * 64) and totals(generator, "up", "backward") == (3, 2 * 5 * 64)
    assert all(info["marks"] == [] and info["gradient_norm"] for path, info in modules(generator).items() if path)
    assert totals(generator, "", "backward")[1] == 2 * 5 * 64, "shared fakes: the generator's own row"


def test_siamese():
    report, _ = measured(passes, "siamese")
    assert repeats(report) == 9 and calls(modules(report)["conv"]) == 14


def test_sequences():
    report, _ = measured(passes, "sequences")
    assert repeats(report) == 4 and calls(modules(report)["state"]) == 3 + 4 + 5 + 6


def test_adversaries():
    report, err = measured(passes, "adversaries")
    other = read("insight-2.json")
    assert "insight-2.json is the report of another model, Net" in err
    assert calls(modules(other)["conv"]) == 9 and calls(modules(report)["up"]) == 6, "adversaries: calls"
    assert calls(modules(report)["up"], "backward") == 3, "adversaries: a generator's output that was detached"
    assert repeats(report) == 6 and repeats(other) == 6


def test_anew():
    report, err = measured(passes, "anew", "anew.json")
    (whole,) = report.values()
    assert repeats(report) == 3 * 2 and calls(modules(report)["conv"]) == 3 * 2, "each goes on with the one before"
    assert any("3 models of the same modules" in note for note in whole["report"]["notes"])
    assert not list(pathlib.Path.cwd().glob("anew-*"))


def test_exchanged():
    """While the pass of a model is open, of which nobody sees the end, another thread puts the next one in its place."""
    report, err = measured(passes, "exchanged", "exchanged.json")
    assert calls(modules(report)["conv"]) == 30 * 3 and "open" not in err
    assert not list(pathlib.Path.cwd().glob("exchanged-*"))


def test_threads():
    """The model has a module that never runs, so its first three passes are not told apart."""
    report, _ = measured(passes, "threads")
    assert (repeats(report), calls(modules(report)["conv"])) == (1 + 3, 6)


def test_at_once():
    """What is no repeat of its own is said."""
    _, err = measured(passes, "at once")
    assert "forwards that began while another thread was in a pass are no repeats" in err


def test_workers():
    """Threads whose work main waits for have their turn, as main has after them."""
    report, _ = measured(passes, "workers")
    other = read("insight-2.json")
    assert (repeats(report), calls(modules(report)["conv"])) == (5, 5)
    assert calls(modules(other)["conv"]) == 22


def test_warmed_up():
    report, err = measured(passes, "warmed up")
    assert "no repeats" not in err
    assert calls(modules(report)["conv"]) == 28


def test_fails():
    report, _ = measured(passes, "fails")
    assert (repeats(report), calls(modules(report)["conv"]), calls(modules(report)["fc"])) == (5, 5, 4), "fails"


def test_fork():
    report, _ = measured(passes, "fork")
    assert (repeats(report), calls(modules(report)["conv"])) == (1, 2)
    report = read("insight-process2.json")  # the child's, which ends by exit
    assert (repeats(report), calls(modules(report)["conv"])) == (4, 4)


def test_terminated():
    report, _ = measured(passes, "terminated")
    assert repeats(report) == 8  # the end of the last pass cannot be seen


def test_killed():
    report, _ = measured(passes, "killed")
    assert repeats(report) == 8  # the end of the last pass cannot be seen


def test_never_asked():
    err = run("preload", "--report", "none.json", "--", passes, "never asked", status=None).err
    assert "nothing was recorded" in err and "Conv2d, Linear" in err and "eval" in err


@pytest.mark.parametrize("ending", ["csv", "html"])
def test_other_files(ending):
    run("preload", "--report", f"insight.{ending}", "--", passes, "train", status=None)
    text = pathlib.Path(f"insight.{ending}").read_text()
    assert "fc" in text and "Conv2d" in text


def test_resnet():
    report, err = measured(foreign, "backward")
    found = modules(report)
    convolutions = [info for path, info in found.items() if info["type"] == "Conv2d"]
    # Three steps, and then the first convolution alone.
    assert sorted(calls(info) for info in convolutions) == [3] * 19 + [4], "the convolutions of a ResNet-18"
    assert repeats(report) == 4
    assert "Linear" in err, "a module of no model"
    assert "conv1" in run("report", "insight.json").out


def test_torchscript(folder):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 900, 5)).eval()
    torch.jit.script(net).save(folder / "net.pt")
    report, err = measured(scripted, "net.pt")
    assert repeats(report) == 3 and totals(report, "0") == (3, 2 * 4 * 900 * 27)
    assert totals(report, "3") == (3, 2 * 4 * 900 * 5)
    preload(["--report", "loaded.json"], scripted, "net.pt", "20")
    report = read("loaded.json")
    assert repeats(report) == 20 * 3 and totals(report, "3") == (20 * 3, 2 * 4 * 900 * 5)
    assert not list(folder.glob("loaded-*"))


def test_errors():
    for arguments, words in (
        [["--report", "a.json", "--save", "b"], "--report"],
        [["--report", "a.json", "--trace", "b"], "--"],
        [["--report", "a.json", "--names", "b"], "--report"],
        [["--report", "a.png"], ".json"],
        [["--report", "nowhere/a.json"], "nowhere"],
    ):
        assert words in run("preload", *arguments, "--", passes, status=2).err
    pathlib.Path("there.json").touch()
    assert "already exists" in run("preload", "--report", "there.json", "--", passes, status=2).err
