"""Records unedited programs with torchtap_compare, and compares with what their own hooks see and with fingerprints by
views/compare/FORMAT.md. libtorchtap_compare.so is compared as well if TORCHTAP_COMPARE_LIBRARY names it."""

import array
import collections
import copy
import dataclasses
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading

import numpy
import pytest
import torch
import torchvision
from harness import SOURCE
from torch import nn

sys.path[:0] = [str(SOURCE / "extras/python"), str(SOURCE / "tests/formats")]
import torchtap_compare
from reader import digest, read_frames
from torchtap_compare import causes, frames
from torchtap_compare.fingerprint import LAYOUT, LIBRARY, elements, fingerprint
from torchtap_compare.recording import Recorder
from torchtap_compare.trial import Trial, where

torch.set_num_threads(1)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE / "extras/python"), "OMP_NUM_THREADS": "1"}
EVENTS = (frames.INPUT, frames.OUTPUT)


def run(folder, *arguments, status=0, record=(), **more):
    recorder = ["-m", "torchtap_compare", *map(str, record)] if record else []
    command = [sys.executable, *recorder, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, env={**ENVIRONMENT, **more})
    assert done.returncode == status, (command, done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    return done


def script(folder, name, text):
    (folder / name).write_text("import torch, sys\nfrom torch import nn\n" + text)
    return name


def record(function, **how):
    """The frames of what a function calls."""
    file = io.BytesIO()
    with Recorder(file, **how) as recorder:
        function()
    assert recorder.error is None, recorder.error
    return list(frames.read(io.BytesIO(file.getvalue())))


def bits(tensor):
    """The digest by the standard library."""
    return digest(frames.DTYPES[tensor.dtype], tensor.shape, elements(tensor).view(torch.uint8).numpy().tobytes())


def kept(frame):
    assert frame.result == "fingerprint" and len(frame.data) == 800, (frame.path, frame.text)
    return struct.unpack_from("<QQ", frame.data, 72)


def events(found):
    return [(f.kind, f.path, f.sample, f.call, f.slot) for f in found if f.kind in EVENTS]


def numbers_agree(a, b, values):
    """Sums and sketches are rounded, all else is the same."""
    scale = numpy.sqrt(b["sum_sq"]) + 1e-300
    for name in LAYOUT.names:
        if name in ("sum", "sum_sq", "sketch"):
            allowed = 1e-6 * scale * {"sum": numpy.sqrt(values + 1), "sum_sq": scale, "sketch": 1}[name]
            assert (numpy.abs(a[name] - b[name]) <= allowed).all(), (name, a[name], b[name])
        else:
            assert a[name].tobytes() == b[name].tobytes(), (name, a[name], b[name])


def test_golden():
    """Fingerprints that C++ made."""
    found = list(frames.read(SOURCE / "tests/formats/1/fingerprints.prints"))
    for tensor, of in zip(found[::2], found[1::2]):
        expected = numpy.frombuffer(of.data, LAYOUT)[0]
        for function in (None, LIBRARY):
            made = fingerprint(tensor.tensor(), function)
            made["places"] *= expected["places"] != 0  # which older versions left out
            numbers_agree(made, expected, tensor.tensor().numel())


def test_fingerprint():
    torch.manual_seed(1)
    dtypes = [dtype for dtype in frames.DTYPES if not str(dtype)[6:].startswith(("q", "complex32", "float8", "uint16"))]
    dtypes = [dtype for dtype in dtypes if dtype not in [getattr(torch, f"uint{n}", None) for n in (16, 32, 64)]]
    assert len(dtypes) == 12
    for n, dtype in enumerate(dtypes * 8):
        shape = [int(size) for size in torch.randint(1, [9, 40, 300][n % 3], (n % 4,))]
        tensor = (torch.randn(shape) * 60).to(dtype)
        if tensor.is_floating_point() and tensor.numel() > 3:
            tensor.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -0.0], dtype=dtype)
        print_of = fingerprint(tensor, None)
        assert tuple(print_of["digest"].tolist()) == bits(tensor)
        if LIBRARY:
            numbers_agree(fingerprint(tensor, LIBRARY), print_of, tensor.numel())
        wide = elements(tensor).double().numpy()
        finite = wide[numpy.isfinite(wide)]
        assert print_of["nans"] == numpy.isnan(wide).sum() and print_of["zeros"] == (wide == 0).sum()
        assert print_of["infinities"] == numpy.isinf(wide).sum()
        if len(finite):
            assert print_of["least"] == finite.min() and print_of["greatest"] == finite.max()
            assert abs(print_of["sum_sq"] / max((finite**2).sum(), 1e-300) - 1) < 1e-5 or not finite.any()

    tensor = torch.randn(4, 3, 20, 30)
    of = fingerprint(tensor, None).tobytes()
    for same in (
        tensor.to(memory_format=torch.channels_last),
        tensor.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
        torch.stack([tensor, tensor], -1)[..., 1],
        tensor.clone().requires_grad_(),
    ):
        assert fingerprint(same, None).tobytes() == of
    one = torch.randn(1, 3, 1).expand(5, 3, 7)
    assert fingerprint(one, None).tobytes() == fingerprint(one.contiguous(), None).tobytes()
    other = tensor.clone()
    other[1, 2, 3, 4] += 1e-6
    a, b = fingerprint(tensor, None), fingerprint(other, None)
    assert (a["digest"] != b["digest"]).all()
    error = numpy.linalg.norm(a["sketch"] - b["sketch"])
    assert abs(error / (other - tensor).norm().item() - 1) < 0.2  # the sums are rounded
    noise = tensor + 1e-3 * torch.randn_like(tensor)
    error = numpy.linalg.norm(fingerprint(noise, None)["sketch"] - a["sketch"]) / (noise - tensor).norm().item()
    assert 0.6 < error < 1.5
    turned = fingerprint(tensor.flip(2), None)
    assert [turned[k] for k in ("words", "exclusive", "either")] == [a[k] for k in ("words", "exclusive", "either")]
    assert (turned["digest"] != a["digest"]).all()
    half = fingerprint(tensor.bfloat16().float(), None)
    assert half["either"] & 0xFFFF == 0 and a["either"] & 0xFFFF == 0xFFFF
    for bad, why in (
        (torch.ones(2, 2).to_sparse(), "sparse"),
        (torch.ones([1] * 9), "9"),
        (torch.ones(2, device="meta"), "meta"),
    ):
        with pytest.raises(ValueError, match=why):
            fingerprint(bad)
    quantized = torch.quantize_per_tensor(tensor, 0.1, 3, torch.quint8)
    a, b = fingerprint(quantized, None), fingerprint(quantized.dequantize(), None)
    assert a["dtype"] == 13 and a["sketch"].tolist() == b["sketch"].tolist() and a["digest"][0] != b["digest"][0]


