"""torchtap preload: what the launcher knows before the program starts. Nothing replaces what another launcher is about
to write, a program keeps its own libraries in their order, and one with another LibTorch runs without torchtap."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

torchtap, processes, own_program, program_of_other = (str(pathlib.Path(one).resolve()) for one in sys.argv[1:])


def run(folder, *command):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout, done.stderr


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_places(folder):
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
            assert (status, out) == (2, "") and "is the place of another torchtap preload that runs now" in err
            first.terminate()
        # What is there stays.
        if name in ("save", "fingerprint"):
            before = contents(folder / name)
            assert before
            status, out, err = run(folder / name, torchtap, "preload", *options, "--", processes, "return")
            assert (status, out) == (2, "") and "already exists" in err
            assert contents(folder / name) == before

    # Also that of further models, of which the launcher does not know; the others are written.
    place = folder / "further"
    place.mkdir()
    (place / "out-2.json").write_text("mine")
    status, out, err = run(place, torchtap, "preload", "--report", "out.json", "--", processes, "in_turn_kept")
    assert status == 5 and 'out-2.json" already exists' in err, "a further report"
    assert (place / "out-2.json").read_text() == "mine", "a further report was replaced"
    assert "report" in next(iter(json.load(open(place / "out-3.json")).values())), "the third report"

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
    assert status in (0, 1)
    assert (status == 1) == ("could not be saved" in err), "what was lost"


def test_libraries(folder):
    bare = run(folder, own_program)
    assert bare[:2] == (0, "1014 2\n"), "a BLAS of its own"
    status, out, err = run(folder, torchtap, "preload", "--reduce", "count", "--save", "blas", "--", own_program)
    assert (status, out) == bare[:2], "a BLAS of its own"
    assert "recorded 1 sample of 1 module: blas" in err, "a BLAS of its own"

    bare = run(folder, program_of_other)
    done = run(folder, torchtap, "preload", "--save", "other", "--", program_of_other)
    assert bare[:2] == (7, "9 \n") and done[:2] == bare[:2], "another LibTorch"
    words = ("ran as without torchtap", "libtorch_cpu.so.9.1 (9.1.0)", "and torchtap was built for ")
    assert all(word in done[2] for word in words) and done[2].count("\n") == 1, "another LibTorch"
    # So it is where the program opens it while it runs.
    lines = run(folder, "ldd", program_of_other)[1].splitlines()
    (library,) = (line.split()[2] for line in lines if "libtorch_cpu" in line)
    opens = (sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r})")
    status, _, err = run(folder, torchtap, "preload", "--save", "opened", "--", *opens)
    words = ("the program loaded a second LibTorch, ", "libtorch_cpu.so.9 (9.1.0)", "without torchtap")
    assert status == 0 and all(word in err for word in words), "another LibTorch, opened later"


os.environ.pop("LD_PRELOAD", None)
with tempfile.TemporaryDirectory() as name:
    check_places(pathlib.Path(name))
    check_libraries(pathlib.Path(name))
