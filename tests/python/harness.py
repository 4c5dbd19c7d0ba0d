"""What the tests in Python have in common; pytest loads it as a plugin. torchtap_python_test (cmake/torchtap_tests.cmake) runs
a file, and says where the programs are."""

import csv
import fcntl
import io
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import tempfile
import termios
import time
import typing
import unicodedata

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FASHION = pathlib.Path(os.environ.get("TORCHTAP_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))


def given(name):
    """What CMake gave under this name: the path of a program, or a folder; None if this was built without."""
    return os.environ.get("TORCHTAP_TEST_" + name)


TORCHTAP = given("torchtap_command")


class Done(typing.NamedTuple):
    status: int
    out: str
    err: str


def environment(**more):
    """This process's, without what a terminal says of itself."""
    # Variables may come and go meanwhile: pytest has one of each test, and tests ask in threads.
    own = {name: os.environ.get(name) for name in list(os.environ) if name not in ("COLUMNS", "NO_COLOR")}
    own = {name: value for name, value in own.items() if value is not None}
    return {**own, "LC_ALL": "C.UTF-8", **more}


def call(*command, status=0, cwd=None, timeout=600, **more):
    """Runs a program that ends with this exit status, or with any where it is None. `more` are variables of its environment."""
    command = [*map(str, command)]
    how = {"capture_output": True, "text": True, "errors": "surrogateescape"}
    done = subprocess.run(command, cwd=cwd, timeout=timeout, env=environment(**more), **how)
    assert status is None or done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return Done(done.returncode, done.stdout, done.stderr)


def run(*arguments, **how):
    """Runs the command torchtap."""
    return call(TORCHTAP, *arguments, **how)


def document(*arguments, **how):
    """What a subcommand of torchtap says as JSON."""
    return json.loads(run(*arguments, "--json", **how).out)


def rows_of(*arguments, **how):
    """What a subcommand of torchtap says as CSV."""
    return list(csv.DictReader(io.StringIO(run(*arguments, "--csv", **how).out)))


def preload(options, *program, status=None):
    """What torchtap preload says of a program, which behaves as it does without."""
    bare = call(*program, status=status)
    done = run("preload", *options, "--", *program, status=None)
    assert done[:2] == bare[:2], done.err
    # A program may write a line in parts, as err(3) does, and ours come between.
    ours = re.compile(r"torchtap: .*\n")
    assert ours.sub("", done.err).splitlines() == bare.err.splitlines()
    return "".join(ours.findall(done.err))


started = []


def start(*command, **how):
    """A program that runs beside the test, until its end at most, and of whose output both parts are read."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
    started.append(subprocess.Popen([*map(str, command)], **how))
    return started[-1]


@pytest.fixture(autouse=True)
def end_of_what_was_started():
    """Those of fixtures with a wider scope run on."""
    before = len(started)
    yield
    for process in started[before:]:
        if process.poll() is None:
            process.kill()
            process.wait()
    del started[before:]


def until(condition, what, seconds=120):
    """Waits until the condition holds; what is the error otherwise."""
    end = time.monotonic() + seconds
    while not (held := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return held


def wait_for_stream(name):
    """What `torchtap streams` says of a stream, as soon as there is one."""
    return until(
        lambda: next((one for one in document("streams", status=None) if one["name"] == name), None),
        f"{name} did not appear",
    )


def in_terminal(*command, columns=80, **more):
    """What a program writes to a terminal of this width, stdout and stderr together."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    process = start(*command, stdout=follower, stderr=follower, env=environment(**{"TERM": "xterm", **more}))
    os.close(follower)
    drawn = b""
    try:
        while part := os.read(leader, 1 << 16):
            drawn += part
    except OSError:  # the end, on Linux
        pass
    os.close(leader)
    assert process.wait() == 0, drawn
    return drawn.decode()


def columns_of(text):
    """How many columns of a terminal a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def entries(recording):
    """What a recording's manifest says of each module."""
    return json.loads((pathlib.Path(recording) / "manifest.json").read_text())["entries"]


def recording(folder):
    """[(entry of the manifest, value)]"""
    import torch

    folder = pathlib.Path(folder)
    return [
        (entry, torch.load(folder / entry["file"], weights_only=True) if entry["file"] else None)
        for entry in entries(folder)
    ]


@pytest.fixture(scope="module")
def folder():
    """A folder for all tests of a file, of which some read what others made with a fixture."""
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name).resolve()


@pytest.fixture(scope="module")
def inside(folder):
    """The tests run in their folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


@pytest.fixture(scope="module")
def streams(folder):
    """A place of its own where programs publish."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        (folder / "torchtap").mkdir(0o700)
        yield


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """CTest shows a file of which all tests are skipped as skipped."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED) and "skipped" in stats and "passed" not in stats:
        session.exitstatus = 77
