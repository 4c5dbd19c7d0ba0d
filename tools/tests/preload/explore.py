"""torchtap preload --explore: programs that know nothing of torchtap behave as without it, and their models' graphs, steps
and values are those that the program's text says. Edges of a ResNet-18 are those of the same model built with torchtap."""

import json
import os
import pathlib
import re
import signal
import socket
import struct
import urllib.error
import urllib.request

import harness
import pytest
import torch
from harness import TORCHTAP, given, run, start, until
from torch import nn

pytestmark = pytest.mark.usefixtures("inside")
passes, foreign, scripted, explored = map(given, ("passes", "foreign", "scripted", "explored"))


class Run:
    """A run's file, as views/explorer/FORMAT.md says."""

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


def shown(program, what, name="run"):
    """The runs of a program, which behaves as it does without."""
    said = harness.preload(["--explore", "--save", name, "--overwrite"], program, what)
    assert len(re.findall(r"^torchtap: http://127\.0\.0\.1:\d+/#token=[0-9a-f]{32}$", said, re.M)) == 1
    return runs_in(name), said


def runs_in(folder):
    return [
        Run(path)
        for path in sorted(pathlib.Path(folder).glob("explorer/*.tapx"), key=lambda path: (len(path.name), path.name))
    ]


NET = {"net: In0 -> conv.0", "conv: In0 -> Out0", "net: conv.0 -> fc.0", "fc: In0 -> Out0"}


def test_train():
    (net,), said = shown(passes, "train")
    assert net.edges("train") == NET
    assert net.edges("eval") == NET
    assert (net.forwards("train"), net.forwards("eval"), net.step) == (5, 4, 4)
    assert net.ended and net.info["name"] == "passes"
    counts = {("conv", 0): 128, ("conv", 1): 288, ("fc", 1): 20, ("fc", 3): 20, ("conv", 4): 36, ("fc", 5): 1440}
    assert {which: net.recorded(*which)[0] for which in counts} == {
        which: (0, count) for which, count in counts.items()
    }
    assert "Net" not in said and "Linear" not in said


def test_siamese():
    (net,), _ = shown(passes, "siamese")
    # The second input is made within the step, of nothing.
    assert net.edges("train") == NET | {"conv#1: In0 -> Out0", "net: conv#1.0 -> fc#1.0", "fc#1: In0 -> Out0"}
    assert (net.forwards("train"), net.forwards("eval"), net.step) == (5, 4, 4)


def test_sequences():
    (cell,), _ = shown(passes, "sequences")
    assert cell.forwards("eval") == 4


def test_stemmed():
    """When the first module is seen for the first time, the Sequential around it has begun."""
    (net,), _ = shown(passes, "stemmed")
    assert net.edges("train") == {
        *("net: In0 -> stem.0", "stem: In0 -> stem.0.0", "stem.0: In0 -> Out0", "stem: stem.0.0 -> stem.1.0"),
        *("stem.1: In0 -> Out0", "stem: stem.1.0 -> stem.2.0", "stem.2: In0 -> Out0", "stem: stem.2.0 -> Out0"),
        *("net: stem.0 -> fc.0", "fc: In0 -> Out0"),
    }
    assert (net.forwards("train"), net.step) == (3, 2)


def test_adversaries():
    (generator, critic), _ = shown(passes, "adversaries")
    names = {one.info["name"]: one for one in (generator, critic)}
    assert set(names) == {"passes: Generator", "passes: Net"}
    generator, critic = names["passes: Generator"], names["passes: Net"]
    assert generator.edges("train") == {"net: In0 -> up.0", "up: In0 -> Out0"}
    assert generator.forwards("train") == 6
    assert critic.step == 5


def test_anew():
    runs, _ = shown(passes, "anew")
    names = [one.info["name"] for one in runs]
    assert names == ["passes: Net", "passes: Net 2", "passes: Net 3"]
    assert [one.forwards("train") for one in runs] == [2, 2, 2]
    for one in runs:
        assert one.edges("train") == NET


def test_threads():
    """The model has a module that never runs, so its first three passes are not told apart."""
    (net,), _ = shown(passes, "threads")
    assert net.forwards("eval") == 1 + 3 and net.ended


def test_evaluated():
    """The first three passes are no forward, if one follows."""
    (net,), _ = shown(passes, "evaluated")
    assert net.forwards("eval") == 6 - 3
    assert net.edges("eval") == NET


def test_fails():
    (net,), _ = shown(passes, "fails")
    assert net.edges("train") == {edge + " (4 of 5)" for edge in NET}


@pytest.fixture(scope="module")
def resnet(folder):
    """The edges between modules of a ResNet-18, which is built with torchtap."""
    harness.call(explored, folder / "built")
    (reference,) = runs_in(folder / "built")
    edges = {edge for edge in reference.edges("eval") if not (edge.startswith("net: ") and "-> Out" in edge)}
    assert len(edges) > 60
    return edges


