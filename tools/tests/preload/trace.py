"""torchtap preload --trace: programs that know nothing of torchtap behave as without it, and their first forward pass is
what `torchtap preload --save` and PyTorch see of it."""

import pytest
import torch
from harness import document, given, preload, recording, run
from torch import nn

pytestmark = pytest.mark.usefixtures("inside")
foreign, scripted = given("foreign"), given("scripted")


def nodes_of(folder):
    return document("trace", folder)["nodes"]


@pytest.fixture(scope="module")
def recorded(folder):
    run("preload", "--types", "Conv2d|Linear", "--save", folder / "modules", "--", foreign, "return", status=None)
    return {entry["path"]: samples for entry, samples in recording(folder / "modules")}


@pytest.mark.parametrize("ending", ["return", "exit", "backward", "fork"])
def test_cpp(folder, recorded, ending):
    out = folder / f"pass-{ending}"
    preload(["--trace", out], foreign, ending)
    nodes = nodes_of(out)
    convolutions = [node for node in nodes if node["type"] == "conv2d"]
    assert len(convolutions) == 20
    assert all(node["passes"] == 1 for node in convolutions)
    assert nodes[0]["kind"] == "input" and nodes[1]["type"] == "conv2d"
    assert sum(node["type"] == "batchnorm" for node in nodes) == 20
    assert any("conv1.weight" in node["parameters"] for node in nodes)
    assert not any("backward" in node["type"] for node in nodes)
    if ending == "backward":
        assert [node["type"] for node in nodes[-2:]] == ["sum", "oneslike"]
    compared = 0
    for entry, tensor in recording(out)[:-1]:
        for path in entry["aliases"]:
            if path in recorded:
                compared += 1
                assert torch.equal(tensor, recorded[path][0])
    assert compared >= 20


def test_keep(folder):
    kept = ("--trace", "kept", "--keep", "conv*,nothing_1")
    assert "nothing_1" in run("preload", *kept, "--", foreign, "return", status=None).err
    out = folder / "convolutions"
    run("preload", "--trace", out, "--keep", "conv*", "--", foreign, "return", status=None)
    assert {node["type"] for node in nodes_of(out) if node["saved"]} == {"conv2d"}, "--keep"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor):
        return self.fc(torch.relu(self.norm(self.conv(x))).mean([2, 3])).softmax(1)


def test_script(folder):
    torch.manual_seed(0)
    net = Net().eval()
    torch.jit.script(net).save(folder / "net.pt")
    preload(["--trace", folder / "script"], scripted, "net.pt", status=4)
    nodes = nodes_of(folder / "script")
    assert [node["type"] for node in nodes] == "input conv2d batchnorm relu mean linear softmax output".split()
    x = torch.linspace(-1, 0, 2 * 3 * 32 * 32).view(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(recording(folder / "script")[-2][1], net(x)), "its output"
    assert nodes[1]["parameters"] == ["conv.weight", "conv.bias"], "names of parameters"
    # The file itself, traced by the command, has the same operations.
    torch.save(x, folder / "x.pt")
    run("trace", "net.pt", "--input", "x.pt", "--save", folder / "file")
    run("compare", folder / "script", folder / "file", "--rtol", "0", "--atol", "0")


def test_errors(folder):
    for arguments, words in (
        [["--trace", "a", "--save", "b"], "--trace"],
        [["--trace", "a", "--reduce", "mean"], "--trace"],
        [["--keep", "all", "--save", "b"], "--trace"],
        [[], "--save"],
    ):
        assert words in run("preload", *arguments, "--", foreign, status=2).err
    assert "nothing was recorded" in run("preload", "--trace", "none", "--", "true").err
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    assert "already exists" in run("preload", "--trace", "full", "--", foreign, status=2).err
