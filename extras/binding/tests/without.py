"""A PyTorch that lacks a name which is not its public interface has all of torchtap but what the name is for, and a sentence says so."""

import functools
import importlib
import os
import pathlib
import re
import subprocess
import sys
import tokenize

import built
import pytest
import torch
import torchtap
from torch import nn

# The names of PyTorch's that torchtap looks up in one place, and may do without.
PACKAGE = pathlib.Path(torchtap.__file__).parent
FILES = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "torchtap_compare").rglob("*.py")]
PRIVATE = sorted(
    {
        name
        for file in (PACKAGE / "_hooks.py", PACKAGE / "views/_model.py")
        for name in re.findall(r'"(torch(?:\.\w+)*?\._[\w.]+)"', file.read_text())
    }
)
# What PyTorch's guides send people to, what comes with an older PyTorch, and what is asked for before it is used.
KNOWN = {"_pytree", "_python_dispatch", "_inductor", "_guards", "_C.DisableTorchFunctionSubclass"}


def test_private_names_of_pytorch_are_looked_up_in_one_place():
    found = set()
    for file in FILES:
        with tokenize.open(file) as lines:
            tokens = [one.string for one in tokenize.generate_tokens(lines.readline) if one.type != tokenize.STRING]
        text = re.sub(r"(?m)#.*", "", " ".join(tokens)).replace(" . ", ".")
        found |= set(re.findall(r"\btorch(?:\.\w+)*?\.(_[a-zA-Z][\w.]*)", text))
        found |= set(re.findall(r"\bfrom torch(?:\.[\w.]+)? import (_\w+)", text))
    assert {one for one in found if one.partition(".")[0] not in KNOWN and one not in KNOWN} == set()


X = torch.arange(8.0).reshape(2, 4).cos()
OPEN = {
    "compare": "torchtap.compare(model, model, without.X)",
    "explorer": "enter(torchtap.explore(model, every=1))",
    "monitor": "enter(torchtap.monitor(model, cost=1.0, learn=tempfile.mkdtemp()))",
    "report": "enter(torchtap.Report(model).record())",
    "stream": "enter(torchtap.publish(f'without-{os.getpid()}', model))",
    "trace": "enter(torchtap.Tracer(model))",
}


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.a(x).sin(), (x,))


def step(model):
    model.zero_grad()
    y = model(X)
    y.square().sum().backward()
    return [y.detach(), *(one.grad.clone() for one in model.parameters())]


def same(ones, others):
    return len(ones) == len(others) and all(map(torch.equal, ones, others))


RUN = """
import contextlib, os, pkgutil, tempfile, warnings, torch, built, without
found = pkgutil.resolve_name
hidden = ""
def resolve(name):
    if name == hidden:
        raise AttributeError(name)
    return found(name)
pkgutil.resolve_name = resolve
folder = tempfile.mkdtemp()
import torch._dynamo.backends.debugging, torch._functorch.aot_autograd, torch._higher_order_ops.cond, torch._inductor.compile_fx
import torchtap
loaded = {one for one in sys.modules if one.startswith("torchtap.")}
assert loaded == {"torchtap._C"}, loaded
def program():
    return without.step(torch.compile(without.small(), backend="aot_eager")), without.step(without.Branches())
def run():
    said, (bare, cond) = [], torch.load(folder + "/bare.pt")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = without.small()
        compiled = torch.compile(model, backend="aot_eager")
        recorder = torchtap.ForwardOutput().attach(model)
        assert without.same(without.step(compiled), bare)
        late = torchtap.ForwardPre().attach(model)
        said += [one.note for one in (*recorder.subrecorders, *late.subrecorders)]
        assert without.same(without.step(model), bare) and recorder.samples("0") in (1, 2)
        said += [str(one.message) for one in warned]
    for view in torchtap._C.views:
        model = without.small()
        with contextlib.ExitStack() as opened:
            enter = opened.enter_context
            one = eval(without.OPEN[view])
            assert without.same(without.step(model), bare)
        said += getattr(one, "notes", [])
    assert all(map(torch.equal, without.step(without.Branches()), cond))
    return said
def apart(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        print(hidden, "failed", sep="\t")
def tell():
    for one in run():
        if f"has no {hidden}, " in one or not hidden and "has no torch" in one:
            print(hidden, one, sep="\t")
# Nothing is computed before a fork, which threads of PyTorch do not survive.
apart(lambda: torch.save(program(), folder + "/bare.pt"))
for hidden in ["", *sys.argv[1:]]:
    apart(tell)
"""


@functools.cache
def said_without():
    code = f"import sys; sys.path[:0] = {built.PATH!r}\n{RUN}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *PRIVATE], capture_output=True, text=True, timeout=900, env=environment
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return lines if done.returncode == 0 else [], done.stderr


@pytest.mark.parametrize("name", PRIVATE)
def test_a_pytorch_without_a_private_name(name):
    said, errors = said_without()
    told = {sentence for hidden, sentence in said if hidden == name}
    # Without the compiler's counters all that was compiled is compiled again.
    assert bool(told) == (name != "torch._dynamo.utils.counters") and "failed" not in told, (told, errors)
    assert not [sentence for hidden, sentence in said if not hidden]


@pytest.mark.parametrize("accumulated, name", [(False, "_backward_hooks"), (True, "_post_accumulate_grad_hooks")])
def test_parameters_without_the_dict_of_their_hooks(monkeypatch, accumulated, name):
    def attribute(one, asked, *default):
        if asked == name and isinstance(one, torch.Tensor):
            raise AttributeError(asked, name=asked, obj=one)
        return getattr(one, asked, *default)

    model, other = small(), small()
    expected = torchtap.BackwardParameter(accumulated=accumulated).attach(other)
    bare = step(other)
    monkeypatch.setattr(importlib.import_module("torchtap._hooks"), "getattr", attribute, raising=False)
    with torchtap.BackwardParameter(accumulated=accumulated) as recorder:
        recorder.attach(model)
        assert same(step(model), bare) and len(recorder) == 4
        assert all(torch.equal(recorder[one.path][0], expected[one.path][0]) for one in recorder.subrecorders)
    step(model)
    assert recorder.samples("0.weight") == 1
    model[2].requires_grad_(False)
    recorder = torchtap.BackwardParameter(accumulated=accumulated)
    with pytest.raises(NotImplementedError, match=f"BackwardParameter: PyTorch .* has no {name}, .* frozen parameter"):
        recorder.attach(model)
    assert len(recorder) == 0 and not any(one._backward_hooks for one in model.parameters())


@pytest.mark.parametrize(
    "name", ["torch._higher_order_ops.effects._EffectType", "torch._higher_order_ops.effects._register_effectful_op"]
)
def test_export_without_a_private_name(name):
    code = f"""
import sys; sys.path[:0] = {built.PATH!r}
import ctypes, pkgutil, torch
found = pkgutil.resolve_name
def resolve(name):
    if name == {name!r}:
        raise AttributeError(name)
    return found(name)
pkgutil.resolve_name = resolve
ctypes.CDLL = torch.ops.load_library = lambda *_, **__: None  # the operators need not be there
import torchtap.export
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    said = f"ImportError: torchtap.export: PyTorch {torch.__version__} has no {name}, without which the compiler would remove taps."
    assert done.stderr.splitlines()[-1] == said, done.stderr
