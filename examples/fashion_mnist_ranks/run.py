#!/usr/bin/env python3
"""Starts a program as many ranks of this machine, as `torchrun --no_python --nproc_per_node N` does.

usage: run.py [--last COMMAND] N PROGRAM [arguments]

COMMAND is one further rank, after the others.
"""

import argparse
import os
import shlex
import socket
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--last")
    parser.add_argument("size", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    commands = [arguments.command] * arguments.size
    if arguments.last:
        commands.append(shlex.split(arguments.last))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank, command in enumerate(commands):
        env = dict(
            os.environ, RANK=str(rank), WORLD_SIZE=str(len(commands)), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
        ranks.append(subprocess.Popen(command, env=env, stdout=None if rank == 0 else subprocess.DEVNULL))
    # A rank that fails makes all fail, with a status that says so if a signal ended it, too.
    return max(abs(process.wait()) for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
