"""torchtap preload --explore: programs that know nothing of torchtap behave as without it, and their models' graphs, steps
and values are those that the program's text says. Edges of a ResNet-18 are those of the same model built with torchtap."""

import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import torch
from torch import nn

torchtap, passes, foreign, scripted, explored = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])


def run(command, folder):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


class Run:
    """A run's file, as docs/format.md says."""

    def __init__(self, path):
        data = path.read_bytes()
        assert data[:8] == b"TAPX\1\0\0\0"
        self.graphs, self.step, self.ended, self.scalars, self.columns, self.series = {}, None, False, {}, {}, {}
        at = 8
        while at + 12 <= len(data):
            (size,) = struct.unpack_from("<I", data, at)
            kind, body = chr(data[at + 12]), data[at + 13 : at + 12 + size]
            at += 12 + size
            if kind == "I":
                self.info = json.loads(body)
            elif kind == "G":
                self.graphs[body[0]] = json.loads(body[9:])
            elif kind == "T":
                (self.step,) = struct.unpack("<q", body)
            elif kind == "S":
                number, call, what, index, mode = struct.unpack_from("<iiBii", body)
                self.series[number] = (call, what, index, mode)
            elif kind == "C":
                number, first, last, count = struct.unpack_from("<iqqd", body)
                self.columns.setdefault(number, []).append((first, count))
            elif kind == "E":
                self.ended = True

    def graph(self, mode):
        return self.graphs.get(("train", "eval").index(mode), {"calls": [], "edges": [], "forwards": 0})

    def forwards(self, mode):
        return self.graph(mode)["forwards"]

    def edges(self, mode):
        graph = self.graph(mode)
        calls = {call["id"]: call for call in graph["calls"]}

        def name(identity):
            call = calls[identity]
            return (call["path"] or "net") + (f"#{call['call']}" if call["call"] else "")

        def port(end, caller, source):
            if end["call"] == caller:
                return ("In" if source else "Out") + str(end["port"])
            return f"{name(end['call'])}.{end['port']}"

        return {
            f"{name(edge['caller'])}: {port(edge['from'], edge['caller'], True)} -> "
            f"{port(edge['to'], edge['caller'], False)}"
            + ("" if edge["seen"] == graph["forwards"] else f" ({edge['seen']} of {graph['forwards']})")
            for edge in graph["edges"]
        }

    def recorded(self, path, what):
        """The columns of the first call of a module in training, or of its first parameter."""
        ids = [call["id"] for call in self.graph("train")["calls"] if call["path"] == path]
        for number, (call, its, index, mode) in self.series.items():
            if call in ids and its == what and index == 0 and mode in (0, -1):
                return self.columns.get(number, [])
        return []


def same(got, expected, what):
    assert got == expected


def shown(program, what, folder, name="run"):
    """The runs of a program, which behaves as it does without."""
    bare = run([program, what], folder)
    done = run([torchtap, "preload", "--explore", "--save", folder / name, "--overwrite", "--", program, what], folder)
    for part, a, b in zip(("exit status", "output"), bare, done):
        assert a == b
    said = done[2].replace(bare[2], "", 1) if bare[2] else done[2]
    assert all(line.startswith("torchtap: ") for line in said.splitlines())
    assert len(re.findall(r"^torchtap: http://127\.0\.0\.1:\d+/#token=[0-9a-f]{32}$", said, re.M)) == 1
    return runs_in(folder / name), said


def runs_in(folder):
    return [Run(path) for path in sorted(folder.glob("explorer/*.tapx"), key=lambda path: (len(path.name), path.name))]


NET = {"net: In0 -> conv.0", "conv: In0 -> Out0", "net: conv.0 -> fc.0", "fc: In0 -> Out0"}


