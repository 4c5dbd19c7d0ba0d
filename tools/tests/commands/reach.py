"""Tests models on which `torchtap record` once stopped, or silently recorded nothing."""

import pathlib
import signal
import sys
import warnings

import harness
import pytest
import torch
import torchvision
from harness import SOURCE, TORCHTAP, call, document, run, start
from torch import Tensor, nn

warnings.filterwarnings("ignore")


def entries(folder):
    """{path: entry of the manifest}"""
    return {entry["path"]: entry for entry in harness.entries(folder)}


def value(folder, path):
    return torch.load(folder / entries(folder)[path]["file"], weights_only=True)


class Drop(nn.Module):
    """Returns its input in evaluation mode, so its trace takes and returns nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.dropout(x, 0.5, True) if self.training else x


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.drop = Drop()
        self.none = nn.Sequential()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.none(self.drop(self.linear(x)))


def test_calls_without_tensors(folder):
    torch.manual_seed(0)
    model = Residual().eval()
    x = torch.randn(4, 6)
    torch.save(x, folder / "x.pt")
    torch.jit.trace(model, x).save(str(folder / "residual.pt"))
    record = ("record", folder / "residual.pt", "--input", folder / "x.pt", "--input", folder / "x.pt")
    for number, more in enumerate(
        ((), ("--all-tensors",), ("--what", "input"), ("--reduce", "mean"), ("--memory", "0"))
    ):
        saved = folder / f"residual{number}"
        done = run(*record, *more, "--save", saved)
        assert 'left out calls of "drop" and "none": they passed no tensors' in done.err
        assert "did not call" not in done.err
        counts = {path: entry["samples"] for path, entry in entries(saved).items()}
        assert counts == {"": 2, "linear": 2, "drop": 0, "none": 0}
    with torch.no_grad():
        assert torch.equal(value(folder / "residual0", "linear")[1], model.linear(x))
    told = document(*record, "--save", folder / "residual.json")
    assert told["without_tensors"] == ["drop", "none"] and told["never_ran"] == []
    # A named module without samples changes the exit status; if it is the only one selected, record fails at once.
    run(*record, "--names", "linear,drop", "--save", folder / "named", status=1)
    assert '"drop" (Drop)' in run(*record, "--names", "drop", "--save", folder / "alone", status=2).err


def test_which(folder):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU()))
    torch.jit.script(model).save(str(folder / "which.pt"))
    number = iter(range(100))

    def paths(*arguments):
        saved = folder / f"which{next(number)}"
        run("record", folder / "which.pt", "--random", "2x3x8x8", *arguments, "--save", saved)
        return list(entries(saved))

    everything = ["", "0", "1", "2", "2.0", "2.1"]
    assert paths() == everything
    assert paths("--not-types", "BatchNorm2d") == ["", "0", "2", "2.0", "2.1"]
    assert paths("--types", "(?!BatchNorm2d|Sequential).*") == ["0", "2.0", "2.1"]
    assert paths("--types", "__torch__.*conv.Conv2d") == ["0", "2.0"]
    assert paths("--types", r".*\.activation\..*") == ["2.1"]
    assert paths("--not-types", "Sequential", "--not-names", "2.*") == ["0", "1"]
    assert paths("--names", "2*", "--not-names", "2,2.1") == ["2.0"]
    assert paths("--types", "Conv2d", "--not-names", "0") == ["2.0"]
    assert paths("--not-types", "Dropout") == everything  # there is none
    run(
        *("record", folder / "which.pt", "--random", "2x3x8x8", "--types", "Conv2d", "--not-types", "Conv.*"),
        *("--save", folder / "which"),
        status=2,
    )
    assert (
        "not a valid regular expression"
        in run(
            *("record", folder / "which.pt", "--random", "2x3x8x8", "--types", "Conv(", "--save", folder / "which"),
            status=2,
        ).err
    )
    assert not (folder / "which").exists()


def test_exit_status(folder):
    """Modules that are never called are reported; they fail a run only if --names asked for them."""

    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            if x.size(0) > 100:
                x = self.unused(x)
            return self.used(x)

    torch.jit.script(Aside()).save(str(folder / "aside.pt"))
    record = ("record", folder / "aside.pt", "--random", "4x6", "--overwrite", "--save", folder / "aside")
    assert '"unused": the model did not call' in run(*record).err
    run(*record, "--types", "Linear")
    run(*record, "--names", "*used")
    run(*record, "--names", "used,unused", status=1)
    run(*record, "--names", "unused", status=1)
    run(*record, "--names", "un*", status=1)


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv, self.relu, self.linear = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Linear(4, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.conv(self.quant(x))).mean((2, 3))
        return self.head(self.dequant(self.linear(x)))


def test_quantized(folder):
    torch.manual_seed(0)
    engine = torch.backends.quantized.engine  # the command's default, too
    model = Quantized().eval()
    model.qconfig = torch.ao.quantization.get_default_qconfig("qnnpack" if engine == "qnnpack" else "fbgemm")
    model.head.qconfig = None
    prepared = torch.ao.quantization.prepare(model)
    x = torch.randn(2, 3, 8, 8)
    prepared(x)
    model = torch.ao.quantization.convert(prepared)
    torch.save(x, folder / "image.pt")
    torch.jit.script(model).save(str(folder / "quantized.pt"))
    seen = {}
    for path, module in model.named_modules():
        module.register_forward_hook(lambda _m, _i, output, path=path: seen.update({path: output}))
    with torch.no_grad():
        model(x)
    quantized = sorted(path for path, output in seen.items() if output.is_quantized)
    assert {"conv", "linear", "quant", "relu"} == set(quantized)

    record = ("record", folder / "quantized.pt", "--input", folder / "image.pt", "--input", folder / "image.pt")
    for number, more in enumerate(((), ("--all-tensors",), ("--memory", "0"), ("--reduce", "moments"))):
        saved = folder / f"quantized{number}"
        done = run(*record, *more, "--save", saved)
        assert "--dequantize" in done.err and '"conv"' in done.err
        counts = {path: entry["samples"] for path, entry in entries(saved).items()}
        assert (
            all(counts[path] == 0 for path in quantized) and counts["head"] == counts["dequant"] == counts[""] == 2
        ), counts
    assert torch.equal(value(folder / "quantized0", "head")[0], seen["head"])
    told = document(*record, "--save", folder / "quantized.json")
    assert sorted(told["quantized"]) == quantized and "conv" not in told["never_ran"]

    done = run(*record, "--dequantize", "--save", folder / "values")
    assert not [line for line in done.err.splitlines() if line.startswith("torchtap: ") and "quantized" in line]
    for path, output in seen.items():
        expected = output.dequantize() if output.is_quantized else output
        assert torch.equal(value(folder / "values", path)[1], expected)
    run(*record, "--dequantize", "--reduce", "mean", "--save", folder / "means")
    assert torch.allclose(value(folder / "means", "conv").double(), seen["conv"].dequantize().double().mean())

    sizes = {
        module["path"]: (module["parameters"], module["bytes"])
        for module in document("list", folder / "quantized.pt")["modules"]
    }
    # Weights take a byte per element; biases are floats.
    assert sizes["conv"][0] == 3 * 4 * 9 + 4 and sizes["linear"][0] == 4 * 5 + 5
    assert sizes["head"][0] == 5 * 2 + 2
    assert sizes[""][0] == sizes["conv"][0] + sizes["linear"][0] + sizes["head"][0]
    assert sizes["conv"][1] >= 3 * 4 * 9 + 4 * 4


def test_other_methods(folder):
    """TorchScript calls a dynamically quantized LSTM by forward_tensor, which Python calls from its forward."""
    torch.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(4, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.lstm(x)[0])

    model = torch.ao.quantization.quantize_dynamic(Tagger().eval(), {nn.LSTM})
    x = torch.randn(5, 2, 4)
    torch.save(x, folder / "sequence.pt")
    torch.jit.script(model).save(str(folder / "tagger.pt"))
    seen = {}
    model.lstm.register_forward_hook(lambda _m, _i, output: seen.update(lstm=output[0]))
    model(x)
    done = run("record", folder / "tagger.pt", "--input", folder / "sequence.pt", "--save", folder / "tagger")
    assert 'by the method forward_tensor: "lstm"' in done.err
    assert torch.equal(value(folder / "tagger", "lstm")[0], seen["lstm"])
    run("record", folder / "tagger.pt", "--input", folder / "sequence.pt", "--names", "lstm", "--save", folder / "lstm")
    parameters = {module["path"]: module["parameters"] for module in document("list", folder / "tagger.pt")["modules"]}
    assert parameters["lstm"] == 4 * 3 * (4 + 3) + 2 * 4 * 3

    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

        @torch.jit.export
        def step(self, x: Tensor) -> Tensor:
            return self.linear(x) + 1

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.coder, self.other = Coder(), Coder()

        def forward(self, x: Tensor) -> Tensor:
            return self.coder(self.coder.step(x)) + self.other.step(x)

        @torch.jit.export
        def encode(self, x: Tensor) -> Tensor:
            return self.coder(x)

    both = Both()
    torch.save(x[0], folder / "row.pt")
    torch.jit.script(both).save(str(folder / "both.pt"))
    record = ("record", folder / "both.pt", "--input", folder / "row.pt")
    done = run(*record, "--save", folder / "both")
    assert '"coder": by their method step; --method step' in done.err
    assert 'by the method step: "other"' in done.err
    assert torch.equal(value(folder / "both", "other")[0], both.other.step(x[0]))
    assert torch.equal(value(folder / "both", "coder")[0], both.coder(both.coder.step(x[0])))
    # The model itself lacks the method: its forward is called.
    run(*record, "--method", "step", "--names", "coder", "--save", folder / "step")
    assert torch.equal(value(folder / "step", "coder")[0], both.coder.step(x[0]))
    # The model has this method, which calls the module by its forward.
    run(*record, "--method", "encode", "--save", folder / "encode")
    counts = {path: entry["samples"] for path, entry in entries(folder / "encode").items()}
    assert counts[""] == counts["coder"] == counts["coder.linear"] == 1 and counts.get("other.linear", 0) == 0


def test_libraries(folder):
    class Boxes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
            return self.linear(boxes)[torch.ops.torchvision.nms(boxes, scores, 0.5)]

    torch.manual_seed(0)
    boxes = torch.rand(6, 4)
    boxes[:, 2:] += 1
    model, inputs = Boxes(), [boxes, torch.rand(6)]
    torch.save(inputs, folder / "boxes.in.pt")
    torch.jit.script(model).save(str(folder / "boxes.pt"))
    text = run("list", folder / "boxes.pt", status=2).err
    assert "torchvision::nms" in text.splitlines()[0] and "--library" in text.splitlines()[0]
    library = next(pathlib.Path(torchvision.__file__).parent.glob("_C*.so"))
    assert "cannot load" in run("list", folder / "boxes.pt", "--library", folder / "none.so", status=2).err
    if b"libtorch_python" in library.read_bytes():
        pytest.skip("this torchvision links what only Python's own program has")
    run("list", folder / "boxes.pt", "--library", library)
    run(
        *("record", folder / "boxes.pt", "--library", library, "--input", folder / "boxes.in.pt"),
        *("--save", folder / "boxes"),
    )
    with torch.no_grad():
        assert torch.equal(value(folder / "boxes", "")[0], model(*inputs))


class Telling(nn.Module):
    """Prints a line for each call."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        print("called")
        return self.fc(x)


