"""Tests torchtap record --stream, preload --stream, streams, tail and watch: what arrives against what PyTorch computes."""

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import harness
import numpy as np
import pytest
import torch
from harness import SOURCE, TORCHTAP, entries, given, recording, run, until, wait_for_stream
from torch import nn

sys.path.insert(0, str(SOURCE / "extras/python"))
from torchtap import stream

PROGRAM_ENDS_WITH = 5  # so that its own exit status is seen to be handed on
ENDLESS = ("--count", 100000000, "--stream")
pytestmark = pytest.mark.usefixtures("streams")


def start(*arguments, **how):
    return harness.start(TORCHTAP, *arguments, **how)


def finish(process, status=0):
    out, error = process.communicate(timeout=120)
    assert process.returncode == status, f"{out}\n{error}"
    return out, error


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.fc = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Linear(4 * 36, 5)

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).flatten(1))


@pytest.fixture(scope="module")
def outputs(folder):
    """What each module of a model returns for the inputs of a file."""
    torch.manual_seed(0)
    model = Model().eval()
    torch.jit.script(model).save(folder / "model.pt")
    inputs = torch.randn(2, 3, 8, 8)
    torch.save(inputs, folder / "input.pt")
    outputs = {}
    for name, module in model.named_children():
        module.register_forward_hook(
            lambda module, arguments, output, name=name: outputs.update({name: output.clone()})
        )
    with torch.no_grad():
        outputs[""] = model(inputs)
    return outputs


@pytest.fixture
def file(folder, outputs):
    return folder / "model.pt"


@pytest.fixture
def data(folder, outputs):
    return folder / "input.pt"


def test_record(folder, file, data, outputs):
    recorded = start("record", file, "--input", data, "--stream", "one", "--readers", 1)
    assert wait_for_stream("one")["readers"] == [], "nobody reads yet"
    saved = folder / "saved"
    run("tail", "one", "--save", saved)
    finish(recorded)
    found = recording(saved)
    assert {entry["path"] for entry, _ in found} == set(outputs), "entries"
    for number, (entry, _) in enumerate(found):
        tensor = torch.load(saved / f"{number}-0.pt", weights_only=True)[0]
        assert torch.equal(tensor, outputs[entry["path"]])
        assert entry["kind"] == "ForwardOutput"
    run("show", saved)


def test_reduced(folder, file, data, outputs):
    kept = folder / "kept"
    how = ("--names", "conv", "--reduce", "mean", "--save", kept, "--stream", "two", "--readers", 1)
    recorded = start("record", file, "--input", data, *how)
    wait_for_stream("two")
    frames = list(stream.Reader("two"))
    finish(recorded)
    assert [(frame.path, frame.sample) for frame in frames] == [("conv", 0)], "results of a reduction"
    assert np.allclose(frames[0].tensor, outputs["conv"].double().mean().item(), rtol=1e-6)
    assert frames[0].torch().item() == frames[0].tensor.item() and frames[0].tensor.flags.writeable
    assert (kept / "manifest.json").exists(), "the reduction was saved, too"


def test_lines(file):
    recorded = start("record", file, "--random", "2x3x8x8", "--count", 50, "--stream", "three", "--readers", 2)
    wait_for_stream("three")
    error = run("tail", "four-and-twenty", status=2).err
    assert '"four-and-twenty"' in error and '"three"' in error
    tail = start("tail", "three", "--json", "--names", "fc", "--count", 3)
    watch = start("watch", "three", "--hz", 20, "--names", "conv,fc")
    lines = [json.loads(line) for line in finish(tail)[0].splitlines()]
    assert len(lines) == 3 and all(line["path"] == "fc" and line["shape"] == [2, 5] for line in lines)
    out, error = finish(watch)
    finish(recorded)
    assert "three: process" in out and "conv" in out and "relu" not in out and "missed" in out
    assert "the program ended" in error


