"""torchtap preload --monitor: a server that is not rebuilt behaves as without it; noise in its requests and NaN are alarms with
incidents, which replay bit by bit; so are the last inputs of one that crashes."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "views/monitor/tests/monitor_surfaces"))
from event_file import events  # noqa: E402
from exposition import samples  # noqa: E402

torchtap, served = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
os.environ["UCX_ERROR_SIGNALS"] = ""  # UCX, which newer LibTorchs link, would print a backtrace where a program crashes


def run(command, folder):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


def preload(folder, options, model, *phases, status=5):
    """What torchtap says of a program, which behaves as it does without."""
    bare = run([served, model, *phases], folder)
    done = run([torchtap, "preload", *options, "--", served, model, *phases], folder)
    assert bare[0] == status
    assert done[:2] == bare[:2]
    said = done[2].replace(bare[2], "", 1) if bare[2] else done[2]
    assert all(line.startswith("torchtap: ") for line in said.splitlines())
    assert not rings(folder)
    return said.replace("torchtap: ", "")


def until_alarm(folder, options, model, incidents):
    """Runs "noise" until there is an incident, or for some minutes."""
    with subprocess.Popen(
        [torchtap, "preload", *map(str, options), "--", served, model, "clean:300", "noise"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for _ in range(2000):
            if any(alarm.get("incident") for alarm in alarms(folder / incidents)) or process.poll() is not None:
                break
            time.sleep(0.1)
        (folder / "stop").touch()
        out, err = process.communicate()
    (folder / "stop").unlink()
    assert (process.returncode, out) == (5, "done: clean\ndone: noise\n"), "noise"
    return err.replace("torchtap: ", "")


def alarms(incidents):
    """The alarms that were raised."""
    file = incidents / "alarms.jsonl"
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


def incident_of(alarm, folder):
    return folder / alarm["incident"] if alarm["incident"] else None


def replayed(incident, model, folder):
    """Runs the incident again: all outputs have the same bits."""
    status, out, err = run([torchtap, "replay", incident, model], folder)
    assert status == 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.act = nn.Hardswish()
        self.second = nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor):
        return self.head(self.act(self.second(self.act(self.first(x)))).mean([2, 3]))


def test_learned(folder):
    for model in ("net", "net.pt"):
        reference = "ref-" + model
        said = preload(folder, ["--learn", reference], model, "clean:1500")
        assert f"learned a reference of 1 model: {reference}\n" in said
        entries = json.load(open(folder / reference / "manifest.json"))["entries"]
        assert {"first", "second", "head"} <= {entry["path"] for entry in entries}
        assert all(entry["reduction"].startswith("Blocks(") and entry["samples"] % 1500 == 0 for entry in entries)
        # Clean requests are no alarms; a folder of incidents may be there already.
        said = preload(folder, ["--monitor", reference, "--save", "quiet"], model, "clean:600")
        assert "watched 1 model, no alarms.\n" in said
    status, _, said = run([torchtap, "preload", "--learn", "ref-net", "--", served, "net", "clean:1"], folder)
    assert status == 2 and "--overwrite" in said, "learn twice"
    # A process that is killed while it learns says so.
    said = preload(folder, ["--learn", "killed"], "net", "clean:3", "kill", status=-signal.SIGKILL)
    assert "killed by signal 9" in said and "lost" in said and not (folder / "killed").exists(), "killed"


def test_noise(folder):
    for model in ("net", "net.pt"):
        incidents = "incidents-" + model
        options = ["--monitor", "ref-" + model, "--save", incidents, "--metrics", model + ".prom"]
        options += ["--tensorboard", "runs-" + model]
        said = until_alarm(folder, options, model, incidents)
        raised = alarms(folder / incidents)
        drifts = [alarm for alarm in raised if alarm["rule"] == "drift"]
        assert {"first", "second", "head"} & {alarm["module"] for alarm in drifts}
        for alarm in drifts:
            # T² is infinite, null in JSON, where the reference has no variance at all.
            beyond = alarm["value"] is None or alarm["value"] > alarm["limit"]
            assert alarm["psi"] >= 0.02 and beyond
        assert f"watched 1 model, {len(raised)} alarm{'s' if len(raised) > 1 else ''}: {incidents}/alarms.jsonl" in said
        assert said.count("\ndrift  ") + said.startswith("drift  ") == len(drifts)
        incident = incident_of(next(alarm for alarm in drifts if alarm["incident"]), folder)
        assert (incident / "incident.json").exists()
        if model == "net.pt":
            replayed(incident, model, folder)
        found = samples((folder / (model + ".prom")).read_text())
        assert (any(name == "torchtap_alarms_total" and labels["rule"] == "drift" and value >= 1
                for name, _, labels, value in found))  # fmt: skip
        assert len({labels["model"] for _, _, labels, _ in found if "model" in labels}) == 1
        (file,) = (folder / ("runs-" + model)).iterdir()
        histograms = [value["tag"] for event in events(file)[1:] for value in event["summary"] if "histo" in value]
        assert any("first" in tag for tag in histograms)


def test_nan(folder):
    (folder / "rules.txt").write_text("nonfinite = on\n")
    options = ["--monitor", "", "--rules", "rules.txt", "--save", "nan"]
    said = preload(folder, options, "net.pt", "clean:5", "nan:1", "clean:5")
    (alarm,) = [alarm for alarm in alarms(folder / "nan") if alarm["module"] == "" and alarm["rule"] == "nonfinite"]
    assert "nonfinite  (model)  output" in said and alarm["forward"] == 5
    replayed(incident_of(alarm, folder), "net.pt", folder)
    modes = {path.name: path.stat().st_mode & 0o077 for path in (folder / "nan").iterdir() if path.is_dir()}
    assert modes and not any(modes.values())
    # A second run adds to the folder; only its own alarms are told.
    said = preload(folder, options, "net.pt", "clean:5")
    assert "watched 1 model, no alarms.\n" in said
    said = preload(folder, ["--monitor", "", "--save", "nan-net"], "net", "clean:5", "nan:1", "clean:5")
    assert [alarm["rule"] for alarm in alarms(folder / "nan-net")][:1] == ["nonfinite"], "NaN in C++"


def test_crashes(folder):
    for ending, status in (
        ("segv", -signal.SIGSEGV),
        ("kill", -signal.SIGKILL),
        ("abort", -signal.SIGABRT),
        ("throw", -signal.SIGABRT),
    ):
        said = preload(folder, ["--monitor", "", "--save", ending], "net.pt", "clean:20", ending, status=status)
        told = [line for line in said.splitlines() if line.startswith("the incident of a killed process: ")]
        assert len(told) == 1
        if told:
            incident = folder / told[0].split(": ")[1]
            assert incident.parent == folder / ending
            forwards = [json.loads(line) for line in (incident / "forwards.jsonl").read_text().splitlines()]
            assert [one["forward"] for one in forwards] == list(range(20))
            replayed(incident, "net.pt", folder)
    for ending, status in (("exit", 6), ("term", -signal.SIGTERM)):
        said = preload(folder, ["--monitor", "", "--save", ending], "net.pt", "clean:20", ending, status=status)
        assert "killed process" not in said and "no alarms" in said
        assert not [path for path in (folder / ending).iterdir() if path.is_dir()]


def test_processes(folder):
    for model in ("net", "net.pt"):
        name = "forked-" + model
        said = preload(folder, ["--monitor", "", "--save", name], model, "clean:5", "fork:nan:5", "clean:5")
        (child,) = folder.glob(name + "-*")
        assert alarms(child) and not alarms(folder / name), "fork"
        assert f"process {child.name.split('-')[-1]} (served): watched 1 model, " in said, "fork"
        assert "watched 1 model, no alarms.\n" in said.replace("): ", "\n"), "fork"


def test_errors(folder):
    (folder / "wrong.txt").write_text("dead_relu.zero = 0.9\n")
    run([torchtap, "record", "net.pt", "--random", "1x3x24x24", "--save", "kept"], folder)
    for options, says in (
        (["--monitor", ""], "--save"),
        (["--monitor", "missing", "--save", "x"], "missing"),
        (["--monitor", "kept", "--save", "x"], "no distributions to compare with"),
        (["--monitor", "", "--rules", "wrong.txt", "--save", "x"], 'the nearest is "zeros"'),
        (["--rules", "wrong.txt", "--save", "x"], "--monitor"),
        (["--monitor", "", "--save", "x", "--reduce", "mean"], "--reduce"),
        (["--learn", "x", "--save", "y"], "--learn"),
    ):
        status, _, said = run([torchtap, "preload", *options, "--", served, "net", "clean:1"], folder)
        assert status == 2 and says in said and not (folder / "x").exists()
    status, _, said = run([torchtap, "preload", "--monitor", "", "--save", "x", "--", "sh", "-c", "exit 3"], folder)
    assert status == 3 and "nothing was watched: " in said, "no model"
    # A reference of another model: the program runs, and it is said that nothing is compared.
    torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 2)).eval()).save(folder / "other.pt")
    said = preload(folder, ["--monitor", "ref-net.pt", "--save", "x"], "other.pt", "clean:3")
    assert "is watched with rules alone: " in said and "ref-net.pt" in said, "another model"


def test_pair(folder):
    """Each model of a program has its own reference, whichever runs first."""
    said = preload(folder, ["--learn", "ref-pair"], "pair", "clean:400")
    assert "learned a reference of 2 models: ref-pair\n" in said, "pair"
    for model in ("pair", "reversed pair"):
        options = ["--monitor", "ref-pair", "--cost", "1", "--save", model]
        said = preload(folder, options, model, "clean:300")
        drifts = [alarm for alarm in alarms(folder / model) if alarm["rule"] == "drift"]
        assert "watched 2 models, " in said and not drifts


def test_unwritten(folder):
    """Alarms that cannot be written are told all the same."""
    (folder / "unwritten").mkdir()
    (folder / "unwritten" / "alarms.jsonl").symlink_to(folder / "nowhere" / "alarms.jsonl")
    (folder / "rules.txt").write_text("nonfinite = on\n")
    options = ["--monitor", "", "--rules", "rules.txt", "--save", "unwritten"]
    said = preload(folder, options, "net.pt", "clean:5", "nan:1", "clean:5")
    found = re.search(r"watched 1 model, (\d+) alarms?, of which (\d+) could not be written to unwritten/", said)
    assert found and found[1] == found[2], "alarms that could not be written"


with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name).resolve()
    torch.manual_seed(0)
    torch.jit.script(Net().eval()).save(place / "net.pt")
    check_learned(place)
    check_noise(place)
    check_nan(place)
    check_crashes(place)
    check_processes(place)
    check_errors(place)
    check_pair(place)
    check_unwritten(place)