MODEL = """
import os, hashlib
sys.path.append(os.path.dirname(__file__))
import beside
torch.manual_seed(0)
MARK = 1
assert __name__ == "__main__" and sys.modules["__main__"].MARK == 1
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 5))
seen = []
model[1].register_forward_hook(lambda m, i, o: seen.append(o.sum().item()))
model[5].register_forward_hook(lambda m, i, o: o * 2)
nn.modules.module.register_module_forward_pre_hook(lambda m, i: seen.append(type(m).__name__))
loss = nn.CrossEntropyLoss()
for step in range(3):
    x = torch.rand(2, 3, 8, 8)
    if step == 0:
        torch.save(x, "x.pt")
    y = model(x)
    if step == 0:
        torch.save(y, "y.pt")
    loss(y, target=torch.tensor([1, 2])).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
text = [repr(y.tolist()), repr([p.sum().item() for p in model.parameters()]), repr(seen), repr(torch.rand(2))]
print(sys.argv, os.path.abspath(__file__), beside.WHAT, hashlib.sha256("".join(text).encode()).hexdigest(), flush=True)
os.write(1, b"raw\\n")
sys.exit(int(sys.argv[-1]))
"""


def test_script(folder):
    (folder / "in").mkdir()
    (folder / "in/beside.py").write_text("WHAT = 'a module beside the script'\n")
    name = script(folder, "in/model.py", MODEL)
    own = ("--to", "x y", "--values", "a:1", "b:2", 3)
    plain = run(folder, name, *own, status=3)
    done = run(folder, name, *own, status=3, record=["--to", "a.prints"])
    assert done.stdout == plain.stdout and done.stderr == plain.stderr
    found = list(frames.read(folder / "a.prints"))
    said = dict(line.split("\t") for line in found[0].text.splitlines())
    assert found[0].kind == frames.HEADER and said["language"] == "python" and said["threads"] == "1"
    assert said["command"] == "python3 in/model.py --to 'x y' --values a:1 b:2 3" and said["torch"] == torch.__version__
    assert [f.sequence for f in found] == list(range(len(found)))
    assert len(read_frames(folder / "a.prints")) == len(found)  # by views/compare/FORMAT.md
    weights = [(f.kind, f.path, f.type) for f in found if f.kind in (frames.PARAMETER, frames.BUFFER)]
    assert weights[:3] == [(6, "0.weight", "Conv2d"), (6, "0.bias", "Conv2d"), (6, "1.weight", "BatchNorm2d")]
    assert len(weights) == 9 and weights[6] == (7, "1.num_batches_tracked", "BatchNorm2d")
    chain = [step for k in range(6) for step in ((1, str(k), 0, 0, 0), (2, str(k), 0, 0, 0))]
    of_loss = [(1, "CrossEntropyLoss", 0, 0, 0), (1, "CrossEntropyLoss", 0, 0, 1), (2, "CrossEntropyLoss", 0, 0, 0)]
    assert events(found) == [(1, "", 0, 0, 0), *chain, (2, "", 0, 0, 0), *of_loss]
    by = {(f.kind, f.path, f.slot): f for f in found}
    x, y = torch.load(folder / "x.pt"), torch.load(folder / "y.pt").detach()
    assert kept(by[1, "", 0]) == bits(x) and kept(by[2, "", 0]) == bits(y)
    assert kept(by[2, "5", 0]) == bits(y)  # as the script's hook left it
    assert kept(by[1, "CrossEntropyLoss", 1]) == bits(torch.tensor([1, 2]))
    assert kept(by[2, "1", 0]) != kept(by[2, "2", 0]), "an output was read after ReLU changed it in place"

    module = run(folder, "-m", "in.model", 0, record=["--forwards", 2, "--skip", 1, "--to", "b.prints"])
    assert b"model.py', '0']" in module.stdout and b"raw" in module.stdout
    assert module.stdout.split()[-2] == plain.stdout.split()[-2]
    again = list(frames.read(folder / "b.prints"))
    assert [f.sample for f in again if f.path == "3" and f.kind == 2] == [0, 1]
    assert kept(next(f for f in again if f.path == "0.weight")) != kept(by[6, "0.weight", 0]), (
        "weights as in that forward"
    )

    piped = run(folder, name, 0, record=["--to", "-", "--forwards", "0"])
    assert piped.stdout[:4] == b"TTF1" and b"raw" in piped.stderr
    every = list(frames.read(io.BytesIO(piped.stdout)))
    assert collections.Counter(f.path for f in every if f.kind == 2)["CrossEntropyLoss"] == 3

    values = run(folder, name, 0, record=["--to", "c.prints", "--values", ":0", "5:0", "--values", "nope:0"])
    assert values.stdout.split()[-2] == plain.stdout.split()[-2]
    whole = list(frames.read(folder / "c.prints"))
    modules = [f for f in whole if f.kind in EVENTS]
    assert [(f.kind, f.path, f.result) for f in modules] == [(1, "", ""), (1, "5", ""), (2, "5", ""), (2, "", "")]
    assert torch.equal(modules[0].tensor(), x) and torch.equal(modules[-1].tensor(), y)
    linear = [f for f in whole if f.path == "5" and f.kind in (frames.ARGUMENT, frames.RESULT)]
    product = next(f for f in linear if f.kind == frames.RESULT and f.type in ("aten::addmm", "aten::mm"))
    assert kept(product) == bits(y / 2), "an operation is seen before the hook that doubles what it gives"
    assert [f.call for f in linear] == sorted(f.call for f in linear) and linear[0].kind == frames.ARGUMENT
    of_root = collections.Counter(f.type for f in whole if f.path == "" and f.kind == frames.RESULT)
    assert of_root["aten::convolution"] == of_root["aten::relu_"] == 1 >= of_root["aten::detach"], (
        of_root
    )  # none is ours

    # The other one has another eps; what is tried runs inside of the script, and does not change it.
    changed = MODEL.replace("BatchNorm2d(4)", "BatchNorm2d(4, eps=1e-3)")
    script(folder, "in/port.py", changed)
    run(folder, "in/port.py", 0, record=["--to", "b.values", "--values", "0:0", "1:0", "4:0", "5:0"])
    request = {"others": "b.values", "suspects": [], "input": None}
    for path in ("0", "1", "4", "5"):
        output = kept(by[2, path, 0])
        said = {"path": path, "sample": 0, "other_path": path, "other_sample": 0}
        request["suspects"].append({**said, "digest": "".join(f"{half:016x}" for half in output)})
    request["suspects"].append({"path": "9", "sample": 0, "other_path": "9", "other_sample": 0})
    (folder / "request.json").write_text(json.dumps(request))
    tried = run(folder, name, 7, status=7, record=["--try", "request.json", "--answer", "answer.json"])
    assert tried.stdout.split()[-2] == plain.stdout.split()[-2], "the trial changed the program"
    conv, norm, dropout, linear, missing = json.loads((folder / "answer.json").read_text())["suspects"]
    assert [s["repeatable"] for s in (conv, norm, dropout, linear, missing)] == [True] * 4 + [None]
    assert conv["proved"] is False and conv["other_error"] < 1e-6 and conv["cause"] is None
    assert norm["proved"] is True and norm["other_error"] > 1e-4 > 1e-6 > norm["own_error"]
    assert norm["cause"] == "eps is 1e-3 in B, 1e-5 in A" and norm["cause_error"] < 1e-6
    assert dropout["proved"] is False  # the same elements are dropped in float64
    assert linear["proved"] is False and linear["own_error"] > 0.4  # a hook doubles what both modules give
    assert missing["proved"] is None and "did not make" in missing["reason"]


