#!/usr/bin/env python3
"""Tests torchtap preload: the recording of each process of a program, however it ended, and the messages.

usage: processes.py TORCHTAP PROCESSES [SANITIZED]    SANITIZED: a program with AddressSanitizer"""

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
failures = []
folder = None
# LibTorch may come with UCX, which prints addresses when a signal kills the program.
os.environ["UCX_HANDLE_ERRORS"] = "none"


def state_of(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split(")")[1].split()[0]
    except OSError:
        return "gone"


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(command, **options):
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, **options)
    return process.returncode, process.stdout, process.stderr


def preload(name, *options, mode=None, command=None):
    """Runs the program in `mode`, with and without preload; records to `name`."""
    command = command or [program, mode or name]
    bare = run(command)
    with_us = run([torchtap, "preload", "--save", name, *options, "--", *command])
    check(with_us[0] == bare[0], f"{name}: exit status {with_us[0]} instead of {bare[0]}: {with_us[2]}")
    check(with_us[1] == bare[1], f"{name}: another output: {with_us[1]!r} instead of {bare[1]!r}")
    said = with_us[2]
    if bare[2]:
        check(bare[2] in said, f"{name}: other errors: {said!r} without {bare[2]!r}")
        said = said.replace(bare[2], "", 1)
    check(all(line.startswith("torchtap: ") for line in said.splitlines()), f"{name}: other errors: {said!r}")
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


def check_processes():
    said = preload("fork_after")
    check(values("fork_after") == {"Linear#0": [2, 4]}, f"fork: the parent's {values('fork_after')}")
    ((process, directory),) = others("fork_after").items() or [(0, "")]
    check(values(directory) == {"Linear#0": [20, 40, 60]}, f"fork: the child's {values(directory)}")
    check(announced(said) == [(process, 3, 1, directory)], f"fork: {said}")
    merged = run([torchtap, "merge", "fork_after", directory, "--save", "fork_merged"])
    check(values("fork_merged") == {"Linear#0": [2, 4, 20, 40, 60]}, f"merge: {merged} {values('fork_merged')}")
    check(f"torchtap merge fork_after {directory} --save" in said, f"fork: how to merge: {said}")

    said = preload("fork_exit")
    check(values("fork_exit") == {"Linear#0": [2]}, "fork, exit: the parent's")
    check([values(name) for name in others("fork_exit").values()] == [{"Linear#0": [20]}], "fork, exit: the child's")

    # All work happens in one other process: its recording is the requested one.
    said = preload("fork_first")
    check(values("fork_first") == {"Linear#0": [20]} and not others("fork_first"), f"all in the child: {said}")
    check([line[1:] for line in announced(said)] == [(1, 1, "fork_first")], f"all in the child: {said}")
    said = preload("shell", command=["sh", "-c", f"{program} return; true"])
    check(values("shell") == {"Linear#0": [2, 4, 6]} and not others("shell"), f"sh: {said}")
    (folder / "shell" / "0.pt").write_bytes(b"old")
    said = run([torchtap, "preload", "--overwrite", "--save", "shell", "--", "sh", "-c", f"{program} fork_first; true"])
    check(values("shell") == {"Linear#0": [20]} and not others("shell"), f"sh, --overwrite: {said}")

    said = preload("two", command=["sh", "-c", f"{program} return; {program} fork_after; exit 4"])
    check(recording("two") is None and len(others("two")) == 3, f"sh with two: {os.listdir(folder)}")
    found = sorted(values(name)["Linear#0"] for name in others("two").values())
    check(found == [[2, 4], [2, 4, 6], [20, 40, 60]], f"sh with two: {found}")
    check([line[0] for line in announced(said)] == list(others("two")), f"sh with two: {said}")
    check([line[3] for line in announced(said)] == list(others("two").values()), f"sh with two: {said}")

    said = preload("fork_twice")
    check(values("fork_twice") == {"Linear#0": [2]}, "two forks: the parent's")
    check([values(name) for name in others("fork_twice").values()] == [{"Linear#0": [20]}], f"two forks: {said}")

    said = preload("fork_idle")
    check(
        values("fork_idle") == {"Linear#0": [2, 4]}
        and not others("fork_idle")
        and said == "torchtap: recorded 2 samples of 1 module: fork_idle\n",
        f"idle: {said}",
    )

    # Workers know the paths of a model made before the fork.
    said = preload("workers", "--types", "Linear")
    found = sorted(values(name)["0"] for name in others("workers").values())
    check(found == [[20], [40, 40], [60, 60, 60]], f"workers: {found}")
    check(recording("workers") is None and sorted(line[1] for line in announced(said)) == [1, 2, 3], f"workers: {said}")

    said = preload("fork_busy", "--reduce", "count")
    check(len(others("fork_busy")) == 20 and len(announced(said)) == 20, f"fork while threads run: {said}")
    check(all(line[1] == 1 for line in announced(said)), f"fork while threads run: {said}")

    said = preload("fork_killed")
    check(values("fork_killed") == {"Linear#0": [2, 4]}, f"the parent of a child that was killed: {said}")
    check(
        [values(name) for name in others("fork_killed").values()] == [{"Linear#0": [20]}],
        f"children that were killed: {said}",
    )
    check(
        re.search(r"process \d+ \(processes\) ended and could not save what it had recorded", said),
        f"the child that got SIGKILL: {said}",
    )

    said = preload("become_another")
    check(recording("become_another") is None and "became another program (exec)" in said, f"exec: {said}")


