"""Tests torchtap preload: the recording of each process of a program, however it ended, and the messages."""

import json
import os
import pathlib
import re
import shutil
import signal
import time

import harness
import numpy
import pytest
import torch
from harness import TORCHTAP, call, entries, given, run, start, until

pytestmark = pytest.mark.usefixtures("inside")
program = given("processes")
# LibTorch may come with UCX, which prints addresses when a signal kills the program.
os.environ["UCX_HANDLE_ERRORS"] = "none"


def preload(name, *options, mode=None, command=None):
    """Runs the program in `mode`, with and without preload; records to `name`."""
    return harness.preload(["--save", name, *options], *(command or [program, mode or name]))


def recording(name):
    """Returns a dict from path to samples."""
    if not pathlib.Path(name, "manifest.json").exists():
        return None
    return {entry["path"]: [] if value is None else value for entry, value in harness.recording(name)}


def values(name):
    """Returns a dict from path to the numbers in its samples of one number each."""
    found = recording(name)
    return found and {path: [float(sample) for sample in samples] for path, samples in found.items()}


def others(name):
    """Returns the recordings of other processes as a dict from the process's number to directory."""
    return {
        int(found[len(name) + len("-process") :]): found
        for found in sorted(os.listdir(), key=lambda found: (len(found), found))  # 9 before 10
        if re.fullmatch(re.escape(name) + r"-process\d+", found)
    }


def children(launcher, name):
    """The processes of this name that the launcher started."""
    found = call("ps", "-o", "pid=,comm=", "--ppid", launcher, status=None).out.split()
    return [int(pid) for pid, comm in zip(found[::2], found[1::2]) if comm == name]


def announced(said):
    """Returns (samples, modules, directory) of each announced recording of another process."""
    found = re.findall(r"process \d+ \(\w+\) recorded (\d+) samples? of (\d+) modules?: (\S+)", said)
    return [(*map(int, numbers), directory) for *numbers, directory in found]


THREE = {"Linear#0": [2, 4, 6]}


def waits(name, *options):
    """The launcher of a program that has run three times and waits, and the program's process."""
    launcher = start(TORCHTAP, "preload", *options, "--save", name, "--", program, "wait")
    return launcher, int(launcher.stdout.readline().split()[1])


def test_fork_after():
    said = preload("fork_after")
    assert values("fork_after") == {"Linear#0": [2, 4]}
    ((_, directory),) = others("fork_after").items() or [(0, "")]
    assert values(directory) == {"Linear#0": [20, 40, 60]}
    assert announced(said) == [(3, 1, directory)]
    run("merge", "fork_after", directory, "--save", "fork_merged")
    assert values("fork_merged") == {"Linear#0": [2, 4, 20, 40, 60]}, "merge"
    assert f"torchtap merge fork_after {directory} --save" in said, "fork: how to merge"


def test_a_place_that_is_taken():
    """What an earlier run left, or anybody, keeps no recording from being saved, and stays."""
    pathlib.Path("taken-process2").mkdir()
    pathlib.Path("taken-process2/mine").write_text("mine")
    said = preload("taken", mode="fork_after")
    assert values("taken") == {"Linear#0": [2, 4]} and os.listdir("taken-process2") == ["mine"]
    assert values("taken-process2-2") == {"Linear#0": [20, 40, 60]}
    assert announced(said) == [(3, 1, "taken-process2-2")]


def test_fork_exit():
    preload("fork_exit")
    assert values("fork_exit") == {"Linear#0": [2]}, "fork, exit: the parent's"
    assert [values(name) for name in others("fork_exit").values()] == [{"Linear#0": [20]}], "fork, exit: the child's"


def test_all_work_happens_in_one_other_process():
    """Its recording is the requested one."""
    said = preload("fork_first")
    assert values("fork_first") == {"Linear#0": [20]} and not others("fork_first")
    assert announced(said) == [(1, 1, "fork_first")]
    preload("shell", command=["sh", "-c", f"{program} return; true"])
    assert values("shell") == {"Linear#0": [2, 4, 6]} and not others("shell")
    pathlib.Path("shell/0.pt").write_bytes(b"old")
    run("preload", "--overwrite", "--save", "shell", "--", "sh", "-c", f"{program} fork_first; true", status=None)
    assert values("shell") == {"Linear#0": [20]} and not others("shell"), "sh, --overwrite"


def test_a_program_that_the_loader_is_told_to_run():
    loader = re.search(r"^\s*(/\S*) \(0x", call("ldd", program).out, re.MULTILINE).group(1)
    preload("loader", command=[loader, program, "return"])
    assert values("loader") == {"Linear#0": [2, 4, 6]}


