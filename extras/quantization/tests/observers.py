"""Loads Calibration::observers() into models that torch.ao prepared, and compares the scales with those that torch.ao
finds itself on the same data: observers.py FOLDER, which calibration_test.cpp wrote."""

import json
import sys

import torch
from torch.ao import quantization as ao


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.quant = ao.QuantStub()
        self.conv = torch.nn.Conv2d(1, 4, 3)
        self.relu = torch.nn.ReLU()
        self.flat = torch.nn.Flatten()
        self.fc = torch.nn.Linear(64, 3)
        self.dequant = ao.DeQuantStub()

    def forward(self, x):
        return self.dequant(self.fc(self.flat(self.relu(self.conv(self.quant(x))))))


def prepared(data, symmetric, channels):
    kind = ("per_channel_" if channels else "per_tensor_") + ("symmetric" if symmetric else "affine")
    observer = ao.PerChannelMinMaxObserver if channels else ao.MinMaxObserver
    more = {"ch_axis": 1} if channels else {}
    activation = observer.with_args(dtype=torch.quint8, qscheme=getattr(torch, kind), **more)
    net = Net().eval()
    net.load_state_dict({name: tensor for name, tensor in data.items() if name != "images"})
    net.qconfig = ao.QConfig(activation=activation, weight=ao.default_weight_observer)
    if channels:  # those of the others have other numbers of dimensions
        net.fc.qconfig = net.quant.qconfig = None
    return ao.prepare(net)


def scales(net):
    return {
        name.replace(".activation_post_process", ""): module.calculate_qparams()
        for name, module in net.named_modules()
        if name.endswith(".activation_post_process") and module.min_val.numel() > 0
    }


def main(folder):
    data = torch.load(folder + "/data.pt")
    checked = 0
    for name in ("affine", "symmetric"):
        for channels in (False, True):
            file = folder + "/" + name + (".channels" if channels else "")
            ran, loaded = (prepared(data, name == "symmetric", channels) for _ in range(2))
            ran(data["images"])
            missing, unexpected = loaded.load_state_dict(torch.load(file + ".pt"), strict=False)
            want, got = scales(ran), scales(loaded)
            assert list(want) == (["conv"] if channels else ["quant", "conv", "fc"]), list(want)
            assert list(want) == list(got), (list(want), list(got), missing, unexpected)
            tensors = {
                "quant" if one["kind"] == "input" else one["path"]: one
                for one in json.load(open(file + ".json", encoding="utf-8"))["tensors"]
            }
            for path in want:
                assert torch.equal(want[path][0], got[path][0]) and torch.equal(want[path][1], got[path][1]), path
                scale = torch.tensor(tensors[path]["scale"], dtype=torch.float32).reshape(-1)
                points = torch.tensor(tensors[path]["zero_point"]).reshape(-1)
                assert torch.equal(scale, want[path][0].reshape(-1)), (path, scale, want[path])
                assert torch.equal(points, want[path][1].reshape(-1).to(points.dtype)), (path, points, want[path])
                checked += 1
    assert checked == 8
    print("torch.ao has the same scales and zero points, for", checked, "tensors")


if __name__ == "__main__":
    main(sys.argv[1])