def test_interrupt(folder):
    torch.jit.script(Telling()).save(str(folder / "telling.pt"))
    for number, sent in enumerate((signal.SIGINT, signal.SIGTERM)):
        for more in (("--reduce", "moments"), ("--memory", "0"), ()):
            saved = folder / f"interrupted{number}{len(more)}{more[0] if more else ''}"
            # More batches than could ever finish.
            how = ("--random", "2x6", "--count", 100000000, "--names", "fc", *more)
            process = start(TORCHTAP, "record", folder / "telling.pt", *how, "--save", saved)
            # The first call has returned when the second one begins.
            said = [process.stdout.readline() for _ in range(2)]
            assert said == ["called\n", "called\n"]
            process.send_signal(sent)
            _, errors = process.communicate(timeout=120)
            assert process.returncode == -sent
            assert "interrupted after" in errors and str(saved) in errors
            calls = int(errors.split("interrupted after ")[1].split()[0])
            assert calls > 0 and entries(saved)["fc"]["samples"] == calls
            assert document("show", saved)


def test_torchvision():
    models = ("efficientnet_b0:trace", "shufflenet_v2_x1_0", "swin_t:trace")
    assert call(sys.executable, SOURCE / "scripts/check-torchvision", TORCHTAP, *models).out.count("all equal") == 4
