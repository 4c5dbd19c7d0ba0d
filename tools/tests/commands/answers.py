#!/usr/bin/env python3
"""Tests that the command answers --help, --version and completion without LibTorch, as torchtap's program does with it, and
that it finds the program.

usage: answers.py TORCHTAP"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

torchtap = pathlib.Path(sys.argv[1]).resolve()
program = (torchtap.parent / "../libexec/torchtap").resolve()
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(command, *arguments, **environment):
    return subprocess.run([command, *arguments], capture_output=True, text=True, env={**os.environ, **environment})


def loads_libtorch(command):
    """By the dynamic linker, which lists the libraries instead of running the program."""
    return "libtorch_cpu" in run(command, LD_TRACE_LOADED_OBJECTS="1").stdout


check(not loads_libtorch(torchtap), "the command loads LibTorch")
check(loads_libtorch(program), "the program does not load LibTorch, so that this test sees nothing")

# The program still answers --help itself where it stands together with another option.
names = re.findall(r"^  ([a-z]+)  ", run(torchtap, "--help").stdout.split("Subcommands:")[1], re.M)
check(len(names) > 15, f"commands: {names}")
for name in names:
    for columns in ("57", "100") if name in ("show", "preload") else ("80",):
        short = run(torchtap, name, "--help", COLUMNS=columns)
        long = run(program, name, "-qh", COLUMNS=columns)
        check(
            short.returncode == 0 and short.stdout == long.stdout, f"{name} --help, {columns} columns: {short}\n{long}"
        )
        check(run(torchtap, name, "-h", COLUMNS=columns).stdout == short.stdout, f"{name} -h")
check(run(torchtap, "--help").stdout == run(program, "--help").stdout, "--help")
check(run(torchtap).stdout == run(torchtap, "-h").stdout == run(torchtap, "--help").stdout, "no word, -h and --help")
check(run(torchtap, "--version").stdout == run(program, "--version").stdout, "--version")
check(run(torchtap, "-V").stdout == run(torchtap, "--version").stdout != "", "-V")
for shell in ("bash", "zsh", "fish"):
    check(run(torchtap, "completion", shell).stdout == run(program, "completion", shell).stdout != "", shell)

check(run(torchtap, "help").stdout == run(torchtap, "--help").stdout, "help")
check(run(torchtap, "help", "show").stdout == run(torchtap, "show", "--help").stdout, "help show")

# What only looks like a question for help.
for words in (
    ["show --help"],
    ["nothing", "--help"],
    ["completion bash"],
    ["completion", "bash", "zsh"],
    ["--help", "show"],
):
    one, other = run(torchtap, *words), run(program, *words)
    check(
        (one.stdout, one.stderr, one.returncode) == (other.stdout, other.stderr, other.returncode),
        f"{words}: {one}\n{other}",
    )
check(
    run(torchtap, "show", "no such file", "--help").stdout == run(torchtap, "show", "--help").stdout,
    "help beside an error",
)
with tempfile.TemporaryDirectory() as folder:
    done = run(torchtap, "preload", "--save", f"{folder}/saved", "--", "echo", "of the program:", "--help")
    check(done.stdout.startswith("of the program: --help"), f"a program's own --help: {done}")

# The command and its program, moved together, and by a link; the command alone says what it lacks.
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for file in (torchtap, program):
        (folder / file.parent.name).mkdir()
        shutil.copy(file, folder / file.parent.name)
    moved = folder / torchtap.parent.name / "torchtap"
    (folder / "link").symlink_to(moved)
    for command in (moved, folder / "link"):
        check(run(command, "--version").stdout == run(torchtap, "--version").stdout, f"{command} --version")
        done = run(command, "show", folder / "nothing")
        check(
            done.returncode == 2 and done.stderr == run(torchtap, "show", folder / "nothing").stderr,
            f"{command}: {done}",
        )
    (folder / "libexec/torchtap").unlink()
    done = run(moved, "list")
    check(done.returncode == 2 and str(folder) in done.stderr, f"without its program: {done}")

print("FAILED" if failures else "the command answers as its program does")
sys.exit(1 if failures else 0)
