"""Reads over TCP what torchtap relay sends: torchtap.stream.Reader("tcp:HOST:PORT", names=["layer1*"], token="…").

No frame is waited for; `missed` counts those that the relay left out. docs/format.md specifies the bytes."""

import hmac
import socket
import struct
import time
import zlib

from torchtap.stream import Frame, check_version, subscription

MOST = 1 << 30  # bytes of a frame


class RelayReader:
    """Iterates until the program ends. ValueError if the relay refuses; EOFError if the program was killed, or the connection
    is lost: when nothing came for `silence` seconds, although a relay says something each second."""

    def __init__(self, name, names=(), kinds=(), every=1, hz=0, when_full=None, token="", wait=0, silence=10):
        host, _, port = name[4:].rpartition(":")
        self.name, self.silence, self.received, self.missed = name, silence, 0, 0
        self.end = None  # why nothing follows, when the relay has said it; empty if the program ended
        self.socket = self.connect((host.strip("[]"), int(port)), wait)
        self.socket.settimeout(silence)
        self.bytes = self.socket.makefile("rb")
        hello = self.take(24)
        if hello[:4] != b"TTH1":
            raise ValueError(f"{name} is no torchtap relay")
        check_version(hello, name)
        if hello[6] and not token:
            raise ValueError(f"{name} wants a token")
        wish = subscription(names, kinds, every, hz, when_full)
        self.socket.sendall(
            b"TTH1\1\0\0\0"
            + hmac.digest(token.encode(), hello[8:], "sha256")
            + b"TTM1"
            + struct.pack("<I", len(wish))
            + wish
        )
        self.obey(self.take(16))

    def connect(self, address, wait):
        end = time.monotonic() + wait
        while True:
            try:
                return socket.create_connection(address, timeout=max(wait, 10))
            except ConnectionRefusedError:
                if time.monotonic() >= end:
                    raise ConnectionRefusedError(
                        f"nobody listens at {self.name}; does torchtap relay run there?"
                    ) from None
            time.sleep(0.02)

    def take(self, size):
        """So many bytes."""
        try:
            data = self.bytes.read(size)
        except (socket.timeout, TimeoutError):
            raise EOFError(
                f"nothing came from the relay at {self.name} for {self.silence} s: the connection was lost"
            ) from None
        except ConnectionError:
            data = b""
        if len(data) < size:
            raise EOFError(self.end or f"the connection to the relay at {self.name} was lost")
        return data

    def obey(self, begin):
        """Takes a message whose first 16 bytes came: lines of a key, a tab and a value, or why the relay refuses."""
        packet = begin[8:] + self.take(struct.unpack_from("<I", begin, 4)[0] - 8)
        if packet[:4] == b"TTE1":
            raise ValueError(f"the relay refused: {packet[8:].decode(errors='replace')}")
        for line in packet[8:].decode(errors="replace").splitlines():
            key, _, value = line.partition("\t")
            if key == "missed":
                self.missed = max(self.missed, int(value))
            if key == "end":
                self.end = value

    def __iter__(self):
        while self.end is None:
            begin = self.take(16)
            if begin[:4] == b"TTM1":
                self.obey(begin)
                continue
            length = struct.unpack_from("<Q", begin, 8)[0]
            if begin[:4] != b"TTF1" or not 192 <= length <= MOST:
                raise ValueError("the relay sent no frame")
            data = begin + self.take(length - 16)
            (header,) = struct.unpack_from("<H", data, 6)
            (size,) = struct.unpack_from("<Q", data, 48)
            (checksum,) = struct.unpack_from("<I", data, 80)
            if zlib.crc32(data[header : header + size]) != checksum:
                raise ValueError("a frame arrived damaged")
            frame = Frame(data)
            self.received, self.missed = self.received + 1, self.missed + frame.missed
            yield frame
        if self.end:
            raise EOFError(self.end)
