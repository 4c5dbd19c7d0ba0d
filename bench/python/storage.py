#!/usr/bin/env python3
"""Times torch.save and torch.load for the data of bench/storage.cpp. Prints Google Benchmark's JSON."""

import argparse
import json
import os
import time

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--repetitions", type=int, default=9)
folder = os.environ.get("TORCHTAP_BENCH_FOLDER", ".")
arguments = parser.parse_args()
path = os.path.join(folder, "python.pt")
large = torch.rand(50_000_000)
runs = []


def measure(name, call, before=lambda: None):
    for _ in range(arguments.repetitions):
        before()
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
        runs.append(
            {
                "run_name": name,
                "run_type": "iteration",
                "real_time": seconds * 1e3,
                "cpu_time": seconds * 1e3,
                "time_unit": "ms",
            }
        )
        del result


def remove():
    if os.path.exists(path):
        os.unlink(path)


def load():
    value = torch.load(path, weights_only=True)
    value.view(-1, 1000).select(1, 0).sum()
    return value


with torch.no_grad():
    measure("torch_save", lambda: torch.save(large, path), remove)
    measure("torch_load", load)
remove()
print(json.dumps({"context": {}, "benchmarks": runs}))