def test_quantized(folder):
    """What a trial returns is known again if it is quantized, though it is compared in floating point."""
    text = "class Q(nn.Module):\n    def forward(self, x):\n        return torch.quantize_per_tensor(x, {}, 0, torch.qint8)\n"
    for name, scale in (("a.py", 0.05), ("b.py", 0.1)):
        script(
            folder,
            name,
            "torch.manual_seed(1)\n" + text.format(scale) + "nn.Sequential(nn.Linear(8, 8), Q())(torch.rand(4, 8))\n",
        )
    run(folder, "a.py", record=["--to", "a.prints"])
    output = next(kept(f) for f in frames.read(folder / "a.prints") if f.kind == frames.OUTPUT and f.path == "1")
    run(folder, "b.py", record=["--to", "b.values", "--values", "1:0"])
    said = {"path": "1", "sample": 0, "other_path": "1", "other_sample": 0}
    said["digest"] = "".join(f"{half:016x}" for half in output)
    (folder / "request.json").write_text(json.dumps({"others": "b.values", "suspects": [said], "input": None}))
    run(folder, "a.py", record=["--try", "request.json", "--answer", "answer.json"])
    (tried,) = json.loads((folder / "answer.json").read_text())["suspects"]
    assert tried["repeatable"] is True and tried["other_error"] > 0.01


