#!/usr/bin/env python3
"""Starts a program as many ranks of this machine, as `torchrun --no_python --nproc_per_node N` does.

usage: run.py N PROGRAM [arguments]
"""
import os
import socket
import subprocess
import sys


def main():
    size, command = int(sys.argv[1]), sys.argv[2:]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(size):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        ranks.append(subprocess.Popen(command, env=env, stdout=None if rank == 0 else subprocess.DEVNULL))
    return max(process.wait() for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
