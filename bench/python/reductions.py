#!/usr/bin/env python3
"""Times the statistics of bench/reductions.cpp in plain PyTorch. Prints Google Benchmark's JSON."""

import json
import time

import torch


def composed(x):
    return x.sum(), torch.var_mean(x), x.min(), x.max(), x.isnan().any()


def channels(x, dims=(0, 2, 3)):
    variance, mean = torch.var_mean(x, dims, keepdim=True)
    d = x - mean
    square = d.square()
    return variance, (square * d).mean(dims), square.square().mean(dims)


torch.manual_seed(0)
flat = torch.randn(16 << 20)
maps = torch.randn(32, 256, 56, 56)
rows = torch.randn(4096, 512)
BENCHMARKS = {
    "composed_64MB": lambda: composed(flat),
    "histc_64MB": lambda: torch.histc(flat, 64, -4, 4),
    "composed_channels": lambda: channels(maps),
    "covariance_4096x512": lambda: torch.cov(rows.t().double()),
}

runs = []
for name, run in BENCHMARKS.items():
    run()
    begin = time.process_time()
    run()
    runs.append({"run_name": name, "cpu_time": 1e3 * (time.process_time() - begin), "time_unit": "ms"})
print(json.dumps({"benchmarks": runs}))