def test_resnet(resnet):
    (net,), said = shown(foreign, "backward")
    # Three forwards, and then the first convolution alone.
    assert net.edges("eval") == {edge + " (3 of 4)" for edge in resnet}
    assert net.forwards("eval") == 4
    assert "BatchNorm2d" in said and "Linear" in said, "backward: what cannot be seen"
    (net,), _ = shown(foreign, "train")
    assert net.edges("train") == {edge + " (4 of 5)" for edge in resnet}
    assert (net.forwards("eval"), net.step) == (3, 6)


@pytest.mark.parametrize("ending, forwards", [("throw", (1, 2, 3)), ("exit", (4,)), ("abort", (1, 2, 3))])
def test_ends(ending, forwards):
    """The run of a program that throws or aborts is there as far as it was written."""
    (net,), _ = shown(foreign, ending)
    assert net.ended == (ending == "exit") and net.forwards("eval") in forwards


def test_torchscript(folder):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 900, 5)).eval()
    torch.jit.script(model).save(folder / "net.pt")
    (net,), _ = shown(scripted, "net.pt")
    chain = ["In0", "0.0", "1.0", "2.0", "3.0", "Out0"]
    expected = {f"net: {a} -> {b}" for a, b in zip(chain, chain[1:])} | {f"{i}: In0 -> Out0" for i in range(4)}
    assert net.edges("eval") == expected
    assert (net.forwards("eval"), net.step) == (3, 2)


def test_fork(folder):
    (net,), said = shown(passes, "fork", "forked")
    # As in "threads".
    assert (net.forwards("eval"), net.ended) == (1, True)
    children = list(folder.glob("forked-*"))
    assert len(children) == 1
    (child,) = runs_in(children[0])
    assert (child.forwards("eval"), child.ended) == (4, True)
    assert child.edges("eval") == NET
    ports = re.findall(r"http://127\.0\.0\.1:(\d+)/", said)
    assert len(set(ports)) == 2, "fork: pages of parent and child"
    assert len(re.findall(r"process \d+ \(passes\): http", said)) == 1


def test_programs_of_a_shell(folder):
    both = f"'{passes}' train; '{passes}' sequences"
    run("preload", "--explore", "--save", "two", "--", "sh", "-c", both, status=6)
    steps = sorted(runs_in(path)[0].step for path in folder.glob("two-*"))
    assert steps == [3, 4]
    # As the only one that ran a model.
    run("preload", "--explore", "--save", "one", "--", "sh", "-c", f"'{passes}' train; true", status=None)
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


@pytest.mark.parametrize("ending, number", [("terminated", signal.SIGTERM), ("killed", signal.SIGKILL)])
def test_page(folder, ending, number):
    # The program waits for a signal.
    save = [] if ending == "terminated" else ["--save", ending]
    with start(TORCHTAP, "preload", "--explore", *save, "--", foreign, "terminate") as process:
        url = address_said(process)
        assert url
        for line in process.stdout:
            if line == "waiting\n":
                break
        until(lambda: json.loads(ask(url, "runs")[1])[0]["modes"] == ["eval"], "the page does not show the model")
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
    if ending == "terminated":
        return
    # A killed program's run can be read.
    (net,) = runs_in(folder / "killed")
    assert net.step is not None and not net.ended
    assert len(net.edges("eval")) > 60, "killed"
    run("explore", "killed", "--export", "page.html")
    assert '"state":"crashed"' in (folder / "page.html").read_text()


def test_a_disk_that_is_full_is_said():
    """As the limit of file size makes it; the program, which writes no file, has the limit, too."""
    said = harness.call(
        "sh", "-c", f"ulimit -S -f 8; '{TORCHTAP}' preload --explore --save full -- '{passes}' train", status=6
    )
    assert 'explorer/run.tapx": File too large' in said.err
    run("explore", "full", "--export", "cut.html")
    assert '"program":"passes"' in pathlib.Path("cut.html").read_text(), "what was written can be read"


def test_ports():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        err = run("preload", f"--explore={port}", "--", passes, "train", status=6).err
        assert "nothing is shown" in err and str(port) in err, "a port that is taken"
        err = run("preload", f"--explore={port}", "--save", "taken", "--", passes, "train", status=6).err
        assert "there is no page" in err and runs_in("taken")[0].step == 4, "taken"
    err = run("preload", f"--explore={port}", "--", passes, "train", status=None).err
    assert f"http://127.0.0.1:{port}/#token=" in err, "a chosen port"


def test_errors():
    for arguments, words in (
        [["--explore", "--trace", "a"], "--"],
        [["--explore", "--names", "b"], "--explore"],
        [["--explore", "--report", "a.json"], "--"],
        [["--explore=many"], "many"],
        [["--explore=70000"], "70000"],
        [["--explore", "--interval", "3"], "--explore"],
    ):
        err = run("preload", *arguments, "--", passes, status=2).err
        assert words in err
    os.mkdir("there")
    os.mkdir("there/explorer")
    err = run("preload", "--explore", "--save", "there", "--", passes, status=2).err
    assert "already exists" in err
    err = run("preload", "--explore", "--", passes, "never asked", status=6).err
    assert "nothing was recorded" in err and "Conv2d, Linear" in err and "eval" in err
    err = run("preload", "--explore", "--", "true").err
    assert "nothing was recorded" in err, "a program without LibTorch"