def test_passes(folder):
    (net,), said = shown(passes, "train", folder)
    same(net.edges("train"), NET, "train")
    same(net.edges("eval"), NET, "train, evaluated")
    assert (net.forwards("train"), net.forwards("eval"), net.step) == (5, 4, 4), "train"
    assert net.ended and net.info["name"] == "passes", "train"
    for path, what, count in (
        ("conv", 0, 128),
        ("conv", 1, 288),
        ("fc", 1, 20),
        ("fc", 3, 20),
        ("conv", 4, 36),
        ("fc", 5, 1440),
    ):
        columns = net.recorded(path, what)
        assert columns and columns[0] == (0, count)
    assert "Net" not in said and "Linear" not in said, "train"

    (net,), _ = shown(passes, "siamese", folder)
    # The second input is made within the step, of nothing.
    same(net.edges("train"), NET | {"conv#1: In0 -> Out0", "net: conv#1.0 -> fc#1.0", "fc#1: In0 -> Out0"}, "siamese")
    assert (net.forwards("train"), net.forwards("eval"), net.step) == (5, 4, 4), "siamese"

    (cell,), _ = shown(passes, "sequences", folder)
    assert cell.forwards("eval") == 4, "sequences"

    # When the first module is seen for the first time, the Sequential around it has begun.
    (net,), _ = shown(passes, "stemmed", folder)
    same(
        net.edges("train"),
        {
            "net: In0 -> stem.0",
            "stem: In0 -> stem.0.0",
            "stem.0: In0 -> Out0",
            "stem: stem.0.0 -> stem.1.0",
            "stem.1: In0 -> Out0",
            "stem: stem.1.0 -> stem.2.0",
            "stem.2: In0 -> Out0",
            "stem: stem.2.0 -> Out0",
            "net: stem.0 -> fc.0",
            "fc: In0 -> Out0",
        },
        "stemmed",
    )
    assert (net.forwards("train"), net.step) == (3, 2), "stemmed"

    (generator, critic), _ = shown(passes, "adversaries", folder)
    names = {one.info["name"]: one for one in (generator, critic)}
    assert set(names) == {"passes: Generator", "passes: Net"}, "adversaries"
    generator, critic = names["passes: Generator"], names["passes: Net"]
    same(generator.edges("train"), {"net: In0 -> up.0", "up: In0 -> Out0"}, "adversaries, generator")
    assert generator.forwards("train") == 6, "adversaries"
    assert critic.step == 5, "adversaries"

    runs, _ = shown(passes, "anew", folder)
    names = [one.info["name"] for one in runs]
    assert names == ["passes: Net", "passes: Net 2", "passes: Net 3"], "anew"
    assert [one.forwards("train") for one in runs] == [2, 2, 2], "anew"
    for one in runs:
        same(one.edges("train"), NET, "anew")

    # The model has a module that never runs, so its first three passes are not told apart.
    (net,), _ = shown(passes, "threads", folder)
    assert net.forwards("eval") == 1 + 3 and net.ended, "threads"

    # So they are no forward, if one follows.
    (net,), _ = shown(passes, "evaluated", folder)
    assert net.forwards("eval") == 6 - 3, "evaluated"
    same(net.edges("eval"), NET, "evaluated")

    (net,), _ = shown(passes, "fails", folder)
    same(net.edges("train"), {edge + " (4 of 5)" for edge in NET}, "fails")


def test_models(folder):
    folder_of = folder / "built"
    assert run([explored, folder_of], folder)[0] == 0, "the same model built with torchtap"
    (reference,) = runs_in(folder_of)
    (net,), said = shown(foreign, "backward", folder)
    without_root = {edge for edge in reference.edges("eval") if not (edge.startswith("net: ") and "-> Out" in edge)}
    assert len(without_root) > 60, "the edges of a ResNet-18"
    # Three forwards, and then the first convolution alone.
    same(net.edges("eval"), {edge + " (3 of 4)" for edge in without_root}, "a ResNet-18")
    assert net.forwards("eval") == 4, "backward"
    assert "BatchNorm2d" in said and "Linear" in said, "backward: what cannot be seen"
    (net,), _ = shown(foreign, "train", folder)
    same(net.edges("train"), {edge + " (4 of 5)" for edge in without_root}, "a ResNet-18 that is trained")
    assert (net.forwards("eval"), net.step) == (3, 6), "train"

    # Another thread finishes the run of a program that throws or aborts, and cannot end the forward that is open.
    for ending, forwards in (("throw", 3), ("exit", 4), ("abort", 3)):
        (net,), _ = shown(foreign, ending, folder)
        assert net.ended and net.forwards("eval") == forwards

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 900, 5)).eval()
    torch.jit.script(model).save(folder / "net.pt")
    (net,), _ = shown(scripted, "net.pt", folder)
    chain = ["In0", "0.0", "1.0", "2.0", "3.0", "Out0"]
    expected = {f"net: {a} -> {b}" for a, b in zip(chain, chain[1:])} | {f"{i}: In0 -> Out0" for i in range(4)}
    same(net.edges("eval"), expected, "TorchScript")
    assert (net.forwards("eval"), net.step) == (3, 2), "TorchScript"


