#!/usr/bin/env python3
"""torchtap preload: what the launcher knows before the program starts. Nothing replaces what another launcher is about
to write, a program keeps its own libraries in their order, and one with another LibTorch runs without torchtap.

usage: launcher.py TORCHTAP PROCESSES OWN_PROGRAM PROGRAM_OF_OTHER"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

torchtap, processes, own_program, program_of_other = (str(pathlib.Path(one).resolve()) for one in sys.argv[1:])
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(folder, *command):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout, done.stderr


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_places(folder):
    modes = {
        "save": ["--save", "out"],
        "overwrite": ["--save", "out", "--overwrite"],
        "report": ["--report", "out.json"],
        "learn": ["--learn", "out"],
        "fingerprint": ["--fingerprint", "out.prints"],
        "trace": ["--trace", "out"],
        "explore": ["--explore", "--save", "out"],
    }
    for name, options in modes.items():
        (folder / name).mkdir()
        with subprocess.Popen(
            [torchtap, "preload", *options, "--", processes, "wait"],
            cwd=folder / name,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as first:
            first.stdout.readline()  # it runs
            status, out, err = run(folder / name, torchtap, "preload", *options, "--", processes, "return")
            check(
                (status, out) == (2, "") and "is the place of another torchtap preload that runs now" in err,
                f"{name}: two launchers: {status} {out} {err}",
            )
            first.terminate()
        # What is there stays.
        if name in ("save", "fingerprint"):
            before = contents(folder / name)
            check(before, f"{name}: the first has no result")
            status, out, err = run(folder / name, torchtap, "preload", *options, "--", processes, "return")
            check((status, out) == (2, "") and "already exists" in err, f"{name}: again: {status} {out} {err}")
            check(contents(folder / name) == before, f"{name}: what was there was changed")

    # Also that of further models, of which the launcher does not know; the others are written.
    place = folder / "further"
    place.mkdir()
    (place / "out-2.json").write_text("mine")
    status, out, err = run(place, torchtap, "preload", "--report", "out.json", "--", processes, "in_turn_kept")
    check(status == 5 and 'out-2.json" already exists' in err, f"a further report: {status} {err}")
    check((place / "out-2.json").read_text() == "mine", "a further report was replaced")
    check("report" in next(iter(json.load(open(place / "out-3.json")).values())), f"the third report: {err}")

    # What could not be saved is no success.
    status, out, err = run(
        place,
        torchtap,
        "preload",
        "--save",
        "there",
        "--",
        "sh",
        "-c",
        f"mkdir there; touch there/x; {processes} return; exit 0",
    )
    check(status in (0, 1), f"{status} {err}")
    check((status == 1) == ("could not be saved" in err), f"what was lost: {status} {err}")


def check_libraries(folder):
    bare = run(folder, own_program)
    check(bare[:2] == (0, "1014 2\n"), f"a BLAS of its own: {bare}")
    status, out, err = run(folder, torchtap, "preload", "--reduce", "count", "--save", "blas", "--", own_program)
    check((status, out) == bare[:2], f"a BLAS of its own: {status} {out} {err}")
    check("recorded 1 sample of 1 module: blas" in err, f"a BLAS of its own: {err}")

    bare = run(folder, program_of_other)
    done = run(folder, torchtap, "preload", "--save", "other", "--", program_of_other)
    check(bare[:2] == (7, "9 \n") and done[:2] == bare[:2], f"another LibTorch: {done} instead of {bare}")
    words = ("ran as without torchtap", "libtorch_cpu.so.9.1 (9.1.0)", "and torchtap was built for ")
    check(all(word in done[2] for word in words) and done[2].count("\n") == 1, f"another LibTorch: {done[2]}")
    # So it is where the program opens it while it runs.
    lines = run(folder, "ldd", program_of_other)[1].splitlines()
    (library,) = (line.split()[2] for line in lines if "libtorch_cpu" in line)
    opens = (sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r})")
    status, _, err = run(folder, torchtap, "preload", "--save", "opened", "--", *opens)
    words = ("the program loaded a second LibTorch, ", "libtorch_cpu.so.9 (9.1.0)", "without torchtap")
    check(status == 0 and all(word in err for word in words), f"another LibTorch, opened later: {status} {err}")


os.environ.pop("LD_PRELOAD", None)
with tempfile.TemporaryDirectory() as name:
    check_places(pathlib.Path(name))
    check_libraries(pathlib.Path(name))
print("FAILED" if failures else "the launcher keeps what is there")
sys.exit(1 if failures else 0)
