"""Reads with torchtap.stream what a C++ program publishes, and counts the system calls of the thread that publishes."""

import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import harness
import numpy as np
import pytest
from harness import SOURCE, given

sys.path.insert(0, str(SOURCE / "extras/python"))
from torchtap import stream

publisher = given("stream_publisher")
REAL_GROUPS = (
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
)


@pytest.fixture
def folder():
    """Readers insist that nobody else may enter it."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def reader(folder, name="test", **wishes):
    return stream.Reader(name, directory=folder, wait=20, **wishes)


def start(folder, *arguments):
    return harness.start(publisher, folder, "test", *arguments, stdout=None, stderr=subprocess.DEVNULL)


# The last two need more than the first reader gets.
@pytest.mark.parametrize("elements, memory", [(3, 8), (1000, 8), (200000, 8), (100000, 64)])
def test_every_frame(folder, elements, memory):
    program = start(folder, 1, 300, elements, 0, memory)
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


def test_missed(folder):
    program = start(folder, 1, 3000, 100000)
    source = reader(folder, when_full="skip")
    for frame in source:
        assert (frame.tensor == frame.sample).all()
        time.sleep(0.002)
    assert program.wait() == 0
    assert source.received + source.missed == 3000 and source.missed > 0, (source.received, source.missed)


def test_subscription(folder):
    program = start(folder, 1, 100, 5)
    assert [frame.sample for frame in reader(folder, names=["layer*"], every=10)] == list(range(0, 100, 10))
    assert program.wait() == 0
    program = start(folder, 1, 100, 5)
    assert not list(reader(folder, kinds=["BackwardOutput"]))
    program.wait()


def test_killed(folder):
    program = start(folder, 1, 1000000, 1000, 2000)
    frames = 0
    with pytest.raises(EOFError, match=f"process {program.pid}.*killed"):
        for frame in reader(folder):
            frames += 1
            if frames == 20:
                program.send_signal(signal.SIGKILL)
    assert frames >= 20
    program.wait()


def fake(folder, answer, descriptors=()):
    """Somebody who answers the first reader of "fake" so, and goes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{folder}/fake.sock")
    listener.listen()

    def serve():
        connection, _ = listener.accept()
        connection.recv(65536)
        if answer:
            socket.send_fds(connection, [answer], list(descriptors))
        connection.close()
        listener.close()
        os.unlink(f"{folder}/fake.sock")

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def memory(size, sealed=True):
    descriptor = os.memfd_create("fake", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    if sealed:
        fcntl.fcntl(descriptor, 1033, 2 | 4)
    return descriptor


def test_errors(folder):
    with pytest.raises(FileNotFoundError, match="no program publishes 'nobody'"):
        stream.Reader("nobody", directory=folder)

    def welcome(version=1, size=8192 + 65536):
        return b"TTW1" + struct.pack("<HHQQ", version, 0, size, 0)

    for answer, descriptors, kind, words in (
        (b"", (), ConnectionError, "ended"),
        (b"TTE1\1\0\0\0no\xff room", (), ValueError, "refused: no\ufffd room"),
        (welcome(version=2), (), ValueError, "version 2"),
        (welcome(), (memory(73728, sealed=False), memory(4096)), ValueError, "something else"),
        (welcome(), (memory(65536), memory(4096)), ValueError, "something else"),
        (welcome(), (os.open("/dev/null", os.O_RDWR), memory(4096)), ValueError, "something else"),
        (welcome(), (memory(73728), memory(4096)), ValueError, "none of version 1"),
    ):
        thread = fake(folder, answer, descriptors)
        with pytest.raises(kind, match=words):
            stream.Reader("fake", directory=folder)
        thread.join()
    os.chmod(folder, 0o755)
    with pytest.raises(ValueError, match="nobody else may enter"):
        stream.Reader("fake", directory=folder)


def test_folders_of_others(folder, monkeypatch):
    """Those are passed over that others may enter, or that root does not own."""
    place = os.path.join(folder, "torchtap")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    os.mkdir(place, 0o700)

    def looked():
        return place in [folder for folder, _ in stream.meeting_places(None)]

    assert looked()
    os.chmod(place, 0o750)
    assert not looked()
    if os.geteuid() == 0:
        os.chmod(place, 0o700)
        os.chown(place, 65534, 65534)
        assert not looked()
        assert [found for found, _ in stream.meeting_places(place)] == [place]  # root named it


def test_memory(folder):
    """In a memory cgroup that leaves little, a reader gets little or is refused, and the program lives."""
    for root, limit, usage in REAL_GROUPS:
        group = f"{root}/torchtap-test-{os.getpid()}"
        try:
            os.mkdir(group)
        except OSError:
            continue
        if os.path.exists(f"{group}/{limit}"):
            break
        os.rmdir(group)
    else:
        pytest.skip("memory cgroups cannot be made here")

    def starts(left, *arguments):
        """A program in the group, which has so many MiB more than the program takes."""
        program = harness.start(
            *("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", publisher, folder, "test", *arguments),
            stdout=None,
            stderr=subprocess.DEVNULL,
        )
        while not os.path.exists(f"{folder}/test.sock"):
            time.sleep(0.01)
        write(f"{group}/{limit}", int(open(f"{group}/{usage}").read()) + (left << 20))
        return program

    def write(path, value):
        with open(path, "w") as file:
            file.write(str(value))

    try:
        program = starts(48, 1, 300, 130000, 0, 256)  # frames of 1 MiB
        source = reader(folder, when_full="skip")
        while source.words[stream.HEAD] < 250 << 20 and program.poll() is None:
            time.sleep(0.01)  # as slow as can be
        ring = source.words[stream.FIRST_EPOCH + 3 * source.words[stream.EPOCHS] - 1]
        last = [frame.sample for frame in source][-1]
        assert program.wait() == 0, program.returncode
        assert last == 299 and source.received + source.missed == 300
        assert ring in (8 << 20, 16 << 20), ring
        write(f"{group}/{limit}", 1 << 40 if "bytes" in limit else "max")
        program = starts(8, 0, 1000000, 10, 100, 256)
        with pytest.raises(ValueError, match="leaves"):
            reader(folder)
        assert program.poll() is None
        program.kill()
        program.wait()
    finally:
        for _ in range(100):
            try:
                os.rmdir(group)
                break
            except OSError:
                time.sleep(0.05)


def calls_of_the_publishing_thread(folder, readers):
    """The system calls between the marks."""
    log = os.path.join(folder, "strace")
    traced = ("strace", "-ff", "-o", log, publisher, folder, "test", readers, 2000, 100)
    program = harness.start(*traced, stdout=None, stderr=subprocess.DEVNULL)
    if readers:
        frames = sum(1 for _ in reader(folder, when_full="wait"))
        assert frames == 2000, frames
    assert program.wait() == 0
    for name in os.listdir(folder):
        lines = open(os.path.join(folder, name)).read() if name.startswith("strace") else ""
        if "BEGIN" in lines:
            return re.search(r"BEGIN.*?\n(.*?)[^\n]*END", lines, re.S).group(1).splitlines()
    pytest.fail("strace shows no marks")


@pytest.mark.parametrize("readers", [0, 1])
def test_system_calls(folder, readers):
    if shutil.which("strace") is None or subprocess.run(["strace", "-o", "/dev/null", "true"]).returncode != 0:
        pytest.skip("strace does not run here")
    # With a reader, the service thread may hold the lock at the very beginning.
    assert len(calls_of_the_publishing_thread(folder, readers)) <= 2 * readers
