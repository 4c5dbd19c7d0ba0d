"""Writes and reads frames, tensors with all that is known about them, as views/frames/FORMAT.md has them."""

import os
import struct
import threading
import time
import zlib

import torch

SCALARS = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16 "
    "quint4x2 quint2x4 - - - - - float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64 "
    "- - - - - - - - - - - - - - float8_e8m0fnu"
).split()
DTYPES = {getattr(torch, name): k for k, name in enumerate(SCALARS) if hasattr(torch, name)}

INPUT, OUTPUT, PARAMETER, BUFFER, ARGUMENT, RESULT, HEADER = 1, 2, 6, 7, 8, 9, 10
DEVICES = {"cpu": 0, "cuda": 1, "xpu": 12, "mps": 13, "meta": 14}
CHECKSUM, WITHOUT_DATA = 1, 2
FIXED = struct.Struct("<4sHH8Q3I5H4B2b20x8q8x")
KEPT_BACK = 1 << 16  # bytes at most, which a program that is killed in a forward loses
TEXTS = ("path", "type", "text", "result")


def up(size):
    return -(-size // 64) * 64


def frame(kind, data=None, dtype=0, sizes=(), device=None, slot=0, sample=0, call=0, thread=0, sequence=0, **texts):
    """The bytes of a frame. One without data has a `text` that says why."""
    written = [
        texts.get(name, "").encode(errors="backslashreplace")[:4096].decode(errors="ignore").encode() for name in TEXTS
    ]
    begin, size = up(FIXED.size + sum(map(len, written))), len(data or b"")
    flags, checksum = (WITHOUT_DATA, 0) if data is None else (CHECKSUM, zlib.crc32(data))
    fixed = [b"TTF1", 1, begin, up(begin + size), sequence, time.time_ns(), sample, call, size, 0, 0]
    fixed += [
        thread,
        int(os.environ.get("RANK", 0)),
        checksum,
        slot,
        *map(len, written),
        kind,
        dtype,
        len(sizes),
        flags,
    ]
    fixed += [DEVICES.get(device.type, 20), -1 if device.index is None else device.index] if device else [0, -1]
    head = FIXED.pack(*fixed, *sizes, *[0] * (8 - len(sizes))) + b"".join(written)
    return b"".join((head.ljust(begin, b"\0"), data or b"", b"\0" * (up(size) - size)))


class Writer:
    """Writes frames to a path, a descriptor or a file object. What the file does not take is in `error`, and dropped."""

    def __init__(self, to):
        self.mine, self.error, self.waiting, self.sequence = not hasattr(to, "write"), None, bytearray(), 0
        self.file, self.lock = open(to, "wb", buffering=0) if self.mine else to, threading.Lock()

    def write(self, kind, *data, **fields):
        with self.lock:
            self.waiting += frame(kind, *data, sequence=self.sequence, **fields)
            self.sequence += 1
            if len(self.waiting) >= KEPT_BACK:
                self.flush()

    def sync(self):
        """Hands over all that was written."""
        with self.lock:
            self.flush()

    def flush(self):
        try:
            rest = memoryview(bytes(self.waiting)) if self.error is None else b""
            while len(rest):
                rest = rest[self.file.write(rest) :]
        except (OSError, ValueError) as error:  # a full disk, a reader that left, a file that was closed
            self.error = error
        self.waiting.clear()

    def close(self):
        with self.lock:
            self.flush()
            try:
                if self.mine:
                    self.file.close()
            except OSError as error:  # the program closed all descriptors
                self.error = self.error or error


class Frame:
    """A frame that was read. `data` are its bytes, or None if `text` says why there are none."""

    def __init__(self, view):
        fields = FIXED.unpack_from(view)
        self.sequence, self.time_ns, self.sample, self.call, size, _, _, self.thread, self.rank, checksum = fields[4:14]
        self.slot, *lengths, self.kind, self.dtype, dims, flags = fields[14:23]
        if dims > 8 or size + fields[2] > len(view) or sum(lengths) + FIXED.size > fields[2]:
            raise ValueError("it contradicts itself")
        self.sizes, at = fields[25 : 25 + dims], FIXED.size
        for name, length in zip(TEXTS, lengths):
            setattr(self, name, bytes(view[at : at + length]).decode(errors="replace"))
            at += length
        self.data = None if flags & WITHOUT_DATA else bytes(view[fields[2] : fields[2] + size])
        if self.data is not None and flags & CHECKSUM and zlib.crc32(self.data) != checksum:
            raise ValueError("its checksum does not fit its data")

    def tensor(self):
        dtype = next(dtype for dtype, number in DTYPES.items() if number == self.dtype)
        if not self.data:
            return torch.empty(self.sizes, dtype=dtype, device="cpu")
        return torch.frombuffer(bytearray(self.data), dtype=dtype).reshape(self.sizes)


def read(file):
    """The frames of a path or file object. Throws EOFError behind the last whole one if the rest was cut off."""
    data = memoryview(file.read() if hasattr(file, "read") else open(file, "rb").read())
    at = number = 0
    while at < len(data):
        if len(data) - at >= 6 and data[at : at + 6] != b"TTF1\1\0":
            newer = data[at : at + 4] == b"TTF1"
            why = "was written by a newer torchtap" if newer else f"has no frame at byte {at}"
            raise ValueError(f"{file} {why}")
        length = int.from_bytes(data[at + 8 : at + 16], "little")
        if len(data) - at < FIXED.size or length > len(data) - at:
            raise EOFError(f"{file} was cut off: it has {number} whole frames")
        try:
            yield Frame(data[at : at + length])
        except ValueError as error:
            raise ValueError(f"{file}: frame {number} is damaged: {error}") from None
        at, number = at + max(length, 64), number + 1
