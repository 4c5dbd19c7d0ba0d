"""torchtap preload: what is settled before the program runs, or LibTorch does. Nothing replaces what another launcher is
about to write, a program keeps its own libraries in their order, and one with another LibTorch runs without torchtap,
whenever it loads it."""

import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import pytest
from harness import TORCHTAP, call, entries, given, run, start

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
    plain = call(own_program, cwd=folder)
    # LibTorch of Python's wheel holds a BLAS, and calls no other one.
    assert plain.status == 0 and plain.out in ("1014 2\n", "14 2\n")
    done = run("preload", "--reduce", "count", "--save", "blas", "--", own_program, cwd=folder)
    assert done.out == plain.out
    assert "recorded 1 sample of 1 module: blas" in done.err


WITHOUT = ("ran as without torchtap: it uses ", "libtorch_cpu.so.9", "(9.1.0)", "and torchtap was built for ")


def test_another_libtorch(folder):
    program_of_other = given("program_of_other")
    assert call(program_of_other, status=7, cwd=folder).out == "9 \n"
    done = run("preload", "--save", "other", "--", program_of_other, status=7, cwd=folder)
    assert all(word in done.err for word in WITHOUT) and done.err.count("\n") == 1 and done.out == "9 \n"
    # Also as a child, which the launcher does not know.
    child = ("sh", "-c", f"{program_of_other}; exit 5")
    done = run("preload", "--save", "child", "--", *child, status=5, cwd=folder)
    assert all(word in done.err for word in WITHOUT) and done.err.count("\n") == 1 and done.out.startswith("9 ")
    assert re.match(r"torchtap: process \d+ \(program_of_othe\w*\) ran as", done.err)


def test_another_libtorch_that_is_opened(folder):
    lines = call("ldd", given("program_of_other")).out.splitlines()
    (library,) = (line.split()[2] for line in lines if "libtorch_cpu" in line)
    opens = (sys.executable, "-c", f"import ctypes, os; ctypes.CDLL({library!r}); ")
    for name, end, status in ("end", "", 0), ("exit", "os._exit(3)", 3), ("import", "import math, _ctypes, torch", 0):
        done = run("preload", "--save", name, "--", *opens[:2], opens[2] + end, status=status, cwd=folder)
        assert all(word in done.err for word in WITHOUT) and done.err.count("\n") == 1
        assert not (folder / name).exists()


@pytest.mark.parametrize("plugin", ["libown_engine.so", given("own_engine")])
def test_a_plugin_with_libtorch_is_recorded(folder, plugin):
    """It is opened with RTLD_LOCAL, by its path or as one that the host's RUNPATH finds."""
    assert call(given("host"), plugin, status=6).out == "0 2\n"
    name = "plugin" + str(len(plugin))
    done = run("preload", "--reduce", "count", "--save", name, "--", given("host"), plugin, status=6, cwd=folder)
    assert done.out == "0 2\n" and done.err == f"torchtap: recorded 1 sample of 1 module: {name}\n"
    assert [(entry["path"], entry["samples"]) for entry in entries(folder / name)] == [("Linear#0", 1)]
    # As a child's, whose program is not the launcher's.
    child = ("sh", "-c", f"{given('host')} {plugin}; exit 4")
    done = run("preload", "--reduce", "count", "--save", name + "child", "--", *child, status=4, cwd=folder)
    assert done.out == "0 2\n" and "recorded 1 sample of 1 module" in done.err


def test_a_plugin_with_another_libtorch(folder):
    assert call(given("host"), "libown_plugin_of_other.so", status=6).out == "0 9\n"
    done = run("preload", "--save", "host", "--", given("host"), "libown_plugin_of_other.so", status=6, cwd=folder)
    assert done.out == "0 9\n" and all(word in done.err for word in WITHOUT) and done.err.count("\n") == 1


def test_nothing_is_brought_into_a_process_without_libtorch(folder):
    done = run("preload", "--save", "none", "--", given("host"), status=6, cwd=folder)
    assert done.out == "0\n" and "does not use LibTorch as a shared library" in done.err
    done = run("preload", "--save", "none", "--", given("host"), "libno_such.so", status=3, cwd=folder)
    assert done.out.startswith("0libno_such.so: cannot open shared object file")


def test_a_process_of_python_that_ends_at_once(folder):
    """Python opens LibTorch late, so what sees the process end is there before."""
    script = folder / "late.py"
    script.write_text(
        "import os, torch\n"
        "net = torch.jit.script(torch.nn.Linear(2, 2))\n"
        "child = os.fork()\n"
        "net(torch.ones(1, 2))\n"
        "if child: os.waitpid(child, 0)\n"
        "os._exit(0 if child == 0 else 8)\n"
    )
    err = run("preload", "--reduce", "count", "--save", "late", "--", sys.executable, script, status=8, cwd=folder).err
    assert err.count("recorded 1 sample of 1 module") == 2, err


RANKS = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
]


@pytest.mark.parametrize("rank, size", RANKS)
def test_ranks(folder, rank, size):
    """Launchers that run at once, into one place: each rank has its own."""
    place = folder / rank
    place.mkdir()

    def all_of(*options, status=5):
        launchers = [
            start(
                *(TORCHTAP, "preload", *options, "--", processes, "return"),
                cwd=place,
                env={**os.environ, rank: str(i), size: "3"},
            )
            for i in range(3)
        ]
        said = [launcher.communicate(timeout=600)[1] for launcher in launchers]
        assert [launcher.returncode for launcher in launchers] == [status] * 3, said
        return said

    said = all_of("--reduce", "count", "--save", "out/")
    assert said == [f"torchtap: recorded 3 samples of 1 module: out/rank{i}\n" for i in range(3)]
    assert "1 module, 9 samples of 3 recordings in all" in run("merge", "out", "--save", "all", cwd=place).out
    before = contents(place)
    assert all("already exists" in line for line in all_of("--reduce", "mean", "--save", "out", status=2))
    assert contents(place) == before
    all_of("--reduce", "mean", "--save", "out", "--overwrite")
    assert sorted(file.name for file in (place / "out").iterdir()) == ["rank0", "rank1", "rank2"]
    all_of("--fingerprint", "port.prints")
    assert all((place / f"port-rank{i}.prints").exists() for i in range(3))
    # The folder of one process is what was asked for.
    more = {rank: "0", size: "1"}
    run("preload", "--save", "alone", "--", processes, "return", status=5, cwd=place, **more)
    assert (place / "alone" / "manifest.json").exists()


CONTAINED = pathlib.Path(__file__).with_name("contained.py")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="contained.py has the numbers of system calls on x86-64")
@pytest.mark.parametrize("name", sorted(MODES.keys() - {"overwrite"}))
def test_in_a_container(tmp_path, name):
    """As Docker runs it by default; where root may, with a root directory that cannot be written."""
    wrapper = ["unshare", "--mount", sys.executable, CONTAINED, "--read-only", tmp_path]
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode != 0:
        wrapper = [sys.executable, CONTAINED]
    place = [one.replace("out", f"{tmp_path}/out") for one in MODES[name]]
    program = [processes, "in_turn_kept"]
    done = call(*wrapper, TORCHTAP, "preload", *place, "--", *program, status=None, HOME="/nowhere", TMPDIR="/nowhere")
    assert done[:2] == call(*program, status=None)[:2] and str(tmp_path) in done.err, done.err
    made = [*tmp_path.glob("out*")]
    assert made and all(one.is_file() or [*one.iterdir()] for one in made)