def test_ends(folder):
    """Programs that end in other ways."""
    name = script(folder, "killed.py", "import os, signal\nm = nn.Sequential(*[nn.Linear(4, 4) for _ in range(9)])\n"
                  "for _ in range(20): m(torch.rand(2, 4))\nos.kill(os.getpid(), signal.SIGKILL)\n")  # fmt: skip
    run(folder, name, status=-signal.SIGKILL, record=["--to", "killed.prints", "--forwards", "0"])
    found, size = list(frames.read(folder / "killed.prints")), (folder / "killed.prints").stat().st_size
    assert len(found) == 1 + 18 + 20 * 20 and size >= 20 * 20 * 1088  # all of its forwards
    name = script(
        folder, "raises.py", "m = nn.Linear(3, 2)\nprint('before')\nm(torch.rand(1, 3))\nm(torch.rand(1, 4))\n"
    )
    done = run(folder, name, status=1, record=["--to", "raises.prints", "--forwards", "0"])
    assert done.stdout == b"before\n" and b"mat1 and mat2" in done.stderr
    found = list(frames.read(folder / "raises.prints"))
    assert events(found) == [(kind, "", n, 0, 0) for n in (0, 1) for kind in EVENTS]
    assert [f.result for f in found[-2:]] == ["fingerprint", "exception"]
    name = script(folder, "forks.py", "import os\nm = nn.Linear(3, 2)\nm(torch.rand(1, 3))\nif os.fork() == 0:\n"
                  "    m(torch.rand(2, 3))\n    sys.exit(0)\nos.wait()\nm(torch.rand(3, 3))\n")  # fmt: skip
    run(folder, name, record=["--to", "forks.prints", "--forwards", "0"])
    found = list(frames.read(folder / "forks.prints"))
    sizes = [numpy.frombuffer(f.data, LAYOUT)[0]["sizes"][0] for f in found if f.kind == 1]
    assert sizes == [1, 3] and [f.sequence for f in found] == list(range(len(found)))
    closes = script(folder, "closes.py", "import os\nnn.Linear(3, 2)(torch.rand(1, 3))\nos.closerange(3, 100)\n")
    run(folder, closes, record=["--to", "closes.prints"])  # as daemons do
    assert len(list(frames.read(folder / "closes.prints"))) == 5
    for how in ("os._exit(0)", "os.abort()", "os.kill(os.getpid(), 15)"):
        name = script(folder, "ends.py", f"import os\nnn.Linear(3, 2)(torch.rand(1, 3))\n{how}\n")
        status = {"0": 0, "a": -signal.SIGABRT, "k": -signal.SIGTERM}[how[3] if how[3] != "_" else "0"]
        run(folder, name, status=status, record=["--to", "ends.prints"])
        assert len(list(frames.read(folder / "ends.prints"))) == 5
    done = run(folder, "forks.py", record=["--to", "/dev/full"])
    assert b"No space left" in done.stderr and b"not all was recorded" in done.stderr
    traced = (
        "m = nn.Sequential(nn.Sequential(nn.Linear(3, 2)), nn.ReLU())\nimport torch.fx\ntorch.fx.symbolic_trace(m)\n"
    )
    run(folder, script(folder, "fx.py", traced + "m(torch.rand(1, 3))\n"), record=["--to", "fx.prints"])
    found = list(frames.read(folder / "fx.prints"))
    assert [f.path for f in found if f.kind == 6] == ["0.0.weight", "0.0.bias"] and len(events(found)) == 8
    late = "import threading, time, atexit\nm = nn.Linear(3, 2)\natexit.register(lambda: m(torch.rand(5, 3)))\n"
    late += "threading.Thread(target=lambda: (time.sleep(0.5), m(torch.rand(4, 3)))).start()\nimport __main__\nassert __main__.m is m\n"
    run(folder, script(folder, "late.py", late), record=["--to", "late.prints"])
    found = [f for f in frames.read(folder / "late.prints") if f.kind == 1]
    assert [(numpy.frombuffer(f.data, LAYOUT)[0]["sizes"][0], f.thread) for f in found] == [(4, 0), (5, 1)]
    (folder / "threads.py").write_text(
        "import os, sys\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "os.environ['OMP_NUM_THREADS'] = '2'\nimport torch\nprint(torch.get_num_threads())\n"
    )
    plain = subprocess.run([sys.executable, "threads.py"], cwd=folder, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-m", "torchtap_compare", "--to", "t.prints", "threads.py"],
        cwd=folder,
        capture_output=True,
        env={k: v for k, v in ENVIRONMENT.items() if k != "OMP_NUM_THREADS"},
    )
    assert done.stdout == b"2\n" == plain.stdout
    (folder / "none.py").write_text("print('no PyTorch')\n")
    done = run(folder, "none.py", record=["--to", "none.prints"])
    assert done.stdout == b"no PyTorch\n" and b"did not import PyTorch" in done.stderr
    for wrong, why in (
        (["none.py"], b"--to FILE records"),
        (["--to", "x"], b"which program"),
        (["--to", "x", "nope.py"], b"no script 'nope.py'"),
        (["--to", "/nope/x", "none.py"], b"cannot write /nope/x: No such file"),
        (["--to", "none.py", "none.py"], b"none.py is there and holds no fingerprints"),
        (["--to", "x", "--values", "conv", "none.py"], b"a call is PATH:SAMPLE"),
        (["--try", "r.json", "none.py"], b"goes with --answer"),
        (["--to", "x", "--forwards", "-1", "none.py"], b"numbers from 0"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "torchtap_compare", *wrong], cwd=folder, env=ENVIRONMENT, capture_output=True
        )
        assert done.returncode in (1, 2) and why in done.stderr


def test_resnet():
    torch.manual_seed(2)
    model, images = torchvision.models.resnet18(weights=None).eval(), torch.rand(2, 3, 64, 64)
    expected = []

    def hook(path):
        def keep(module, inputs, output):
            expected.append(
                (
                    path,
                    type(module).__name__,
                    bits(inputs[0]) if "inplace" not in repr(module)[:30] else None,
                    bits(output),
                )
            )

        return keep

    plain = model(images)
    handles = [module.register_forward_hook(hook(path)) for path, module in model.named_modules()]
    results = []
    found = record(lambda: results.append(model(images)))
    assert torch.equal(results[0], plain)
    for handle in handles:
        handle.remove()
    outputs = [(f.path, f.type, kept(f)) for f in found if f.kind == frames.OUTPUT]
    assert outputs == [(path, what, after) for path, what, _, after in expected] and len(outputs) == 69 + 7
    weights = {f.path: kept(f) for f in found if f.kind in (frames.PARAMETER, frames.BUFFER)}
    assert weights == {name: bits(tensor) for name, tensor in model.state_dict().items()} and len(weights) == 122
    before = {f.path: kept(f) for f in found if f.kind == frames.INPUT and f.sample == 0}
    assert before["conv1"] == before[""] == bits(images) and before["fc"] != before[""]
    inputs = {path: bits_in for path, what, bits_in, _ in expected if what in ("Conv2d", "Linear", "AdaptiveAvgPool2d")}
    assert {path: before[path] for path in inputs} == inputs
    assert (
        "__call__" not in vars(model)
        and nn.Module.__call__ is nn.Module._call_impl
        or hasattr(nn.Module, "_wrapped_call_impl")
    )
    assert len(found[-1].data) == 800 and all(f.type for f in found[1:])


