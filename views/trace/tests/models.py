"""Writes the models of the trace tests, and the operations that Python sees when it runs them eagerly.

For each model NAME: NAME.pt in TorchScript, NAME.expected.pt: a dict of "inputs", a list of tensors; "names", the
functions' names without underscores; "tensors", what they returned. NAME is MODEL.LEVEL: the level "program" is what
torch.overrides.TorchFunctionMode sees, "leaf" what TorchDispatchMode does.

usage: models.py DIRECTORY
"""

import pathlib
import sys
import warnings

import torch
import torchvision
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


def tensors(value):
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in tensors(part)]
    return []


# What functions of torch.nn.functional and operators are called in TorchScript.
ALIASES = {"fn": "maxpool2d", "iadd": "add", "imul": "mul", "getitem": "select"}


def plain(name):
    name = name.split("::")[-1].split(".")[0].replace("_", "")
    return ALIASES.get(name, name)


class Log:
    def __init__(self):
        super().__init__()
        self.names, self.tensors = [], []

    def note(self, name, result):
        for tensor in tensors(result):
            self.names.append(plain(name))
            self.tensors.append(tensor.detach().clone())


class Program(Log, TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.note(function.__name__, result)
        return result


class Leaf(Log, TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.note(function._schema.name, result)
        return result


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0].relu()


class Loop(nn.Module):
    """An Elman network, written by hand."""

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(4, 6)
        self.over = nn.Linear(6, 6, bias=False)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.size(1), 6)
        for t in range(x.size(0)):
            h = torch.tanh(self.into(x[t]) + self.over(h))
        return self.out(h)


class Fork(nn.Module):
    def part(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def forward(self, x: Tensor) -> Tensor:
        left, right = torch.jit.fork(self.part, x), torch.jit.fork(self.part, x + 1)
        return torch.jit.wait(left) * torch.jit.wait(right)


def write(directory, name, model, inputs, modes):
    model = model.eval()
    torch.jit.script(model).save(f"{directory}/{name}.pt")
    for level, mode in modes.items():
        with torch.no_grad(), mode() as log:
            model(*inputs)
        torch.save(
            {"inputs": list(inputs), "names": log.names, "tensors": log.tensors},
            f"{directory}/{name}.{level}.expected.pt",
        )


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    image = torch.randn(1, 3, 224, 224)
    program, leaf = {"program": Program}, {"leaf": Leaf}
    write(directory, "alexnet", torchvision.models.alexnet(weights=None), [image], program)
    write(directory, "resnet18", torchvision.models.resnet18(weights=None), [image], program)
    write(directory, "mobilenet", torchvision.models.mobilenet_v3_small(weights=None), [image], program)
    write(directory, "lstm", Recurrent(), [torch.randn(7, 2, 4)], leaf)
    torch.jit.script(Fork()).save(f"{directory}/fork.pt")
    write(directory, "loop", Loop(), [torch.randn(5, 2, 4)], leaf)
    vit = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64
    )
    write(directory, "vit", vit, [torch.randn(2, 3, 32, 32)], leaf)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    write(directory, "transformer", nn.TransformerEncoder(layer, 2), [torch.randn(2, 7, 16)], leaf)


if __name__ == "__main__":
    main()
