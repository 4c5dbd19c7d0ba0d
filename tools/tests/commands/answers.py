"""Tests that the command answers --help, --version and completion without LibTorch, as torchtap's program does with it, and
that it finds the program."""

import pathlib
import re
import shutil

import pytest
from harness import TORCHTAP, call

PROGRAM = pathlib.Path(TORCHTAP).parent / "../libexec/torchtap"


def ask(*arguments, command=TORCHTAP, **environment):
    return call(command, *arguments, status=None, **environment)


def both(*arguments, **environment):
    """What the command and its program answer, which is the same."""
    done = ask(*arguments, **environment)
    assert done == ask(*arguments, command=PROGRAM, **environment)
    return done


NAMES = re.findall(r"^  ([a-z]+)  ", ask("--help").out, re.M)


def test_man_page():
    """Written by the build of the same texts: every command with all of its options."""
    file = pathlib.Path(TORCHTAP).parent / "torchtap.1"
    page = file.read_text()
    sections = dict(re.findall(r"^\.SH TORCHTAP (\w+)\n(.*?)(?=^\.SH|\Z)", page, re.M | re.S))
    assert list(sections) == NAMES
    for name, section in sections.items():
        plain = section.replace("\\-", "-")
        options = re.findall(r"^  (-\S+)", ask(name, "--help", COLUMNS="80").out, re.M)
        assert options and not [option for option in options if f"\\fB{option}" not in plain]
        assert not re.findall(r"^\.TP\n.*\n.*\.$", section, re.M), "a description is no sentence"
        assert section.count("\n.nf\n") == section.count("\n.fi\n") and "Exit status" in plain
    if shutil.which("groff"):
        done = call("groff", "-man", "-Tutf8", "-ww", "-Kutf8", file)
        assert done.err == "" and "torchtap show" in done.out


def test_the_command_does_not_load_libtorch():
    """By the dynamic linker, which lists the libraries instead of running the program."""
    assert "libtorch_cpu" not in ask(LD_TRACE_LOADED_OBJECTS="1").out
    assert "libtorch_cpu" in ask(command=PROGRAM, LD_TRACE_LOADED_OBJECTS="1").out, "this test sees nothing"


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_command(name):
    for columns in ("57", "100") if name in ("show", "preload") else ("80",):
        short = ask(name, "--help", COLUMNS=columns)
        # The program still answers --help itself where it stands together with another option.
        assert short.status == 0 and short.out == ask(name, "-qh", command=PROGRAM, COLUMNS=columns).out
        assert short == ask(name, "-h", COLUMNS=columns)


def test_help_and_version():
    assert len(NAMES) > 15
    assert both("--help") == ask() == ask("-h") == ask("help")
    assert both("--version") == ask("-V") and ask("-V").out
    assert ask("help", "show") == ask("show", "--help")
    assert ask("show", "no such file", "--help").out == ask("show", "--help").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    assert both("completion", shell).out


@pytest.mark.parametrize(
    "words",
    [["show --help"], ["nothing", "--help"], ["completion bash"], ["completion", "bash", "zsh"], ["--help", "show"]],
)
def test_what_only_looks_like_a_question_for_help(words):
    both(*words)


def test_a_programs_own_help(folder):
    done = ask("preload", "--save", folder / "saved", "--", "echo", "of the program:", "--help")
    assert done.out.startswith("of the program: --help")


def test_moved_together_and_by_a_link(folder):
    """The command alone says what it lacks."""
    for file in (pathlib.Path(TORCHTAP), PROGRAM.resolve()):
        (folder / file.parent.name).mkdir()
        shutil.copy(file, folder / file.parent.name)
    moved = folder / pathlib.Path(TORCHTAP).parent.name / "torchtap"
    (folder / "link").symlink_to(moved)
    for command in (moved, folder / "link"):
        assert ask("--version", command=command) == ask("--version")
        done = ask("show", folder / "nothing", command=command)
        assert done.status == 2 and done == ask("show", folder / "nothing")
    (folder / "libexec/torchtap").unlink()
    done = ask("list", command=moved)
    assert done.status == 2 and str(folder) in done.err