def test_two_programs():
    said = preload("two", command=["sh", "-c", f"{program} return; {program} fork_after; exit 4"])
    assert recording("two") is None and len(others("two")) == 3
    found = sorted(values(name)["Linear#0"] for name in others("two").values())
    assert found == [[2, 4], [2, 4, 6], [20, 40, 60]]
    assert [line[2] for line in announced(said)] == list(others("two").values())


def test_fork_twice():
    preload("fork_twice")
    assert values("fork_twice") == {"Linear#0": [2]}, "two forks: the parent's"
    assert [values(name) for name in others("fork_twice").values()] == [{"Linear#0": [20]}]


def test_fork_idle():
    said = preload("fork_idle")
    assert values("fork_idle") == {"Linear#0": [2, 4]}
    assert not others("fork_idle")
    assert said == "torchtap: recorded 2 samples of 1 module: fork_idle\n"


def test_workers_know_the_paths_of_a_model_made_before_the_fork():
    said = preload("workers", "--types", "Linear")
    found = sorted(values(name)["0"] for name in others("workers").values())
    assert found == [[20], [40, 40], [60, 60, 60]]
    assert recording("workers") is None and sorted(line[0] for line in announced(said)) == [1, 2, 3]


def test_fork_while_threads_run():
    said = preload("fork_busy", "--reduce", "count")
    assert len(others("fork_busy")) == 20 and len(announced(said)) == 20
    assert all(line[0] == 1 for line in announced(said))


def test_fork_killed():
    preload("fork_killed")
    assert values("fork_killed") == {"Linear#0": [2, 4]}, "the parent of children that were killed"
    assert [values(name) for name in others("fork_killed").values()] == [{"Linear#0": [20]}] * 2


def test_exec():
    said = preload("become_another")
    assert values("become_another") == {"Linear#0": [2]} and "became another program (exec)" in said


@pytest.mark.parametrize(
    "ending",
    "return _exit _Exit quick_exit abort assert quit alarm broken_pipe own_term_handler own_abort_handler "
    "segv kill own_crash_handler visible raised closed".split(),
)
def test_ends_with_its_recording(ending):
    said = preload(ending)
    assert values(ending) == THREE and said == f"torchtap: recorded 3 samples of 1 module: {ending}\n"
    said = preload(ending + "-reduced", "--reduce", "count", mode=ending)
    assert [entry["samples"] for entry in entries(ending + "-reduced")] == [3]
    assert said == f"torchtap: recorded 3 samples of 1 module: {ending}-reduced\n"


@pytest.mark.parametrize("options", [(), ("--reduce", "moments")], ids=["keep", "reduce"])
def test_killed_at_any_moment(options):
    """What was handed over is whole, and what was not is counted."""
    random = numpy.random.default_rng(7)
    for i in range(8):
        shutil.rmtree("killed", ignore_errors=True)
        launcher = start(TORCHTAP, "preload", *options, "--save", "killed", "--", program, "feed_on")
        until(lambda: children(launcher.pid, "processes"), "the program does not begin")
        time.sleep(random.uniform(0, 1))
        os.kill(children(launcher.pid, "processes")[0], signal.SIGKILL)
        _, said = launcher.communicate(timeout=120)
        assert launcher.returncode == -signal.SIGKILL
        if re.search("before (there was anything|torchtap was loaded|it had handed over)", said):
            assert recording("killed") is None, "what is there is another run's"
            continue  # its first forward was not over
        ((entry, value),) = harness.recording("killed")
        assert entry["path"] == "Linear#0" and entry["samples"] > 0
        assert f"recorded {entry['samples']:,} sample" in said
        if options:
            mean = torch.arange(entry["samples"], dtype=torch.float64).mean() * 2
            assert torch.allclose(value["moments.mean"] if "moments.mean" in value else value["mean"], mean)
        else:
            assert [float(sample) for sample in value] == [2.0 * i for i in range(entry["samples"])]


def test_recordings_are_saved_at_intervals():
    launcher, pid = waits("every", "--interval", "0.2")
    until(lambda: values("every") == THREE, "nothing was saved")
    os.kill(pid, signal.SIGKILL)
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == -signal.SIGKILL and values("every") == THREE
    assert said == "torchtap: recorded 3 samples of 1 module: every\n"


