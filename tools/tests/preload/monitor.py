"""torchtap preload --monitor: a server that is not rebuilt behaves as without it; noise in its requests and NaN are alarms with
incidents, which replay bit by bit; so are the last inputs of one that crashes."""

import functools
import json
import os
import pathlib
import re
import signal
import sys

import harness
import pytest
import torch
from harness import SOURCE, TORCHTAP, entries, given, run, start, until
from torch import nn

sys.path.insert(0, str(SOURCE / "views/monitor/tests/monitor_surfaces"))
from event_file import events
from exposition import samples

pytestmark = pytest.mark.usefixtures("inside", "models")
served = given("served")
os.environ["UCX_ERROR_SIGNALS"] = ""  # UCX, which newer LibTorchs link, would print a backtrace where a program crashes
MODELS = pytest.mark.parametrize("model", ["net", "net.pt"])


def preload(options, model, *phases, status=5):
    """What torchtap says of a program, which behaves as it does without."""
    said = harness.preload(options, served, model, *phases, status=status)
    assert not rings(pathlib.Path.cwd())
    return said.replace("torchtap: ", "")


@functools.lru_cache(None)
def learned(model):
    """What torchtap says while it learns a reference of a model, which is ref-MODEL."""
    return preload(["--learn", "ref-" + model], model, "clean:1500")


def until_alarm(options, model, incidents):
    """Runs "noise" until there is an incident, or for some minutes."""
    stop = pathlib.Path("stop")
    with start(TORCHTAP, "preload", *options, "--", served, model, "clean:300", "noise") as process:
        until(
            lambda: any(alarm.get("incident") for alarm in alarms(incidents)) or process.poll() is not None,
            "no incident",
            300,
        )
        stop.touch()
        out, err = process.communicate()
    stop.unlink()
    assert (process.returncode, out) == (5, "done: clean\ndone: noise\n")
    return err.replace("torchtap: ", "")


def alarms(incidents):
    """The alarms that were raised."""
    file = pathlib.Path(incidents) / "alarms.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    assert all(line["format"] == 1 for line in lines)
    return [line for line in lines if line.get("state") == "raised"]


def rings(place):
    """Rings for incidents of these tests."""
    found = []
    for ring in pathlib.Path(f"/dev/shm/torchtap-{os.geteuid()}").glob("ring-*"):
        try:
            with open(ring, "rb") as file:
                found += [ring] if str(place).encode() in file.read(1 << 16) else []
        except OSError:
            pass  # of another program, which has ended
    return found


def replayed(incident, model):
    """Runs the incident again: all outputs have the same bits."""
    run("replay", incident, model)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.act = nn.Hardswish()
        self.second = nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor):
        return self.head(self.act(self.second(self.act(self.first(x)))).mean([2, 3]))


@pytest.fixture(scope="module")
def models(folder, inside):
    torch.manual_seed(0)
    torch.jit.script(Net().eval()).save(folder / "net.pt")


@MODELS
def test_learned(model):
    reference, said = "ref-" + model, learned(model)
    assert f"learned a reference of 1 model: {reference}\n" in said
    listed = entries(reference)
    assert {"first", "second", "head"} <= {entry["path"] for entry in listed}
    assert all(entry["reduction"].startswith("Blocks(") and entry["samples"] % 1500 == 0 for entry in listed)
    # Clean requests are no alarms; a folder of incidents may be there already.
    said = preload(["--monitor", reference, "--save", "quiet"], model, "clean:600")
    assert "watched 1 model, no alarms.\n" in said


def test_learn_twice():
    learned("net")
    assert "--overwrite" in run("preload", "--learn", "ref-net", "--", served, "net", "clean:1", status=2).err


@MODELS
def test_what_a_killed_process_had_learned_is_saved(model):
    said = preload(["--learn", "killed-" + model], model, "clean:3", "kill", status=-signal.SIGKILL)
    assert said == f"learned a reference of 1 model: killed-{model}\n"
    assert all(entry["samples"] % 3 == 0 for entry in entries("killed-" + model))


