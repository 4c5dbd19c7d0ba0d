"""Models for the tests of int8, and what Python's quantization of graphs makes of them.

usage: int8.py models DIRECTORY: writes NAME.pt, TorchScript models, and NAME.data.pt, a tensor of calibration data
       int8.py check DIRECTORY ENGINE: runs each NAME.ENGINE.pt here, and compares the output with NAME.ENGINE.output.pt, bit
       by bit; the same for Python's quantization of NAME.pt with observers of minima and maxima on the same data
"""

import os
import pathlib
import sys
import warnings

# Newer LibTorchs fuse what Python's observers compute, with another zero point.
os.environ["PYTORCH_TENSOREXPR_FALLBACK"] = "2"

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver, QConfig
from torch.ao.quantization.quantize_jit import convert_jit, prepare_jit
from torch.nn import functional as F

warnings.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(y)))


class Residual(nn.Module):
    """Convolutions with batch norms, a residual addition, a concatenation, pooling, a branch for training."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.block = Block(8)
        self.side = nn.Conv2d(8, 4, 1)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.head = nn.Linear(12 * 16, 10)
        self.auxiliary = nn.Linear(12 * 16, 10)

    def forward(self, x):
        x = F.max_pool2d(self.relu(self.bn(self.stem(x))), 2)
        x = torch.cat([self.block(x), self.side(x)], dim=1)
        x = torch.flatten(self.pool(x), 1)
        y = self.head(F.dropout(x, 0.5, self.training))
        if self.training:
            y = y + self.auxiliary(x)
        return y


class Branch(nn.Module):
    """A branch that depends on the data."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.seldom = nn.Linear(6, 6)

    def forward(self, x):
        x = self.first(x)
        if bool(x.sum() > 1000):
            x = self.seldom(x)
        return x


def models(directory):
    torch.manual_seed(0)
    sequential = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 81, 10)
    )
    up = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(4, 1, 1))
    convolutions = nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Conv1d(8, 4, 1), nn.Flatten(), nn.Linear(40, 5))
    image, line = torch.randn(16, 1, 20, 20), torch.randn(16, 3, 12)
    nets = {
        "sequential": (sequential, image),
        "residual": (Residual(), image),
        "up": (up, image),
        "line": (convolutions, line),
        "branch": (Branch(), torch.randn(16, 6)),
        "nothing": (nn.Sequential(nn.ReLU(), nn.Softmax(1)), line),
    }
    for name, (net, data) in nets.items():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_var, 0.5, 2)
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.weight, 0.5, 2)
        net.train()
        torch.jit.script(net).save(str(directory / f"{name}.training.pt"))
        net.eval()
        torch.jit.script(net).save(str(directory / f"{name}.pt"))
        if name == "sequential":
            torch.jit.trace(net, data[:2]).save(str(directory / "traced.pt"))
            torch.jit.freeze(torch.jit.script(net)).save(str(directory / "frozen.pt"))
            torch.save(data, directory / "traced.data.pt")
            torch.save(data, directory / "frozen.data.pt")
        torch.save(data, directory / f"{name}.data.pt")


def python_int8(model, data):
    activation = MinMaxObserver.with_args(dtype=torch.quint8, qscheme=torch.per_tensor_affine)
    channels = PerChannelMinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_channel_symmetric)
    tensor = MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
    rules = {"": QConfig(activation, channels)}
    for name, module in model.named_modules():
        if module.original_name.startswith("ConvTranspose"):
            rules[name] = QConfig(activation, tensor)
    prepared = prepare_jit(model, rules)
    for batch in data.split(4):
        prepared(batch)
    return convert_jit(prepared)


def check(directory, engine):
    torch.backends.quantized.engine = engine
    failures = 0
    for file in sorted(directory.glob(f"*.{engine}.pt")):
        name = file.name.split(".")[0]
        data = torch.load(directory / f"{name}.data.pt")
        expected = torch.load(directory / f"{name}.{engine}.output.pt")
        with torch.no_grad():
            outputs = {
                "the file": torch.jit.load(str(file))(data),
                "Python's": python_int8(torch.jit.load(str(directory / f"{name}.pt")), data)(data),
            }
        for whose, output in outputs.items():
            if not torch.equal(output, expected):
                failures += 1
                worst = (output - expected).abs().max().item()
                print(f"{name}, {engine}: {whose} output differs from C++ by up to {worst}, of {expected.abs().max()}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    if sys.argv[1] == "models":
        models(pathlib.Path(sys.argv[2]))
    else:
        check(pathlib.Path(sys.argv[2]), sys.argv[3])