def test_watch(file, data):
    """At 80 columns: all modules in the network's order, what tells kinds apart, and a footer that is whole."""
    recorded = start("record", file, "--input", data, "--stream", "eight", "--readers", 1, "--stream-memory", 1)
    wait_for_stream("eight")
    out = run("watch", "eight", COLUMNS="80").out
    finish(recorded)
    last = out[out.rindex("eight: process") :]
    assert [line.split()[0] for line in last.splitlines()[2:6]] == ["conv", "relu", "fc", "(root)"]
    assert "output" in out and all(len(line) <= 80 for line in out.splitlines())


def test_broken(folder, file):
    """A program, or what sends its frames, that is killed is no program that ended."""
    commands = [
        ["tail", "--save", folder / "cut"],
        ["tail"],
        ["watch"],
        ["video", "--save", folder / "pictures", "--size", "64x64"],
    ]
    program = start("record", file, "--random", "2x3x8x8", *ENDLESS, "nine")
    wait_for_stream("nine")
    readers = [start(command[0], "nine", "--names", "fc", "--hz", 50, *command[1:]) for command in commands]
    sent, cut = (start("tail", "nine", "--hz", 50, "--frames", text=False) for _ in range(2))
    far, lost = (start("tail", "-", stdin=sender.stdout) for sender in (sent, cut))
    until(
        lambda: len(wait_for_stream("nine")["readers"]) == len(commands) + 2 and any((folder / "cut").glob("*.part")),
        "not all read",
    )
    cut.kill()
    error = finish(lost, status=2)[1]
    assert "the frames broke off" in error and "the program ended" not in error
    program.kill()
    for reader in (*readers, far):
        error = finish(reader, status=2)[1]
        assert f"process {program.pid}, which published" in error and "the program ended" not in error
    assert entries(folder / "cut")[0]["samples"] > 0, "what came before is kept"
    assert sent.wait() == 2


def test_errors(folder, file, data):
    assert "--save (or --stream, or --learn)" in run("record", file, "--input", data, status=2).err
    both = run("record", file, "--input", data, "--stream", "x", "--save", folder / "x", status=2).err
    assert "torchtap tail x --save" in both
    assert "no program publishes" in run("tail", "nobody", status=2).err, "tail of nobody"
    assert "no name of a stream" in run("record", file, "--input", data, "--stream", "a/b", status=2).err
    assert run("streams", status=1).err == "torchtap: nobody publishes.\n", "streams of nobody"


def test_preload(folder):
    """The same program, recorded and streamed."""
    kept, spooled = folder / "preloaded", folder / "spooled"
    run("preload", "--save", kept, "--", given("foreign"), status=PROGRAM_ENDS_WITH, cwd=folder)
    begun = start("preload", "--stream", "four", "--readers", 1, "--", given("foreign"), cwd=folder)
    wait_for_stream("four")
    run("tail", "four", "--save", spooled)
    _, error = finish(begun, PROGRAM_ENDS_WITH)
    assert 'published as "four"' in error
    run("compare", kept, spooled)


SENDS = """
import os, sys, time, torch
model, count, how = torch.jit.load("sends.pt"), int(sys.argv[1]), sys.argv[2]
def send(begin, end):
    with torch.no_grad():
        for i in range(begin, end):
            model(torch.full((1, 256), float(i)))
def taken():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return [int(status[name].split()[0]) for name in ("VmSize", "VmPTE", "Threads")]
child = os.fork() if how == "fork" else None
if child == 0:
    time.sleep(1)
send(0, count)
if how == "memory":
    first = taken()
    send(count, 4 * count)
    print(*first, *taken(), flush=True)
if how == "killed":
    os.kill(os.getpid(), 9)
if child:
    os.waitpid(child, 0)
print("done", flush=True)
"""


@pytest.fixture
def sends(folder):
    """A program whose module sends what it gets, 0, 1, 2 and so on, in many elements."""

    class Sends(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x).expand(512, 256).contiguous()

    torch.jit.script(Sends()).save(folder / "sends.pt")
    (folder / "sends.py").write_text(SENDS)
    return lambda *arguments: (sys.executable, "sends.py", *arguments)