@pytest.mark.parametrize("to_group", [False, True])
def test_a_signal_arrives_once(to_group):
    """Whether it is sent to the launcher or to its group."""
    name = f"signals{to_group}"
    process = start(TORCHTAP, "preload", "--save", name, "--", program, "count_signals", start_new_session=True)
    while process.stdout.readline() not in ("waiting\n", ""):
        pass
    for number in (signal.SIGUSR1, signal.SIGTERM):
        os.killpg(process.pid, number) if to_group else os.kill(process.pid, number)
        heard = process.stdout.readline()  # the next one is sent when this one has arrived
        assert heard == f"heard {int(number)}\n"
    out, said = process.communicate(timeout=120)
    assert (process.returncode, out) == (5, "1 1\n") and said.count("\n") == 1
    assert values(name) == THREE


def test_the_program_dies_with_its_launcher():
    launcher, pid = waits("launcher")
    launcher.kill()
    launcher.communicate()  # until the program has closed its pipes

    def ended():  # a process closes its files on its way out
        try:
            return open(f"/proc/{pid}/stat").read().split(")")[1].split()[0] in "ZX"
        except OSError:
            return True

    until(ended, "it runs on")


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("operations", (), "called none of its modules"),
        ("on_stack", (), "(Linear) are plain variables"),
        ("own", (), "(Own) are compiled into it"),
        (
            "no_type",
            ("--types", "Conv2d|Linaer"),
            "no module that ran has a type like 'Conv2d|Linaer'; the nearest are Linear",
        ),
        ("no_name", ("--names", "Linear#7"), "no module that ran is called 'Linear#7'; the nearest are \"Linear#0\""),
    ],
)
def test_reasons(name, options, words):
    said = preload(name, *options, mode="return" if options else name)
    assert recording(name) is None
    (line,) = [line for line in said.splitlines() if "nothing was recorded" in line]
    assert words in line


def test_reasons_of_other_programs():
    said = preload("true", command=["true"])
    assert "does not use LibTorch as a shared library" in said, "no LibTorch"
    said = preload("static", command=["sh", "-c", f"{program} operations"])
    assert "called none of its modules" in said, "in a child"


def test_the_variable_was_lost_on_the_way_to_the_program():
    for name, command in (
        ("env_i", ["env", "-i", program, "return"]),
        ("env_other", ["env", "LD_PRELOAD=", program, "return"]),
        ("env_child", ["sh", "-c", f"env -i {program} return; true"]),
    ):
        said = preload(name, command=command)
        assert recording(name) is None and "(env)" in said and "LD_PRELOAD was taken from it" in said
    call("env", "-i", TORCHTAP, "preload", "--save", "env_front", "--", program, "return", status=None)
    assert values("env_front") == {"Linear#0": [2, 4, 6]}, "env in front"
    if os.path.exists("/sbin/ldconfig"):
        said = preload("static_program", command=["/sbin/ldconfig", "-p"])
        assert "statically linked" in said, "a static program"


def test_it_was_killed():
    said = preload("killed_early", command=["sh", "-c", "kill -9 $$"])
    assert "killed by signal 9 (Killed) before there was anything to record" in said, "killed early"
    for name, options in (("own_abort", ()), ("abort_report", ("--report",))):
        how = (*(options or ("--save",)), name + ".json")
        said = run("preload", *how, "--", program, "own_abort", status=None).err
        assert "killed by signal 6 (Aborted) before any module that can be seen" in said
    for number in (signal.SIGTERM, signal.SIGKILL):
        launcher, pid = waits("typo", "--names", "typo")
        os.kill(pid, number)
        assert (
            "no module that ran is called 'typo'; the nearest are \"Linear#0\"" in launcher.communicate(timeout=120)[1]
        )


def test_a_stream_that_cannot_be_published_is_refused_before_the_program_starts():
    _, output, said = run("preload", "--stream", "no name", "--", program, "operations", status=2)
    assert output == "" and "no name of a stream" in said, "--stream 'no name'"


def test_a_recording_without_samples_is_reported():
    said = preload("no_gradients", "--what", "grad-output", mode="return")
    assert "no gradient reached them" in said


def test_the_programs_own_types_are_named_if_it_has_exposed_its_model():
    said = preload("own_root")
    assert values("own_root") == {"layer": [8]}
    assert '1 Own ("own")' in said and "1 OwnRoot (the model itself)" in said, "own types"
    said = preload("own_root_linear", "--types", "Linear", mode="own_root")
    assert "not recorded" not in said, "own types that nobody asked for"


rounds = 40
twice = [2.0 * i for i in range(rounds)]


