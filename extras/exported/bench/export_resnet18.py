"""Packages for bench_exported: ResNet-18 without taps, with taps at modules whose kernels are calls of a library, and with
taps at every module.

usage: exported.py FOLDER     with PYTHONPATH=python and TORCHTAP_TAPS_LIBRARY
"""

import contextlib
import pathlib
import sys

import torch
import torchtap.export as tt
import torchvision

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
torch.set_num_threads(1)  # kernels with threads of their own wait for the slowest one
model = torchvision.models.resnet18(weights=None).eval()
x = torch.randn(2, 3, 64, 64)
for name, context in (
    ("none", contextlib.nullcontext()),
    ("kernels", tt.tapped(model, types=["Conv2d", "Linear"])),
    ("all", tt.tapped(model)),
):
    package = str(folder / f"resnet18_{name}.pt2")
    with torch.no_grad(), context:
        program = torch.export.export(model, (x,), strict=False)
    if name == "none":
        torch._inductor.aoti_compile_and_package(program, package_path=package)
    else:
        tt.compile(program, package_path=package)
    print(package)