def numbers_of(reader, path=""):
    return [int(frame.tensor.flat[0]) for frame in reader if frame.path == path]


@pytest.mark.parametrize("how", ["exit", "killed"])
def test_all_frames_come_however_the_program_ends(folder, sends, how):
    """Also when the kernel kills it behind the last call: what readers have not read yet lies with the launcher."""
    name = f"all-{how}"
    begun = start("preload", "--stream", name, "--readers", 1, "--", *sends(300, how), cwd=folder)
    wait_for_stream(name)
    assert numbers_of(stream.Reader(name)) == list(range(300))
    finish(begun, -9 if how == "killed" else 0)


def test_readers_choose_what_the_program_sends(folder, sends):
    """Each gets what it asked for, though the program sends to all of them at once."""
    begun = start("preload", "--stream", "chosen", "--readers", 2, "--", *sends(300, "exit"), cwd=folder)
    wait_for_stream("chosen")
    tails = [start("tail", "chosen", "--every", every, "--names", "act", cwd=folder) for every in (6, 10)]
    for tail, every in zip(tails, (6, 10)):
        out, _ = finish(tail)
        assert out.count("act") == 300 // every
    finish(begun)


def test_processes_have_streams_of_their_own(folder, sends):
    begun = start("preload", "--stream", "many", "--readers", 1, "--", *sends(200, "fork"), cwd=folder)
    wait_for_stream("many")
    first = stream.Reader("many")
    wait_for_stream("many-process2")
    second = stream.Reader("many-process2")
    assert numbers_of(first) == list(range(200)) and numbers_of(second) == list(range(200))
    _, error = finish(begun)
    assert 'another process publishes as "many"; this one does as "many-process2"' in error


def test_a_name_that_is_taken_ends_no_program(folder, sends, file):
    """The program does not wait for readers who cannot come, and the exit status says that there was no stream."""
    for name in ("taken", "taken-process1"):
        start("record", file, "--random", "1x3x8x8", *ENDLESS, name)
        wait_for_stream(name)
    begun = start("preload", "--stream", "taken", "--readers", 1, "--", *sends(3, "exit"), cwd=folder)
    out, error = finish(begun, 1)
    assert out == "done\n" and 'the stream could not be published as "taken-process1"' in error


def test_a_long_stream_takes_no_more_of_the_program_than_a_short_one(folder, sends):
    """Addresses (kB), tables of pages and threads, after 0.3 GB and after 1.2 GB. Nobody waits long for a reader that does not read."""
    begun = start("preload", "--stream", "long", "--readers", 2, "--", *sends(600, "memory"), cwd=folder)
    wait_for_stream("long")
    idle = stream.Reader("long")
    reads = start("tail", "long", cwd=folder, stdout=subprocess.DEVNULL)
    out, _ = finish(begun)
    size, tables, threads, size_later, tables_later, threads_later = map(int, out.split()[:6])
    assert size_later - size < 300_000 and tables_later - tables < 700 and threads_later == threads
    assert idle.received == 0
    finish(reads)


def test_signals_reach_a_program_whose_reader_is_slow(folder, sends):
    """The launcher waits for a reader that takes each frame in time, and yet forwards the signals that it gets."""
    options = ("--stream", "slow", "--stream-memory", 32, "--readers", 1)
    begun = start("preload", *options, "--", *sends(6000, "exit"), cwd=folder)
    wait_for_stream("slow")
    program, ended = None, False
    for taken, _ in enumerate(stream.Reader("slow"), 1):
        if not ended:
            time.sleep(0.003)  # the program is faster
        if taken == 450:
            children = Path(f"/proc/{begun.pid}/task/{begun.pid}/children").read_text().split()
            (program,) = [
                one for one in children if Path(f"/proc/{one}/cmdline").read_text().startswith(sys.executable)
            ]
            begun.send_signal(signal.SIGTERM)
            sent = time.monotonic()
        if program is not None and not ended:
            status = Path(f"/proc/{program}/status")
            ended = not status.exists() or "State:\tZ" in status.read_text()
            assert ended or time.monotonic() - sent < 1
    finish(begun, -signal.SIGTERM)


