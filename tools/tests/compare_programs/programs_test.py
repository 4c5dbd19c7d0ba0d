"""Compares torchvision's ResNet-18 in Python with its port: hooked, under torchtap preload, and as TorchScript."""

import json
import pathlib
import sys

import harness
import pytest
from harness import SOURCE, TORCHTAP, given

PORT, PRINTS = given("port"), given("port_with_prints")
pytestmark = pytest.mark.usefixtures("inside")
FAULT = "layer2.0.bn1"

ORIGINAL = """
import sys, torch, torchvision
torch.manual_seed(0)
model = torchvision.models.resnet18(weights=None)
generator = torch.Generator().manual_seed(1)
for module in model.modules():
    if isinstance(module, torch.nn.BatchNorm2d):
        module.weight.data += 0.2 * torch.randn(module.weight.shape, generator=generator)
        module.bias.data += 0.2 * torch.randn(module.bias.shape, generator=generator)
images = torch.rand(2, 3, 64, 64, generator=generator)
model.eval()
if sys.argv[1:] == ["save"]:
    torch.save(dict(model.state_dict()), "weights.pt")
    torch.save(images, "images.pt")
    torch.jit.script(model).save("model.pt")
    model.layer2[0].bn1.eps = 1e-3
    torch.jit.script(model).save("faulty.pt")
else:
    with torch.no_grad():
        print(model(images).sum().item())
"""


def run(*command, status=0):
    return harness.call(*command, status=status, OMP_NUM_THREADS="1", PYTHONPATH=f"{SOURCE}/extras/python")


def compare(*arguments, status=0):
    return json.loads(run(TORCHTAP, "compare", *arguments, "--json", status=status).out)


PAIR = ("weights.pt", "images.pt")


@pytest.fixture(scope="module", autouse=True)
def prints(inside):
    """Fingerprints of the original, and of its port in each way."""
    pathlib.Path("original.py").write_text(ORIGINAL)
    run(sys.executable, "original.py", "save")
    plain = run(sys.executable, "original.py").out
    watched = run(sys.executable, "-m", "torchtap_compare", "--to", "python.prints", "original.py").out
    assert plain == watched, "the program printed something else"

    ports = {
        "hooked": (PRINTS, *PAIR, "--prints", "hooked.prints"),
        "script": (PRINTS, *PAIR, "--script", "model.pt", "--prints", "script.prints"),
        "unchanged": (TORCHTAP, "preload", "--fingerprint", "unchanged.prints", "--", PORT, *PAIR),
        "unchanged_script": (
            TORCHTAP,
            *("preload", "--fingerprint", "unchanged_script.prints", "--"),
            *(PORT, *PAIR, "--script", "model.pt"),
        ),
    }
    outputs = {name: run(*command).out for name, command in ports.items()}
    assert outputs["hooked"] == outputs["unchanged"] == run(PORT, *PAIR).out


@pytest.mark.parametrize("name", ["hooked", "script", "unchanged", "unchanged_script"])
def test_agrees(name):
    # Under preload no call of the model itself is seen, so that its output is not compared.
    unseen = name == "unchanged"
    answer = compare("python.prints", f"{name}.prints", status=3 if unseen else 0)
    assert answer["agree"] is (None if unseen else True) and answer["first"] is None
    # A module that is called twice begins what is taken for the next forward there.
    first_gap = ["what B's model returned, whose own call was not seen"] if unseen else []
    assert answer["gaps"][:1] == first_gap
    weights = [row for row in answer["weights"] if row["path"] and row["path_b"]]
    assert len(weights) == 122 and all(row["same_bits"] for row in weights)
    # Under preload the root, batch normalisation and Sequential are compiled into the program.
    least = {"unchanged": 30}.get(name, 60)
    assert len(answer["pairs"]) >= least
    assert answer["compared"] >= 2 * least and answer["largest_error"] < 1e-5


def test_ways_agree():
    assert compare("hooked.prints", "script.prints")["agree"]


def test_one_fault():
    run(PRINTS, *PAIR, "--prints", "faulty.prints", "--eps", f"{FAULT}=1e-3")
    first = compare("python.prints", "faulty.prints", status=1)["first"]
    assert (first["kind"], first["path"]) == ("module", FAULT)
    assert "eps" in first["cause"] and first["proved"] is None
    run(PRINTS, *PAIR, "--script", "faulty.pt", "--prints", "faulty_script.prints")
    first = compare("hooked.prints", "faulty_script.prints", status=1)["first"]
    assert (first["kind"], first["path"]) == ("module", FAULT)
    run(TORCHTAP, "preload", "--fingerprint", "unseen.prints", "--", PORT, *PAIR, "--eps", f"{FAULT}=1e-3")
    first = compare("python.prints", "unseen.prints", status=1)["first"]
    # The normalisation is not seen: what is made between two modules that are.
    assert (first["kind"], first["path"]) == ("between", "layer2.0")
    assert (first["after"], first["before"]) == ("layer2.0.conv1", "layer2.0.relu")


original = f"{sys.executable} original.py"


