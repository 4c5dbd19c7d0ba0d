"""Tests torchtap preload: the recording of each process of a program, however it ended, and the messages."""

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

torchtap, program, *sanitized = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:] if argument)

folder = None
# LibTorch may come with UCX, which prints addresses when a signal kills the program.
os.environ["UCX_HANDLE_ERRORS"] = "none"


def state_of(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split(")")[1].split()[0]
    except OSError:
        return "gone"


def run(command, **options):
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, **options)
    return process.returncode, process.stdout, process.stderr


def preload(name, *options, mode=None, command=None):
    """Runs the program in `mode`, with and without preload; records to `name`."""
    command = command or [program, mode or name]
    bare = run(command)
    with_us = run([torchtap, "preload", "--save", name, *options, "--", *command])
    assert with_us[0] == bare[0]
    assert with_us[1] == bare[1]
    said = with_us[2]
    if bare[2]:
        assert bare[2] in said
        said = said.replace(bare[2], "", 1)
    assert all(line.startswith("torchtap: ") for line in said.splitlines())
    return said


def recording(name):
    """Returns a dict from path to samples."""
    try:
        manifest = json.load(open(folder / name / "manifest.json"))
    except OSError:
        return None
    return {
        entry["path"]: torch.load(str(folder / name / entry["file"]), weights_only=True) if entry["file"] else []
        for entry in manifest["entries"]
    }


def values(name):
    """Returns a dict from path to the numbers in its samples of one number each."""
    entries = recording(name)
    return (
        None if entries is None else {path: [float(sample) for sample in samples] for path, samples in entries.items()}
    )


def others(name):
    """Returns the recordings of other processes as a dict from process to directory."""
    return {
        int(found[len(name) + 1 :]): found
        for found in sorted(os.listdir(folder), key=lambda found: (len(found), found))  # 9809 before 10000
        if re.fullmatch(re.escape(name) + r"-\d+", found)
    }


def announced(said):
    """Returns (process, samples, modules, directory) of each announced recording."""
    found = re.findall(r"process (\d+) \(\w+\) recorded (\d+) samples? of (\d+) modules?: (\S+)", said)
    return sorted(
        (int(process), int(samples), int(modules), directory) for process, samples, modules, directory in found
    )


def test_processes():
    said = preload("fork_after")
    assert values("fork_after") == {"Linear#0": [2, 4]}
    ((process, directory),) = others("fork_after").items() or [(0, "")]
    assert values(directory) == {"Linear#0": [20, 40, 60]}
    assert announced(said) == [(process, 3, 1, directory)], "fork"
    merged = run([torchtap, "merge", "fork_after", directory, "--save", "fork_merged"])
    assert values("fork_merged") == {"Linear#0": [2, 4, 20, 40, 60]}, "merge"
    assert f"torchtap merge fork_after {directory} --save" in said, "fork: how to merge"

    said = preload("fork_exit")
    assert values("fork_exit") == {"Linear#0": [2]}, "fork, exit: the parent's"
    assert [values(name) for name in others("fork_exit").values()] == [{"Linear#0": [20]}], "fork, exit: the child's"

    # All work happens in one other process: its recording is the requested one.
    said = preload("fork_first")
    assert values("fork_first") == {"Linear#0": [20]} and not others("fork_first"), "all in the child"
    assert [line[1:] for line in announced(said)] == [(1, 1, "fork_first")], "all in the child"
    said = preload("shell", command=["sh", "-c", f"{program} return; true"])
    assert values("shell") == {"Linear#0": [2, 4, 6]} and not others("shell")
    (folder / "shell" / "0.pt").write_bytes(b"old")
    said = run([torchtap, "preload", "--overwrite", "--save", "shell", "--", "sh", "-c", f"{program} fork_first; true"])
    assert values("shell") == {"Linear#0": [20]} and not others("shell"), "sh, --overwrite"

    said = preload("two", command=["sh", "-c", f"{program} return; {program} fork_after; exit 4"])
    assert recording("two") is None and len(others("two")) == 3, "sh with two"
    found = sorted(values(name)["Linear#0"] for name in others("two").values())
    assert found == [[2, 4], [2, 4, 6], [20, 40, 60]], "sh with two"
    assert [line[0] for line in announced(said)] == list(others("two")), "sh with two"
    assert [line[3] for line in announced(said)] == list(others("two").values()), "sh with two"

    said = preload("fork_twice")
    assert values("fork_twice") == {"Linear#0": [2]}, "two forks: the parent's"
    assert [values(name) for name in others("fork_twice").values()] == [{"Linear#0": [20]}], "two forks"

    said = preload("fork_idle")
    assert values("fork_idle") == {"Linear#0": [2, 4]}
    assert not others("fork_idle")
    assert said == "torchtap: recorded 2 samples of 1 module: fork_idle\n"

    # Workers know the paths of a model made before the fork.
    said = preload("workers", "--types", "Linear")
    found = sorted(values(name)["0"] for name in others("workers").values())
    assert found == [[20], [40, 40], [60, 60, 60]], "workers"
    assert recording("workers") is None and sorted(line[1] for line in announced(said)) == [1, 2, 3], "workers"

    said = preload("fork_busy", "--reduce", "count")
    assert len(others("fork_busy")) == 20 and len(announced(said)) == 20, "fork while threads run"
    assert all(line[1] == 1 for line in announced(said)), "fork while threads run"

    said = preload("fork_killed")
    assert values("fork_killed") == {"Linear#0": [2, 4]}, "the parent of a child that was killed"
    assert [values(name) for name in others("fork_killed").values()] == [{"Linear#0": [20]}]
    assert re.search(r"process \d+ \(processes\) ended and could not save what it had recorded", said)

    said = preload("become_another")
    assert recording("become_another") is None and "became another program (exec)" in said, "exec"


