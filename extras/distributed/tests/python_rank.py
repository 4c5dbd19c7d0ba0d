"""A rank of torchtap's in Python, which takes part in merges without data.

usage: python_rank.py [MERGES], with RANK and WORLD_SIZE; the root is rank 0

Without MERGES: three merges over a Gloo group alone that meets in the FileStore RANKS_FILE, of which ranks share the first
and refuse the last. With MERGES: as many, over the group and the store of distributed::from_environment, which MASTER_ADDR and
MASTER_PORT name.
"""

import datetime
import os
import sys

import torch
from torch.distributed import FileStore, PrefixStore, ProcessGroupGloo, TCPStore

TAG = 0x746170
PIECE = 8 << 20
FIRST = 1024
TIMEOUT = datetime.timedelta(seconds=60)
ROOT = 0


class OverGroup:
    """Messages between this rank and the root, which is rank 0 here, over the group: FIRST bytes with the length, as eight
    bytes, and the beginning of the data; then the rest."""

    def __init__(self, group):
        self.group = group

    def send(self, data):
        message = (len(data).to_bytes(8, "little") + data).ljust(FIRST, b"\0")
        for part in (message[:FIRST], message[FIRST:]):
            if part:
                self.group.send([torch.tensor(list(part), dtype=torch.uint8)], ROOT, TAG).wait()

    def receive(self):
        first = torch.empty(FIRST, dtype=torch.uint8)
        self.group.recv([first], ROOT, TAG).wait()
        message = bytes(first.tolist())
        length = int.from_bytes(message[:8], "little")
        rest = torch.empty(max(0, 8 + length - FIRST), dtype=torch.uint8)
        for piece in rest.split(PIECE) if len(rest) else []:
            self.group.recv([piece], ROOT, TAG).wait()
        return (message + bytes(rest.tolist()))[8 : 8 + length]

    def leave(self):
        pass


class OverStore:
    """The same over a store: a key with the length, and one for each piece. What the root tells all ranks is read by each
    of them, and removed by the last."""

    def __init__(self, store, rank, size):
        merge = store.add(f"merges/{rank}", 1)
        self.store = PrefixStore(f"merge/{merge}", store)
        self.rank, self.size, self.sent, self.received = rank, size, 0, 0
        self.store.add(f"here/{rank}", 1)  # and no more, as a rank does that does not beat

    def leave(self):
        self.store.add("left", 1)  # who serves the store waits for it

    def send(self, data):
        key = f"{self.rank}-{ROOT}/{self.sent}"
        self.sent += 1
        if data:
            self.store.set(f"{key}/0", data.decode("latin-1"))  # less than a piece
        self.store.set(key, str(len(data)))

    def receive(self):
        key = f"all/{self.received}"
        self.received += 1
        length, data = int(self.store.get(key)), b""  # waits for it
        pieces = 0
        while len(data) < length:
            data += self.store.get(f"{key}/{pieces}")
            pieces += 1
        if self.store.add(f"{key}/read", 1) == self.size - 1:
            for name in [f"{key}/{piece}" for piece in range(pieces)] + [f"{key}/read"]:
                self.store.delete_key(name)
        return data


def take_part(group, control):
    """As distributed::merge_ranks(group) does in C++. Returns the number of bytes that were handed round."""

    def verdict():
        data = control.receive()
        length = int.from_bytes(data[:8], "little")
        if length:
            why = data[8 : 8 + length].decode()
            raise RuntimeError(f"distributed::merge_ranks: {why}. Nothing was changed on any rank.")
        return data[9:]

    control.send(b"")  # a header of no bytes: no recorder here
    verdict()
    sizes = verdict()
    total = 0
    # What the root merged of the result. What ranks shared goes to those with a recorder alone.
    for at in range(0, len(sizes), 8):
        size = int.from_bytes(sizes[at : at + 8], "little")
        total += size
        for piece in torch.empty(size, dtype=torch.uint8).split(PIECE):
            options = torch.distributed.BroadcastOptions()
            options.rootRank = ROOT
            group.broadcast([piece], options).wait()
    control.send(b"")  # nothing to put in place
    verdict()
    control.leave()
    return total


def client(host, port, size):
    arguments = (host, port, size, False, TIMEOUT, False)
    try:
        return TCPStore(*arguments, use_libuv=False)  # some builds of PyTorch have no libuv
    except TypeError:  # an older PyTorch, which knows of none
        return TCPStore(*arguments)


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if len(sys.argv) == 1:
        store = PrefixStore("gloo", FileStore(os.environ["RANKS_FILE"], size))
        group = ProcessGroupGloo(store, rank, size, TIMEOUT)
        print("shared", take_part(group, OverGroup(group)))
        print("handed-round", take_part(group, OverGroup(group)))
        try:
            take_part(group, OverGroup(group))
        except RuntimeError as error:
            print("error", error)
        return
    served = client(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size)
    groups = served.add(f"torchtap/attempt_0/groups/{rank}", 1)
    store = PrefixStore(f"torchtap/attempt_0/{groups}", served)
    meeting = PrefixStore("meeting", store)
    meeting.add(f"here/{rank}", 1)
    group = ProcessGroupGloo(PrefixStore("group", store), rank, size, TIMEOUT)
    if store.add("connected", 1) == size and meeting.add("decided", 1) == 1:  # the last says that all are
        meeting.set("why", "put")
    decision = meeting.get("why").decode()  # waits for it
    meeting.add("left", 1)
    if decision != "put":
        raise RuntimeError(decision[3:])
    total = sum(take_part(group, OverStore(store, rank, size)) for _ in range(int(sys.argv[1])))
    store.add("left", 1)
    print("handed-round", total)


if __name__ == "__main__":
    main()
