"""Tests torchtap video: pictures against the values that they show, videos by ffprobe, and what is left after a kill."""

import json
import os
import shutil
import signal
import struct
import subprocess
import time
import zlib

import numpy as np
import pytest
import torch
from harness import TORCHTAP, call, run, start, until, wait_for_stream
from torch import nn

pytestmark = pytest.mark.usefixtures("streams")
ffmpeg = pytest.mark.skipif(not (shutil.which("ffmpeg") and shutil.which("ffprobe")), reason="ffmpeg is not installed")


def read_png(path):
    """A PNG of 8 bits a colour without filters, by the standard."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", path
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack_from(">I", data, at + 8 + length)[0], kind
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", body)
            assert form == [8, 2, 0, 0, 0], form
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 3 * width)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(height, width, 3)


def pictures_of(folder):
    names = sorted(os.listdir(folder))
    assert names == [f"{i:06}.png" for i in range(len(names))]
    return [read_png(folder / name) for name in names]


def probe(path):
    shown = "stream=width,height,nb_read_frames,pix_fmt,codec_name"
    done = call(
        *(
            "ffprobe",
            "-v",
            "error",
            "-count_frames",
            "-select_streams",
            "v:0",
            "-show_entries",
            shown,
            "-of",
            "json",
            path,
        )
    )
    assert not done.err
    return json.loads(done.out)["streams"][0]


def decoded(path, height, width):
    done = subprocess.run(
        ["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True
    )
    return list(np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3))


def script(folder, name, module):
    torch.jit.script(module).save(folder / name)
    return folder / name


class Pass(nn.Module):
    """A module whose output is known: its input."""

    def __init__(self):
        super().__init__()
        self.same, self.line = nn.Identity(), nn.Flatten(0)

    def forward(self, x):
        return self.line(self.same(x))


def record(folder, name, inputs):
    """A recording of `Pass`."""
    torch.manual_seed(0)
    model = script(folder, "pass.pt", Pass())
    arguments = []
    for i, value in enumerate(inputs):
        torch.save(value, folder / f"{name}-{i}.pt")
        arguments += ["--input", folder / f"{name}-{i}.pt"]
    run("record", model, *arguments, "--names", "same,line", "--save", folder / name)
    return folder / name


def find_box(picture, colours, tolerance=8):
    """The places of the pixels that are near one of the colours."""
    near = [np.abs(picture.astype(int) - colour).max(-1) <= tolerance for colour in colours]
    return [np.argwhere(found) for found in near]


def test_pixels(folder):
    """Four values have their four colours of viridis, where they are in the map."""
    square = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    broken = torch.tensor([[float("nan"), float("inf")], [0.0, 3.0]])
    maps = record(folder, "squares", [square.view(1, 1, 2, 2), broken.view(1, 1, 2, 2)])
    out = run(
        "video", maps, "--names", "same", "--save", folder / "squares-png", "--size", "640x360", "--range", "0:3"
    ).out
    assert "2 pictures" in out
    first, second = pictures_of(folder / "squares-png")
    assert first.shape == (360, 640, 3)
    viridis = [(68, 1, 84), (49, 104, 142), (53, 183, 121), (253, 231, 37)]  # matplotlib's, at 0, 1/3, 2/3 and 1
    places = find_box(first[34:], viridis)
    sizes = {len(place) for place in places}
    assert len(sizes) == 1 and sizes.pop() > 10000, "four squares of one size"
    centres = [place.mean(0) for place in places]
    assert centres[0][0] == centres[1][0] < centres[2][0] == centres[3][0]
    assert centres[0][1] == centres[2][1] < centres[1][1] == centres[3][1]
    magenta, orange = find_box(second[34:], [(255, 0, 255), (255, 160, 0)], 0)
    assert len(magenta) == len(orange) == len(places[0]), "NaN and Inf have colours of their own"
    # A range of both signs has white at 0.
    signs = record(folder, "signs", [torch.tensor([[-1.0, 0.0], [1.0, 2.0]]).view(1, 1, 2, 2)])
    run("video", signs, "--names", "same", "--save", folder / "signs-png", "--size", "640x360")
    (white,) = find_box(pictures_of(folder / "signs-png")[0][34:], [(255, 255, 255)], 2)
    assert len(white) >= len(places[0]), "0 is white"


def test_steady(folder):
    """A map that does not change has the same colours in each picture, whatever others do: nothing flickers."""
    inputs = [torch.rand(1, 3, 6, 6) * scale for scale in (1, 5, 2)]
    for value in inputs:
        value[0, 0] = torch.arange(36.0).view(6, 6) / 36
    maps = record(folder, "steady", inputs)
    run("video", maps, "--names", "same", "--save", folder / "steady-png", "--size", "640x360")
    pictures = pictures_of(folder / "steady-png")
    box = slice(60, 160), slice(4, 100)  # inside of the first map
    assert all((picture[box] == pictures[0][box]).all() for picture in pictures), "one range for a whole recording"
    assert any((picture != pictures[0]).any() for picture in pictures), "the others change"
    _, again, error = run("video", maps, "--save", folder / "steady-png", status=2)
    assert "already exists" in error
    run("video", maps, "--names", "same", "--every", 2, "--save", folder / "steady-png", "--overwrite")
    assert len(pictures_of(folder / "steady-png")) == 2, "older pictures are gone"


@ffmpeg
def test_videos(folder):
    maps = record(folder, "noise", [torch.randn(1, 16, 8, 8) for _ in range(12)])
    run("video", maps, "--save", folder / "noise-png", "--size", "640x360")
    pictures = pictures_of(folder / "noise-png")
    assert len(pictures) == 12
    run("video", maps, "--save", folder / "noise.mkv", "--size", "640x360")
    frames = decoded(folder / "noise.mkv", 360, 640)
    assert len(frames) == 12 and all((a == b).all() for a, b in zip(frames, pictures))
    for ending, codec in (("mp4", "h264"), ("webm", "vp9"), ("gif", "gif")):
        run("video", maps, "--save", folder / f"noise.{ending}", "--size", "640x361", "--fps", "12.5")
        found = probe(folder / f"noise.{ending}")
        assert found.get("nb_read_frames") == "12"
        assert (found.get("width"), found.get("height")) == (640, 360)
        assert found.get("codec_name") == codec
    assert probe(folder / "noise.mp4")["pix_fmt"] == "yuv420p", "what players can play"
    frames = decoded(folder / "noise.mp4", 360, 640)
    assert all(np.abs(a.astype(int) - b).mean() < 12 for a, b in zip(frames, pictures)), "mp4 looks like the pictures"
    error = run("video", maps, "--save", folder / "noise.mp4", status=2).err
    assert "already exists" in error


@ffmpeg
def test_without_ffmpeg(folder):
    maps = record(folder, "plain", [torch.randn(1, 2, 4, 4) for _ in range(3)])
    _, out, error = run("video", maps, "--save", folder / "without.mp4", PATH=str(folder))
    assert "apt install ffmpeg" in error and "3 pictures" in out
    assert len(pictures_of(folder / "without")) == 3, "numbered pictures"
    # One that dies in the middle is said to.
    (folder / "dies").mkdir()
    fake = folder / "dies" / "ffmpeg"
    fake.write_text("#!/bin/sh\nhead -c 1000 >/dev/null\necho disk is full >&2\nexit 3\n")
    fake.chmod(0o755)
    path = f"{folder / 'dies'}:{os.environ['PATH']}"
    error = run("video", maps, "--save", folder / "died.mp4", status=2, PATH=path).err
    assert "ffmpeg failed with exit status 3" in error and "disk is full" in error
    # One that says more than a pipe holds before it takes a picture that is larger than a pipe, is heard.
    fake.write_text("#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x >&2\ncat >/dev/null\n")
    large = record(folder, "large", [torch.randn(1, 1, 512, 512)])
    run("video", large, "--save", folder / "talks.mp4", PATH=path)


def start_stream(model, name, count):
    how = ("--random", "1x3x16x16", "--count", count, "--stream", name, "--readers", 1)
    started = start(TORCHTAP, "record", model, *how, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_stream(name)
    return started


@pytest.fixture
def model(folder):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 196, 5))
    return script(folder, "net.pt", net.eval())


def test_live(folder, model):
    started = start_stream(model, "live", 40)
    run("video", "live", "--names", "0,1,3", "--wait", "--save", folder / "live", "--size", "640x360")
    assert started.wait() == 0, "record"
    assert len(pictures_of(folder / "live")) == 40, "a picture for each forward pass"
    assert "nothing to draw" not in run("video", "nobody", "--save", folder / "nobody", status=2).err


@ffmpeg
@pytest.mark.parametrize("victim", ["torchtap", "ffmpeg"])
def test_a_video_of_what_is_killed(folder, model, victim):
    started = start_stream(model, victim, 100000)
    path = folder / f"{victim}.mp4"
    film = start(TORCHTAP, "video", victim, "--save", path, "--size", "640x360")
    until(lambda: path.exists() and path.stat().st_size >= 100000, "the video does not grow")
    if victim == "torchtap":
        film.send_signal(signal.SIGKILL)
    else:
        child = call("pgrep", "-P", film.pid).out.split()
        os.kill(int(child[0]), signal.SIGKILL)
    error = film.communicate(timeout=60)[1]
    assert victim == "torchtap" or "by signal 9" in error, "ffmpeg's death is said"
    started.terminate()
    started.wait()
    size = -1
    while size != path.stat().st_size:  # ffmpeg ends by itself
        size = path.stat().st_size
        time.sleep(0.5)
    done = subprocess.run(
        ["ffmpeg", "-v", "quiet", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True
    )
    frames = len(done.stdout) // (640 * 360 * 3)
    assert frames >= 20


@ffmpeg
def test_a_video_that_is_ended_by_ctrl_c(folder, model):
    started = start_stream(model, "stopped", 100000)
    film = start(TORCHTAP, "video", "stopped", "--save", folder / "stopped.mp4", "--size", "640x360")
    until((folder / "stopped.mp4").exists, "there is no video")
    time.sleep(1)
    film.send_signal(signal.SIGINT)
    film.communicate()
    started.terminate()
    started.wait()
    assert int(probe(folder / "stopped.mp4").get("nb_read_frames", 0)) > 0


def test_errors(folder):
    maps = record(folder, "square", [torch.zeros(1, 1, 2, 2)])
    for arguments, words in (
        (["--size", "big"], "WIDTHxHEIGHT"),
        (["--size", "10x10"], "WIDTHxHEIGHT"),
        (["--range", "1"], "LOW:HIGH"),
        (["--range", "2:1"], "is no range"),
        (["--names", "nobody"], "has no samples of such modules"),
    ):
        error = run("video", maps, "--save", folder / "wrong", *arguments, status=2).err
        assert words in error and not (folder / "wrong").exists()
