"""Reads with python/torchtap_reader.py what a C++ program publishes, and counts the system calls of the thread that
publishes.

usage: live.py PUBLISHER FOLDER_OF_THE_READER
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

publisher = sys.argv[1]
sys.path.insert(0, sys.argv[2])
import torchtap_reader  # noqa: E402


def reader(folder, name="test", **wishes):
    for _ in range(1000):
        try:
            return torchtap_reader.Reader(name, directory=folder, **wishes)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
    sys.exit("no publisher appeared")


def start(folder, *arguments):
    return subprocess.Popen([publisher, folder, "test", *map(str, arguments)], stderr=subprocess.DEVNULL)


def check_every_frame(folder):
    for elements in (3, 1000, 200000):
        program = start(folder, 1, 300, elements)
        frames = 0
        source = reader(folder, when_full="wait")
        for frame in source:
            assert frame.sample == frames and frame.tensor.shape == (2, elements) and frame.tensor.dtype == np.float32
            assert (frame.tensor == frames).all()
            assert (frame.path, frame.type, frame.kind) == ("layer1.0", "Conv2d", "ForwardOutput")
            assert frame.text == f"ten {frames // 10}", frame.text
            frames += 1
        assert frames == 300 and source.received == 300 and source.missed == 0
        assert program.wait() == 0


def check_missed(folder):
    program = start(folder, 1, 3000, 100000)
    source = reader(folder, when_full="skip")
    for frame in source:
        assert (frame.tensor == frame.sample).all()
        time.sleep(0.002)
    assert program.wait() == 0
    assert source.received + source.missed == 3000 and source.missed > 0, (source.received, source.missed)
    print(f"received {source.received}, missed {source.missed} of 3000")


def check_subscription(folder):
    program = start(folder, 1, 100, 5)
    assert [frame.sample for frame in reader(folder, names=["layer*"], every=10)] == list(range(0, 100, 10))
    assert program.wait() == 0
    program = start(folder, 1, 100, 5)
    assert not list(reader(folder, kinds=["BackwardOutput"]))
    program.wait()


def check_killed(folder):
    program = start(folder, 1, 1000000, 1000, 2000)
    frames = 0
    for frame in reader(folder):
        frames += 1
        if frames == 20:
            program.send_signal(signal.SIGKILL)
    assert frames >= 20  # and it ended
    program.wait()


def calls_of_the_publishing_thread(folder, readers):
    """The system calls between the marks."""
    log = os.path.join(folder, "strace")
    program = subprocess.Popen(["strace", "-ff", "-o", log, publisher, folder, "test", str(readers), "2000", "100"],
                               stderr=subprocess.DEVNULL)
    if readers:
        frames = sum(1 for _ in reader(folder, when_full="wait"))
        assert frames == 2000, frames
    assert program.wait() == 0
    for name in os.listdir(folder):
        lines = open(os.path.join(folder, name)).read() if name.startswith("strace") else ""
        if "BEGIN" in lines:
            return re.search(r"BEGIN.*?\n(.*?)[^\n]*END", lines, re.S).group(1).splitlines()
    sys.exit("strace shows no marks")


def check_system_calls():
    if shutil.which("strace") is None or subprocess.run(["strace", "-o", "/dev/null", "true"]).returncode != 0:
        print("strace does not run here: system calls were not counted")
        return
    for readers in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            calls = calls_of_the_publishing_thread(folder, readers)
            print(f"{readers} readers: {len(calls)} system calls in 1999 frames")
            # With a reader, the service thread may hold the lock at the very beginning.
            assert len(calls) <= 2 * readers, calls


for check in (check_every_frame, check_missed, check_subscription, check_killed):
    with tempfile.TemporaryDirectory() as folder:
        check(folder)
check_system_calls()
print("the reader is in step")
