"""Tests torchtap record --stream, preload --stream, streams, tail, watch and relay: what arrives against what PyTorch computes."""

import base64
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys

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
    tail = start("tail", "three", "--json", "--names", "fc", "--count", 3)
    watch = start("watch", "three", "--hz", 20, "--names", "conv,fc")
    error = run("tail", "four-and-twenty", status=2).err
    assert '"four-and-twenty"' in error and '"three"' in error
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
    """A relay or a program that is killed is no program that ended."""
    commands = [
        ["tail", "--save", folder / "cut"],
        ["tail"],
        ["watch"],
        ["video", "--save", folder / "pictures", "--size", "64x64"],
    ]

    def lost(name, words, kill):
        readers = [start(command[0], name, "--names", "fc", "--hz", 50, *command[1:]) for command in commands]
        until(
            lambda: len(wait_for_stream("nine")["readers"]) == len(commands) and any((folder / "cut").glob("*.part")),
            "not all read",
        )
        kill()
        for command, reader in zip(commands, readers):
            error = finish(reader, status=2)[1]
            assert words in error and "the program ended" not in error
        assert entries(folder / "cut")[0]["samples"] > 0
        shutil.rmtree(folder / "cut")
        shutil.rmtree(folder / "pictures", ignore_errors=True)

    program = start("record", file, "--random", "2x3x8x8", *ENDLESS, "nine")
    wait_for_stream("nine")
    relay = start("relay", "nine", "--listen", "127.0.0.1:0")
    name = relay.stdout.readline().split(" at ")[1].strip()
    lost(name, "the connection to the relay", relay.kill)
    lost("nine", f"process {program.pid}, which published", program.kill)


def drawn_by_watch(name, count, answer=None):
    """What `watch` writes to a terminal, which answers its questions so."""
    leader, follower = pty.openpty()
    subprocess.run(["stty", "rows", "30", "cols", "100"], stdin=follower, check=True)
    how = {"stdout": follower, "stderr": subprocess.DEVNULL, "env": harness.environment()}
    if answer:
        how["stdin"] = follower
    watch = start("watch", name, "--count", count, "--hz", 20, "--picture", "conv", **how)
    os.close(follower)
    text = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            text += os.read(leader, 1 << 20)
        except OSError:
            break
        if answer and text.endswith(b"\x1b[c"):
            os.write(leader, answer)
            answer = None
    assert watch.wait() == 0
    return text


def decode_sixel(data):
    """The pixels of a sixel picture, as the DEC manual describes it."""
    head = re.match(rb'\x1bP0;1;0q"1;1;(\d+);(\d+)', data)
    width, height = map(int, head.groups())
    image, colours, x, y, colour = np.zeros((height + 6, width, 3), int), {}, 0, 0, 0
    for token in re.finditer(
        rb"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)(.)|([$-])|([?-~])", data[head.end() : -2], re.S
    ):
        number, red, green, blue, chosen, repeat, repeated, move, letter = token.groups()
        if number is not None:
            colours[int(number)] = [int(part) * 255 / 100 for part in (red, green, blue)]
        elif chosen is not None:
            colour = int(chosen)
        elif move is not None:
            x, y = 0, y + 6 * (move == b"-")
        else:
            for _ in range(int(repeat or 1)):
                for bit in range(6):
                    if (repeated or letter)[0] - 63 >> bit & 1:
                        image[y + bit, x] = colours[colour]
                x += 1
    return image[:height]


def test_graphics(file):
    """Terminals that answer get kitty's graphics or sixels: the same picture."""
    start("record", file, "--random", "1x3x8x8", "--seed", 1, *ENDLESS, "seven")
    wait_for_stream("seven")
    kitty = drawn_by_watch("seven", 6, b"\x1b_Gi=31;OK\x1b\\\x1b[6;20;10t\x1b[?62c")
    sixel = drawn_by_watch("seven", 6, b"\x1b[6;20;10t\x1b[?62;4;22c")
    blocks = drawn_by_watch("seven", 6, b"\x1b[?62;22c")
    assert "▀".encode() in blocks and b"\x1b_Ga=T" not in blocks and b"\x1bP0" not in blocks, "half blocks"
    assert "▀".encode() not in kitty + sixel, "no half blocks"
    first = re.search(rb"\x1b_Ga=T,f=24,i=1,p=1,q=2,C=1,s=(\d+),v=(\d+),c=(\d+),r=(\d+),m=.;", kitty)
    width, height, columns, rows = map(int, first.groups())
    assert (width - 1) // 10 + 1 == columns <= 100 and (height - 1) // 20 + 1 == rows <= 30
    chunks = re.findall(rb"\x1b_G(?:a=T[^;]*,)?m=([01]);([A-Za-z0-9+/=]*)\x1b\\", kitty[first.start() :])
    last = [more for more, _ in chunks].index(b"0")
    pixels = base64.b64decode(b"".join(data for _, data in chunks[: last + 1]))
    assert len(pixels) == 3 * width * height
    picture = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50, "a picture of many colours"
    drawn = decode_sixel(re.search(rb"\x1bP0;1;0q.*?\x1b\\", sixel, re.S).group())
    assert drawn.shape == picture.shape
    gaps = (picture == 32).all(-1)
    assert gaps.any() and (np.abs(drawn[gaps] - 32) < 4).all(), "the gaps between maps are where they were"
    assert np.abs(drawn[~gaps].std() - picture[~gaps].astype(int).std()) < 40, "colours"


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


def test_relay(folder, file, data):
    """Over TCP: with a token, by Python, tail and watch."""
    token = folder / "token"
    recorded = start("record", file, "--random", "2x3x8x8", "--count", 2000, "--stream", "six", "--readers", 2)
    wait_for_stream("six")
    refused = run("relay", "six", "--listen", "0.0.0.0:0", status=2).err
    assert "have to know a token" in refused
    relay = start("relay", "six", "--listen", "127.0.0.1:0", "--token-file", token)
    name = relay.stdout.readline().split(" at ")[1].strip()
    assert name.startswith("tcp:127.0.0.1:") and token.stat().st_mode & 0o777 == 0o600
    assert "wants a token" in run("tail", name, status=2).err, "tail without the token"
    with pytest.raises(ValueError, match="the token is wrong"):
        list(stream.Reader(name, token="a token that is wrong"))
    reader = stream.Reader(name, names=["fc"], token=token.read_text().strip())
    tail = start("tail", name, "--token-file", token, "--names", "conv", "--save", folder / "far")
    frames = list(reader)
    assert all(frame.path == "fc" and frame.tensor.shape == (2, 5) for frame in frames), "frames of fc"
    assert frames and reader.received == len(frames) and reader.received + reader.missed == 2000
    out, _ = finish(tail)
    assert "1 module" in out
    assert entries(folder / "far")[0]["path"] == "conv", "what tail saved"
    finish(recorded)
    _, error = finish(relay)
    assert "the program ended" in error and "refused 2 connections" in error
    os.chmod(token, 0o644)
    assert "other users may read" in run("tail", name, "--token-file", token, status=2).err, "a token for everybody"
    assert "does torchtap relay run there" in run("watch", name, status=2).err, "a relay that ended"


def test_terminal(file):
    """In a terminal: pictures, and the screen as it was afterwards."""
    start("record", file, "--random", "1x3x8x8", *ENDLESS, "five")
    wait_for_stream("five")
    text = drawn_by_watch("five", 5)
    assert text.startswith(b"\x1b[?1049h") and text.rstrip().endswith(b"\x1b[?1049l"), "the terminal is as it was"
    assert "▀".encode() in text and b"\x1b[38;2;" in text, "a picture"
