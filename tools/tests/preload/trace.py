"""torchtap preload --trace: programs that know nothing of torchtap behave as without it, and their first forward pass is
what `torchtap preload --save` and PyTorch see of it."""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch import nn

torchtap, foreign, scripted = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])


def run(command, folder, status=None):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    if status is not None:
        assert done.returncode == status
    return done.returncode, done.stdout, done.stderr


def recording(folder):
    manifest = json.load(open(folder / "manifest.json"))
    return [
        (entry, torch.load(str(folder / entry["file"])) if entry["file"] else None) for entry in manifest["entries"]
    ]


def nodes_of(folder):
    return json.loads(run([torchtap, "trace", folder, "--json"], folder.parent, 0)[1])["nodes"]


def same_behaviour(name, bare, traced):
    for what, a, b in zip(("exit status", "output"), bare, traced):
        assert a == b


def test_cpp(folder):
    run(
        [torchtap, "preload", "--types", "Conv2d|Linear", "--save", folder / "modules", "--", foreign, "return"], folder
    )
    recorded = {entry["path"]: samples for entry, samples in recording(folder / "modules")}
    for ending in ("return", "exit", "backward", "fork"):
        bare = run([foreign, ending], folder)
        out = folder / f"pass-{ending}"
        traced = run([torchtap, "preload", "--trace", out, "--", foreign, ending], folder)
        same_behaviour(ending, bare, traced)
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
    kept = folder / "kept"
    _, _, err = run(
        [torchtap, "preload", "--trace", kept, "--keep", "conv*,nothing_1", "--", foreign, "return"], folder
    )
    assert "nothing_1" in err, "a name of nothing"
    out = folder / "convolutions"
    run([torchtap, "preload", "--trace", out, "--keep", "conv*", "--", foreign, "return"], folder)
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
    bare = run([scripted, "net.pt"], folder, 4)
    traced = run([torchtap, "preload", "--trace", folder / "script", "--", scripted, "net.pt"], folder, 4)
    same_behaviour("TorchScript", bare, traced)
    nodes = nodes_of(folder / "script")
    assert [node["type"] for node in nodes] == [
        "input",
        "conv2d",
        "batchnorm",
        "relu",
        "mean",
        "linear",
        "softmax",
        "output",
    ]
    x = torch.linspace(-1, 0, 2 * 3 * 32 * 32).view(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(recording(folder / "script")[-2][1], net(x)), "its output"
    assert nodes[1]["parameters"] == ["conv.weight", "conv.bias"], "names of parameters"
    # The file itself, traced by the command, has the same operations.
    torch.save(x, folder / "x.pt")
    run([torchtap, "trace", "net.pt", "--input", "x.pt", "--save", folder / "file"], folder, 0)
    run([torchtap, "compare", folder / "script", folder / "file", "--rtol", "0", "--atol", "0"], folder, 0)


def test_errors(folder):
    for arguments, words in (
        [["--trace", "a", "--save", "b"], "--trace"],
        [["--trace", "a", "--reduce", "mean"], "--trace"],
        [["--keep", "all", "--save", "b"], "--trace"],
        [[], "--save"],
    ):
        _, _, err = run([torchtap, "preload", *arguments, "--", foreign], folder, 2)
        assert words in err
    _, _, err = run([torchtap, "preload", "--trace", "none", "--", "true"], folder, 0)
    assert "nothing was recorded" in err, "a program without LibTorch"
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    _, _, err = run([torchtap, "preload", "--trace", "full", "--", foreign], folder, 2)
    assert "already exists" in err


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    check_cpp(folder)
    check_script(folder)
    check_errors(folder)
