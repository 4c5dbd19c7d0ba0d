"""torchtap preload: a program that knows nothing of torchtap behaves as without it, however it ends, and what was
recorded is what Python computes from the same weights."""

import functools
import os
import signal

import harness
import pytest
import torch
from harness import TORCHTAP, call, given, run, start

pytestmark = pytest.mark.usefixtures("inside")
foreign = given("foreign")


def behaviour(*command, send):
    """How a program ends, and what it says. Sends the signal `send` once the program reports that it waits."""
    if send is None:
        return call(*command, status=None)
    process = start(*command)
    head = ""
    for line in process.stdout:
        head += line
        if line == "waiting\n":
            break
    process.send_signal(send)
    out, err = process.communicate(timeout=120)
    return harness.Done(process.returncode, head + out, err)


def recording(folder):
    return {entry["path"]: (entry, value) for entry, value in harness.recording(folder)}


def record(*options, status=5):
    """Runs the program with these options."""
    return run("preload", *options, "--", foreign, status=status)


@functools.lru_cache(None)
def saved(ending):
    """What the program with this ending does under preload, which saves to a folder of that name."""
    how = ("--types", "Conv2d|Linear", "--reduce", "mean,count", "--save", ending)
    return behaviour(TORCHTAP, "preload", *how, "--", foreign, ending, send=SIGNALS.get(ending))


SIGNALS = {"terminate": signal.SIGTERM, "interrupt": signal.SIGINT}


@pytest.mark.parametrize("ending", ["return", "exit", "throw", "handled", "fork", "abort", *SIGNALS])
def test_ends_as_without(folder, ending):
    bare, with_us = behaviour(foreign, ending, send=SIGNALS.get(ending)), saved(ending)
    assert with_us[:2] == bare[:2]
    said = [line for line in with_us.err.splitlines() if line.startswith("torchtap: ")]
    rest = [line for line in with_us.err.splitlines() if not line.startswith("torchtap: ")]
    assert rest == bare.err.splitlines()
    if ending == "abort":  # only the program's own behaviour is guaranteed
        return
    entries = recording(folder / ending)
    assert "layer2.0.downsample.0" in entries and "fc" in entries
    assert "Linear#0" in entries, "the module outside of the model"
    assert len(entries) == 22
    samples = sum(entry["samples"] for entry, _ in entries.values())
    assert said == [f"torchtap: recorded {samples:,} samples of 22 modules: {ending}"]
    assert entries["fc"][0]["samples"] == 3 and entries["conv1"][0]["samples"] == 4
    assert not [name for name in os.listdir(folder) if name.startswith(ending + "-")], "a child wrote, too"


def test_the_recordings_of_two_runs_merge_into_that_of_one(folder):
    saved("return"), saved("exit")
    run("merge", "return", "exit", "--save", "both")
    once, twice = recording(folder / "return"), recording(folder / "both")
    assert list(once) == list(twice)
    for path, (entry, value) in twice.items():
        assert entry["samples"] == 2 * once[path][0]["samples"]
        assert value["count.elements"] == 2 * once[path][1]["count.elements"]
        assert torch.allclose(value["mean.value"], once[path][1]["mean.value"])


def test_every_sample_is_as_the_program_saw_it(folder):
    record("--names", "conv1", "--save", "every")
    ((_, samples),) = recording(folder / "every").values()
    own = next(iter(torch.jit.load(str(folder / "conv1.pt")).parameters()))
    assert len(samples) == 4 and torch.equal(samples[3], own)


@pytest.mark.parametrize(
    "excluded, want",
    [
        (("--not-names", "layer*"), {"conv1", "fc", "Linear#0"}),
        (("--not-types", "Conv2d"), {"fc", "Linear#0"}),
        (("--not-types", "Conv2d", "--not-names", "f?"), {"Linear#0"}),
    ],
)
def test_exclusions(folder, excluded, want):
    record("--types", "Conv2d|Linear", *excluded, "--reduce", "count", "--save", "excluded", "--overwrite")
    assert set(recording(folder / "excluded")) == want


def test_gradients(folder):
    how = ("--what", "grad-output", "--types", "Linear", "--reduce", "sum", "--save", "gradients")
    run("preload", *how, "--", foreign, "backward", status=None)
    assert float(recording(folder / "gradients")["Linear#0"][1]) == 3 * 4 * 4, "gradients that arrive are ones"


def test_modules_that_cannot_be_seen(folder):
    assert "BatchNorm2d" in record("--save", "all", "--reduce", "count").err
    assert "--overwrite" in record("--save", "all", status=2).err, "a recording that is there"


def test_all_left_out():
    errors = record("--types", "Linear", "--not-types", "Lin.*", "--save", "x").err
    assert "no module that ran has a type like 'Linear' and has no type like 'Lin.*'; the nearest are Linear" in errors


@pytest.mark.parametrize(
    "options, words",
    [
        (("--not-types", "("), "--not-types '(' is not a valid regular expression"),
        (("--types", "("), "--types"),
        (("--reduce", "median"), "median"),
        (("--what", "grad-parameter"), "gradients of parameters come with no call"),
    ],
)
def test_invalid_options_are_refused_before_the_program_starts(options, words):
    _, output, errors = record(*options, "--save", "x", status=2)
    assert output == "" and words in errors


def test_other_programs():
    assert "/no/such/program" in run("preload", "--save", "x", "--", "/no/such/program", status=127).err
    assert "nothing was recorded" in run("preload", "--save", "x", "--", "true").err, "a program without LibTorch"
    assert "Examples" in run("preload", "--help").out
