"""torchtap preload of programs that run TorchScript, in C++ and in Python: they behave as without it, and what is recorded
is what Python's hooks see of the same model, and what `torchtap record` records of the file."""

import json
import os
import sys

import harness
import pytest
import torch
from harness import given, recording, run
from torch import nn

pytestmark = pytest.mark.usefixtures("inside")
scripted = given("scripted")
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # convolutions on several threads round otherwise, and C++ begins with more of them


def preload(options, *program, status=4):
    return harness.preload(options, *program, status=status)


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


def same(got, want):
    got = {entry["path"]: samples for entry, samples in recording(got) if entry["samples"]}
    assert set(got) == set(want)
    for path in set(got) & set(want):
        assert len(got[path]) == len(want[path]) and all(map(torch.equal, got[path], want[path]))


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


@pytest.fixture(scope="module")
def net(folder):
    torch.manual_seed(0)
    net = Net().eval()
    torch.jit.script(net).save(folder / "script.pt")
    torch.jit.trace(net, inputs()[0]).save(folder / "trace.pt")
    (folder / "program.py").write_text(PROGRAM)
    return net


@pytest.fixture
def want(net):
    return expected(net, forwards)


PYTHON = (sys.executable, "program.py")


def test_recordings(folder, want):
    # What `torchtap record` records of the same batches.
    torch.save(torch.cat(inputs()), folder / "x.pt")
    run("record", "script.pt", "--input", "x.pt", "--batch", "2", "--save", "file")
    same(folder / "file", want)
    for file in ("script.pt", "trace.pt"):
        for name, program in (("C++", [scripted, file]), ("Python", [*PYTHON, file, "forward", "1"])):
            out = f"{name}-{file}"
            said = preload(["--save", out], *program)
            same(folder / out, want)
            samples = sum(map(len, want.values()))
            assert f"recorded {samples:,} samples of {len(want)} modules: {out}" in said
        run("compare", f"C++-{file}", f"Python-{file}", "--rtol", "0", "--atol", "0")
    for name in ("C++", "Python"):
        run("compare", f"{name}-script.pt", "file", "--rtol", "0", "--atol", "0")


def test_models_that_are_loaded_one_after_the_other_share_entries(folder, want):
    """And each call is counted once."""
    for name, program in (("C++", [scripted, "script.pt", 4]), ("Python", [*PYTHON, "script.pt", "forward", 4])):
        out = f"four-{name}"
        preload(["--reduce", "count", "--save", out], *program)
        got = sorted((entry["path"], entry["samples"]) for entry in harness.entries(out) if entry["samples"])
        assert got == sorted((path, 4 * len(samples)) for path, samples in want.items())


def test_two_methods_that_share_a_module(net):
    """The module has one entry, with the calls of both."""
    options = ["--types", "Conv2d|Linear", "--names", "blocks.0.*,head.*", "--save", "methods"]
    preload(options, *PYTHON, "script.pt", "encode", "1")

    def both(net):
        with torch.no_grad():
            for x in inputs():
                net.encode(x), net(x)

    want = {path: samples for path, samples in expected(net, both).items() if path in ("blocks.0.conv", "head.1")}
    same("methods", want)


def test_gradients(net):
    options = ["--what", "grad-output", "--names", "head.1", "--save", "gradients"]
    preload(options, *PYTHON, "script.pt", "grad", "1")
    ((_, samples),) = recording("gradients")
    assert len(samples) == 3 and all(torch.equal(sample, torch.ones(2, 4)) for sample in samples), "gradients"


def test_views(folder, net):
    """The other modes see what Python calls, too."""
    program = [sys.executable, "program.py", "script.pt", "forward", "1"]
    preload(["--trace", "python"], *program)
    preload(["--trace", "cpp"], scripted, "script.pt")
    run("compare", "python", "cpp", "--rtol", "0", "--atol", "0")
    said = preload(["--report", "report.json"], *program)
    (whole,) = json.load(open(folder / "report.json")).values()
    assert whole["report"]["repeats"] == 3 and "measured 3 repeats: report.json" in said, "--report"
    said = preload(["--explore", "--save", "run"], *program)
    assert "of 1 model: run" in said, "--explore"


