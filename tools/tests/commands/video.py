#!/usr/bin/env python3
"""Tests torchtap video: pictures against the values that they show, videos by ffprobe, and what is left after a kill.

usage: video.py TORCHTAP"""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn

torchtap = str(pathlib.Path(sys.argv[1]).resolve())
failures = []
BACKGROUND = (32, 32, 32)


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, status=0, **more):
    done = subprocess.run([torchtap, *map(str, arguments)], capture_output=True, text=True, timeout=240, **more)
    check(
        done.returncode == status,
        f"{' '.join(map(str, arguments))}: exit status {done.returncode} instead of {status}\n{done.stdout}\n{done.stderr}",
    )
    return done.stdout, done.stderr


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
    check(names == [f"{i:06}.png" for i in range(len(names))], names)
    return [read_png(folder / name) for name in names]


def probe(path):
    done = subprocess.run(
        [
            "ffprobe",
            "-v",
            "error",
            "-count_frames",
            "-select_streams",
            "v:0",
            "-show_entries",
            "stream=width,height,nb_read_frames,pix_fmt,codec_name",
            "-of",
            "json",
            path,
        ],
        capture_output=True,
        text=True,
    )
    check(done.returncode == 0 and not done.stderr, f"ffprobe {path}: {done.stderr}")
    streams = json.loads(done.stdout or "{}").get("streams") or [{}]
    return streams[0]


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


def check_pixels(folder):
    """Four values have their four colours of viridis, where they are in the map."""
    square = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    broken = torch.tensor([[float("nan"), float("inf")], [0.0, 3.0]])
    maps = record(folder, "squares", [square.view(1, 1, 2, 2), broken.view(1, 1, 2, 2)])
    out, _ = run(
        "video", maps, "--names", "same", "--save", folder / "squares-png", "--size", "640x360", "--range", "0:3"
    )
    check("2 pictures" in out, out)
    first, second = pictures_of(folder / "squares-png")
    check(first.shape == (360, 640, 3), first.shape)
    viridis = [(68, 1, 84), (49, 104, 142), (53, 183, 121), (253, 231, 37)]  # matplotlib's, at 0, 1/3, 2/3 and 1
    places = find_box(first[34:], viridis)
    sizes = {len(place) for place in places}
    check(len(sizes) == 1 and sizes.pop() > 10000, f"four squares of one size: {[len(place) for place in places]}")
    centres = [place.mean(0) for place in places]
    check(centres[0][0] == centres[1][0] < centres[2][0] == centres[3][0], centres)
    check(centres[0][1] == centres[2][1] < centres[1][1] == centres[3][1], centres)
    magenta, orange = find_box(second[34:], [(255, 0, 255), (255, 160, 0)], 0)
    check(len(magenta) == len(orange) == len(places[0]), "NaN and Inf have colours of their own")
    # A range of both signs has white at 0.
    signs = record(folder, "signs", [torch.tensor([[-1.0, 0.0], [1.0, 2.0]]).view(1, 1, 2, 2)])
    run("video", signs, "--names", "same", "--save", folder / "signs-png", "--size", "640x360")
    (white,) = find_box(pictures_of(folder / "signs-png")[0][34:], [(255, 255, 255)], 2)
    check(len(white) >= len(places[0]), "0 is white")


def check_steady(folder):
    """A map that does not change has the same colours in each picture, whatever others do: nothing flickers."""
    inputs = [torch.rand(1, 3, 6, 6) * scale for scale in (1, 5, 2)]
    for value in inputs:
        value[0, 0] = torch.arange(36.0).view(6, 6) / 36
    maps = record(folder, "steady", inputs)
    run("video", maps, "--names", "same", "--save", folder / "steady-png", "--size", "640x360")
    pictures = pictures_of(folder / "steady-png")
    box = slice(60, 160), slice(4, 100)  # inside of the first map
    check(all((picture[box] == pictures[0][box]).all() for picture in pictures), "one range for a whole recording")
    check(any((picture != pictures[0]).any() for picture in pictures), "the others change")
    again, error = run("video", maps, "--save", folder / "steady-png", status=2)
    check("already exists" in error, error)
    run("video", maps, "--names", "same", "--every", 2, "--save", folder / "steady-png", "--overwrite")
    check(len(pictures_of(folder / "steady-png")) == 2, "older pictures are gone")


def check_videos(folder):
    maps = record(folder, "noise", [torch.randn(1, 16, 8, 8) for _ in range(12)])
    run("video", maps, "--save", folder / "noise-png", "--size", "640x360")
    pictures = pictures_of(folder / "noise-png")
    check(len(pictures) == 12, len(pictures))
    run("video", maps, "--save", folder / "noise.mkv", "--size", "640x360")
    frames = decoded(folder / "noise.mkv", 360, 640)
    check(
        len(frames) == 12 and all((a == b).all() for a, b in zip(frames, pictures)),
        "mkv has the pixels of the pictures",
    )
    for ending, codec in (("mp4", "h264"), ("webm", "vp9"), ("gif", "gif")):
        run("video", maps, "--save", folder / f"noise.{ending}", "--size", "640x361", "--fps", "12.5")
        found = probe(folder / f"noise.{ending}")
        check(
            found.get("nb_read_frames") == "12"
            and (found.get("width"), found.get("height")) == (640, 360)
            and found.get("codec_name") == codec,
            found,
        )
    check(probe(folder / "noise.mp4")["pix_fmt"] == "yuv420p", "what players can play")
    frames = decoded(folder / "noise.mp4", 360, 640)
    check(all(np.abs(a.astype(int) - b).mean() < 12 for a, b in zip(frames, pictures)), "mp4 looks like the pictures")
    error = run("video", maps, "--save", folder / "noise.mp4", status=2)[1]
    check("already exists" in error, error)


