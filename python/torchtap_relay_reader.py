"""Reads over TCP what torchtap relay sends: torchtap_reader.Reader("tcp:HOST:PORT", names=["layer1*"], token="…").
No frame is waited for; `missed` counts those that the relay left out. docs/format.md specifies the bytes."""
import hmac, socket, struct, zlib
from torchtap_reader import Frame, subscription

class RelayReader:
    """Iterates until the publisher ends. ValueError if the relay refuses, EOFError if the connection ends too early."""
    def __init__(self, name, names=(), kinds=(), every=1, hz=0, when_full=None, token=""):
        host, _, port = name[4:].rpartition(":")
        self.socket, self.received, self.missed = socket.create_connection((host.strip("[]"), int(port))), 0, 0
        self.bytes = self.socket.makefile("rb")
        hello = self.take(24)
        if hello[:6] != b"TTH1\1\0": raise ValueError(f"{name} is no torchtap relay, or speaks another version")
        if hello[6] and not token: raise ValueError(f"{name} wants a token")
        wish = subscription(names, kinds, every, hz, when_full)
        self.socket.sendall(b"TTH1\1\0\0\0" + hmac.digest(token.encode(), hello[8:], "sha256")
                            + b"TTM1" + struct.pack("<I", len(wish)) + wish)
        self.obey(self.take(16))
    def take(self, size):
        data = self.bytes.read(size)
        if len(data) < size: raise EOFError("the relay closed the connection")
        return data
    def obey(self, begin):  # a message: lines of a key, a tab and a value, or why it refuses
        packet = begin[8:] + self.take(struct.unpack_from("<I", begin, 4)[0] - 8)
        if packet[:4] == b"TTE1": raise ValueError(f"the relay refused: {packet[8:].decode(errors='replace')}")
        for key, _, value in (line.partition("\t") for line in packet[8:].decode().splitlines()):
            if key == "missed": self.missed = max(self.missed, int(value))
    def __iter__(self):
        while begin := self.bytes.read(16):
            begin += self.take(16 - len(begin))
            if begin[:4] == b"TTM1":
                self.obey(begin)
                continue
            length = struct.unpack_from("<Q", begin, 8)[0]
            if begin[:4] != b"TTF1" or not 192 <= length <= 1 << 30: raise ValueError("the relay sent no frame")
            data = begin + self.take(length - 16)
            header, size, checksum = (struct.unpack_from(form, data, at)[0] for form, at in (("<H", 6), ("<Q", 48), ("<I", 80)))
            if zlib.crc32(data[header:header + size]) != checksum: raise ValueError("a frame arrived damaged")
            frame = Frame(data)
            self.received, self.missed = self.received + 1, self.missed + frame.missed
            yield frame
