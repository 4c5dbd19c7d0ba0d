"""A rank of torchtap's in Python, which takes part in a merge without data.

usage: python_rank.py, with RANK, WORLD_SIZE, RANKS_FILE; the root is rank 0
"""
import datetime
import os

import torch
from torch.distributed import FileStore, PrefixStore, ProcessGroupGloo

TAG = 0x746170
PIECE = 8 << 20


def take_part(group, root=0):
    """As distributed::merge_ranks(group) does in C++. Returns the number of bytes that were handed round."""

    def send(data):  # eight bytes with the length, and the data
        parts = [len(data).to_bytes(8, "little"), data]
        for part in parts:
            if part:
                group.send([torch.tensor(list(part), dtype=torch.uint8)], root, TAG).wait()

    def receive():
        length = torch.empty(8, dtype=torch.uint8)
        group.recv([length], root, TAG).wait()
        data = torch.empty(int.from_bytes(bytes(length.tolist()), "little"), dtype=torch.uint8)
        for piece in data.split(PIECE) if len(data) else []:
            group.recv([piece], root, TAG).wait()
        return bytes(data.tolist())

    def verdict():
        data = receive()
        length = int.from_bytes(data[:8], "little")
        if length:
            raise RuntimeError(data[8:8 + length].decode())
        return data[9:]

    send(b"")  # a header of no bytes: no recorder here
    verdict()
    sizes = verdict()
    total = 0
    for at in range(0, len(sizes), 8):  # the result, which this rank has no use for
        size = int.from_bytes(sizes[at:at + 8], "little")
        total += size
        for piece in torch.empty(size, dtype=torch.uint8).split(PIECE):
            options = torch.distributed.BroadcastOptions()
            options.rootRank = root
            group.broadcast([piece], options).wait()
    send(b"")  # nothing to put in place
    verdict()
    return total


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = PrefixStore("gloo", FileStore(os.environ["RANKS_FILE"], size))
    group = ProcessGroupGloo(store, rank, size, datetime.timedelta(seconds=60))
    print("handed-round", take_part(group))
    try:
        take_part(group)
    except RuntimeError as error:
        print("error", error)


if __name__ == "__main__":
    main()
