"""Reads what a program publishes with torchtap:

    from torchtap.stream import Reader

    for frame in Reader("resnet", names=["layer1*"]):
        print(frame.path, frame.sample, frame.tensor.mean())

A frame has path, type, text, result, kind, sample, call, slot, sequence, time_ns, thread, rank and tensor: a numpy array, or
None if `text` says why there are no data. bfloat16 comes as float32, complex32 as pairs of float16, float8 as bytes. The
bytes are those of views/frames/FORMAT.md. Needs Linux, Python 3.9 and numpy."""

from __future__ import annotations

import fcntl
import fnmatch
import mmap
import os
import select
import socket
import stat
import struct
import sys
import time
import typing
import zlib

import numpy as np

if typing.TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    Array: typing.TypeAlias = NDArray[typing.Any]
    Data: typing.TypeAlias = "bytes | memoryview"
    Kind: typing.TypeAlias = typing.Literal[
        "ForwardPre",
        "ForwardInput",
        "ForwardOutput",
        "BackwardInput",
        "BackwardOutput",
        "Other",
        "Parameter",
        "Buffer",
        "OperationArgument",
        "OperationResult",
        "BackwardParameter",
    ]
    Policy: typing.TypeAlias = typing.Literal["wait", "skip"] | None

VERSION = 1
KINDS = ["ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput", "BackwardOutput", "Other"]
KINDS += ["Parameter", "Buffer", "OperationArgument", "OperationResult", "Header", "BackwardParameter"]
POLICIES = [None, "wait", "skip"]
BFLOAT16 = 15
DTYPES = {
    0: "u1",
    1: "i1",
    2: "<i2",
    3: "<i4",
    4: "<i8",
    5: "<f2",
    6: "<f4",
    7: "<f8",
    8: "(2,)<f2",
    9: "<c8",
    10: "<c16",
    11: "?",
    BFLOAT16: "<u2",
    27: "<u2",
    28: "<u4",
    29: "<u8",
}
CHECKSUM, WITHOUT_DATA = 1, 2
HEADER = struct.Struct("<4sHHQQQQQQQQIIIHHHHHBBBBbb")
HEADER_BYTES, SIZES_AT = 192, 120

# Words of 64 bits in the shared memory.
MOST, HEAD, TAIL, CLOSED, EPOCHS, FIRST_EPOCH, LEDGERS, RING = 1, 8, 16, 24, 32, 33, 512, 1024
F_GET_SEALS, F_SEAL_SHRINK = 1034, 2


class Frame:
    """One tensor and what is known about it; owns its data."""

    path: str
    type: str
    text: str
    result: str
    kind: str
    sequence: int
    time_ns: int
    sample: int
    call: int
    missed: int
    thread: int
    rank: int
    slot: int
    tensor: Array | None

    def __init__(self, data: Data) -> None:
        (
            magic,
            version,
            begin,
            _,
            self.sequence,
            self.time_ns,
            self.sample,
            self.call,
            size,
            _,
            self.missed,
            self.thread,
            self.rank,
            _,
            self.slot,
            *lengths,
            kind,
            dtype,
            dims,
            flags,
            _,
            _,
        ) = HEADER.unpack_from(data)
        if (magic, version) != (b"TTF1", VERSION):
            raise ValueError(f"not a frame of format {VERSION}: {magic}, format {version}")
        self.kind = KINDS[kind] if kind < len(KINDS) else "unknown"
        at = HEADER_BYTES
        for name, length in zip(("path", "type", "text", "result"), lengths):
            setattr(self, name, bytes(data[at : at + length]).decode(errors="replace"))
            at += length
        self.tensor = None
        if not flags & WITHOUT_DATA:
            shape = struct.unpack_from(f"<{dims}q", data, SIZES_AT)
            form = np.dtype(DTYPES.get(dtype, "u1"))
            flat = np.frombuffer(bytearray(data[begin : begin + size]), form.base)  # a bytearray can be written to
            if dtype == BFLOAT16:
                flat = (flat.astype("<u4") << 16).view("<f4")
            self.tensor = flat.reshape(shape + form.shape)

    def torch(self) -> Tensor:
        """The tensor as one of PyTorch, which shares the memory."""
        import torch

        return torch.from_numpy(self.tensor)


def read_file(path: str | os.PathLike[str]) -> Iterator[Frame]:
    """The frames of a file, one behind the other."""
    with open(path, "rb") as file:
        data = memoryview(file.read())
    at = 0
    while at < len(data):
        yield Frame(data[at:])
        at += struct.unpack_from("<Q", data, at + 8)[0]


