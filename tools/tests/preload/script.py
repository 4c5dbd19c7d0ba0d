#!/usr/bin/env python3
"""torchtap preload of programs that run TorchScript, in C++ and in Python: they behave as without it, and what is recorded
is what Python's hooks see of the same model, and what `torchtap record` records of the file.

usage: script.py TORCHTAP SCRIPTED"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch import nn

torchtap, scripted = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # convolutions on several threads round otherwise, and C++ begins with more of them
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(command, folder, status):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    check(done.returncode == status, f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout, done.stderr


def preload(folder, options, program, status):
    """Runs the program with and without preload; returns what torchtap says."""
    bare, _ = run(program, folder, status)
    out, err = run([torchtap, "preload", *options, "--", *program], folder, status)
    check(out == bare, f"{options}: another output:\n{out}\ninstead of\n{bare}")
    return err


def entries(folder):
    manifest = json.load(open(folder / "manifest.json"))
    return [(entry, torch.load(str(folder / entry["file"])) if entry["file"] else []) for entry in manifest["entries"]]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor):
        return torch.relu(self.conv(x))


class Net(nn.Module):
    """Calls a module twice, and one by another method than forward."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))

    def forward(self, x: torch.Tensor):
        for block in self.blocks:
            x = block(self.norm(x))
        return self.head(x)

    @torch.jit.export
    def encode(self, x: torch.Tensor):
        return self.blocks[0](x)


def inputs():
    return [torch.linspace(-1, i, 2 * 3 * 32 * 32).view(2, 3, 32, 32) for i in range(3)]


def expected(net, forward):
    """What Python's hooks see of each module."""
    seen = {}
    hooks = [
        module.register_forward_hook(lambda _, __, output, path=path: seen.setdefault(path, []).append(output.detach()))
        for path, module in net.named_modules()
        if not isinstance(module, nn.ModuleList)
    ]
    forward(net)
    for hook in hooks:
        hook.remove()
    return seen


def same(got, want, what):
    got = {entry["path"]: samples for entry, samples in got if entry["samples"]}
    check(set(got) == set(want), f"{what}: {sorted(got)} instead of {sorted(want)}")
    for path in set(got) & set(want):
        check(len(got[path]) == len(want[path]) and all(map(torch.equal, got[path], want[path])), f"{what}: {path}")


def forwards(net):
    with torch.no_grad():
        for x in inputs():
            net(x)


PROGRAM = """
import sys, torch
def inputs():
    return [torch.linspace(-1, i, 2 * 3 * 32 * 32).view(2, 3, 32, 32) for i in range(3)]
kind, models = sys.argv[2], int(sys.argv[3])
for _ in range(models):
    net = torch.jit.load(sys.argv[1]).eval()
    if kind == "encode":
        with torch.no_grad():
            for x in inputs():
                print(net.encode(x).sum().item(), net(x=x).sum().item())
    elif kind == "grad":
        for x in inputs():
            net(x).sum().backward()
    else:
        with torch.no_grad():
            for x in inputs():
                print(net(x).tolist())
sys.exit(4)
"""


def check_recordings(folder, net):
    want = expected(net, forwards)
    python = [sys.executable, "program.py"]
    # What `torchtap record` records of the same batches.
    torch.save(torch.cat(inputs()), folder / "x.pt")
    run([torchtap, "record", "script.pt", "--input", "x.pt", "--batch", "2", "--save", "file"], folder, 0)
    same(entries(folder / "file"), want, "torchtap record")
    for file in ("script.pt", "trace.pt"):
        for name, program in (("C++", [scripted, file]), ("Python", [*python, file, "forward", "1"])):
            out = f"{name}-{file}"
            said = preload(folder, ["--save", out], program, 4)
            same(entries(folder / out), want, out)
            samples = sum(map(len, want.values()))
            check(f"recorded {samples:,} samples of {len(want)} modules: {out}" in said, f"{out}: {said}")
        run([torchtap, "compare", f"C++-{file}", f"Python-{file}", "--rtol", "0", "--atol", "0"], folder, 0)
    for name in ("C++", "Python"):
        run([torchtap, "compare", f"{name}-script.pt", "file", "--rtol", "0", "--atol", "0"], folder, 0)

    # Models that are loaded one after the other share entries, and each call is counted once.
    for name, program in (("C++", [scripted, "script.pt", 4]), ("Python", [*python, "script.pt", "forward", 4])):
        out = f"four-{name}"
        preload(folder, ["--reduce", "count", "--save", out], list(map(str, program)), 4)
        got = sorted((entry["path"], entry["samples"]) for entry, _ in entries(folder / out) if entry["samples"])
        check(got == sorted((path, 4 * len(samples)) for path, samples in want.items()), f"{out}: {got}")

    # Two methods that share a module: the module has one entry, with the calls of both.
    preload(
        folder,
        ["--types", "Conv2d|Linear", "--names", "blocks.0.*,head.*", "--save", "methods"],
        [*python, "script.pt", "encode", "1"],
        4,
    )

    def both(net):
        with torch.no_grad():
            for x in inputs():
                net.encode(x), net(x)

    same(
        entries(folder / "methods"),
        {path: samples for path, samples in expected(net, both).items() if path in ("blocks.0.conv", "head.1")},
        "two methods",
    )

    # Gradients.
    preload(
        folder,
        ["--what", "grad-output", "--names", "head.1", "--save", "gradients"],
        [*python, "script.pt", "grad", "1"],
        4,
    )
    ((_, samples),) = entries(folder / "gradients")
    check(
        len(samples) == 3 and all(torch.equal(sample, torch.ones(2, 4)) for sample in samples), f"gradients: {samples}"
    )


def check_views(folder):
    """The other modes see what Python calls, too."""
    program = [sys.executable, "program.py", "script.pt", "forward", "1"]
    preload(folder, ["--trace", "python"], program, 4)
    preload(folder, ["--trace", "cpp"], [scripted, "script.pt"], 4)
    run([torchtap, "compare", "python", "cpp", "--rtol", "0", "--atol", "0"], folder, 0)
    said = preload(folder, ["--report", "report.json"], program, 4)
    (whole,) = json.load(open(folder / "report.json")).values()
    check(
        whole["report"]["repeats"] == 3 and "measured 3 repeats: report.json" in said,
        f"--report: {whole['report']} {said}",
    )
    said = preload(folder, ["--explore", "--save", "run"], program, 4)
    check("of 1 model: run" in said, f"--explore: {said}")

    (folder / "eager.py").write_text("import torch; torch.nn.Linear(2, 2)(torch.ones(1, 2))")
    said = preload(folder, ["--save", "eager"], [sys.executable, "eager.py"], 0)
    check("torch.nn of Python is written in Python" in said, f"modules of Python: {said}")


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    torch.manual_seed(0)
    net = Net().eval()
    torch.jit.script(net).save(folder / "script.pt")
    torch.jit.trace(net, inputs()[0]).save(folder / "trace.pt")
    (folder / "program.py").write_text(PROGRAM)
    check_recordings(folder, net)
    check_views(folder)

print("FAILED" if failures else "what programs run as TorchScript is recorded")
sys.exit(1 if failures else 0)
