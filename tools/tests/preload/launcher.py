"""torchtap preload: what the launcher knows before the program starts. Nothing replaces what another launcher is about
to write, a program keeps its own libraries in their order, and one with another LibTorch runs without torchtap."""

import json
import os
import subprocess
import sys

import pytest
from harness import TORCHTAP, call, given, run, start

os.environ.pop("LD_PRELOAD", None)
processes = given("processes")


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


MODES = {
    "save": ["--save", "out"],
    "overwrite": ["--save", "out", "--overwrite"],
    "report": ["--report", "out.json"],
    "learn": ["--learn", "out"],
    "fingerprint": ["--fingerprint", "out.prints"],
    "trace": ["--trace", "out"],
    "explore": ["--explore", "--save", "out"],
}


@pytest.mark.parametrize("name, options", MODES.items())
def test_the_place_of_another_launcher(folder, name, options):
    again = ("preload", *options, "--", processes, "return")
    (folder / name).mkdir()
    with start(
        TORCHTAP, "preload", *options, "--", processes, "wait", cwd=folder / name, stderr=subprocess.DEVNULL
    ) as first:
        first.stdout.readline()  # it runs
        _, out, err = run(*again, status=2, cwd=folder / name)
        assert out == "" and "is the place of another torchtap preload that runs now" in err
        first.terminate()
    # What is there stays.
    if name in ("save", "fingerprint"):
        before = contents(folder / name)
        assert before
        _, out, err = run(*again, status=2, cwd=folder / name)
        assert out == "" and "already exists" in err
        assert contents(folder / name) == before


def test_a_further_model(folder):
    """Also its place is left alone, of which the launcher does not know; the others are written."""
    place = folder / "further"
    place.mkdir()
    (place / "out-2.json").write_text("mine")
    err = run("preload", "--report", "out.json", "--", processes, "in_turn_kept", status=5, cwd=place).err
    assert 'out-2.json" already exists' in err
    assert (place / "out-2.json").read_text() == "mine", "a further report was replaced"
    assert "report" in next(iter(json.loads((place / "out-3.json").read_text()).values())), "the third report"


def test_what_could_not_be_saved_is_no_success(folder):
    program = f"mkdir there; touch there/x; {processes} return; exit 0"
    status, _, err = run("preload", "--save", "there", "--", "sh", "-c", program, status=None, cwd=folder)
    assert status in (0, 1)
    assert (status == 1) == ("could not be saved" in err)


def test_a_blas_of_its_own(folder):
    own_program = given("own_program")
    assert call(own_program, cwd=folder)[:2] == (0, "1014 2\n")
    done = run("preload", "--reduce", "count", "--save", "blas", "--", own_program, cwd=folder)
    assert done.out == "1014 2\n"
    assert "recorded 1 sample of 1 module: blas" in done.err


def test_another_libtorch(folder):
    program_of_other = given("program_of_other")
    assert call(program_of_other, status=7, cwd=folder).out == "9 \n"
    done = run("preload", "--save", "other", "--", program_of_other, status=7, cwd=folder)
    words = ("ran as without torchtap", "libtorch_cpu.so.9.1 (9.1.0)", "and torchtap was built for ")
    assert all(word in done.err for word in words) and done.err.count("\n") == 1 and done.out == "9 \n"
    # So it is where the program opens it while it runs.
    lines = call("ldd", program_of_other).out.splitlines()
    (library,) = (line.split()[2] for line in lines if "libtorch_cpu" in line)
    opens = (sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r})")
    err = run("preload", "--save", "opened", "--", *opens, cwd=folder).err
    words = ("the program loaded a second LibTorch, ", "libtorch_cpu.so.9 (9.1.0)", "without torchtap")
    assert all(word in err for word in words)