class Odd(nn.Module):
    """Calls that are not one after the other with one tensor."""

    def __init__(self):
        super().__init__()
        self.shared, self.again = nn.Linear(3, 3), None
        self.alias, self.hidden = self.shared, [nn.Linear(3, 3), nn.Linear(3, 3)]
        self.fails = nn.Linear(4, 4)

    def forward(self, x, *, scale, pair):
        x = self.shared(input=self.alias(self.shared(x)))
        try:
            self.fails(x)
        except RuntimeError:
            pass
        for one in (*self.hidden, nn.Softmax(dim=1), nn.Softmax(dim=1)):
            x = one(x)
        return {"x": x * scale, "more": (pair["a"], [pair["b"]], None, "text")}


def test_calls():
    torch.manual_seed(3)
    odd, criterion, other = Odd(), nn.MSELoss(), nn.Sequential(nn.Linear(3, 1))

    def forward():
        result = odd(torch.rand(2, 3), scale=torch.tensor(2.0), pair={"b": torch.ones(1), "a": torch.zeros(2)})
        criterion(result["x"], torch.zeros(2, 3))
        nn.ReLU()(other(result["x"]))
        other[0](result["x"])

    found = record(forward, forwards=0)
    names = ["shared", "shared", "shared", "fails", "Linear", "Linear_2", "Softmax", "Softmax"]
    assert [f.path for f in found if f.kind == 1 and f.sample == f.slot == 0] == [
        *["", "shared", "fails", "Linear", "Linear_2", "Softmax", "MSELoss", "Sequential", "Sequential.0", "ReLU"]
    ]
    inside = [f for f in found if f.kind == 1 and f.path in names]
    assert [f.path for f in inside] == names and [f.call for f in inside] == [0, 1, 2, 0, 0, 0, 0, 1]
    assert [f.slot for f in found if f.kind == 1 and f.path == ""] == [0, 1, 2, 3]  # x, scale, b, a
    assert kept([f for f in found if f.kind == 1 and f.path == ""][2]) == bits(torch.ones(1))
    results = [(f.slot, f.result, f.text) for f in found if f.kind == 2 and f.path == ""]
    assert results == [
        (0, "fingerprint", "x"),
        (1, "fingerprint", "more[0]"),
        (2, "fingerprint", "more[1][0]"),
        (3, "value", "more[2]\tNone"),
        (4, "value", "more[3]\t'text'"),
    ]
    threw = [f for f in found if f.kind == 2 and f.path == "fails"]
    assert len(threw) == 1 and threw[0].result == "exception"
    assert threw[0].text.startswith("\tRuntimeError: ") and "mat1 and mat2 s" in threw[0].text
    assert [(f.sample, f.call) for f in found if f.path == "Sequential.0" and f.kind == 1] == [(0, 0), (1, 0)]
    weights = [f.path for f in found if f.kind == 6]
    assert weights == [
        f"{path}.{what}"
        for path in ("shared", "fails", "Linear", "Linear_2", "Sequential.0")
        for what in ("weight", "bias")
    ]
    assert events(record(lambda: (forward(), forward()), forwards=1, skip=1))[:4] == events(found)[:4]
    assert len(events(record(lambda: [forward() for _ in range(3)], forwards=2))) == 2 * len(events(found))

    part = record(lambda: (odd.shared(torch.rand(1, 3)), forward()))  # what contains the first root is the main one
    assert [f.path for f in part if f.kind == 1][:3] == ["", "", ""] and {f.path for f in part} >= {
        "shared",
        "fails.weight",
    }
    eye = torch.eye(3)
    for of, expected in ((eye.to_sparse(), [torch.tensor([[0, 1, 2]] * 2)]),
                         (eye.to_sparse_csr(), [torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 2])])):  # fmt: skip
        expected = [bits(part) for part in (*expected, torch.ones(3))]  # a sparse tensor is its parts
        found = record(lambda of=of: nn.Identity()(of))[1:]
        assert [kept(f) for f in found[:-1]] == expected * 2 and found[-1].text.endswith(" of shape [3, 3]")
    calls = nn.Module.__call__
    first, second = Recorder(io.BytesIO()), Recorder(io.BytesIO())
    first.__enter__(), second.__enter__()
    other(torch.rand(1, 3))
    first.close(), second.close()
    other(torch.rand(1, 3))
    assert first.writer.sequence == second.writer.sequence == 7
    nn.Module.__call__ = calls

    file = io.BytesIO()
    with pytest.raises(TypeError), torchtap_compare.fingerprints(file):
        odd(1)
    cut = [f.path for f in frames.read(io.BytesIO(file.getvalue()))]
    assert cut[-2:] == ["fails.bias", ""] and nn.Module.__call__ is calls
    data = io.BytesIO(record_bytes(lambda: other(torch.rand(1, 3)))).getvalue()
    for end in range(1, len(data), 97):
        try:
            assert list(frames.read(io.BytesIO(data[:end]))) and end % 64 == 0
        except EOFError as error:
            assert "whole frames" in str(error)
    for at, why in ((4, "newer torchtap"), (0, "no frame at byte 0"), (-700, "checksum")):
        broken = bytearray(data)
        broken[at] ^= 3
        with pytest.raises(ValueError, match=why):
            list(frames.read(io.BytesIO(broken)))