@MODELS
def test_the_last_rows_of_a_killed_process_are_judged(folder, model):
    """Although they are fewer than a window; how many it had handed over depends on how long its forwards take."""
    options = ["--monitor", "", "--cost", "1", "--save", "short-" + model, "--metrics", model + "-short.prom"]
    preload(options, model, "clean:20", "kill", status=-signal.SIGKILL)
    found = {name: value for name, _, _, value in samples((folder / (model + "-short.prom")).read_text())}
    assert found["torchtap_windows_total"] == 1 and 0 < found["torchtap_forwards_sampled_total"] <= 20


@MODELS
def test_noise(folder, model):
    learned(model)
    incidents = "incidents-" + model
    options = ["--monitor", "ref-" + model, "--save", incidents, "--metrics", model + ".prom"]
    options += ["--tensorboard", "runs-" + model]
    said = until_alarm(options, model, incidents)
    raised = alarms(incidents)
    drifts = [alarm for alarm in raised if alarm["rule"] == "drift"]
    assert {"first", "second", "head"} & {alarm["module"] for alarm in drifts}
    for alarm in drifts:
        # T² is "Infinity" where the reference has no variance at all.
        assert alarm["psi"] >= 0.02 and float(alarm["value"]) > alarm["limit"]
    assert f"watched 1 model, {len(raised)} alarm{'s' if len(raised) > 1 else ''}: {incidents}/alarms.jsonl" in said
    assert said.count("\ndrift  ") + said.startswith("drift  ") == len(drifts)
    incident = pathlib.Path(next(alarm["incident"] for alarm in drifts if alarm["incident"]))
    assert (incident / "incident.json").exists()
    if model == "net.pt":
        replayed(incident, model)
    found = samples((folder / (model + ".prom")).read_text())
    drifted = [
        value for name, _, labels, value in found if name == "torchtap_alarms_total" and labels["rule"] == "drift"
    ]
    assert any(value >= 1 for value in drifted)
    assert len({labels["model"] for _, _, labels, _ in found if "model" in labels}) == 1
    (file,) = (folder / ("runs-" + model)).iterdir()
    histograms = [value["tag"] for event in events(file)[1:] for value in event["summary"] if "histo" in value]
    assert any("first" in tag for tag in histograms)


def test_nan(folder):
    (folder / "rules.txt").write_text("nonfinite = on\n")
    options = ["--monitor", "", "--rules", "rules.txt", "--save", "nan"]
    said = preload(options, "net.pt", "clean:5", "nan:1", "clean:5")
    (alarm,) = [alarm for alarm in alarms("nan") if alarm["module"] == "" and alarm["rule"] == "nonfinite"]
    assert "nonfinite  (model)  output" in said and alarm["forward"] == 5
    replayed(alarm["incident"], "net.pt")
    modes = {path.name: path.stat().st_mode & 0o077 for path in (folder / "nan").iterdir() if path.is_dir()}
    assert modes and not any(modes.values())
    # A second run adds to the folder; only its own alarms are told.
    said = preload(options, "net.pt", "clean:5")
    assert "watched 1 model, no alarms.\n" in said
    said = preload(["--monitor", "", "--save", "nan-net"], "net", "clean:5", "nan:1", "clean:5")
    assert [alarm["rule"] for alarm in alarms("nan-net")][:1] == ["nonfinite"], "NaN in C++"


@pytest.mark.parametrize("ending, number", [("segv", 11), ("kill", 9), ("abort", 6), ("throw", 6)])
def test_crashes(folder, ending, number):
    said = preload(["--monitor", "", "--save", ending], "net.pt", "clean:20", ending, status=-number)
    (told,) = [line for line in said.splitlines() if line.startswith("the incident of a killed process: ")]
    incident = folder / told.split(": ")[1]
    assert incident.parent == folder / ending
    forwards = [json.loads(line) for line in (incident / "forwards.jsonl").read_text().splitlines()]
    assert [one["forward"] for one in forwards] == list(range(20))
    replayed(incident, "net.pt")


@pytest.mark.parametrize("ending, status", [("exit", 6), ("term", -signal.SIGTERM)])
def test_other_ends(folder, ending, status):
    said = preload(["--monitor", "", "--save", ending], "net.pt", "clean:20", ending, status=status)
    assert "killed process" not in said and "no alarms" in said
    assert not [path for path in (folder / ending).iterdir() if path.is_dir()]


