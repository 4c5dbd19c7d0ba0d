"""Tests torchtap.export: what it puts into programs and packages, its errors, and that it leaves models as they were."""

import json
import pathlib
import re
import sys
import zipfile

import pytest
import torch
from harness import given
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from models import MLP, Tagger, Transformer, tt

FOLDER = pathlib.Path(given("exported_models"))
X = torch.randn(4, 16)


def refuses(kind, parts, function):
    with pytest.raises(kind) as error:
        function()
    assert all(part in str(error.value) for part in parts), error.value


def exported(model, x=X, **how):
    with torch.no_grad(), tt.tapped(model, **how):
        return torch.export.export(model, (x,), strict=False)


def package(name):
    """The generated C++, and the metadata."""
    with zipfile.ZipFile(FOLDER / f"{name}.pt2") as file:
        code = "".join(file.read(one).decode() for one in file.namelist() if one.endswith(".cpp"))
        notes = next(
            json.loads(file.read(one))
            for one in file.namelist()
            if one.endswith("_metadata.json") and b"torchtap" in file.read(one)
        )
    return code, notes


def calls(code):
    """How often the code calls a tap, and a kernel that was fused."""
    taps = len(re.findall(r"executor_call_function\(", code)) + len(re.findall(r"CHECK\(aoti_torch_cpu_tap\(", code))
    return taps, len(re.findall(r"^\s+cpp_fused\w*\(", code, re.M))


def test_programs():
    model = MLP().eval()
    before = dict(model.named_modules())
    program = exported(model, names=["a", "n*"], types="*")
    assert [one["path"] for one in tt.taps(program)] == ["a", "norm"], "selected"
    one = tt.taps(program)[0]
    assert one == {
        "path": "a",
        "aliases": [],
        "type": "Linear",
        "qualified_type": "torch.nn.modules.linear.Linear",
        "leaf": True,
        "calls": 1,
        "inputs": False,
        "outputs": True,
        "replaceable": False,
    }
    assert [one["path"] for one in tt.taps(exported(model, types=["Linear", "torch.nn.*LayerNorm"]))] == [
        "a",
        "b",
        "norm",
        "c",
    ]
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in before.values())
    assert not tt.taps(exported_plain := torch.export.export(model, (X,), strict=False)), "taps after the context"
    # In eager mode, and with nobody who listens, a tap does nothing.
    with tt.tapped(model, inputs=True), torch.no_grad():
        tapped = model(X)
    assert torch.equal(tapped, model(X)), "an eager model computes something else within tapped()"
    assert len(tt.taps(tt.tap(exported_plain, types=["Linear"]))) == 3, "a program that exists already"
    # Attention returns None for weights that nobody wants.
    kinds = [
        node.args[2]
        for node in tt._tap_nodes(exported(Transformer().eval(), torch.zeros(1, 3, dtype=torch.long)))
        if node.args[1] == "attention"
    ]
    assert [kind.split(";")[1] for kind in kinds] == ["T-"], "slots of attention"


def test_packages():
    """Each tap is in the code: one call of a module, one tap."""
    for name, expected in (("mlp", 5), ("twice", 2 * 6), ("tagger", 2 * 3)):
        code, notes = package(name)
        listing = json.loads(notes["torchtap"])
        per_call = sum(one["calls"] * (one["inputs"] + one["outputs"]) for one in listing["modules"])
        assert calls(code)[0] == expected == per_call
    taps, kernels = calls(package("resnet18")[0])
    with zipfile.ZipFile(FOLDER / "resnet18.plain.pt2") as file:
        plain = calls("".join(file.read(one).decode() for one in file.namelist() if one.endswith(".cpp")))
    assert plain[0] == 0 and taps > 50, "resnet18"
    loaded = torch._inductor.aoti_load_package(str(FOLDER / "mlp.pt2"))
    data = torch.load(FOLDER / "mlp.data.pt")
    assert torch.allclose(loaded(*data["inputs"]), data["outputs"][0], atol=1e-6), "Python runs a tapped package"


def test_errors():
    model = MLP().eval()
    refuses(TypeError, ["torch.nn.Module", "torchtap.export.tap"], lambda: exported(3))
    refuses(ValueError, ["'laier*'", "nearest"], lambda: exported(model, names=["laier*"]))
    refuses(ValueError, ["'Liner'", "'Linear'"], lambda: exported(model, types=["Liner"]))
    refuses(ValueError, ["select none"], lambda: exported(model, names=["a"], types=["GELU"]))
    refuses(ValueError, ["both False"], lambda: exported(model, outputs=False))
    refuses(ValueError, ["names", "list of patterns"], lambda: exported(model, names=[]))
    refuses(ValueError, ["no submodules"], lambda: exported(nn.Linear(16, 4)))
    scripted = nn.Sequential(torch.jit.script(nn.Linear(16, 4)))
    refuses(TypeError, ["'0'", "TorchScript"], lambda: exported(scripted))
    plain = torch.export.export(model, (X,), strict=False)
    refuses(ValueError, ["nothing is tapped", "tapped(model)"], lambda: tt.compile(plain, package_path="m.pt2"))
    refuses(ValueError, [".pt2", "'m.so'"], lambda: tt.compile(exported(model), package_path="m.so"))
    refuses(TypeError, ["torch.export.export", "MLP"], lambda: tt.compile(model))
    refuses(
        ValueError,
        ['key "torchtap"'],
        lambda: tt.compile(exported(model), inductor_configs={"aot_inductor.metadata": {"torchtap": "mine"}}),
    )
    recurrent = exported(Tagger().eval(), torch.randint(30, (2, 5)))
    with FakeTensorMode():  # of a device that need not be there
        for name, tensor in recurrent.state_dict.items():
            recurrent.state_dict[name] = torch.empty(tensor.shape, device="cuda")
    refuses(NotImplementedError, ["'lstm'", "LSTM", "CUDA", "`names`"], lambda: tt.compile(recurrent))
