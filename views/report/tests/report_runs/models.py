"""Writes the TorchScript models of the report tests: NAME.pt, each with weights of one value, which take no room.

usage: models.py DIRECTORY
"""

import pathlib
import sys
import warnings

import torch
import torchvision
from torch import Tensor, nn

warnings.filterwarnings("ignore")


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


class Fork(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(8, 16)
        self.right = nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        left, right = torch.jit.fork(self.left, x), torch.jit.fork(self.right, x)
        return torch.jit.wait(left) * torch.jit.wait(right)


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    vision = torchvision.models
    for name, model in {
        "resnet18": vision.resnet18(weights=None),
        "alexnet": vision.alexnet(weights=None),
        "vit": vision.vit_b_16(weights=None),
        "mobilenet": vision.mobilenet_v3_small(weights=None),
        "lstm": Recurrent(),
        "transformer": nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        "fork": Fork(),
    }.items():
        if name in ("alexnet", "vit"):  # hundreds of megabytes
            for parameter in model.parameters():
                parameter.data = torch.full((1,), 0.01).expand(parameter.shape)
        torch.jit.script(model.eval()).save(f"{directory}/{name}.pt")


if __name__ == "__main__":
    main()