def test_both_programs_run():
    """With the second pass: proved, with the cause."""
    port_line = f"{PORT} weights.pt images.pt"
    done = run(TORCHTAP, "compare", "--run", port_line, "--run", original, status=3)
    assert "\nNot all was compared: what A's model returned, whose own call was not seen" in done.out
    assert "\nNothing that was" in done.out
    # What is not seen in the port is tried with what the modules before and after it gave and got.
    first = compare("--run", original, "--run", f"{port_line} --eps {FAULT}=1e-3", status=1)["first"]
    assert (first["kind"], first["path"], first["unseen"]) == ("between", "layer2.0", FAULT)
    assert first["proved"] and first["cause"] == "eps is 1e-3 in B, 1e-5 in A"
    changed = "original_eps.py"
    pathlib.Path(changed).write_text(ORIGINAL.replace("else:", "else:\n    model.layer2[0].bn1.eps = 1e-3"))
    text = run(TORCHTAP, "compare", "--run", original, "--run", f"{sys.executable} {changed}", status=1).out
    assert f"The first difference is {FAULT}, call 0" in text
    assert "eps is 1e-3 in B, 1e-5 in A" in text and "aten::native_batch_norm" in text


def test_four_threads():
    """Each with a forward of its own."""
    run(PRINTS, *PAIR, "--threads", "4", "--prints", "threads.prints")
    answer = compare("threads.prints", "threads.prints")
    assert answer["agree"] and len(answer["pairs"]) == 4 * len(compare("hooked.prints", "hooked.prints")["pairs"])


def test_pipes():
    """Either side may be slow."""
    pipe = f"{TORCHTAP} compare <({sys.executable} -m torchtap_compare --to - original.py 2>/dev/null) hooked.prints --json"
    assert json.loads(run("bash", "-c", pipe).out)["agree"]


def test_programs_that_fail_and_that_see_no_module():
    error = run(TORCHTAP, "compare", "--run", original, "--run", "false", status=2).err
    assert '"false" ended with status 1' in error
    error = run(TORCHTAP, "compare", "--run", original, "--run", "true", status=2).err
    assert "nothing to compare" in error
    error = run(TORCHTAP, "compare", "--run", original, "--run", "sh -c 'kill -9 $$'", status=2).err
    assert "torchtap:" in error


def test_a_decoder():
    """One module is called in a loop, and a forward is as long as the other side says."""
    pathlib.Path("twice.py").write_text(
        "import sys, torch, threading\ntorch.manual_seed(int(sys.argv[1]))\nx = torch.rand(2, 3)\ntorch.manual_seed(0)\n"
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = torch.nn.Linear(3, 3)\n"
        "    def forward(self, x, scale):\n        for i in range(4): x = self.fc(x * (scale if i == 2 else 1)).sigmoid()\n"
        "        return {'x': x, 'sum': float(x.sum())}\n"
        "net = Net()\nfor i in range(int(sys.argv[3])): net(x, float(sys.argv[2]))\n"
    )
    program = f"{sys.executable} twice.py"
    assert compare("--run", f"{program} 0 1 1", "--run", f"{program} 0 1 1")["agree"]
    first = compare("--run", f"{program} 0 1 1", "--run", f"{program} 0 2 1", status=1)["first"]
    assert (first["kind"], first["after"], first["after_call"], first["before_call"]) == ("between", "fc", 1, 2)
    answer = compare("--run", f"{program} 0 1 3", "--run", f"{program} 0 1 1", status=3)
    assert answer["gaps"] == ["2 later forwards of A"]
    compare("--run", f"{program} 0 1 3", "--run", f"{program} 0 1 3", "--forwards", "0")
    # A program that does not repeat itself proves nothing, whichever it is.
    noisy = f"{sys.executable} noisy.py"
    pathlib.Path("noisy.py").write_text(
        pathlib.Path("twice.py").read_text().replace("int(sys.argv[1])", "torch.seed() % 999983")
    )
    for lines in ((f"{program} 0 1 1", f"{noisy} 0 1 1"), (f"{noisy} 0 1 1", f"{program} 0 1 1")):
        error = run(TORCHTAP, "compare", "--run", lines[0], "--run", lines[1], status=2).err
        assert f'"{noisy} 0 1 1"' in error and "computes other values each time it runs" in error


RETURNS = """
import sys, threading, numpy, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
    def forward(self, x, what):
        y = self.fc(x)
        return eval(what)
torch.manual_seed(0)
Net()(torch.ones(1, 2), sys.argv[1])
"""


@pytest.mark.parametrize(
    "a, b, status",
    [
        ("'word ' * 300 + 'cat'", "'word ' * 300 + 'dog'", 1),
        ("numpy.array([1000], dtype=numpy.uint16)", "numpy.array([1001], dtype=numpy.uint16)", 1),
        ("(None, y)", "(y, None)", 1),
        ("('a', y)", "(y, 'a')", 1),
        ("{1: y}", "{'1': y}", 1),
        ("[]", "None", 1),
        ("{'a': y, 'b': []}", "{'a': y}", 1),
        ("10**30", "10**30 + 1", 1),
        ("threading.Lock()", "threading.Lock()", 3),
        ("{'y': y, 'n': [2, None, 'text']}", "{'n': (2, None, 'text'), 'y': y}", 0),
    ],
)
def test_what_a_call_returns_is_compared_in_full(a, b, status):
    pathlib.Path("returns.py").write_text(RETURNS)
    for file, what in (("a.prints", a), ("b.prints", b)):
        run(sys.executable, "-m", "torchtap_compare", "--to", file, "returns.py", what)
    answer = compare("a.prints", "b.prints", status=status)
    assert answer["agree"] == {0: True, 1: False, 3: None}[status] and bool(answer["gaps"]) == (status == 3)


def test_whole_numbers_are_not_acquitted_in_float64():
    pathlib.Path("returns.py").write_text(RETURNS)
    lines = [f"{sys.executable} returns.py 'torch.tensor([2**53 + {n}])'" for n in (0, 1)]
    text = run(TORCHTAP, "compare", "--run", lines[0], "--run", lines[1], status=1).out
    assert "The first difference is (root), call 0" in text and "amplified rounding" not in text
