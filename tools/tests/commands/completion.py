"""Tests completion in zsh and fish with the shells themselves, if installed (for bash see commands.py)."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

torchtap = str(pathlib.Path(sys.argv[1]).resolve())
failures, skipped = [], []


def run(*arguments):
    done = subprocess.run([torchtap, *arguments], capture_output=True, text=True)
    assert done.returncode == 0
    return done.stdout


def commands():
    return re.findall(r"^  ([a-z]+)  ", run("--help").split("Subcommands:")[1], re.M)


def options(command):
    """Returns the options and commands in the help."""
    lines = [line for line in run(command, "--help").splitlines() if line.startswith("  -")]
    return {
        word.split("[")[0]
        for line in lines
        for word in line.split("  ")[1].split(" ")[0].split(",")
        if word.startswith("--")
    }


def test_fish(folder):
    script = folder / "torchtap.fish"
    script.write_text(run("completion", "fish"))
    assert subprocess.run(["fish", "--no-execute", script]).returncode == 0, "fish: syntax"

    def completed(line):
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete --do-complete {line!r}"],
            capture_output=True,
            text=True,
            cwd=folder / "files",
            env={
                **os.environ,
                "HOME": str(folder),
                "PATH": str(pathlib.Path(torchtap).parent) + ":" + os.environ["PATH"],
            },
        )
        assert done.returncode == 0 and done.stderr == "", "fish"
        return [word.split("\t")[0] for word in done.stdout.splitlines()]

    assert set(completed("torchtap ")) == set(commands())
    assert completed("torchtap sh") == ["show"], "fish: a command"
    for command in commands():
        missing = options(command) - set(completed(f"torchtap {command} --"))
        assert not missing, "fish"
    assert set(completed("torchtap convert --to ")) == {"npy", "safetensors", "csv", "tensorboard"}
    assert set(completed("torchtap trace --direction ")) == {"bottom-up", "top-down", "left-right"}
    assert set(completed("torchtap completion ")) == {"bash", "zsh", "fish"}
    assert "maps/" in completed("torchtap show ma") and "maps/" in completed("torchtap merge x --save ma")
    assert "bash" in completed("torchtap preload --save x -- bas")


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
            os.environ["PATH"] = str(pathlib.Path(torchtap).parent) + ":" + os.environ["PATH"]
            os.execlp("zsh", "zsh", "-i")
        import fcntl
        import struct
        import termios

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


def test_zsh(folder):
    script = folder / "_torchtap"
    script.write_text(run("completion", "zsh"))
    assert subprocess.run(["zsh", "-n", script]).returncode == 0, "zsh: syntax"
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
    done = subprocess.run(
        [
            "zsh",
            "-f",
            "-c",
            f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -d {folder}/dump2; print $_comps[torchtap]",
        ],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "_torchtap\n", "zsh: from fpath"


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    (folder / "files/maps").mkdir(parents=True)
    for shell, checks in (("zsh", check_zsh), ("fish", check_fish)):
        if shutil.which(shell) is None:
            print(f"skipped: there is no {shell} here")
            skipped.append(shell)
            assert "torchtap" in run("completion", shell)
        else:
            checks(folder)

done = [shell for shell in ("zsh", "fish") if shell not in skipped]