@MODELS
def test_processes(folder, model):
    name = "forked-" + model
    said = preload(["--monitor", "", "--save", name], model, "clean:5", "fork:nan:5", "clean:5")
    (child,) = folder.glob(name + "-*")
    # It ends by _exit, at once: its thread may not have told the alarm, but the inputs are there.
    assert any(path.is_dir() for path in child.iterdir()) and not alarms(name)
    assert re.search(r"process \d+ \(served\): watched 1 model, ", said)
    assert "watched 1 model, no alarms.\n" in said.replace("): ", "\n")


def test_a_model_that_is_loaded_again(folder):
    """It goes on with the monitor of the former object: its drift is judged, and there is no limit to reloads."""
    (folder / "reload.py").write_text(
        "import sys, torch\n"
        "torch.manual_seed(int(sys.argv[1]))\n"
        "with torch.no_grad():\n"
        "    for reload in range(80):\n"
        "        model = torch.jit.load('small.pt')\n"
        "        for _ in range(3):\n"
        "            model(torch.randn(16, 3) * float(sys.argv[2]))\n"
        "        del model\n"
    )
    torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())).save(folder / "small.pt")
    how = ("--", sys.executable, "-W", "ignore", "reload.py")
    said = run("preload", "--learn", "ref", *how, 1, 1, cwd=folder).err
    assert said == "torchtap: learned a reference of 1 model: ref\n"
    good = run("preload", "--monitor", "ref", "--cost", "1", "--save", "good", *how, 2, 1, cwd=folder).err
    assert good == "torchtap: watched 1 model, no alarms.\n"
    wide = run("preload", "--monitor", "ref", "--cost", "1", "--save", "wide", *how, 3, 3, cwd=folder).err
    assert "watched 1 model" in wide and any(alarm["rule"] == "drift" for alarm in alarms(folder / "wide"))


def test_errors(folder):
    (folder / "wrong.txt").write_text("dead_relu.zero = 0.9\n")
    run("record", "net.pt", "--random", "1x3x24x24", "--save", "kept", status=None)
    for options, says in (
        (["--monitor", ""], "--save"),
        (["--monitor", "missing", "--save", "x"], "missing"),
        (["--monitor", "kept", "--save", "x"], "no distributions to compare with"),
        (["--monitor", "", "--rules", "wrong.txt", "--save", "x"], 'the nearest is "zeros"'),
        (["--rules", "wrong.txt", "--save", "x"], "--monitor"),
        (["--monitor", "", "--save", "x", "--reduce", "mean"], "--reduce"),
        (["--learn", "x", "--save", "y"], "--learn"),
    ):
        assert says in run("preload", *options, "--", served, "net", "clean:1", status=2).err
        assert not (folder / "x").exists()
    no_model = run("preload", "--monitor", "", "--save", "x", "--", "sh", "-c", "exit 3", status=3).err
    assert "nothing was watched: " in no_model


def test_a_reference_of_another_model(folder):
    """The program runs, and it is said that nothing is compared."""
    learned("net.pt")
    torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 2)).eval()).save(folder / "other.pt")
    said = preload(["--monitor", "ref-net.pt", "--save", "x"], "other.pt", "clean:3")
    assert "is watched with rules alone: " in said and "ref-net.pt" in said, "another model"


def test_pair(folder):
    """Each model of a program has its own reference, whichever runs first."""
    said = preload(["--learn", "ref-pair"], "pair", "clean:400")
    assert "learned a reference of 2 models: ref-pair\n" in said, "pair"
    for model in ("pair", "reversed pair"):
        options = ["--monitor", "ref-pair", "--cost", "1", "--save", model]
        said = preload(options, model, "clean:300")
        drifts = [alarm for alarm in alarms(model) if alarm["rule"] == "drift"]
        assert "watched 2 models, " in said and not drifts


def test_unwritten(folder):
    """Alarms that cannot be written are told all the same."""
    (folder / "unwritten").mkdir()
    (folder / "unwritten" / "alarms.jsonl").symlink_to(folder / "nowhere" / "alarms.jsonl")
    (folder / "rules.txt").write_text("nonfinite = on\n")
    options = ["--monitor", "", "--rules", "rules.txt", "--save", "unwritten"]
    said = preload(options, "net.pt", "clean:5", "nan:1", "clean:5")
    found = re.search(r"watched 1 model, (\d+) alarms?, of which (\d+) could not be written to unwritten/", said)
    assert found and found[1] == found[2], "alarms that could not be written"
