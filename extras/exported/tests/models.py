"""Writes packages for the tests of torchtap::exported, and the tensors that Python's own hooks see on the eager models.

For each model NAME: NAME.pt2, tapped; NAME.plain.pt2, the same without taps; and NAME.data.pt, a dict of `inputs` and
`outputs`, lists of tensors, and `seen`, a dict from "KIND PATH#CALL#SLOT" to a tensor. KIND is pre (inputs before a
forward), in (after it) or out.

usage: models.py DIRECTORY [NAME…], with TORCHTAP_TEST_EXPORTED_DEVICE for packages of another device than the CPU
"""

import contextlib
import os
import pathlib
import sys
import warnings

# One thread, and no code for other machines: compiling takes most of the time of these tests.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torchvision  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import torchtap.export as tt  # noqa: E402

DEVICE = torch.device(os.environ.get("TORCHTAP_TEST_EXPORTED_DEVICE", "cpu"))
torch.backends.cudnn.allow_tf32 = False  # ten bits of mantissa would hide differences


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 32)
        self.act = nn.GELU()
        self.b = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.c = nn.Linear(32, 8)

    def forward(self, x):
        y = self.act(self.a(x))
        return self.c(self.norm(self.b(y) + y)).softmax(-1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(12, 5)

    def forward(self, tokens):
        return self.tag(self.lstm(self.embed(tokens))[0])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.feed = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.head(x + self.feed(x))


class Twice(nn.Module):
    """A module that is called twice and has two names; one that returns its input; one that writes to it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.act = nn.Tanh()
        self.same = self.act
        self.pass_on = nn.Identity()
        self.inplace = nn.ReLU(inplace=True)
        self.second = nn.Linear(6, 6)

    def forward(self, x, *, scale):
        y = self.act(self.first(x))
        y = self.pass_on(self.same(self.second(y) * scale))
        return self.inplace(y - 0.1), {"sum": y.sum(0)}


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 3)

    def forward(self, x):
        return self.gate(x).softmax(-1).max(-1)  # of each row: the chosen expert's weight, and its number


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = nn.Linear(8, 3 * 8)

    def forward(self, x):
        weight, chosen = self.router(x)
        each = self.experts(x).view(-1, 3, 8)
        return x + weight[:, None] * each.take_along_dim(chosen[:, None, None], 1)[:, 0]


class Experts(nn.Module):
    """A mixture of experts between two layers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.mixture = Mixture()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.mixture(self.embed(x)))


def make(name):
    """The model, its arguments, its keyword arguments, what is said to `tapped`, the dynamic shapes."""
    torch.manual_seed(0)
    batch = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    if name == "mlp":
        return MLP(), (torch.randn(4, 16),), {}, {}, None
    if name == "dynamic":
        return MLP(), (torch.randn(4, 16),), {}, {"inputs": True}, batch
    if name == "half":
        return MLP().bfloat16(), (torch.randn(4, 16).bfloat16(),), {}, {}, None
    if name == "replaceable":
        return MLP(), (torch.randn(4, 16),), {}, {"inputs": True, "replace": True}, None
    if name == "tagger":
        return Tagger(), (torch.randint(30, (2, 5)),), {}, {"inputs": True}, None
    if name == "transformer":
        return Transformer(), (torch.randint(50, (2, 7)),), {}, {}, None
    if name == "experts":
        return Experts(), (torch.randn(40, 6),), {}, {"inputs": True}, None
    if name == "twice":
        return Twice(), (torch.randn(3, 6),), {"scale": torch.tensor([2.0])}, {"inputs": True}, None
    model = torchvision.models.resnet18(weights=None)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model, (torch.randn(2, 3, 32, 32),), {}, {"names": ["conv1", "layer*", "fc"]}, None


NAMES = ["mlp", "dynamic", "half", "replaceable", "tagger", "transformer", "twice", "experts", "resnet18"]


def flat(values):
    return [one for one in pytree.tree_leaves(values) if one is None or isinstance(one, torch.Tensor)]


def look(model, args, kwargs):
    """Runs the model with Python's hooks."""
    seen, calls, handles = {}, {}, []

    def note(kind, path, values):
        call = calls[path]
        for slot, tensor in enumerate(flat(values)):
            if tensor is not None:
                seen[f"{kind} {path}#{call}#{slot}"] = tensor.detach().clone()

    for path, module in model.named_modules():

        def before(_, args, kwargs, path=path):
            calls[path] = calls.get(path, -1) + 1
            note("pre", path, (args, kwargs))

        def after(_, args, kwargs, output, path=path):
            note("in", path, (args, kwargs))
            note("out", path, output)

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    outputs = model(*args, **kwargs)
    for handle in handles:
        handle.remove()
    return flat(outputs), seen


def export(model, args, kwargs, shapes, context):
    with context:
        return torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)


def write(folder, name):
    model, args, kwargs, how, shapes = make(name)
    model.eval().to(DEVICE)
    args, kwargs = pytree.tree_map(lambda one: one.to(DEVICE), (args, kwargs))
    with torch.no_grad():
        inputs = [one.clone() for one in flat((args, kwargs))]
        outputs, seen = look(model, args, kwargs)
        tt.compile(export(model, args, kwargs, shapes, tt.tapped(model, **how)), package_path=folder / f"{name}.pt2")
        plain = export(model, args, kwargs, shapes, contextlib.nullcontext())
        torch._inductor.aoti_compile_and_package(plain, package_path=str(folder / f"{name}.plain.pt2"))
        if name == "mlp":  # the other way: a program that exists already
            tt.compile(tt.tap(plain), package_path=folder / "program.pt2")
    data = {"inputs": inputs, "outputs": outputs, "seen": seen}
    torch.save(pytree.tree_map(lambda one: one.cpu(), data), folder / f"{name}.data.pt")


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NAMES:
        if name != "tagger" or DEVICE.type == "cpu":  # torchtap.export.compile refuses its LSTM elsewhere
            write(folder, name)