class Returns(nn.Module):
    """Returns what it is told to."""

    def forward(self, x, function, **more):
        return function(x)


@dataclasses.dataclass
class Named:
    logits: torch.Tensor
    loss: float = 0.5


class Plain:
    def __init__(self, tensor):
        self.tensor, self.number = tensor, 3


class Slots:
    __slots__ = ("tensor",)

    def __init__(self, tensor):
        self.tensor = tensor


class Bad(dict):
    def items(self):
        raise RuntimeError("do not look")


def test_inputs_are_those_that_the_modules_own_hooks_chose():
    def shift(module, given):
        return (given[0] + 1,)

    def leave(module, given):
        assert inner[1].weight is not None

    def fail(module, given):
        raise ValueError("not today")

    inner = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    inner[0].register_forward_pre_hook(shift)
    inner[0].register_forward_pre_hook(shift)
    inner[0].register_forward_hook(lambda module, given, returned: returned * 2)
    inner[1].register_forward_pre_hook(leave)
    nn.utils.weight_norm(inner[1])
    x = torch.rand(3, 2)
    found = record(lambda: inner(x))
    by = {(f.kind, f.path): kept(f) for f in found if f.kind in EVENTS}
    between = inner[0](x)
    assert by[frames.INPUT, "0"] == bits(x + 1 + 1)
    assert by[frames.OUTPUT, "0"] == by[frames.INPUT, "1"] == bits(between)
    assert [len(module._forward_pre_hooks) for module in inner] == [2, 2]
    inner[1].register_forward_pre_hook(fail)

    def forward():
        try:
            inner(x)
        except ValueError:
            pass

    found = [f for f in record(forward) if f.path == "1"]
    assert [f.kind for f in found if f.kind in EVENTS] == [frames.INPUT, frames.OUTPUT]  # the caller's, and the error
    assert kept(found[-2]) == bits(between) and "not today" in found[-1].text
    assert [len(module._forward_pre_hooks) for module in inner] == [2, 3]


def test_results():
    """All that a call returns is written, with its names."""
    x = torch.rand(3)
    pair = collections.namedtuple("Pair", "a b")
    for function, expected in (
        (lambda t: None, [("value", "\tNone", None)]),
        (lambda t: (t, None, 2, True, 1.5), [("fingerprint", "[0]", x), ("value", "[1]\tNone", None),
            *[("fingerprint", f"[{n}]", torch.tensor(v, dtype=d))
              for n, v, d in ((2, 2, torch.int64), (3, True, torch.bool), (4, 1.5, torch.float64))]]),
        (lambda t: {"b": t, "a": [t + 1, {"c": "so"}]}, [("fingerprint", "b", x), ("fingerprint", "a[0]", x + 1), ("value", "a[1].c\t'so'", None)]),
        (lambda t: (None, [], {}), [("value", "[0]\tNone", None), ("value", "[1]\t[]", None), ("value", "[2]\t{}", None)]),
        (lambda t: {1: t, "[1]": t}, [("fingerprint", "<1>", x), ("fingerprint", "<'[1]'>", x)]),
        (lambda t: {"beta", "alpha", 3}, [("value", "\tset('alpha', 'beta', 3)", None)]),
        (lambda t: (b"12", range(3)), [("value", "[0]\tb'12'", None), ("value", "[1]\trange(0, 3)", None)]),
        (lambda t: [1, 2] * 40, [("fingerprint", "", torch.tensor([1, 2] * 40))]),
        (lambda t: numpy.array([[1000]], dtype=numpy.uint16), [("value", "\tarray of uint16, shape (1, 1): [[1000]]", None)]),
        (lambda t: numpy.array([1.5], dtype=numpy.longdouble), [("value", "\tarray of float128, shape (1,): ['1.5']", None)]),
        (lambda t: numpy.array(["so", t], dtype=object), [("fingerprint", "[1]", x), ("value", "\tarray of object, shape (2,)", None), ("value", "[0]\t'so'", None)]),
        (lambda t: array.array("i", [1]), [("fingerprint", "an object of array is not looked into", None)]),
        (lambda t: (threading.Lock(), Slots(t)), [("fingerprint", "[1].tensor", x), ("fingerprint", "[0]\tan object of lock is not looked into", None)]),
        (lambda t: Bad(), [("fingerprint", "RuntimeError: do not look", None)]),
        (lambda t: pair(t, t * 2), [("fingerprint", "a", x), ("fingerprint", "b", x * 2)]),
        (lambda t: Named(t), [("fingerprint", "logits", x), ("fingerprint", "loss", torch.tensor(0.5, dtype=torch.float64))]),
        (lambda t: t.numpy()[::-1], [("fingerprint", "", x.flip(0))]),
        (lambda t: {t * 2}, [("fingerprint", "[0]", x * 2)]),
        (lambda t: Plain(t), [("fingerprint", "tensor", x), ("fingerprint", "number", torch.tensor(3))]),
        (lambda t: (u for u in [t]), [("fingerprint", "an object of generator is not looked into", None)]),
        (lambda t: 1 << 70, [("value", f"\t{1 << 70}", None)]),
    ):  # fmt: skip
        found = [f for f in record(lambda f=function: Returns()(x, f)) if f.kind == frames.OUTPUT]
        assert [(f.result, f.text) for f in found] == [e[:2] for e in expected]
        for f, (_, _, tensor) in zip(found, expected):
            assert (f.data is None) if tensor is None else kept_bits(f) == bits(tensor)
        assert [f.slot for f in found] == list(range(len(found)))
    # A text that is longer than a frame holds ends with its digest.
    texts = set()
    for value in ("word " * 300 + "cat", "word " * 300 + "dog", 10**30 + 1, 10**5000, 10**5000 + 1):
        for function in (lambda t, v=value: v, lambda t, v=value: {v: 1}):
            (found,) = [f for f in record(lambda f=function: Returns()(x, f)) if f.kind == frames.OUTPUT]
            texts.add(found.text)
    assert len(texts) == 10
    # What the recorder does not expect is in the file, and no error of the program's.
    file = io.BytesIO()
    with pytest.warns(RuntimeWarning, match="not all was recorded"), torchtap_compare.fingerprints(file) as recorder:
        recorder.before = lambda *_: 1 // 0
        assert nn.ReLU()(x).equal(x)
    assert (
        list(frames.read(io.BytesIO(file.getvalue())))[-1].text
        == "not_recorded\tZeroDivisionError: integer division or modulo by zero\n"
    )
    # Keyword arguments are in the module's order, and forwards that are not written are counted.
    bilinear, y = nn.Bilinear(3, 2, 1), torch.rand(2)
    given = [f for f in record(lambda: bilinear(input2=y, input1=x)) if f.kind == frames.INPUT]
    assert [kept(f) for f in given] == [bits(x), bits(y)]
    file = io.BytesIO()
    with Recorder(file, forwards=2):
        [nn.ReLU()(x) for _ in range(3)], [bilinear(x, y) for _ in range(5)]
    assert list(frames.read(io.BytesIO(file.getvalue())))[-1].text == "later_forwards\t3\n"