def test_endings():
    three = {"Linear#0": [2, 4, 6]}
    for ending in (
        "return",
        "_exit",
        "_Exit",
        "quick_exit",
        "abort",
        "assert",
        "quit",
        "alarm",
        "broken_pipe",
        "own_term_handler",
        "own_abort_handler",
    ):
        said = preload(ending)
        assert values(ending) == three and said == f"torchtap: recorded 3 samples of 1 module: {ending}\n"
    for ending, words in (
        ("segv", "killed by signal 11"),
        ("kill", "killed by signal 9"),
        ("own_crash_handler", "the program ended"),
    ):
        said = preload(ending)
        assert recording(ending) is None and words in said and "it is lost" in said and "--interval" in said

    # The last save remains however the program is killed.
    process = subprocess.Popen(
        [torchtap, "preload", "--interval", "0.2", "--save", "every", "--", program, "wait"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = int(process.stdout.readline().split()[1])
    deadline = time.time() + 120
    while values("every") != three and time.time() < deadline:
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL and values("every") == three, "--every"
    assert re.search(
        r"killed by signal 9 \(Killed\) and could not save .* every has the recording as of \d\d:\d\d:\d\d, "
        r"3 samples of 1 module\.",
        said,
    )

    # A signal arrives once, whether sent to the launcher or to its group.
    for to_group in (False, True):
        process = subprocess.Popen(
            [torchtap, "preload", "--save", f"signals{to_group}", "--", program, "count_signals"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        while process.stdout.readline() not in ("waiting\n", ""):
            pass
        for number in (signal.SIGUSR1, signal.SIGTERM):
            os.killpg(process.pid, number) if to_group else os.kill(process.pid, number)
            heard = process.stdout.readline()  # the next one is sent when this one has arrived
            assert heard == f"heard {int(number)}\n", "signals"
        out, said = process.communicate(timeout=120)
        assert (process.returncode, out) == (5, "1 1\n") and said.count("\n") == 1, "signals"
        assert values(f"signals{to_group}") == three, "signals: the recording"

    # The program dies with its launcher.
    process = subprocess.Popen(
        [torchtap, "preload", "--save", "launcher", "--", program, "wait"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    pid = int(process.stdout.readline().split()[1])
    process.kill()
    process.stdout.read()  # until the program has closed it
    process.wait()
    state = state_of(pid)
    for _ in range(600):  # a process closes its files on its way out
        if state in ("gone", "Z", "X"):
            break
        time.sleep(0.1)
        state = state_of(pid)
    assert state in ("gone", "Z", "X")


def test_reasons():
    for name, options, words in (
        ("operations", (), "called none of its modules"),
        ("on_stack", (), "(Linear) are plain variables"),
        ("own", (), "(Own) are compiled into it"),
        (
            "no_type",
            ("--types", "Conv2d|Linaer"),
            "no module that ran has a type like 'Conv2d|Linaer'; the nearest are Linear",
        ),
        ("no_name", ("--names", "Linear#7"), "no module that ran is called 'Linear#7'; the nearest are \"Linear#0\""),
    ):
        said = preload(name, *options, mode=name if name in ("operations", "on_stack", "own") else "return")
        assert recording(name) is None
        lines = [line for line in said.splitlines() if "nothing was recorded" in line]
        assert len(lines) == 1 and words in lines[0]
    said = preload("true", command=["true"])
    assert "does not use LibTorch as a shared library" in said, "no LibTorch"
    said = preload("static", command=["sh", "-c", f"{program} operations"])
    assert "called none of its modules" in said, "in a child"

    # The variable was lost on the way to the program.
    for name, command in (
        ("env_i", ["env", "-i", program, "return"]),
        ("env_other", ["env", "LD_PRELOAD=", program, "return"]),
        ("env_child", ["sh", "-c", f"env -i {program} return; true"]),
    ):
        said = preload(name, command=command)
        assert recording(name) is None and "(env)" in said and "LD_PRELOAD was taken from it" in said
    said = run(["env", "-i", torchtap, "preload", "--save", "env_front", "--", program, "return"])[2]
    assert values("env_front") == {"Linear#0": [2, 4, 6]}, "env in front"
    if os.path.exists("/sbin/ldconfig"):
        said = preload("static_program", command=["/sbin/ldconfig", "-p"])
        assert "statically linked" in said, "a static program"

    # It was killed.
    said = preload("killed_early", command=["sh", "-c", "kill -9 $$"])
    assert "killed by signal 9 (Killed) before there was anything to record" in said, "killed early"
    for name, options in (("own_abort", ()), ("abort_report", ("--report",))):
        said = run([torchtap, "preload", *(options or ("--save",)), name + ".json", "--", program, "own_abort"])[2]
        assert "killed by signal 6 (Aborted) before any module that can be seen" in said
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(
            [torchtap, "preload", "--names", "typo", "--save", "typo", "--", program, "wait"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        pid = int(process.stdout.readline().split()[1])
        os.kill(pid, number)
        _, said = process.communicate(timeout=120)
        assert "no module that ran is called 'typo'; the nearest are \"Linear#0\"" in said, "a typo"

    # A stream that cannot be published is refused before the program starts.
    status, output, said = run([torchtap, "preload", "--stream", "no name", "--", program, "operations"])
    assert status == 2 and output == "" and "no name of a stream" in said, "--stream 'no name'"

    # A recording without samples is reported.
    said = preload("no_gradients", "--what", "grad-output", mode="return")
    assert "no gradient reached them" in said, "no backward"

    # The program's own types are named too if it has exposed its model.
    said = preload("own_root")
    assert values("own_root") == {"layer": [8]}, "own_root"
    assert '1 Own ("own")' in said and "1 OwnRoot (the model itself)" in said, "own types"
    said = preload("own_root_linear", "--types", "Linear", mode="own_root")
    assert "not recorded" not in said, "own types that nobody asked for"


def test_anew():
    rounds = 40
    twice = [2.0 * i for i in range(rounds)]
    preload("anew")
    entries = recording("anew")
    counts = {path: len(samples) for path, samples in entries.items()}
    assert counts == {path: rounds for path in ("Linear#0", "ReLU#0", "Linear#1", "ReLU#1", "ReLU#2", "Sigmoid#0")}
    assert values("anew")["ReLU#0"] == twice, "made anew: the first ReLU comes after the first layer"
    second = torch.cat(entries["Linear#1"]).flatten()
    for name in ("ReLU#1", "ReLU#2"):
        assert torch.equal(torch.cat(entries[name]).flatten(), second.relu()), "made anew"
    assert all(
        torch.equal(after, before.relu().sigmoid()) for after, before in zip(entries["Sigmoid#0"], entries["Linear#1"])
    )

    preload("anew_in_scope")
    found = recording("anew_in_scope")
    counts = {path: len(samples) for path, samples in found.items()}
    assert counts == {path: rounds for path in ("ReLU#0", "Linear#0", "ReLU#1", "ReLU#2")}, "until the end"
    assert [sample.tolist() for sample in found["ReLU#0"]] == [[[float(i)] * 2] for i in range(rounds)]
    assert [float(sample) for sample in found["ReLU#2"]] == twice, "until the end: the last ReLU"

    preload("anew_models")
    expected = {"layer": twice}
    assert values("anew_models") == expected, "models made anew"

    # Six models, each called three times: whatever the modules' addresses, every call is recorded once.
    numbers = [float(i) for i in range(18)]
    for name, paths in (
        ("in_turn", ("a", "b")),
        ("in_turn_trained", ("a", "b")),
        ("in_turn_unnamed", ("Linear#0", "Linear#1")),
    ):
        preload(name)
        want = {paths[0]: [2 * number for number in numbers], paths[1]: [4 * number for number in numbers]}
        assert values(name) == want
        preload(name + "-count", "--reduce", "count", mode=name)
        counts = [
            (entry["path"], entry["samples"])
            for entry in json.load(open(folder / (name + "-count") / "manifest.json"))["entries"]
        ]
        assert sorted(counts) == [(path, 18) for path in paths]
    preload("in_turn_kept")
    entries = json.load(open(folder / "in_turn_kept" / "manifest.json"))["entries"]
    assert sorted((entry["path"], entry["samples"]) for entry in entries) == [("a", 3)] * 6 + [("b", 3)] * 6
    for name in ("in_turn", "in_turn_trained"):
        run([torchtap, "preload", "--report", f"{name}.json", "--", program, name])
        for file in [f"{name}.json"] + [f"{name}-{i}.json" for i in range(2, 7)]:
            (whole,) = json.load(open(folder / file)).values()
            layers = whole["children"]["a"], whole["children"]["b"]
            calls = [layer["info"]["forward"]["inclusive"]["calls"] for layer in layers]
            assert whole["report"]["repeats"] == 3 and calls == [3, 3]

    preload("anew_gradients", "--what", "grad-output", "--types", "Sigmoid")
    assert values("anew_gradients") == {"Sigmoid#0": [1] * 5}, "gradients that come late"

    preload("two_sizes", "--reduce", "count")
    counts = {
        path: int(value["rows"] if "rows" in value else value["count.rows"])
        for path, value in recording("two_sizes").items()
    }
    assert sorted(counts) == ["Linear#0", "Linear#1"], "two sizes"


def test_sanitized():
    """A program with AddressSanitizer runs, is recorded, and its errors are found; there are no leaks of ours."""
    for mode, status, words in ((["right"], 6, ""), (["wrong"], None, "heap-buffer-overflow")):
        bare = run([*sanitized, *mode])
        with_us = run([torchtap, "preload", "--save", f"sanitized-{mode[0]}", "--", *sanitized, *mode])
        assert with_us[:2] == bare[:2] and status in (None, bare[0]), "a sanitizer"
        assert words in with_us[2], "what a sanitizer finds"
    assert values("sanitized-right") == {"Linear#0": [0, 2, 4]}, "with a sanitizer"
    preload("sanitized-child", command=["sh", "-c", f"{sanitized[0]}; exit 3"])
    assert values("sanitized-child") == {"Linear#0": [0, 2, 4]}, "a child with a sanitizer"
    bare = run(sanitized)
    for mode in ("--trace=sanitized-trace", "--report=sanitized.json", "--explore"):
        with_us = run([torchtap, "preload", mode, "--", *sanitized])
        assert with_us[:2] == bare[:2]


def test_many():
    said = preload("many", "--reduce", "mean")
    assert len(recording("many")) == 10000, "as many as there is room for"
    assert "3 modules of type Identity that were called after 10000 others" in said, "no room"


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    check_processes()
    check_endings()
    check_reasons()
    check_anew()
    check_many()
    if sanitized:
        check_sanitized()
