"""Reads what a program publishes with torchtap: for frame in Reader("resnet", names=["layer1*"]): frame.tensor.mean()
A frame has path, type, text, result, kind, sample, call, slot, sequence, time_ns, thread, rank and tensor, a numpy array
(None if text says why), bfloat16 as float32, complex32 as pairs, float8s as bytes: docs/format.md. Needs numpy and Linux."""
import mmap, os, select, socket, struct, sys
import numpy as np
KINDS = ["ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput", "BackwardOutput", "Other"]
DTYPES = dict(enumerate("u1 i1 <i2 <i4 <i8 <f2 <f4 <f8 (2,)<f2 <c8 <c16 ?".split())) | {15: "<u2", 27: "<u2", 28: "<u4", 29: "<u8"}
POLICIES, PROGRAM = [None, "wait", "skip"], os.path.basename(sys.argv[0]) or "python"
HEADER = struct.Struct("<4sHHQQQQQQQQIIIHHHHHBBBBbb")
class Frame:
    def __init__(self, data):
        (magic, version, begin, _, self.sequence, self.time_ns, self.sample, self.call, size, _, self.missed, self.thread,
         self.rank, _, self.slot, *texts, kind, dtype, dims, flags, _, _) = HEADER.unpack_from(data)
        if (magic, version) != (b"TTF1", 1): raise ValueError(f"not a frame of version 1: {magic}, version {version}")
        self.kind, at = (KINDS[kind] if kind < len(KINDS) else "unknown"), 192
        for name, length in zip(("path", "type", "text", "result"), texts):
            setattr(self, name, bytes(data[at:at + length]).decode())
            at += length
        form, shape, self.tensor = np.dtype(DTYPES.get(dtype, "u1")), struct.unpack_from(f"<{dims}q", data, 120), None
        if not flags & 2:
            flat = np.frombuffer(data, np.uint8, size, begin).view(form.base)
            flat = (flat.astype("<u4") << 16).view("<f4") if dtype == 15 else flat  # bfloat16
            self.tensor = flat.reshape(shape + form.shape)
def subscription(names=(), kinds=(), every=1, hz=0, when_full=None):
    text = lambda value: struct.pack("<H", len(value.encode())) + value.encode()
    return (struct.pack("<4sHHIHHQQ", b"TTR1", 1, 0, sum(1 << KINDS.index(kind) for kind in kinds), POLICIES.index(when_full),
                        len(names), every, int(1e9 / hz) if hz else 0) + b"".join(map(text, [PROGRAM, *names])))
def read_file(path):
    data, at = memoryview(open(path, "rb").read()), 0
    while at < len(data):
        yield Frame(data[at:])
        at += struct.unpack_from("<Q", data, at + 8)[0]
class Reader:
    """Iterates until it ends. `when_full`: "wait", "skip", None. "tcp:HOST:PORT" needs torchtap_relay_reader.py beside."""
    def __new__(cls, name, *wishes, **more):
        if not name.startswith("tcp:"): return super().__new__(cls)
        return __import__("torchtap_relay_reader").RelayReader(name, *wishes, **more)
    def __init__(self, name, names=(), kinds=(), every=1, hz=0, when_full=None, directory=None):
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        directory = directory or (runtime + "/torchtap" if runtime else f"/tmp/torchtap-{os.getuid()}")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(f"{directory}/{name}.sock")
        self.socket.send(subscription(names, kinds, every, hz, when_full))
        answer, fds, *_ = socket.recv_fds(self.socket, 65536, 2)
        if answer[:4] != b"TTW1": raise ValueError(f"{name} refused: {answer[8:].decode(errors='replace')}")
        self.place, size, self.cursor = struct.unpack_from("<HQQ", answer, 6)
        self.memory, self.page = mmap.mmap(fds[0], size, prot=mmap.PROT_READ), memoryview(mmap.mmap(fds[1], 4096)).cast("Q")
        self.words, self.capacity, self.received, self.missed = memoryview(self.memory).cast("Q"), size - 8192, 0, 0
        any(map(os.close, fds))
    def take(self):  # the next frame, if there is one
        words, ledger = self.words, 512 + 8 * self.place
        while words[8] > self.cursor:
            at = 8192 + self.cursor % self.capacity
            magic, length, readers = self.memory[at:at + 4], words[at // 8 + 1], words[at // 8 + 7]
            data = self.memory[at:at + length] if magic == b"TTF1" and readers >> self.place & 1 else None
            if words[16] > self.cursor:  # overwritten meanwhile: the newest is next
                head, data, newest, offered = words[8], None, words[ledger + 1], words[ledger + 2]
                there = offered > self.received and newest >= words[16]
                self.missed, self.cursor = offered - there - self.received, newest if there else max(head, newest)
            else:
                self.cursor += length if magic == b"TTF1" else self.capacity - self.cursor % self.capacity
                self.received += data is not None
            self.page[0], self.page[1], self.page[2] = self.cursor, self.received, self.missed
            if data is not None: return Frame(data)
    def __iter__(self):
        ended = False
        while True:
            yield from iter(self.take, None)
            if ended: return
            ended = self.words[24] or select.select([self.socket], [], [], 5e-4)[0] and not self.socket.recv(65536)