class PipedFrames:
    """Iterates over the frames that come through an open binary file, such as the output of `torchtap tail NAME --frames`, until
    the program ends; raises EOFError if they broke off. The wishes choose among them. `missed` counts those that were missed
    where they came from."""

    def __init__(
        self, file: typing.BinaryIO, names: Sequence[str] = (), kinds: Sequence[Kind] = (), every: int = 1
    ) -> None:
        self.file, self.names, self.kinds, self.every = file, names, kinds, every
        self.received, self.missed, self.process = 0, 0, 0

    def __iter__(self) -> Iterator[Frame]:
        end = None  # why nothing follows, when that was said; empty if the program ended
        while begin := self.file.read(16):
            if len(begin) < 16:
                break
            size = struct.unpack_from("<Q", begin, 8)[0]
            if begin[:4] != b"TTF1" or size < HEADER_BYTES:
                raise ValueError("what came is no frame; expected the output of torchtap tail NAME --frames")
            data = begin + self.file.read(size - 16)
            if len(data) < size:
                break
            header, length, checksum = *struct.unpack_from("<6xH", data), *struct.unpack_from("<48xQ24xI", data)
            if data[97] & CHECKSUM and zlib.crc32(data[header : header + length]) != checksum:
                raise ValueError("a frame arrived damaged")
            frame = Frame(data)
            if frame.kind == "Header":
                said = dict(line.partition("\t")[::2] for line in frame.text.splitlines())
                self.process = int(said.get("process", self.process))
                self.missed = max(self.missed, int(said.get("missed", 0)))
                end = said.get("end", end)
                continue
            self.missed += frame.missed
            named = not self.names or any(fnmatch.fnmatchcase(frame.path, name) for name in self.names)
            if named and (not self.kinds or frame.kind in self.kinds) and frame.sample % self.every == 0:
                self.received += 1
                yield frame
        if end is None:
            raise EOFError(
                "the frames broke off: the program that sent them was killed, or the connection to it was lost"
            )
        if end:
            raise EOFError(end)


def subscription(
    names: Sequence[str] = (),
    kinds: Iterable[Kind] = (),
    every: int = 1,
    hz: float = 0,
    when_full: Policy = None,
) -> bytes:
    """The message that says what a reader wants."""

    def text(value: str) -> bytes:
        encoded = value.encode(errors="replace")
        return struct.pack("<H", len(encoded)) + encoded

    wanted = sum(1 << KINDS.index(kind) for kind in kinds)
    label = os.path.basename(sys.argv[0]) or "python"
    return struct.pack(
        "<4sHHIHHQQ",
        b"TTR1",
        VERSION,
        0,
        wanted,
        POLICIES.index(when_full),
        len(names),
        every,
        int(1e9 / hz) if hz else 0,
    ) + b"".join(map(text, [label, *names]))


def check_version(packet: bytes, whose: str) -> None:
    version = struct.unpack_from("<H", packet, 4)[0]
    if version != VERSION:
        raise ValueError(
            f"{whose} speaks version {version}, and this reader version {VERSION}; take both from one torchtap"
        )


def meeting_places(directory: str | None) -> Iterator[tuple[str, set[int]]]:
    """The folders in which publishers of this user are. Nobody else may be able to put something there."""
    user = os.geteuid()
    default = [
        os.path.join(folder, name)
        for folder, name in (
            (os.environ.get("XDG_RUNTIME_DIR"), "torchtap"),
            ("/tmp", f"torchtap-{user}"),
            (os.environ.get("HOME"), ".torchtap"),
        )
        if folder and folder.startswith("/")
    ]
    for folder in [directory] if directory else default:
        try:
            status = os.lstat(folder)
        except OSError:
            continue
        owners = {user, status.st_uid} if directory and user == 0 else {user}  # root may name another user's
        if stat.S_ISDIR(status.st_mode) and status.st_uid in owners and not status.st_mode & 0o77:
            yield folder, owners | {0}
        elif directory:
            raise ValueError(f"{folder} has to be a directory of this user that nobody else may enter (mode 0700)")


def connect(name: str, directory: str | None, wait: float) -> tuple[socket.socket, int]:
    """A connection to the publisher, and its process."""
    end = time.monotonic() + wait
    while True:
        looked = []
        for folder, owners in meeting_places(directory):
            looked.append(folder)
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                connection.connect(os.path.join(folder, name + ".sock"))
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                continue
            process, owner, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if owner not in owners:
                raise PermissionError(f"process {process} of user {owner} listens as {name!r}, which is not this user")
            return connection, process
        if time.monotonic() >= end:
            raise FileNotFoundError(
                f"no program publishes {name!r} in {', '.join(looked) or directory or 'any directory'}; "
                "torchtap streams lists those that do, and Reader(…, wait=10) waits for one"
            )
        time.sleep(0.01)


