"""Tests completion in zsh and fish with the shells themselves, if installed (for bash see commands.py)."""

import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import termios
import time

import pytest
from harness import TORCHTAP, call, run

PATH = f"{pathlib.Path(TORCHTAP).parent}:{os.environ['PATH']}"


@pytest.fixture(scope="module", autouse=True)
def maps(folder):
    (folder / "files/maps").mkdir(parents=True)


def shell(name):
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"there is no {name} here")


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_there_is_a_script(name):
    assert "torchtap" in run("completion", name).out


def commands():
    return re.findall(r"^  ([a-z]+)  ", run("--help").out, re.M)


def options(command):
    """Returns the options and commands in the help."""
    lines = [line for line in run(command, "--help").out.splitlines() if line.startswith("  -")]
    words = [word for line in lines for word in line.split("  ")[1].split(" ")[0].split(",")]
    return {word.split("[")[0] for word in words if word.startswith("--")}


@shell("fish")
def test_fish(folder):
    script = folder / "torchtap.fish"
    script.write_text(run("completion", "fish").out)
    call("fish", "--no-execute", script)

    def completed(line):
        program = f"source {script}; complete --do-complete {line!r}"
        done = call("fish", "--no-config", "-c", program, cwd=folder / "files", HOME=str(folder), PATH=PATH)
        assert done.err == ""
        return [word.split("\t")[0] for word in done.out.splitlines()]

    assert set(completed("torchtap ")) == set(commands())
    assert completed("torchtap sh") == ["show"]
    for command in commands():
        assert not options(command) - set(completed(f"torchtap {command} --"))
    assert set(completed("torchtap convert --to ")) == {"npy", "safetensors", "csv", "tensorboard"}
    assert set(completed("torchtap trace --direction ")) == {"bottom-up", "top-down", "left-right"}
    assert set(completed("torchtap completion ")) == {"bash", "zsh", "fish"}
    assert "maps/" in completed("torchtap show ma") and "maps/" in completed("torchtap merge x --save ma")
    assert "bash" in completed("torchtap preload --save x -- bas"), "another program"


class Zsh:
    """An interactive zsh, as completion belongs to its line editor."""

    def __init__(self, folder, script):
        (folder / ".zshrc").write_text(
            "PS1='READY> '\nautoload -Uz compinit\ncompinit -u -d $HOME/dump\nunsetopt beep listbeep\nsetopt nolistambiguous autolist\n"
            "zstyle ':completion:*' list-prompt ''\nzstyle ':completion:*' select-prompt ''\nLISTMAX=10000\n"
            f"source {script}\n"
        )
        self.child, self.fd = pty.fork()
        if self.child == 0:
            os.chdir(folder / "files")
            os.environ.update(
                HOME=str(folder), ZDOTDIR=str(folder), TERM="dumb", LC_ALL="C.UTF-8", COLUMNS="400", LINES="200"
            )
            os.environ["PATH"] = PATH
            os.execlp("zsh", "zsh", "-i")
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 400, 0, 0))
        self.read_until("READY> ")

    def read_until(self, end, limit=120):
        """Has a timeout only so that a broken script ends the test."""
        text, until = "", time.monotonic() + limit
        while not re.search(end, text) and time.monotonic() < until:
            if select.select([self.fd], [], [], 1)[0]:
                text += os.read(self.fd, 1 << 16).decode(errors="replace")
        assert re.search(end, text)
        return text

    def completed(self, line):
        """Returns the list below the line, or the completed line, up to a mark that is typed after it."""
        os.write(self.fd, line.encode() + b"\t\t")
        self.mark = getattr(self, "mark", 0) + 1
        # Discard the line, then print the mark with a command.
        os.write(self.fd, b"\x15" + f"print MARK''{self.mark}.\r".encode())
        return self.read_until(rf"MARK{self.mark}\.[^>]*READY> ")

    def close(self):
        os.write(self.fd, b"\x15exit\r")
        os.waitpid(self.child, 0)


@shell("zsh")
def test_zsh(folder):
    script = folder / "_torchtap"
    script.write_text(run("completion", "zsh").out)
    call("zsh", "-n", script)
    zsh = Zsh(folder, script)
    text = zsh.completed("torchtap ")
    assert all(command in text for command in commands())
    for command in commands():
        text = zsh.completed(f"torchtap {command} --")
        missing = {option for option in options(command) if option not in text}
        assert not missing
    text = zsh.completed("torchtap convert --to ")
    assert all(word in text for word in ("npy", "safetensors", "csv"))
    text = zsh.completed("torchtap trace --direction ")
    assert all(word in text for word in ("bottom-up", "top-down", "left-right")) and "->" not in text
    text = zsh.completed("torchtap completion ")
    assert all(word in text for word in ("bash", "zsh", "fish"))
    assert "torchtap show maps/" in zsh.completed("torchtap show ma"), "zsh: files"
    assert "--save maps/" in zsh.completed("torchtap merge x --save ma"), "zsh: files of an option"
    text = zsh.completed("torchtap preload --save x -- bas")
    assert "bash" in text, "zsh: another program"
    zsh.close()
    # As a file in $fpath, which runs when it is first used.
    (folder / ".zshrc").write_text("")
    program = f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -d {folder}/dump2; print $_comps[torchtap]"
    assert call("zsh", "-f", "-c", program).out == "_torchtap\n"
