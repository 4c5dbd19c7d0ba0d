"""Tests torchtap explore: finished, killed and growing runs over HTTP, exported pages, its end by signals, its errors."""

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import harness
import pytest
import torch
from harness import FASHION, TORCHTAP, given, run, until

if not (FASHION / "train-images-idx3-ubyte.gz").exists():
    pytest.skip(f"there is no Fashion-MNIST in {FASHION} (apt install dataset-fashion-mnist)", allow_module_level=True)


def start(*arguments):
    """The command and the address that it prints."""
    command = harness.start(TORCHTAP, "explore", *arguments)
    return command, command.stdout.readline().strip()


def end(command, sent=signal.SIGINT):
    command.send_signal(sent)
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out) == (0, "")
    assert re.fullmatch(r"torchtap: open this .*Ctrl-C ends\.\n.* ssh -L (\d+):localhost:\1 there.*\n", err)


def ask(address, path):
    base, token = address.split("#token=")
    request = urllib.request.Request(f"{base}api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def wrong(*arguments):
    return run("explore", *arguments, status=2).err


@pytest.fixture(scope="module")
def training(folder):
    """A process that writes runs: r0 while it trains, and two that have ended."""
    training = harness.start(given("explorer_page_server"), FASHION, folder, stdin=subprocess.PIPE, stderr=None)
    training.stdout.readline()
    yield training
    training.kill()
    training.communicate()


@pytest.fixture
def work(folder, training):
    return folder


def test_running_killed_and_ended(work, training):
    def train(steps):
        training.stdin.write(f"train {steps}\n")
        training.stdin.flush()
        assert training.stdout.readline() == "trained\n", "trains"

    # One that another process writes, and two finished ones.
    command, address = start(work / "r0", work / "r1", work / "r2")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=[0-9a-f]{32}", address), "address"
    runs = ask(address, "runs")
    assert [one["name"] for one in runs] == ["lr=0.05", "overflow", "changed"], "names"
    assert [one["state"] for one in runs] == ["running", "finished", "finished"], "states"
    assert [one["control"] for one in runs] == [False] * 3, "files take no control"
    train(4)
    until(lambda: ask(address, "runs")[0]["step"] == 15, "what is written meanwhile appears")
    bad = ask(address, "runs/r1/health")["first_bad"]
    graph = ask(address, "runs/r1/graph?mode=train")
    assert bad["step"] == 7 and bad["producer"], "first bad"
    assert next(call["path"] for call in graph["calls"] if call["id"] == bad["call"]) == "layer3.0.conv1"
    differences = ask(address, "compare?a=r0&b=r2&step=0")
    first = next(call["path"] for call in graph["calls"] if call["id"] == differences[0]["call"])
    assert first == "layer4.1.bn2", "what differs most"

    # A killed writer.
    training.kill()
    training.wait()
    until(lambda: ask(address, "runs")[0]["state"] == "crashed", "a killed run is told")
    assert ask(address, "runs")[0]["step"] == 15, "all of its steps are there"
    assert ask(address, "runs/r0/series")[0]["columns"] == 16, "and their columns"

    # A port that is taken, and the ends of the first two.
    port = address.split(":")[2].split("/")[0]
    assert "ServeOptions::port" in wrong(work / "r1", "--port", port), "a port that is taken is an error"
    end(command)
    command, address = start(work / "r1", "--port", port)
    assert address.startswith(f"http://127.0.0.1:{port}/"), "the port is free again"
    waiting = socket.create_connection(("127.0.0.1", int(port)))  # in the middle of a request
    waiting.sendall(b"GET / HTTP/1.1\r\nHost:")
    end(command, signal.SIGTERM)
    try:
        assert waiting.recv(100) == b"", "its connections end with it"
    except ConnectionResetError:  # what it had not read yet makes it so
        pass
    with pytest.raises(urllib.error.URLError):  # nobody answers any more
        urllib.request.urlopen(address, timeout=5)


@pytest.fixture(scope="module")
def page(folder, training):
    done = run("explore", folder / "r1", folder / "r2", "--export", folder / "page.html")
    assert (done.out, done.err) == ("", "")
    return (folder / "page.html").read_text()


def test_one_file(page):
    held = json.loads(re.search(r'<script[^>]*id="torchtap-data"[^>]*>(.*?)</script>', page, re.S)[1])
    assert [one["name"] for one in held["runs"]] == ["overflow", "changed"], "both runs are in the page"
    assert held["r0"]["health"]["first_bad"]["step"] == 7, "with their health"


def test_what_is_no_file_is_written_to_and_stays(work, page):
    """A link leads to the file that is replaced."""
    export = ("explore", work / "r1", work / "r2", "--export")
    pipe, link = work / "pipe", work / "link.html"
    os.mkfifo(pipe)
    link.symlink_to("page.html")
    (work / "page.html").write_text("old")
    with open(work / "piped", "w") as piped, subprocess.Popen(["cat", pipe], stdout=piped) as reader:
        run(*export, pipe)
        assert reader.wait(timeout=60) == 0
    assert (work / "piped").read_text() == page, "the page behind the pipe"
    assert pipe.is_fifo(), "the pipe is still one"
    run(*export, link, "--overwrite")
    assert link.is_symlink() and (work / "page.html").read_text() == page
    assert run(*export, "/dev/stdout").out == page
    assert "No space left" in wrong(work / "r1", "--export", "/dev/full") and not os.path.isfile("/dev/full")
    assert not [name for name in os.listdir(work) if "torchtap-new" in name], "nothing is left behind"


def test_torchscript(folder):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    torch.jit.script(model).save(str(folder / "model.pt"))
    command, address = start(folder / "model.pt", "--random", "3x4", "--backward", "--address", "::1")
    assert address.startswith("http://[::1]:"), "the other loopback address"
    graph = ask(address, "runs/r0/graph?mode=eval")
    assert [call["path"] for call in graph["calls"]] == ["", "0", "1", "2"], "calls"
    assert graph["calls"][1]["inputs"][0]["shape"] == [3, 4], "shapes"
    series = ask(address, "runs/r0/series")
    kinds = {one["what"] for one in series}
    assert {"output", "grad_output", "parameter", "parameter_grad"} <= kinds, "series"
    counts = sorted(one["last"]["count"] for one in series if one["what"] == "parameter")
    assert counts == [2, 8, 16, 32], "each parameter is counted once"
    end(command)


def test_names_and_token_as_they_are_asked_for(work):
    command, address = start(work / "r1", "--hosts", "lab.example", "--token", "f" * 20)
    assert address.endswith("/#token=" + "f" * 20), "the token"
    base = address.split("#")[0]
    for host, status in (
        ("lab.example", 200),
        ("lab.example:9000", 200),
        ("192.0.2.2:9000", 200),
        ("evil.example", 421),
    ):
        try:
            with urllib.request.urlopen(urllib.request.Request(base, headers={"Host": host}), timeout=60) as response:
                got = response.status
        except urllib.error.HTTPError as error:
            got = error.code
        assert got == status
    end(command)


def test_what_is_wrong(work):
    assert "omit --backward" in wrong(work / "r1", "--backward"), "a run is not run again"
    assert "no run" in wrong(work) or "cannot read the run" in wrong(work), "a directory without a run"
    (work / "recording").mkdir()
    (work / "recording/manifest.json").write_text("{}")
    assert "is a recording, to be read by torchtap show" in wrong(work / "recording"), "a recording"
    file = work / "r1/explorer/run.tapx"
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 0x10
    file.write_bytes(damaged)
    assert "is damaged at byte" in wrong(work / "r1"), "a damaged file"
    assert "is no IP address" in wrong(work / "r2", "--address", "nowhere"), "an address that is none"