def mapped(descriptor: int, size: int, **how: typing.Any) -> mmap.mmap:
    """Maps memory that nobody can make shorter: else reading it could kill this program."""
    try:
        sealed = fcntl.fcntl(descriptor, F_GET_SEALS) & F_SEAL_SHRINK
    except OSError:  # no memory
        sealed = False
    if not sealed or os.fstat(descriptor).st_size != size:
        raise ValueError("the publisher handed over something else than its memory")
    return mmap.mmap(descriptor, size, **how)


class Reader:
    """Iterates over frames until the program ends; then raises EOFError if the program was killed. `when_full`: "wait", "skip"
    or None, as the publisher likes. `wait`: seconds for the program to appear. "-" reads the output of `torchtap tail NAME
    --frames` from standard input, as PipedFrames does. `received` and `missed` are all frames that were for this reader."""

    def __new__(cls, name: str, *wishes: typing.Any, **more: typing.Any) -> typing.Any:
        return PipedFrames(sys.stdin.buffer, *wishes, **more) if name == "-" else super().__new__(cls)

    def __init__(
        self,
        name: str,
        names: Sequence[str] = (),
        kinds: Sequence[Kind] = (),
        every: int = 1,
        hz: float = 0,
        when_full: Policy = None,
        directory: str | None = None,
        wait: float = 0,
    ) -> None:
        self.name, self.received, self.missed = name, 0, 0
        self.socket, self.process = connect(name, directory, wait)
        try:
            self.socket.settimeout(10)
            self.socket.send(subscription(names, kinds, every, hz, when_full))
            answer, descriptors, *_ = socket.recv_fds(self.socket, 65536, 2)
        except socket.timeout:
            raise TimeoutError(
                f"process {self.process}, which publishes {name!r}, does not answer; it may be stopped"
            ) from None
        except ConnectionError:
            answer = b""
        if not answer:
            raise ConnectionError(f"process {self.process}, which published {name!r}, ended")
        try:
            check_version(answer, repr(name))
            if answer[:4] != b"TTW1" or len(descriptors) != 2:
                raise ValueError(f"{name!r} refused: {answer[8:].decode(errors='replace')}")
            self.place, size, self.cursor = struct.unpack_from("<HQQ", answer, 6)
            self.memory = mapped(descriptors[0], size, prot=mmap.PROT_READ)
            self.page = memoryview(mapped(descriptors[1], mmap.PAGESIZE)).cast("Q")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.words = memoryview(self.memory).cast("Q")
        if self.memory[:8] != struct.pack("<4sI", b"TTA1", VERSION) or self.words[MOST] != size - 8 * RING:
            raise ValueError(f"the memory of {name!r} is none of version {VERSION}")

    def offset(self) -> tuple[int, int]:
        """Where the ring has the position of the cursor, and how far it goes on from there."""
        number = self.words[EPOCHS]
        while number > 1 and self.words[FIRST_EPOCH + 3 * (number - 1)] > self.cursor:
            number -= 1
        begin, offset, capacity = self.words[FIRST_EPOCH + 3 * (number - 1) : FIRST_EPOCH + 3 * number]
        at = (self.cursor - begin + offset) % capacity
        return 8 * RING + at, capacity - at

    def take(self) -> Frame | None:
        """The next frame, if there is one."""
        words, ledger = self.words, LEDGERS + 8 * self.place
        while words[HEAD] > self.cursor:
            at, rest = self.offset()
            is_frame = self.memory[at : at + 4] == b"TTF1"  # else there is none up to the end of the ring
            length, readers = words[at // 8 + 1], words[at // 8 + 7]
            data = self.memory[at : at + length] if is_frame and readers >> self.place & 1 else None
            if words[TAIL] > self.cursor:  # overwritten meanwhile: the newest is next
                head, newest, offered = words[HEAD], words[ledger + 1], words[ledger + 2]
                there = offered > self.received and newest >= words[TAIL]
                self.missed = offered - there - self.received
                self.cursor, data = newest if there else max(head, newest), None
            else:
                self.cursor += length if is_frame else rest
                self.received += data is not None
            self.page[0], self.page[1], self.page[2] = self.cursor, self.received, self.missed
            if data is not None:
                return Frame(data)
        return None

    def __iter__(self) -> Iterator[Frame]:
        ended: object = False
        while True:
            yield from iter(self.take, None)  # also those that came before the end
            if ended:
                break
            ended = self.words[CLOSED] or select.select([self.socket], [], [], 5e-4)[0] and not self.socket.recv(65536)
        if not self.words[CLOSED]:
            raise EOFError(f"process {self.process}, which published {self.name!r}, was killed or crashed")