def kept_bits(frame):
    return struct.unpack_from("<QQ", frame.data, 72)


def record_bytes(function):
    file = io.BytesIO()
    with torchtap_compare.fingerprints(file):
        function()
    return file.getvalue()


class Parallel(nn.Module):
    """Runs its parts in threads; or copies of them, as DataParallel does."""

    def __init__(self, copies):
        super().__init__()
        self.a, self.b, self.copies = nn.Linear(3, 3), nn.Linear(3, 3), copies

    def part(self, name):
        if not self.copies:
            return getattr(self, name)
        replica = getattr(self, name)._replicate_for_data_parallel()
        for key, tensor in getattr(self, name)._parameters.items():
            setattr(replica, key, tensor.detach().clone())
        return replica

    def forward(self, x):
        results = {}
        works = [threading.Thread(target=lambda n=n: results.update({n: self.part(n)(x)})) for n in "ab"]
        for work in works:
            work.start()
            work.join()
        return results["a"] + results["b"]


def test_threads():
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    inputs, gate = [torch.rand(k + 1, 8) for k in range(4)], threading.Barrier(4)

    def work(x):
        gate.wait()
        for _ in range(20):
            model(x)

    def all_of_them():
        threads = [threading.Thread(target=work, args=[x]) for x in inputs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = record(all_of_them, forwards=10)
    assert [f.sequence for f in found] == list(range(len(found))) and len([f for f in found if f.kind == 6]) == 4
    expected = {bits(x): [bits(model[:k](x).detach()) for k in (1, 2, 3, 3)] for x in inputs}
    assert {f.thread for f in found} == {0, 1, 2, 3}
    for number in range(4):
        mine = [f for f in found if f.thread == number and f.kind in EVENTS]
        one = [(1, ""), *[(kind, str(k)) for k in range(3) for kind in EVENTS], (2, "")]
        assert [(f.kind, f.path, f.sample) for f in mine] == [(*what, n) for n in range(10) for what in one]
        outputs = expected[kept(mine[0])]
        assert [kept(f) for f in mine if f.kind == 2] == outputs * 10
    for copies, names in ((False, ["a", "b"]), (True, ["Linear"] * 2)):
        parallel = Parallel(copies)
        found = record(lambda: [parallel(torch.rand(1, 3)) for _ in range(4)], forwards=2)
        expected = collections.Counter(["", *names] * 2)
        assert collections.Counter(f.path for f in found if f.kind == 2) == expected
        assert len([f for f in found if f.kind == 6]) == 4


def test_script_models():
    """TorchScript; and tracing and FX, which must not see the recorder."""
    torch.manual_seed(5)
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), torch.rand(2, 3)
    scripted = torch.jit.script(model)
    found = record(lambda: scripted(x))
    assert [(f.kind, f.path, f.type) for f in found[1:]] == [
        *[(6, "0.weight", "Linear"), (6, "0.bias", "Linear"), (1, "", "Sequential"), (2, "", "Sequential")]
    ]
    assert kept(found[-1]) == bits(model(x).detach())
    graphs = [str(torch.jit.trace(model, x).graph)]
    found = record(lambda: graphs.append(str(torch.jit.trace(model, x).graph)))
    graphs = [re.sub(r"___torch_mangle_\d+\.", "", graph) for graph in graphs]
    assert graphs[0] == graphs[1]
    assert [f.path for f in found if f.kind == 6] in ([], ["0.weight", "0.bias"])  # if tracing checked the result
    codes = [torch.fx.symbolic_trace(model).code]
    record(lambda: codes.append(torch.fx.symbolic_trace(model).code))
    assert codes[0] == codes[1]
    request = {"others": io.BytesIO(), "suspects": [{"path": "", "sample": 0, "other_path": "", "other_sample": 0}]}
    with Recorder(request["others"], values={("", 0)}):
        scripted(x)
    request["others"].seek(0)
    trial = Trial(request)
    record(lambda: scripted(x), trial=trial)
    assert trial.answer["suspects"][0]["proved"] is False


