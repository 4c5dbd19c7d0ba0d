"""Tests torchtap list against PyTorch on the same models, and that its table fits a terminal."""

import shutil

import pytest
import torch
from harness import TORCHTAP, document, in_terminal, run


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


@pytest.fixture(scope="module", autouse=True)
def net(folder):
    torch.manual_seed(0)
    net = Net().eval()
    torch.jit.script(net).save(folder / "net.pt")
    torch.jit.script(net).save(folder / "net.script.pt")
    torch.jit.trace(net, torch.randn(5, 6)).save(folder / "net.trace.pt")
    torch.jit.script(torch.nn.Linear(2, 2)).save(folder / "trainable.pt")
    run("record", folder / "net.pt", "--random", "5x6", "--reduce", "mean", "--save", folder / "maps")
    return net


def test_sizes(folder, net):
    told = document("list", folder / "net.pt")
    whole = sum(p.numel() for p in net.parameters())
    total = {
        "modules": len(told["modules"]),
        "parameters": whole,
        "trainable": sum(p.numel() for p in net.parameters() if p.requires_grad),
        "parameter_bytes": 4 * whole,
        "buffers": sum(b.numel() for b in net.buffers()),
        "bytes": sum(
            t.nbytes if hasattr(t, "nbytes") else t.numel() * t.element_size()
            for t in [*net.parameters(), *net.buffers()]
        ),
    }
    assert told["total"] == total, "totals"
    by_path = dict(net.named_modules(remove_duplicate=False))
    for module in told["modules"]:
        real = by_path[module["path"]]
        parameters = sum(p.numel() for p in real.parameters())
        assert module["parameters"] == parameters and abs(module["share"] - parameters / whole) < 1e-12
        assert module["trainable"] == sum(p.numel() for p in real.parameters() if p.requires_grad)
        assert module["buffers"] == sum(b.numel() for b in real.buffers())
        assert "outputs" not in module, "no outputs unless the model runs"
    assert "inputs" not in told, "no inputs unless the model runs"


def test_shapes(folder, net):
    seen = {}
    for path, module in net.named_modules():
        module.register_forward_hook(lambda module, inputs, output, path=path: seen.setdefault(path, []).append(output))
    x = torch.randn(5, 6)
    torch.save(x, folder / "x.pt")
    net(x)
    for source in (["--input", folder / "x.pt"], ["--random", "5x6"]):
        for how in ("script", "trace"):
            told = document("list", folder / f"net.{how}.pt", *source)
            assert told["inputs"] == [{"shape": [5, 6], "dtype": "float32"}], "inputs"
            for module in told["modules"]:
                shared = module["path"].endswith("shared")  # one module in Python, two with the same tensors in a file
                if shared:
                    continue
                outputs = seen.get(module["path"], [])
                assert module["calls"] == len(outputs)
                first = outputs[0] if outputs else None
                want = (
                    None
                    if first is None
                    else [
                        {"shape": list(t.shape), "dtype": "float32"}
                        for t in (first if isinstance(first, tuple) else (first,))
                    ]
                )
                assert module["outputs"] == want
    # A run leaves no trace in the next load, and only the first batch is run.
    torch.save([torch.randn(4, 6), torch.randn(3, 5)], folder / "batches.pt")
    told = document("list", folder / "net.pt", "--batches", "--input", folder / "batches.pt")
    assert told["modules"][0]["outputs"][0]["shape"] == [4, 2], "the first of several batches"


def test_table(folder):
    whole = run("list", folder / "net.pt", "--random", "5x6").out
    lines = whole.splitlines()
    assert lines[0].split() == ["index", "module", "type", "output", "parameters", "%", "bytes"], "headings"
    rows = {line.split()[1]: line for line in lines[1:] if line and line.split()[0].isdigit()}
    assert "5x2 +1" in rows["(root)"] and "100.0" in rows["(root)"], "the root"
    assert "2x 5x6" in rows["first"], "a module that is called twice"
    assert " - " in rows["never"] and "(ModuleList)" in rows["list"], "modules without calls"
    assert "    linear" in rows["linear"], "a tree is indented"
    assert "parameters  182 (728 B)\ntrainable   173\n" in whole
    assert "buffers     26 (112 B)" in whole
    assert "input       5x6 float32" in whole
    paths = run("list", folder / "net.pt", "--paths").out
    assert "first.linear" in paths and "\n    1  first " in paths and "output" not in paths, "--paths"
    assert "trainable   all\n" in run("list", folder / "trainable.pt").out, "all trainable"
    assert "second" in run("list", folder / "net.pt", "--depth", "1").out
    assert "norm" not in run("list", folder / "net.pt", "--depth", "1").out
    assert "fills_a_line" in whole and "…" not in whole, "a pipe has everything"


@pytest.mark.parametrize("columns", [200, 80, 60, 40])
def test_no_line_is_wider_than_the_terminal(folder, columns):
    """And no important column is left out."""
    for more in ([], ["--random", "5x6"]):
        drawn = in_terminal(TORCHTAP, "list", folder / "net.pt", *more, columns=columns)
        assert max(len(line) for line in drawn.split("\r\n")) <= columns
        assert "first" in drawn and "parameters" in drawn and ("5x2" in drawn) == bool(more)
        assert ("fills_a_line" in drawn) == (columns == 200) and (("…" in drawn) == (columns < 200))
    in_terminal(TORCHTAP, "show", folder / "maps", columns=columns)


@pytest.mark.parametrize("columns", [200, 80, 40, 20, 8])
def test_progress_redraws_a_single_line(folder, columns):
    maps, merged = folder / "maps", folder / f"m{columns}"
    again = folder / "maps_again"
    shutil.copytree(maps, again, dirs_exist_ok=True)
    drawn = in_terminal(TORCHTAP, "merge", maps, again, "--overwrite", "--save", merged, columns=columns)
    drawn, said = drawn.rsplit("\r\x1b[K", 1)
    updates = [part for part in drawn.replace("\x1b[K", "").split("\r") if part]
    assert updates and all(len(update) < columns for update in updates)
    assert "\n" not in drawn and said.startswith("13 modules, 30 samples")
    assert ("[" in updates[-1]) == (columns >= 40) and "13/13" in updates[-1]
