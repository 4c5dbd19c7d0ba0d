#!/usr/bin/env python3
"""Tests torchtap list against PyTorch on the same models, and that its table fits a terminal.

usage: list.py TORCHTAP"""

import fcntl
import json
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading

import torch

torchtap = str(pathlib.Path(sys.argv[1]).resolve())
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, status=0):
    # Without `env`, the program would see COLUMNS, which readline sets for C alone when torch imports it.
    done = subprocess.run([torchtap, *map(str, arguments)], capture_output=True, text=True, env=dict(os.environ))
    check(
        done.returncode == status,
        f"{' '.join(map(str, arguments))}: exit status {done.returncode} instead of {status}\n{done.stderr}",
    )
    return done.stdout, done.stderr


def on_terminal(columns, *arguments):
    """Returns stdout and stderr as drawn on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    drawn = []

    def read():
        try:
            while data := os.read(ours, 1 << 16):
                drawn.append(data)
        except OSError:
            pass

    reader = threading.Thread(target=read)
    reader.start()
    done = subprocess.run(
        [torchtap, *map(str, arguments)],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
    )
    os.close(theirs)
    reader.join()
    os.close(ours)
    check(done.returncode == 0, f"{arguments} on a terminal: exit status {done.returncode}")
    return b"".join(drawn).decode()


class Block(torch.nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.shared = shared

    def forward(self, x):
        return self.shared(self.norm(self.linear(x)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        shared = torch.nn.Linear(6, 6)
        self.first = Block(shared)
        self.second = Block(shared)
        self.a_module_with_quite_a_long_name_that_fills_a_line = torch.nn.Linear(6, 2)
        self.twins = torch.nn.Linear(6, 6)
        self.twins.weight = shared.weight
        self.never = torch.nn.Linear(3, 3)
        self.list = torch.nn.ModuleList([torch.nn.Identity()])
        self.never.weight.requires_grad_(False)

    def forward(self, x):
        y = self.second(self.first(self.first(x)))
        return self.a_module_with_quite_a_long_name_that_fills_a_line(self.twins(y)), y


def check_sizes(folder, net):
    document = json.loads(run("list", folder / "net.pt", "--json")[0])
    whole = sum(p.numel() for p in net.parameters())
    total = {
        "modules": len(document["modules"]),
        "parameters": whole,
        "trainable": sum(p.numel() for p in net.parameters() if p.requires_grad),
        "parameter_bytes": 4 * whole,
        "buffers": sum(b.numel() for b in net.buffers()),
        "bytes": sum(
            t.nbytes if hasattr(t, "nbytes") else t.numel() * t.element_size()
            for t in [*net.parameters(), *net.buffers()]
        ),
    }
    check(document["total"] == total, f"totals: {document['total']} instead of {total}")
    by_path = dict(net.named_modules(remove_duplicate=False))
    for module in document["modules"]:
        real = by_path[module["path"]]
        parameters = sum(p.numel() for p in real.parameters())
        check(
            module["parameters"] == parameters and abs(module["share"] - parameters / whole) < 1e-12,
            f"size of {module}",
        )
        check(
            module["trainable"] == sum(p.numel() for p in real.parameters() if p.requires_grad),
            f"trainable of {module}",
        )
        check(module["buffers"] == sum(b.numel() for b in real.buffers()), f"buffers of {module}")
        check("outputs" not in module, "no outputs unless the model runs")
    check("inputs" not in document, "no inputs unless the model runs")


def check_shapes(folder, net):
    seen = {}
    for path, module in net.named_modules():
        module.register_forward_hook(lambda module, inputs, output, path=path: seen.setdefault(path, []).append(output))
    x = torch.randn(5, 6)
    torch.save(x, folder / "x.pt")
    net(x)
    for source in (["--input", folder / "x.pt"], ["--random", "5x6"]):
        for how in ("script", "trace"):
            document = json.loads(run("list", folder / f"net.{how}.pt", "--json", *source)[0])
            check(document["inputs"] == [{"shape": [5, 6], "dtype": "float32"}], f"inputs: {document['inputs']}")
            for module in document["modules"]:
                shared = module["path"].endswith("shared")  # one module in Python, two with the same tensors in a file
                if shared:
                    continue
                outputs = seen.get(module["path"], [])
                check(module["calls"] == len(outputs), f"{how}: calls of {module}: {len(outputs)}")
                first = outputs[0] if outputs else None
                want = (
                    None
                    if first is None
                    else [
                        {"shape": list(t.shape), "dtype": "float32"}
                        for t in (first if isinstance(first, tuple) else (first,))
                    ]
                )
                check(
                    module["outputs"] == want,
                    f"{how}: outputs of {module['path']}: {module['outputs']} instead of {want}",
                )
    # A run leaves no trace in the next load, and only the first batch is run.
    torch.save([torch.randn(4, 6), torch.randn(3, 5)], folder / "batches.pt")
    document = json.loads(run("list", folder / "net.pt", "--json", "--batches", "--input", folder / "batches.pt")[0])
    check(document["modules"][0]["outputs"][0]["shape"] == [4, 2], "the first of several batches")


def check_table(folder):
    whole, _ = run("list", folder / "net.pt", "--random", "5x6")
    lines = whole.splitlines()
    check(
        lines[0].split() == ["index", "module", "type", "output", "parameters", "%", "bytes"], f"headings: {lines[0]}"
    )
    rows = {line.split()[1]: line for line in lines[1:] if line and line.split()[0].isdigit()}
    check("5x2 +1" in rows["(root)"] and "100.0" in rows["(root)"], f"the root: {rows['(root)']}")
    check("2x 5x6" in rows["first"], f"a module that is called twice: {rows['first']}")
    check(" - " in rows["never"] and "(ModuleList)" in rows["list"], f"modules without calls: {rows}")
    check("    linear" in rows["linear"], "a tree is indented")
    check(
        "parameters  182 (728 B)\ntrainable   173\n" in whole
        and "buffers     26 (112 B)" in whole
        and "input       5x6 float32" in whole,
        f"totals: {whole}",
    )
    paths, _ = run("list", folder / "net.pt", "--paths")
    check("first.linear" in paths and "\n    1  first " in paths and "output" not in paths, f"--paths: {paths}")
    check("trainable   all\n" in run("list", folder / "trainable.pt")[0], "all trainable")
    check(
        "second" in run("list", folder / "net.pt", "--depth", "1")[0]
        and "norm" not in run("list", folder / "net.pt", "--depth", "1")[0],
        "--depth",
    )
    # No line is wider than the terminal, and no important column is left out.
    for columns in (200, 80, 60, 40):
        for arguments in (
            ["list", folder / "net.pt", "--random", "5x6"],
            ["list", folder / "net.pt"],
            ["show", folder / "maps"],
        ):
            drawn = on_terminal(columns, *arguments)
            longest = max(len(line) for line in drawn.split("\r\n"))
            if arguments[0] == "list":
                check(longest <= columns, f"{arguments} on {columns} columns takes {longest}:\n{drawn}")
                check(
                    "first" in drawn and "parameters" in drawn and ("5x2" in drawn) == ("--random" in arguments),
                    f"{columns} columns: {drawn}",
                )
                check(
                    ("fills_a_line" in drawn) == (columns == 200) and (("…" in drawn) == (columns < 200)),
                    f"{columns} columns: {drawn}",
                )
    check("fills_a_line" in whole and "…" not in whole, "a pipe has everything")


def check_progress(folder):
    """Progress redraws a single line at any terminal width."""
    for columns in (200, 80, 40, 20, 8):
        drawn = on_terminal(
            columns, "merge", folder / "maps", folder / "maps", "--overwrite", "--save", folder / f"m{columns}"
        )
        drawn, said = drawn.rsplit("\r\x1b[K", 1)
        updates = [part for part in drawn.replace("\x1b[K", "").split("\r") if part]
        check(updates and all(len(update) < columns for update in updates), f"progress on {columns} columns: {updates}")
        check(
            "\n" not in drawn and said.startswith("13 modules, 30 samples"),
            f"progress on {columns} columns: {drawn!r}, {said!r}",
        )
        check(
            ("[" in updates[-1]) == (columns >= 40) and "13/13" in updates[-1],
            f"progress on {columns} columns: {updates}",
        )


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    torch.manual_seed(0)
    net = Net().eval()
    torch.jit.script(net).save(folder / "net.pt")
    torch.jit.script(net).save(folder / "net.script.pt")
    torch.jit.trace(net, torch.randn(5, 6)).save(folder / "net.trace.pt")
    torch.jit.script(torch.nn.Linear(2, 2)).save(folder / "trainable.pt")
    run("record", folder / "net.pt", "--random", "5x6", "--reduce", "mean", "--save", folder / "maps")
    check_sizes(folder, net)
    check_shapes(folder, net)
    check_table(folder)
    check_progress(folder)

print("FAILED" if failures else "list says what PyTorch says, and fits the terminal")
sys.exit(1 if failures else 0)