class Stubborn(nn.Linear):
    def __deepcopy__(self, memo):
        raise RuntimeError("there can be only one")


class Ranks(nn.Module):
    def forward(self, x):
        return x.argsort(stable=True)


class Twice(nn.Module):
    def forward(self, x):
        return x * 2


class Written(nn.Module):
    """Its code names a dtype."""

    def __init__(self, scale):
        super().__init__()
        self.scale, self.linear = scale, nn.Linear(3, 3)
        nn.init.eye_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return self.linear(x.float()) * self.scale


class Locked(Twice):
    def __init__(self, scale):
        super().__init__()
        self.scale, self.lock = scale, threading.Lock()

    def forward(self, x):
        with self.lock:
            return x * self.scale


def try_it(own, other, x, x_other=None, path="0", with_input=False, **call):
    """The answer about one module of two models."""
    file, here = io.BytesIO(), {"path": path, "sample": 0, "other_path": path, "other_sample": 0}
    with Recorder(file, values={(path, 0), ("", 0)}):
        other(x if x_other is None else x_other, **call)
    file.seek(0)
    trial = Trial(
        {"others": file, "suspects": [here], "input": {**here, "path": "", "other_path": ""} if with_input else None}
    )
    state = torch.get_rng_state()
    with Recorder(trial=trial) as recorder:
        own(x, **call)
    assert recorder.error is None, recorder.error
    return trial.answer["suspects"][0], trial.answer["input"], state


def test_trial():
    torch.manual_seed(6)
    x = torch.rand(4, 3, 8, 8)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    with torch.no_grad():
        wrong = copy.deepcopy(model)
        wrong[0].weight[3] *= 1.01
    answer, _, before = try_it(model, wrong, x)
    assert answer["proved"] and answer["where"] == "channel 3 of 8 (dim 1)"
    assert torch.equal(torch.get_rng_state(), before)
    _, given, _ = try_it(model, model, x, x.flip(1), with_input=True)
    assert given["cause"] == "B = A.flip(1) (RGB and BGR)"
    assert try_it(model, model, x, with_input=True)[1] is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(causes, "SECONDS", -1)
        _, given, _ = try_it(model, model, x, x.sin(), with_input=True)
    assert given["cause"] is None and given["search"] == "the search for a cause ended after -1 s"

    # Ranks that rounding exchanges, a dtype in the code, and what cannot be copied.
    rank = nn.Sequential(Ranks())
    near = torch.arange(64) * 1e-4 + 1
    unnamed = "Sequential.0"  # what has no weights is called by its type
    answer, *_ = try_it(rank, rank, near.flip(0), near.flip(0).bfloat16(), path=unnamed)
    assert answer["proved"] is False
    for kind, path in ((Written, "0"), (Locked, unnamed)):
        plain, doubled = nn.Sequential(kind(1.0)), nn.Sequential(kind(2.0))
        answer, *_ = try_it(plain, doubled, torch.rand(2, 3), path=path)
        assert answer["proved"] is True and answer["other_error"] > 0.4
        answer, *_ = try_it(plain, plain, torch.rand(2, 3), torch.rand(2, 3), path=path)
        assert answer["proved"] is False
    two = nn.Sequential(nn.Identity())
    answer, *_ = try_it(two, nn.Sequential(Twice()), torch.full((4,), 1e200, dtype=torch.float64), path=unnamed)
    assert answer["proved"] is True and answer["other_error"] == 1

    stubborn = nn.Sequential(Stubborn(3, 3))
    answer, *_ = try_it(stubborn, nn.Sequential(nn.Linear(3, 3)), torch.rand(2, 3))
    assert answer["proved"] is None and answer["reason"] == "there can be only one"
    several = nn.LSTM(4, 5)
    other = copy.deepcopy(several)
    other.bias_ih_l0.data[0] += 1e-2
    answer, *_ = try_it(several, other, torch.rand(3, 2, 4), path="")
    assert answer["proved"] is True and answer["other_error"] > 1e-4 > answer["own_error"]
    assert try_it(several, several, torch.rand(3, 2, 4), path="")[0]["proved"] is False

    attention = nn.MultiheadAttention(8, 2).eval()
    call = {"key": torch.rand(5, 1, 8), "value": torch.rand(5, 1, 8), "need_weights": False}
    assert try_it(attention, attention, torch.rand(5, 1, 8), path="", **call)[0]["proved"] is False
    train = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(inplace=True))
    twin = copy.deepcopy(train)
    answer, *_ = try_it(train, twin, x)
    assert answer["proved"] is False and torch.equal(train[0].running_mean, twin[0].running_mean)
    answer, *_ = try_it(train, twin, x, path="1")
    assert answer["proved"] is False  # its input is as it was before ReLU changed it
    normed = nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(3, 3)))
    answer, *_ = try_it(normed, normed, torch.rand(2, 3))
    assert answer["proved"] is False or answer["reason"]
    fewer = nn.Sequential(nn.Linear(3, 3))
    fewer[0].register_forward_hook(lambda m, i, o: (o, o))
    answer, *_ = try_it(nn.Sequential(nn.Linear(3, 3)), fewer, torch.rand(2, 3))
    assert answer["proved"] is None and answer["reason"] == "B recorded 2 outputs, A has 1"

    difference = torch.zeros(4, 6, 10)
    assert where(difference) is None and where(torch.rand(4, 6, 10)) is None
    difference[:, 2:4, 9] = 1
    assert where(difference) == "column 9 of 10 (dim 2), rows 2, 3 of 6 (dim 1)"
