#!/usr/bin/env python3
"""What a hook costs in plain PyTorch, beside bench/core.cpp: empty, and one that adds up outputs as torchfunc's recorders
do. In the JSON of Google Benchmark."""

import json
import time

import torch


class Sum:
    """The least that torchfunc.hooks.recorders.ForwardOutput does with reduction=operator.add."""

    def __init__(self):
        self.sum, self.samples = None, 0

    def __call__(self, module, inputs, output):
        if self.sum is None:
            self.sum = output.detach().clone()
        else:
            self.sum += output
        self.samples += 1


def measure(hook, calls=20000):
    module, x = torch.nn.Identity(), torch.ones(1, 100)
    if hook is not None:
        module.register_forward_hook(hook)
    for _ in range(1000):
        module(x)
    begin = time.process_time()
    for _ in range(calls):
        module(x)
    return 1e9 * (time.process_time() - begin) / calls


runs = []
for repetition in range(3):
    for name, hook in (("bare", None), ("hook", lambda module, inputs, output: None), ("sum", Sum())):
        runs.append({"run_name": name, "cpu_time": measure(hook), "time_unit": "ns"})
print(json.dumps({"benchmarks": runs}))