def check_endings():
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
        check(
            values(ending) == three and said == f"torchtap: recorded 3 samples of 1 module: {ending}\n",
            f"{ending}: {values(ending)} {said}",
        )
    for ending, words in (
        ("segv", "killed by signal 11"),
        ("kill", "killed by signal 9"),
        ("own_crash_handler", "the program ended"),
    ):
        said = preload(ending)
        check(
            recording(ending) is None and words in said and "it is lost" in said and "--interval" in said,
            f"{ending}: {said}",
        )

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
    check(process.returncode == -signal.SIGKILL and values("every") == three, f"--every: {process.returncode} {said}")
    check(
        re.search(
            r"killed by signal 9 \(Killed\) and could not save .* every has the recording as of \d\d:\d\d:\d\d, "
            r"3 samples of 1 module\.",
            said,
        ),
        f"--every: {said}",
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
            check(heard == f"heard {int(number)}\n", f"signals: {heard!r} instead of {number}")
        out, said = process.communicate(timeout=120)
        check(
            (process.returncode, out) == (5, "1 1\n") and said.count("\n") == 1,
            f"signals: {process.returncode} {out!r} {said!r}",
        )
        check(values(f"signals{to_group}") == three, "signals: the recording")

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
    check(state in ("gone", "Z", "X"), f"the launcher was killed, the program is {state}")


def check_reasons():
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
        check(recording(name) is None, f"{name}: there is a recording")
        lines = [line for line in said.splitlines() if "nothing was recorded" in line]
        check(len(lines) == 1 and words in lines[0], f"{name}: {said}")
    said = preload("true", command=["true"])
    check("does not use LibTorch as a shared library" in said, f"no LibTorch: {said}")
    said = preload("static", command=["sh", "-c", f"{program} operations"])
    check("called none of its modules" in said, f"in a child: {said}")

    # The variable was lost on the way to the program.
    for name, command in (
        ("env_i", ["env", "-i", program, "return"]),
        ("env_other", ["env", "LD_PRELOAD=", program, "return"]),
        ("env_child", ["sh", "-c", f"env -i {program} return; true"]),
    ):
        said = preload(name, command=command)
        check(recording(name) is None and "(env)" in said and "LD_PRELOAD was taken from it" in said, f"{name}: {said}")
    said = run(["env", "-i", torchtap, "preload", "--save", "env_front", "--", program, "return"])[2]
    check(values("env_front") == {"Linear#0": [2, 4, 6]}, f"env in front: {said}")
    if os.path.exists("/sbin/ldconfig"):
        said = preload("static_program", command=["/sbin/ldconfig", "-p"])
        check("statically linked" in said, f"a static program: {said}")

    # It was killed.
    said = preload("killed_early", command=["sh", "-c", "kill -9 $$"])
    check("killed by signal 9 (Killed) before there was anything to record" in said, f"killed early: {said}")
    for name, options in (("own_abort", ()), ("abort_report", ("--report",))):
        said = run([torchtap, "preload", *(options or ("--save",)), name + ".json", "--", program, "own_abort"])[2]
        check("killed by signal 6 (Aborted) before any module that can be seen" in said, f"{name}: {said}")
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
        check("no module that ran is called 'typo'; the nearest are \"Linear#0\"" in said, f"a typo, {number}: {said}")

    # A stream that cannot be published is refused before the program starts.
    status, output, said = run([torchtap, "preload", "--stream", "no name", "--", program, "operations"])
    check(
        status == 2 and output == "" and "no name of a stream" in said, f"--stream 'no name': {status} {output} {said}"
    )

    # A recording without samples is reported.
    said = preload("no_gradients", "--what", "grad-output", mode="return")
    check("no gradient reached them" in said, f"no backward: {said}")

    # The program's own types are named too if it has exposed its model.
    said = preload("own_root")
    check(values("own_root") == {"layer": [8]}, f"own_root: {values('own_root')}")
    check('1 Own ("own")' in said and "1 OwnRoot (the model itself)" in said, f"own types: {said}")
    said = preload("own_root_linear", "--types", "Linear", mode="own_root")
    check("not recorded" not in said, f"own types that nobody asked for: {said}")


def check_anew():
    rounds = 40
    twice = [2.0 * i for i in range(rounds)]
    preload("anew")
    entries = recording("anew")
    counts = {path: len(samples) for path, samples in entries.items()}
    check(
        counts == {path: rounds for path in ("Linear#0", "ReLU#0", "Linear#1", "ReLU#1", "ReLU#2", "Sigmoid#0")},
        f"made anew: {counts}",
    )
    check(values("anew")["ReLU#0"] == twice, "made anew: the first ReLU comes after the first layer")
    second = torch.cat(entries["Linear#1"]).flatten()
    for name in ("ReLU#1", "ReLU#2"):
        check(torch.equal(torch.cat(entries[name]).flatten(), second.relu()), f"made anew: {name}")
    check(
        all(
            torch.equal(after, before.relu().sigmoid())
            for after, before in zip(entries["Sigmoid#0"], entries["Linear#1"])
        ),
        "made anew: the Sigmoid",
    )

    preload("anew_in_scope")
    found = recording("anew_in_scope")
    counts = {path: len(samples) for path, samples in found.items()}
    check(counts == {path: rounds for path in ("ReLU#0", "Linear#0", "ReLU#1", "ReLU#2")}, f"until the end: {counts}")
    check(
        [sample.tolist() for sample in found["ReLU#0"]] == [[[float(i)] * 2] for i in range(rounds)], "the first ReLU"
    )
    check([float(sample) for sample in found["ReLU#2"]] == twice, "until the end: the last ReLU")

    preload("anew_models")
    expected = {"layer": twice}
    check(values("anew_models") == expected, f"models made anew: {values('anew_models')}")

    # Six models, each called three times: whatever the modules' addresses, every call is recorded once.
    numbers = [float(i) for i in range(18)]
    for name, paths in (
        ("in_turn", ("a", "b")),
        ("in_turn_trained", ("a", "b")),
        ("in_turn_unnamed", ("Linear#0", "Linear#1")),
    ):
        preload(name)
        want = {paths[0]: [2 * number for number in numbers], paths[1]: [4 * number for number in numbers]}
        check(values(name) == want, f"{name}: {values(name)}")
        preload(name + "-count", "--reduce", "count", mode=name)
        counts = [
            (entry["path"], entry["samples"])
            for entry in json.load(open(folder / (name + "-count") / "manifest.json"))["entries"]
        ]
        check(sorted(counts) == [(path, 18) for path in paths], f"{name}: {counts}")
    preload("in_turn_kept")
    entries = json.load(open(folder / "in_turn_kept" / "manifest.json"))["entries"]
    check(
        sorted((entry["path"], entry["samples"]) for entry in entries) == [("a", 3)] * 6 + [("b", 3)] * 6,
        f"six models at once: {entries}",
    )
    for name in ("in_turn", "in_turn_trained"):
        run([torchtap, "preload", "--report", f"{name}.json", "--", program, name])
        for file in [f"{name}.json"] + [f"{name}-{i}.json" for i in range(2, 7)]:
            (whole,) = json.load(open(folder / file)).values()
            layers = whole["children"]["a"], whole["children"]["b"]
            calls = [layer["info"]["forward"]["inclusive"]["calls"] for layer in layers]
            check(
                whole["report"]["repeats"] == 3 and calls == [3, 3],
                f"{file}: {whole['report']['repeats']} repeats, {calls}",
            )

    preload("anew_gradients", "--what", "grad-output", "--types", "Sigmoid")
    check(values("anew_gradients") == {"Sigmoid#0": [1] * 5}, f"gradients that come late: {values('anew_gradients')}")

    preload("two_sizes", "--reduce", "count")
    counts = {
        path: int(value["rows"] if "rows" in value else value["count.rows"])
        for path, value in recording("two_sizes").items()
    }
    check(sorted(counts) == ["Linear#0", "Linear#1"], f"two sizes: {counts}")


def check_sanitized():
    """A program with AddressSanitizer runs, is recorded, and its errors are found; there are no leaks of ours."""
    for mode, status, words in ((["right"], 6, ""), (["wrong"], None, "heap-buffer-overflow")):
        bare = run([*sanitized, *mode])
        with_us = run([torchtap, "preload", "--save", f"sanitized-{mode[0]}", "--", *sanitized, *mode])
        check(with_us[:2] == bare[:2] and status in (None, bare[0]), f"a sanitizer: {with_us} instead of {bare}")
        check(words in with_us[2], f"what a sanitizer finds: {with_us[2]}")
    check(values("sanitized-right") == {"Linear#0": [0, 2, 4]}, f"with a sanitizer: {values('sanitized-right')}")
    preload("sanitized-child", command=["sh", "-c", f"{sanitized[0]}; exit 3"])
    check(values("sanitized-child") == {"Linear#0": [0, 2, 4]}, "a child with a sanitizer")
    bare = run(sanitized)
    for mode in ("--trace=sanitized-trace", "--report=sanitized.json", "--explore"):
        with_us = run([torchtap, "preload", mode, "--", *sanitized])
        check(with_us[:2] == bare[:2], f"a sanitizer and {mode}: {with_us} instead of {bare}")


def check_many():
    said = preload("many", "--reduce", "mean")
    check(len(recording("many")) == 10000, "as many as there is room for")
    check("3 modules of type Identity that were called after 10000 others" in said, f"no room: {said}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    check_processes()
    check_endings()
    check_reasons()
    check_anew()
    check_many()
    if sanitized:
        check_sanitized()
print("FAILED" if failures else "every process records for itself, and what is missing is said")
sys.exit(1 if failures else 0)