def test_a_launcher_that_stands_still_loses_frames_and_says_so(folder, sends):
    begun = start("preload", "--stream", "still", "--readers", 1, "--", *sends(1200, "exit"), cwd=folder)
    wait_for_stream("still")
    frames = iter(stream.Reader("still"))
    next(frames)
    begun.send_signal(signal.SIGSTOP)
    assert begun.stdout.readline() == "done\n", "the program goes on"
    begun.send_signal(signal.SIGCONT)
    assert len(list(frames)) < 2 * 1200
    assert "tensors were not sent to readers" in finish(begun, 1)[1]


def test_pipe(folder, file):
    """Through pipes and a file, to another tail, to watch and to Python."""
    kept = folder / "frames.bin"
    recorded = start("record", file, "--random", "2x3x8x8", "--count", 2000, "--stream", "six", "--readers", 2)
    wait_for_stream("six")
    sender = start("tail", "six", "--names", "fc", "--frames", text=False)
    with open(kept, "wb") as to:
        whole = start("tail", "six", "--frames", stdout=to)
    reader = stream.PipedFrames(sender.stdout)
    frames = list(reader)
    assert frames and all(frame.path == "fc" and frame.tensor.shape == (2, 5) for frame in frames)
    assert reader.received == len(frames) and reader.received + reader.missed == 2000
    finish(recorded)
    assert sender.wait() == 0 and whole.wait() == 0
    with open(kept, "rb") as read:
        everything = stream.PipedFrames(read)
        paths = [frame.path for frame in everything]
    assert len(paths) + everything.missed == 8000 and everything.process == recorded.pid

    def from_file(*arguments, status=0):
        with open(kept, "rb") as read:
            return finish(start(*arguments, stdin=read, env=harness.environment()), status)

    out, _ = from_file("tail", "-", "--names", "conv", "--save", folder / "far")
    assert f"1 module, {paths.count('conv'):,} frames" in out
    assert entries(folder / "far")[0]["path"] == "conv", "what tail saved"
    out, error = from_file("watch", "-", "--names", "fc")
    assert f"process {recorded.pid}" in out and "fc" in out and "conv" not in out and "the program ended" in error
    script = "from torchtap.stream import Reader; print(len(list(Reader('-', names=['f?']))))"
    with open(kept, "rb") as read:
        environment = harness.environment(PYTHONPATH=str(SOURCE / "extras/python"))
        counted = harness.start(sys.executable, "-c", script, stdin=read, env=environment)
    assert finish(counted)[0].strip() == str(paths.count("fc"))
    with pytest.raises(EOFError, match="broke off"):
        list(stream.PipedFrames(io.BytesIO(kept.read_bytes()[:7])))
    with open("/dev/full", "wb") as full, open(kept, "rb") as read:
        sent = start("tail", "-", "--frames", stdin=read, stdout=full)
        assert "No space left" in finish(sent, status=2)[1]
    kept.write_bytes(kept.read_bytes()[:-64])
    assert "the frames broke off" in from_file("tail", "-", status=2)[1]
    kept.write_bytes(b"")
    assert "no frames came" in from_file("watch", "-", status=2)[1]


def test_terminal(file):
    """In a terminal: a table, and the screen as it was afterwards. Bytes do not go there."""
    start("record", file, "--random", "1x3x8x8", *ENDLESS, "five")
    wait_for_stream("five")
    text = harness.in_terminal(TORCHTAP, "watch", "five", "--count", 5, "--hz", 20)
    assert text.startswith("\x1b[?1049h") and text.rstrip().endswith("\x1b[?1049l"), "the terminal is as it was"
    assert "conv" in text and "relu" in text
    with pytest.raises(AssertionError, match="a terminal cannot show"):
        harness.in_terminal(TORCHTAP, "tail", "five", "--frames")
