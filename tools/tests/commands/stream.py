#!/usr/bin/env python3
"""Tests torchtap record --stream, preload --stream, streams, tail and watch: what arrives against what PyTorch computes.

usage: stream.py TORCHTAP PROGRAM READER_FOLDER    PROGRAM: one that preload can record"""

import json
import os
import pathlib
import pty
import select
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn

torchtap, program = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:3])
sys.path.insert(0, sys.argv[3])
from torchtap import stream  # noqa: E402

PROGRAM_ENDS_WITH = 5  # so that its own exit status is seen to be handed on
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def start(*arguments):
    return subprocess.Popen([torchtap, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments, status=0):
    done = subprocess.run([torchtap, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    check(
        done.returncode == status,
        f"{' '.join(map(str, arguments))}: exit status {done.returncode} instead of {status}\n{done.stdout}\n{done.stderr}",
    )
    return done.stdout, done.stderr


def wait_for_stream(name):
    for _ in range(3000):
        done = subprocess.run([torchtap, "streams", "--json"], capture_output=True, text=True)
        for found in json.loads(done.stdout):
            if found["name"] == name:
                return found
        time.sleep(0.02)
    sys.exit(f"{name} did not appear")


def finish(process, what, status=0):
    out, error = process.communicate(timeout=120)
    check(process.returncode == status, f"{what}: exit status {process.returncode}\n{out}\n{error}")
    return out, error


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.fc = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Linear(4 * 36, 5)

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).flatten(1))


def make(folder):
    torch.manual_seed(0)
    model = Model().eval()
    file, data = folder / "model.pt", folder / "input.pt"
    torch.jit.script(model).save(file)
    inputs = torch.randn(2, 3, 8, 8)
    torch.save(inputs, data)
    outputs = {}
    for name, module in model.named_children():
        module.register_forward_hook(
            lambda module, arguments, output, name=name: outputs.update({name: output.clone()})
        )
    with torch.no_grad():
        outputs[""] = model(inputs)
    return file, data, outputs


def check_record(folder, file, data, outputs):
    recorded = start("record", file, "--input", data, "--stream", "one", "--readers", 1)
    check(wait_for_stream("one")["readers"] == [], "nobody reads yet")
    saved = folder / "saved"
    run("tail", "one", "--save", saved)
    finish(recorded, "record --stream")
    manifest = json.load(open(saved / "manifest.json"))
    check({entry["path"] for entry in manifest["entries"]} == set(outputs), f"entries: {manifest['entries']}")
    for number, entry in enumerate(manifest["entries"]):
        tensor = torch.load(saved / f"{number}-0.pt", weights_only=True)[0]
        check(torch.equal(tensor, outputs[entry["path"]]), f"{entry['path']!r} differs from PyTorch's")
        check(entry["kind"] == "ForwardOutput", entry)
    run("show", saved)


def check_reduced(folder, file, data, outputs):
    kept = folder / "kept"
    recorded = start(
        "record",
        file,
        "--input",
        data,
        "--names",
        "conv",
        "--reduce",
        "mean",
        "--save",
        kept,
        "--stream",
        "two",
        "--readers",
        1,
    )
    wait_for_stream("two")
    frames = list(stream.Reader("two"))
    finish(recorded, "record --reduce --stream")
    check([(frame.path, frame.sample) for frame in frames] == [("conv", 0)], "results of a reduction")
    check(np.allclose(frames[0].tensor, outputs["conv"].double().mean().item(), rtol=1e-6), frames[0].tensor)
    check(
        frames[0].torch().item() == frames[0].tensor.item() and frames[0].tensor.flags.writeable, "a tensor of PyTorch"
    )
    check((kept / "manifest.json").exists(), "the reduction was saved, too")


def check_lines(file, data):
    recorded = start("record", file, "--random", "2x3x8x8", "--count", 50, "--stream", "three", "--readers", 2)
    wait_for_stream("three")
    tail = start("tail", "three", "--json", "--names", "fc", "--count", 3)
    watch = start("watch", "three", "--hz", 20, "--names", "conv,fc")
    error = run("tail", "four-and-twenty", status=2)[1]
    check('"four-and-twenty"' in error and '"three"' in error, error)
    lines = [json.loads(line) for line in finish(tail, "tail --json")[0].splitlines()]
    check(len(lines) == 3 and all(line["path"] == "fc" and line["shape"] == [2, 5] for line in lines), lines)
    out, error = finish(watch, "watch")
    finish(recorded, "record --count")
    check("three: process" in out and "conv" in out and "relu" not in out and "missed" in out, out)
    check("the program ended" in error, error)


def check_watch(file, data):
    """At 80 columns: all modules in the network's order, what tells kinds apart, and a footer that is whole."""
    recorded = start("record", file, "--input", data, "--stream", "eight", "--readers", 1, "--stream-memory", 1)
    wait_for_stream("eight")
    env = {**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([torchtap, "watch", "eight"], capture_output=True, text=True, env=env, timeout=120)
    finish(recorded, "record --stream-memory")
    last = done.stdout[done.stdout.rindex("eight: process") :]
    check([line.split()[0] for line in last.splitlines()[2:6]] == ["conv", "relu", "fc", "(root)"], done.stdout)
    check("output" in done.stdout and all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout)


def check_broken(folder, file):
    """A program, or what sends its frames, that is killed is no program that ended."""
    commands = [
        ["tail", "--save", folder / "cut"],
        ["tail"],
        ["watch"],
        ["video", "--save", folder / "pictures", "--size", "64x64"],
    ]

    program = start("record", file, "--random", "2x3x8x8", "--count", 100000000, "--stream", "nine")
    wait_for_stream("nine")
    readers = [start(command[0], "nine", "--names", "fc", "--hz", 50, *command[1:]) for command in commands]
    sent = subprocess.Popen([torchtap, "tail", "nine", "--hz", "50", "--frames"], stdout=subprocess.PIPE)
    cut = subprocess.Popen([torchtap, "tail", "nine", "--hz", "50", "--frames"], stdout=subprocess.PIPE)
    far = [
        subprocess.Popen(
            [torchtap, "tail", "-"], stdin=sender.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for sender in (sent, cut)
    ]
    for _ in range(3000):  # until all read
        if len(wait_for_stream("nine")["readers"]) == len(commands) + 2 and list((folder / "cut").glob("*.part")):
            break
        time.sleep(0.02)
    cut.kill()
    error = finish(far[1], "tail of what sends frames and is killed", status=2)[1]
    check("the frames broke off" in error and "the program ended" not in error, error)
    program.kill()
    for command, reader in [*zip(commands, readers), ("tail -", far[0])]:
        error = finish(reader, f"{command[0]} of what is killed", status=2)[1]
        check(
            f"process {program.pid}, which published" in error and "the program ended" not in error,
            f"{command}: {error}",
        )
    check(json.load(open(folder / "cut" / "manifest.json"))["entries"][0]["samples"] > 0, "what came before is kept")
    check(sent.wait() == 2, "tail --frames of what is killed")
    cut.wait()
    program.communicate()


def check_errors(folder, file, data):
    check(
        "--save (or --stream, or --learn)" in run("record", file, "--input", data, status=2)[1],
        "neither --save nor --stream",
    )
    both = run("record", file, "--input", data, "--stream", "x", "--save", folder / "x", status=2)[1]
    check("torchtap tail x --save" in both, both)
    check("no program publishes" in run("tail", "nobody", status=2)[1], "tail of nobody")
    check(
        "no name of a stream" in run("record", file, "--input", data, "--stream", "a/b", status=2)[1],
        "a name with a slash",
    )
    check(run("streams", status=1)[1] == "torchtap: nobody publishes.\n", "streams of nobody")


def check_preload(folder):
    """The same program, recorded and streamed."""
    kept, spooled = folder / "preloaded", folder / "spooled"
    os.chdir(folder)
    run("preload", "--save", kept, "--", program, status=PROGRAM_ENDS_WITH)
    begun = start("preload", "--stream", "four", "--readers", 1, "--", program)
    wait_for_stream("four")
    run("tail", "four", "--save", spooled)
    _, error = finish(begun, "preload --stream", PROGRAM_ENDS_WITH)
    check('published as "four"' in error, error)
    run("compare", kept, spooled)


def check_pipe(folder, file):
    """Through pipes and a file, to another tail, to watch and to Python."""
    kept = folder / "frames.bin"
    recorded = start("record", file, "--random", "2x3x8x8", "--count", 2000, "--stream", "six", "--readers", 2)
    wait_for_stream("six")
    sender = subprocess.Popen([torchtap, "tail", "six", "--names", "fc", "--frames"], stdout=subprocess.PIPE)
    with open(kept, "wb") as file:
        whole = subprocess.Popen([torchtap, "tail", "six", "--frames"], stdout=file)
    reader = stream.PipedFrames(sender.stdout)
    frames = list(reader)
    check(all(frame.path == "fc" and frame.tensor.shape == (2, 5) for frame in frames), "frames of fc")
    check(
        frames and reader.received == len(frames) and reader.received + reader.missed == 2000,
        (reader.received, reader.missed),
    )
    finish(recorded, "record for the pipe")
    check(sender.wait() == 0 and whole.wait() == 0, "tail --frames")
    with open(kept, "rb") as file:
        everything = stream.PipedFrames(file)
        paths = [frame.path for frame in everything]
    check(len(paths) + everything.missed == 8000 and everything.process == recorded.pid, everything.missed)

    def from_file(*arguments, status=0):
        done = subprocess.run([torchtap, *map(str, arguments)], stdin=open(kept, "rb"), capture_output=True, text=True)
        check(done.returncode == status, f"{arguments}: {done.returncode} {done.stdout} {done.stderr}")
        return done.stdout, done.stderr

    out, error = from_file("tail", "-", "--names", "conv", "--save", folder / "far")
    check(f"1 module, {paths.count('conv')} frames" in out, out)
    check(json.load(open(folder / "far" / "manifest.json"))["entries"][0]["path"] == "conv", "what tail saved")
    out, error = from_file("watch", "-", "--names", "fc")
    check(f"process {recorded.pid}" in out and "fc" in out and "conv" not in out and "the program ended" in error, out)
    script = "from torchtap.stream import Reader; print(len(list(Reader('-', names=['f?']))))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdin=open(kept, "rb"),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": sys.argv[3]},
    )
    check(done.stdout.strip() == str(paths.count("fc")), done.stderr)
    kept.write_bytes(kept.read_bytes()[:-64])
    check("the frames broke off" in from_file("tail", "-", status=2)[1], "a file that was cut")
    kept.write_bytes(b"")
    check("no frames came" in from_file("watch", "-", status=2)[1], "no frames")


def check_terminal(file):
    """In a terminal: the screen is afterwards as it was. Bytes do not go there."""
    recorded = start("record", file, "--random", "1x3x8x8", "--count", 100000000, "--stream", "five")
    wait_for_stream("five")
    leader, follower = pty.openpty()
    subprocess.run(["stty", "rows", "30", "cols", "100"], stdin=follower, check=True)
    watch = subprocess.Popen(
        [torchtap, "watch", "five", "--count", "5", "--hz", "20"],
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    os.close(follower)
    text = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            text += os.read(leader, 65536)
        except OSError:
            break
    check(watch.wait() == 0, "watch in a terminal")
    recorded.terminate()
    recorded.communicate()
    check(text.startswith(b"\x1b[?1049h") and text.rstrip().endswith(b"\x1b[?1049l"), "the terminal is as it was")
    check(b"conv" in text and b"relu" in text, "a table")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    os.environ["XDG_RUNTIME_DIR"] = name
    os.mkdir(folder / "torchtap", 0o700)
    model = make(folder)
    check_record(folder, *model)
    check_reduced(folder, *model)
    check_lines(*model[:2])
    check_watch(*model[:2])
    check_broken(folder, model[0])
    check_preload(folder)
    check_pipe(folder, model[0])
    check_terminal(model[0])
    check_errors(folder, *model[:2])
sys.exit(f"{len(failures)} failures" if failures else 0)