def test_views_of_models_that_are_loaded_one_after_the_other(folder):
    """More than there may be at once: each is let go when the program has, with its parameters."""
    said = preload(["--explore", "--save", "explored"], scripted, "script.pt", "70")
    assert "recorded 210 steps of 70 models: explored" in said and "at once" not in said, said
    said = preload(["--report", "loaded.json"], scripted, "script.pt", "70")
    assert "measured 210 repeats: loaded.json" in said and "open" not in said, said
    assert len([*folder.glob("loaded*.json")]) == 1, "each goes on with the one before"


def test_views_of_a_model_that_several_threads_call(folder):
    """References to it come and go in other threads; it is one model all the same."""
    (folder / "threads.py").write_text(
        "import threading, torch\n"
        "torch.set_num_threads(1)\n"
        "model, x = torch.jit.load('script.pt'), torch.ones(2, 3, 32, 32)\n"
        "def work():\n"
        "    for _ in range(50): model(x)\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "other = torch.jit.load('script.pt'); other(x); model(x)\n"
    )
    preload(["--report", "threads.json"], sys.executable, "threads.py", status=0)
    assert len([*folder.glob("threads*.json")]) == 2  # a report of each
    said = preload(["--explore", "--save", "threads"], sys.executable, "threads.py", status=0)
    assert "of 2 models: threads" in said, said


def test_reports_of_a_model_that_is_loaded_anew_while_several_threads_call_it(folder):
    (folder / "served.py").write_text(
        "import threading, time, torch\n"
        "torch.set_num_threads(1)\n"
        "now, x = [torch.jit.load('script.pt')], torch.ones(2, 3, 32, 32)\n"
        "def work():\n"
        "    for _ in range(100): now[0](x)\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "for _ in range(20):\n"
        "    now[0] = torch.jit.load('script.pt')\n"
        "    now[0](x)\n"
        "    time.sleep(0.01)\n"
        "for thread in threads: thread.join()\n"
    )
    preload(["--report", "served.json"], sys.executable, "served.py", status=0)
    assert len([*folder.glob("served*.json")]) <= 5, "one for each that lives, at most"


@pytest.mark.parametrize("mode", [["--reduce", "count", "--save", "traced"], ["--report", "traced.json"]])
def test_a_program_that_traces(folder, mode):
    """torch.jit.trace compares the texts of graphs, those with hooks among them."""
    (folder / "traces.py").write_text(
        "import torch\n"
        "x = torch.ones(1, 3)\n"
        "inner = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))\n"
        "inner(x)\n"
        "traced = torch.jit.trace(torch.nn.Sequential(inner, torch.nn.Linear(3, 2)), x)\n"
        "print(tuple(traced(x).shape), tuple(torch.jit.trace(torch.nn.Linear(3, 2), x)(x).shape))\n"
    )
    preload([*mode, "--overwrite"], sys.executable, "traces.py", status=0)


def test_modules_of_python(folder):
    (folder / "eager.py").write_text("import torch; torch.nn.Linear(2, 2)(torch.ones(1, 2))")
    said = preload(["--save", "eager"], sys.executable, "eager.py", status=0)
    assert "torch.nn of Python is written in Python" in said, "modules of Python"


def test_the_lite_interpreter(folder):
    """Its models have no modules that anything could see, which is said."""
    torch.jit.script(Net().eval())._save_for_lite_interpreter("lite.ptl")
    (folder / "lite.py").write_text(
        "import torch\n"
        "from torch.jit.mobile import _load_for_lite_interpreter\n"
        "model = _load_for_lite_interpreter('lite.ptl')\n"
        "print([model(torch.ones(2, 3, 32, 32)).tolist() for _ in range(3)])\n"
    )
    for mode in ["--save", "lite"], ["--report", "lite.json"], ["--trace", "lite-trace"]:
        said = preload(mode, sys.executable, "lite.py", status=0)
        assert said.count("lite interpreter (torch::jit::_load_for_mobile), of whose modules nothing is seen") == 1, (
            said
        )
        assert "nothing was recorded" in said, said
    # Beside a model that is seen.
    (folder / "both.py").write_text(
        (folder / "lite.py").read_text() + "torch.jit.load('script.pt')(torch.ones(2, 3, 32, 32))\n"
    )
    said = preload(["--save", "both", "--names", "head.1"], sys.executable, "both.py", status=0)
    assert "of whose modules nothing is seen" in said and len(recording("both")) == 1, said