def test_processes(folder):
    (net,), said = shown(passes, "fork", folder, "forked")
    # As in "threads".
    assert (net.forwards("eval"), net.ended) == (1, True), "fork"
    children = list(folder.glob("forked-*"))
    assert len(children) == 1, "fork"
    (child,) = runs_in(children[0])
    assert (child.forwards("eval"), child.ended) == (4, True), "fork"
    same(child.edges("eval"), NET, "fork")
    ports = re.findall(r"http://127\.0\.0\.1:(\d+)/", said)
    assert len(set(ports)) == 2, "fork: pages of parent and child"
    assert f"process {children[0].name.split('-')[1]} (passes): http" in said, "fork"

    status, _, said = run(
        [
            torchtap,
            "preload",
            "--explore",
            "--save",
            "two",
            "--",
            "sh",
            "-c",
            f"'{passes}' train; '{passes}' sequences",
        ],
        folder,
    )
    steps = sorted(runs_in(path)[0].step for path in folder.glob("two-*"))
    assert status == 6 and steps == [3, 4], "two programs"
    # As the only one that ran a model.
    run([torchtap, "preload", "--explore", "--save", "one", "--", "sh", "-c", f"'{passes}' train; true"], folder)
    assert [one.step for one in runs_in(folder / "one")] == [4], "one program of a shell"


def ask(url, path, token=None):
    address, own = url.split("#token=")
    request = urllib.request.Request(address + "api/v1/" + path, headers={"Authorization": "Bearer " + (token or own)})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def address_said(process):
    for line in process.stderr:
        found = re.search(r"http://\S+#token=\w+", line)
        if found:
            return found.group()
    return ""


def program_of(launcher):
    """The process of `foreign` that torchtap preload started."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue  # it has ended
        if name == "foreign" and int(rest.split()[1]) == launcher.pid:
            return int(stat.parent.name)
    return 0


def test_page(folder):
    # The program waits for a signal.
    for ending, number in (("terminated", signal.SIGTERM), ("killed", signal.SIGKILL)):
        save = [] if ending == "terminated" else ["--save", ending]
        with subprocess.Popen(
            [torchtap, "preload", "--explore", *save, "--", foreign, "terminate"],
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            url = address_said(process)
            assert url
            for line in process.stdout:
                if line == "waiting\n":
                    break
            (one,) = json.loads(ask(url, "runs")[1])
            assert (one["program"], one["modes"], one["state"]) == ("foreign", ["eval"], "running")
            assert ask(url, "runs", "0" * 32)[0] == 403
            graph = json.loads(ask(url, "runs/r0/graph?mode=eval")[1])
            assert len(graph["edges"]) > 60
            port = int(url.split(":")[2].split("/")[0])
            with socket.create_connection(("127.0.0.1", port)) as half:  # a request that the end of the program meets
                half.sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n")
                os.kill(program_of(process), number)
                rest = process.stderr.read()
                assert process.wait(60) == -number
            assert ending == "terminated" or "killed by signal 9" in rest and "killed has the run" in rest
    # A killed program's run can be read.
    (net,) = runs_in(folder / "killed")
    assert net.step is not None and not net.ended
    assert len(net.edges("eval")) > 60, "killed"
    status, _, err = run([torchtap, "explore", "killed", "--export", "page.html"], folder)
    assert status == 0 and '"state":"crashed"' in (folder / "page.html").read_text(), "killed, exported"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = run([torchtap, "preload", f"--explore={port}", "--", passes, "train"], folder)
        assert status == 6 and "nothing is shown" in err and str(port) in err, "a port that is taken"
        status, _, err = run(
            [torchtap, "preload", f"--explore={port}", "--save", "taken", "--", passes, "train"], folder
        )
        assert status == 6 and "there is no page" in err and runs_in(folder / "taken")[0].step == 4, "taken"
    status, _, err = run([torchtap, "preload", f"--explore={port}", "--", passes, "train"], folder)
    assert f"http://127.0.0.1:{port}/#token=" in err, "a chosen port"


def test_errors(folder):
    for arguments, words in (
        [["--explore", "--trace", "a"], "--"],
        [["--explore", "--names", "b"], "--explore"],
        [["--explore", "--report", "a.json"], "--"],
        [["--explore=many"], "many"],
        [["--explore=70000"], "70000"],
        [["--explore", "--interval", "3"], "--explore"],
    ):
        status, _, err = run([torchtap, "preload", *arguments, "--", passes], folder)
        assert status == 2 and words in err
    status, _, err = run([torchtap, "preload", "--explore", "--save", "killed", "--", passes], folder)
    assert status == 2 and "already exists" in err
    status, _, err = run([torchtap, "preload", "--explore", "--", passes, "never asked"], folder)
    assert status == 6 and "nothing was recorded" in err and "Conv2d, Linear" in err and "eval" in err
    status, _, err = run([torchtap, "preload", "--explore", "--", "true"], folder)
    assert status == 0 and "nothing was recorded" in err, "a program without LibTorch"


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    check_passes(folder)
    check_models(folder)
    check_processes(folder)
    check_page(folder)
    check_errors(folder)