def check_without_ffmpeg(folder):
    maps = record(folder, "plain", [torch.randn(1, 2, 4, 4) for _ in range(3)])
    nowhere = {**os.environ, "PATH": str(folder)}
    out, error = run("video", maps, "--save", folder / "without.mp4", env=nowhere)
    check("apt install ffmpeg" in error and "3 pictures" in out, out + error)
    check(len(pictures_of(folder / "without")) == 3, "numbered pictures")
    # One that dies in the middle is said to.
    (folder / "dies").mkdir()
    fake = folder / "dies" / "ffmpeg"
    fake.write_text("#!/bin/sh\nhead -c 1000 >/dev/null\necho disk is full >&2\nexit 3\n")
    fake.chmod(0o755)
    error = run(
        "video",
        maps,
        "--save",
        folder / "died.mp4",
        status=2,
        env={**os.environ, "PATH": f"{folder / 'dies'}:{os.environ['PATH']}"},
    )[1]
    check("ffmpeg failed with exit status 3" in error and "disk is full" in error, error)
    # One that says more than a pipe holds before it takes a picture that is larger than a pipe, is heard.
    fake.write_text("#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x >&2\ncat >/dev/null\n")
    large = record(folder, "large", [torch.randn(1, 1, 512, 512)])
    run(
        "video",
        large,
        "--save",
        folder / "talks.mp4",
        env={**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"},
    )


def start_stream(model, name, count):
    started = subprocess.Popen(
        [torchtap, "record", model, "--random", "1x3x16x16", "--count", str(count), "--stream", name, "--readers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(3000):
        if any(stream["name"] == name for stream in json.loads(run_streams())):
            return started
        time.sleep(0.02)
    sys.exit(f"{name} did not appear")


def run_streams():
    return subprocess.run([torchtap, "streams", "--json"], capture_output=True, text=True).stdout


def check_live(folder, ffmpeg):
    model = script(
        folder, "net.pt", nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 196, 5)).eval()
    )
    started = start_stream(model, "live", 40)
    run("video", "live", "--names", "0,1,3", "--wait", "--save", folder / "live", "--size", "640x360")
    check(started.wait() == 0, "record")
    check(len(pictures_of(folder / "live")) == 40, "a picture for each forward pass")
    check(
        "nothing to draw" not in run("video", "nobody", "--save", folder / "nobody", status=2)[1],
        "a stream that is not there",
    )
    if not ffmpeg:
        return
    for victim in ("torchtap", "ffmpeg"):
        started = start_stream(model, victim, 100000)
        path = folder / f"{victim}.mp4"
        film = subprocess.Popen(
            [torchtap, "video", victim, "--save", path, "--size", "640x360"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not path.exists() or path.stat().st_size < 100000:
            time.sleep(0.05)
        if victim == "torchtap":
            film.send_signal(signal.SIGKILL)
        else:
            child = subprocess.run(["pgrep", "-P", str(film.pid)], capture_output=True, text=True).stdout.split()
            os.kill(int(child[0]), signal.SIGKILL)
            check("by signal 9" in film.communicate(timeout=60)[1], "ffmpeg's death is said")
        film.wait()
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
        print(f"{victim} killed: {frames} frames can be played")
        check(frames >= 20, f"{victim} was killed, and {frames} frames can be played")
    # Ctrl-C ends the video as it should.
    started = start_stream(model, "stopped", 100000)
    film = subprocess.Popen(
        [torchtap, "video", "stopped", "--save", folder / "stopped.mp4", "--size", "640x360"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (folder / "stopped.mp4").exists():
        time.sleep(0.05)
    time.sleep(1)
    film.send_signal(signal.SIGINT)
    film.wait()
    started.terminate()
    started.wait()
    check(int(probe(folder / "stopped.mp4").get("nb_read_frames", 0)) > 0, "a video that was ended by Ctrl-C")


def check_errors(folder):
    maps = folder / "squares"
    for arguments, words in (
        (["--size", "big"], "WIDTHxHEIGHT"),
        (["--size", "10x10"], "WIDTHxHEIGHT"),
        (["--range", "1"], "LOW:HIGH"),
        (["--range", "2:1"], "is no range"),
        (["--names", "nobody"], "has no samples of such modules"),
    ):
        error = run("video", maps, "--save", folder / "wrong", *arguments, status=2)[1]
        check(words in error and not (folder / "wrong").exists(), error)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    os.environ["XDG_RUNTIME_DIR"] = name
    os.mkdir(folder / "torchtap", 0o700)
    torch.manual_seed(0)
    ffmpeg = shutil.which("ffmpeg") is not None and shutil.which("ffprobe") is not None
    check_pixels(folder)
    check_steady(folder)
    check_errors(folder)
    if ffmpeg:
        check_videos(folder)
        check_without_ffmpeg(folder)
    else:
        print("ffmpeg is not installed: videos were left out")
    check_live(folder, ffmpeg)
sys.exit(f"{len(failures)} failures" if failures else 0)