def test_anew():
    preload("anew")
    found = recording("anew")
    counts = {path: len(samples) for path, samples in found.items()}
    assert counts == {path: rounds for path in ("Linear#0", "ReLU#0", "Linear#1", "ReLU#1", "ReLU#2", "Sigmoid#0")}
    assert values("anew")["ReLU#0"] == twice, "made anew: the first ReLU comes after the first layer"
    second = torch.cat(found["Linear#1"]).flatten()
    for name in ("ReLU#1", "ReLU#2"):
        assert torch.equal(torch.cat(found[name]).flatten(), second.relu())
    assert all(
        torch.equal(after, before.relu().sigmoid()) for after, before in zip(found["Sigmoid#0"], found["Linear#1"])
    )


def test_anew_in_scope():
    preload("anew_in_scope")
    found = recording("anew_in_scope")
    counts = {path: len(samples) for path, samples in found.items()}
    assert counts == {path: rounds for path in ("ReLU#0", "Linear#0", "ReLU#1", "ReLU#2")}
    assert [sample.tolist() for sample in found["ReLU#0"]] == [[[float(i)] * 2] for i in range(rounds)]
    assert [float(sample) for sample in found["ReLU#2"]] == twice, "until the end: the last ReLU"


def test_anew_models():
    preload("anew_models")
    assert values("anew_models") == {"layer": twice}, "models made anew"


@pytest.mark.parametrize("name", ["in_turn", "in_turn_trained", "in_turn_unnamed"])
def test_in_turn(name):
    """Six models, each called three times: whatever the modules' addresses, every call is recorded once."""
    preload(name)
    a, b = ("Linear#0", "Linear#1") if name == "in_turn_unnamed" else ("a", "b")
    assert values(name) == {a: [2.0 * i for i in range(18)], b: [4.0 * i for i in range(18)]}
    preload(name + "-count", "--reduce", "count", mode=name)
    assert sorted((entry["path"], entry["samples"]) for entry in entries(name + "-count")) == [(a, 18), (b, 18)]


def test_six_models_at_once():
    preload("in_turn_kept")
    assert (
        sorted((entry["path"], entry["samples"]) for entry in entries("in_turn_kept"))
        == [("a", 3)] * 6 + [("b", 3)] * 6
    )


@pytest.mark.parametrize("name, models", [("in_turn", 1), ("in_turn_trained", 1), ("in_turn_kept", 6)])
def test_reports_in_turn(name, models):
    """A model that is gone hands its report on, one that lives keeps it."""
    run("preload", "--report", f"{name}.json", "--", program, name, status=None)
    files = [f"{name}.json"] + [f"{name}-{i}.json" for i in range(2, models + 1)]
    for file in files:
        (whole,) = json.loads(pathlib.Path(file).read_text()).values()
        layers = whole["children"]["a"], whole["children"]["b"]
        calls = [layer["info"]["forward"]["inclusive"]["calls"] for layer in layers]
        assert whole["report"]["repeats"] == 18 / models and calls == [18 / models] * 2
    assert not pathlib.Path(f"{name}-{models + 1}.json").exists()


def test_gradients_that_come_late():
    preload("anew_gradients", "--what", "grad-output", "--types", "Sigmoid")
    assert values("anew_gradients") == {"Sigmoid#0": [1] * 5}


def test_two_sizes():
    preload("two_sizes", "--reduce", "count")
    counts = {
        path: int(value["rows"] if "rows" in value else value["count.rows"])
        for path, value in recording("two_sizes").items()
    }
    assert sorted(counts) == ["Linear#0", "Linear#1"]


@pytest.mark.skipif(given("sanitized") is None, reason="there is no AddressSanitizer")
def test_sanitized():
    """A program with AddressSanitizer runs, is recorded, and its errors are found; there are no leaks of ours."""
    sanitized = given("sanitized")
    for mode, words in ("right", ""), ("wrong", "heap-buffer-overflow"):
        bare = call(sanitized, mode, status=6 if mode == "right" else None)
        with_us = run("preload", "--save", f"sanitized-{mode}", "--", sanitized, mode, status=None)
        assert with_us[:2] == bare[:2] and words in with_us.err
    assert values("sanitized-right") == {"Linear#0": [0, 2, 4]}
    preload("sanitized-child", command=["sh", "-c", f"{sanitized}; exit 3"])
    assert values("sanitized-child") == {"Linear#0": [0, 2, 4]}
    bare = call(sanitized, status=None)
    for mode in ("--trace=sanitized-trace", "--report=sanitized.json", "--explore"):
        assert run("preload", mode, "--", sanitized, status=None)[:2] == bare[:2]


def test_many():
    said = preload("many", "--reduce", "mean")
    assert len(recording("many")) == 10000, "as many as there is room for"
    assert "3 modules of type Identity that were called after 10000 others" in said
