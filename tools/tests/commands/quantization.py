"""Tests torchtap calibrate, evaluate and quantize: all numbers are computed again with torch, from hooks in Python."""

import gzip
import json
import math
import struct
import typing

import harness
import numpy
import pytest
import torch

LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7)}
METHODS = ("min_max", "percentile", "mse", "entropy")


def run(*arguments, status=0, columns=80):
    return harness.run(*arguments, status=status, COLUMNS=str(columns))


def refused(*arguments, says):
    _, out, error = run(*arguments, status=2)
    assert out == "" and error.startswith("torchtap")
    for part in [says] if isinstance(says, str) else says:
        assert part in error
    assert "::" not in error and ".." not in error


class Net(torch.nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 8, 5)
        self.norm = torch.nn.BatchNorm2d(8)
        self.relu1 = torch.nn.ReLU()
        self.up = torch.nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.relu2 = torch.nn.ReLU()
        self.fc = torch.nn.Linear(6, classes)

    def forward(self, x):
        x = self.relu1(self.norm(self.conv1(x)))
        return self.fc(self.relu2(self.up(x)).mean([2, 3]))


class WritesToItsInput(torch.nn.Module):
    """The same, but it changes the images that it is given, and returns more than scores."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        y = x * 1
        x.zero_()
        return self.net(y), y


class Constant(torch.nn.Module):
    def forward(self, x):
        scores = torch.zeros(x.size(0), 3)
        scores[:, 1] = x.flatten(1).mean(1).gt(0.5).float() * float("nan")
        return {"scores": scores}


def digits(count, classes, seed):
    """Images of bytes whose classes a small network tells in most cases, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    place = torch.arange(12.0)
    waves = torch.sin(place * (0.4 + 0.22 * labels[:, None]))[:, :, None] * torch.cos(place * 0.5)[None, None]
    noise = torch.randn(count, 12, 12, generator=generator) * 0.6
    return ((waves + noise) * 60 + 128).clamp(0, 255).to(torch.uint8), labels.to(torch.uint8)


def write_idx(path, tensor):
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(f">4B{tensor.dim()}I", 0, 0, 8, tensor.dim(), *tensor.shape) + tensor.numpy().tobytes())


def as_images(pixels):
    return pixels.float().div(255).unsqueeze(1)


def trained(classes):
    torch.manual_seed(0)
    net = Net(classes)
    pixels, labels = digits(1000, classes, 1)
    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(10):
        for rows in torch.randperm(len(labels)).split(100):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(as_images(pixels[rows])), labels[rows].long()).backward()
            optimizer.step()
    return net.eval()


def batches(data):
    return data["images"].split(64)


def top(scores, labels, most):
    """How many labels are among the `most` highest scores. Equal ones are usual after rounding: the lower class comes first."""
    order = numpy.argsort(-scores.numpy(), axis=1, kind="stable")
    return int((order[:, :most] == labels.numpy()[:, None]).sum())


def rounded(net, tensors):
    """A copy of the model with outputs, inputs and weights rounded as the tensors of a calibration say."""
    copy = Net(net.fc.out_features).eval()
    copy.load_state_dict(net.state_dict())
    modules = dict(copy.named_modules())
    for tensor in tensors:
        module, limits = modules[tensor["path"]], LIMITS[tensor["dtype"]]
        scale, zero = torch.tensor(tensor["scale"]), torch.tensor(tensor["zero_point"], dtype=torch.int32)

        def replace(values, scale=scale, zero=zero, limits=limits):
            if scale.dim() == 0:
                return torch.fake_quantize_per_tensor_affine(values, scale, zero, *limits)
            return torch.fake_quantize_per_channel_affine(values, scale, zero, 1, *limits)

        if tensor["kind"] == "output":
            module.register_forward_hook(lambda module, inputs, output, replace=replace: replace(output))
        else:
            module.register_forward_pre_hook(lambda module, inputs, replace=replace: (replace(inputs[0]),))
        if tensor.get("weights") and getattr(module, "weight", torch.zeros(1)).dim() > 1 and tensor["kind"] == "output":
            low, high = LIMITS[tensor["weights"]]
            axis = int(isinstance(module, torch.nn.ConvTranspose2d))
            weight = module.weight.detach()
            largest = weight.transpose(0, axis).flatten(1).abs().max(1).values
            steps = (largest / ((high - low) / 2)).clamp(min=torch.finfo(torch.float32).eps)
            module.weight = torch.nn.Parameter(
                torch.fake_quantize_per_channel_affine(
                    weight, steps, torch.zeros(len(steps), dtype=torch.int32), axis, low, high
                )
            )
    return copy


def scores_of(model, data):
    with torch.no_grad():
        return [model(batch) for batch in batches(data)]


def evaluated(data, model, *arguments, images="images.gz", labels="labels.gz"):
    where = data["folder"]
    out = run(
        "evaluate", where / model, "--input", where / images, "--labels", where / labels, "--json", *arguments
    ).out
    return json.loads(out)


@pytest.fixture(scope="module")
def data(folder):
    pixels, labels = digits(300, 10, 2)
    write_idx(folder / "images.gz", pixels)
    write_idx(folder / "labels.gz", labels)
    torch.save(as_images(pixels), folder / "images.pt")
    torch.save(labels.long(), folder / "labels.pt")
    net = trained(10)
    torch.jit.script(net).save(str(folder / "net.pt"))
    torch.jit.script(Constant()).save(str(folder / "constant.pt"))
    return {"folder": folder, "net": net, "images": as_images(pixels), "labels": labels}


@pytest.fixture(scope="module")
def calibrated(data):
    """Recordings of ranges, and the calibrations that several tests read."""
    where = data["folder"]
    record = ("record", where / "net.pt", "--input", where / "images.gz")
    run(*record, "--learn", where / "ranges")
    run(*record, "--reduce", "min,max", "--save", where / "extrema")
    how = ("--types", "Conv.*", "--over", "0,2,3", "--reduce", "log_histogram,min,max")
    run(*record, *how, "--save", where / "channels")
    for method in METHODS:
        out = run("calibrate", where / "ranges", "--method", method, "--save", where / f"{method}.json").out
        count = len(json.loads((where / f"{method}.json").read_text())["tensors"])
        assert out == f"{count} tensors, {method}, in {where / method}.json\n"
    run("calibrate", where / "ranges", "--weights", "none", "--dtype", "int4", "--save", where / "int4.json")
    run("calibrate", where / "ranges", "--weights", "int4", "--save", where / "weights4.json")
    run("calibrate", where / "channels", "--weights", "int8", "--save", where / "channels.json")
    return data


def test_accuracy(data):
    """Of a model in floating point, from files of every kind."""
    where, labels = data["folder"], data["labels"]
    scores = torch.cat(scores_of(data["net"], data))
    right = top(scores, labels, 1) / 300, top(scores, labels, 5) / 300
    assert 0.5 < right[0] < 0.95 and right[1] > right[0], "the model has something to lose"
    numpy.save(where / "images.npy", data["images"].numpy())
    numpy.save(where / "labels.npy", labels.numpy().astype(numpy.int32).reshape(-1, 1))
    torch.save(list(batches(data)), where / "batches.pt")
    torch.save(list(labels.split(64)), where / "label_batches.pt")
    for images, named, arguments in (
        ("images.gz", "labels.gz", ()),
        ("images.gz", "labels.npy", ("--batch", 64)),
        ("images.npy", "labels.npy", ("--batch", 64)),
        ("images.npy", "labels.pt", ()),
        ("images.pt", "labels.gz", ("--batch", 100)),
        ("batches.pt", "label_batches.pt", ("--batches",)),
    ):
        got = evaluated(data, "net.pt", *arguments, images=images, labels=named)
        want = {"file": str(where / "net.pt"), "activations": 0, "weights": 0, "top1": right[0], "top5": right[1]}
        want["changed"] = 0
        assert got == {"images": 300, "classes": 10, "models": [want], "layers": []}
    got = evaluated(data, "net.pt", "--count", 2)
    assert got["images"] == 128 and got["models"][0]["top1"] == top(scores[:128], labels[:128], 1) / 128, "--count"
    text = run("evaluate", where / "net.pt", "--idx3", where / "images.gz", "--labels", where / "labels.gz").out
    row = text.splitlines()[1].split()
    assert row[1:] == ["300", f"{right[0]:.2%}"[:-1], "%", f"{right[1]:.2%}"[:-1], "%", "-"], "a line"


def test_few_classes(data):
    """Ties, NaN and fewer classes than five."""
    where = data["folder"]

    bright = data["images"].flatten(1).mean(1) > 0.5
    torch.save(bright.long(), where / "bright.pt")
    got = evaluated(data, "constant.pt", "--batch", 64, images="images.pt", labels="bright.pt")
    # NaN becomes NaN in every row: 0 * NaN. So the class is 1, as argmax says.
    assert got["models"][0]["top1"] == bright.float().mean(dtype=torch.float64).item()
    assert got["models"][0]["top5"] is None
    assert got["classes"] == 3


def test_minima_and_maxima_as_pytorchs_observers(calibrated):
    data, where = calibrated, calibrated["folder"]
    observers = {}

    def observe(name, kind=torch.ao.quantization.MinMaxObserver, **how):
        observers[name] = kind(**how)
        return lambda module, inputs, output: observers[name](output.detach())

    handles = [module.register_forward_hook(observe(name)) for name, module in data["net"].named_modules()]
    scores_of(data["net"], data)
    for how, name in (
        ({"dtype": torch.qint8}, "int8"),
        ({"dtype": torch.quint8}, "uint8"),
        ({"dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric}, "symmetric"),
    ):
        arguments = ["--symmetric"] if name == "symmetric" else ["--dtype", name]
        run("calibrate", where / "extrema", "--method", "min_max", *arguments, "--save", where / f"{name}.json")
        tensors = {tensor["path"]: tensor for tensor in json.loads((where / f"{name}.json").read_text())["tensors"]}
        for path, seen in observers.items():
            observer = torch.ao.quantization.MinMaxObserver(**how)
            observer.min_val, observer.max_val = seen.min_val, seen.max_val
            scale, zero = observer.calculate_qparams()
            got = tensors[path]
            assert numpy.float32(got["scale"]) == scale.item() and got["zero_point"] == zero.item()
    for handle in handles:
        handle.remove()
    # A state_dict for Python's observers.
    run("calibrate", where / "extrema", "--method", "min_max", "--to", "observers", "--save", where / "observers.pt")
    state = torch.load(where / "observers.pt")
    assert all(
        state[f"{path}.activation_post_process.{name}"].item() == getattr(observers[path], name).item()
        for path in ("conv1", "relu1", "fc")
        for name in ("min_val", "max_val")
    )


def test_methods(calibrated):
    where, found = calibrated["folder"], {}
    for method in METHODS:
        found[method] = json.loads((where / f"{method}.json").read_text())
        assert found[method]["method"] == method
        kinds = {(tensor["path"], tensor["kind"]) for tensor in found[method]["tensors"]}
        want = {(path, "output") for path in ("", "conv1", "relu1", "up", "relu2", "fc")} | {("", "input")}
        assert kinds == want
    widths = {m: [t["high"] - t["low"] for t in found[m]["tensors"]] for m in METHODS}
    for method in METHODS[1:]:
        clips = [a - b for a, b in zip(widths["min_max"], widths[method])]
        assert min(clips) >= 0 and max(clips) > 0
    assert len({str(width) for width in widths.values()}) == 4, "the methods differ"
    run("calibrate", where / "ranges", "--method", "percentile", "--percentile", 90, "--save", where / "p90.json")
    narrow = [t["high"] - t["low"] for t in json.loads((where / "p90.json").read_text())["tensors"]]
    assert all(a > b for a, b in zip(widths["percentile"], narrow)), "--percentile"
    tensors = json.loads((where / "int4.json").read_text())["tensors"]
    assert all(not t.get("weights") and t["dtype"] == "int4" for t in tensors), "--weights none"


def test_merged_halves_give_what_one_run_gives(data):
    where = data["folder"]
    for name, rows in (("all", slice(None)), ("first", slice(100)), ("last", slice(100, None))):
        torch.save(data["images"][rows], where / f"{name}.pt")
        run(
            *("record", where / "net.pt", "--input", where / f"{name}.pt", "--batch", 50),
            *("--reduce", "log_histogram,min,max", "--save", where / name),
        )
    run("merge", where / "first", where / "last", "--save", where / "merged")
    for name in ("all", "merged"):
        run("calibrate", where / name, "--save", where / f"{name}.json")
    assert (where / "all.json").read_bytes() == (where / "merged.json").read_bytes(), "merged halves"


def test_text_for_tensorrt_has_the_bits_of_the_scales(calibrated):
    where = calibrated["folder"]
    calibrate = ("calibrate", where / "extrema", "--method", "min_max", "--symmetric")
    run(*calibrate, "--to", "tensorrt", "--save", where / "cache")
    run(*calibrate, "--save", where / "symmetric_again.json")
    lines = dict(line.split(": ") for line in (where / "cache").read_text().splitlines()[1:])
    scales = {t["path"]: t["scale"] for t in json.loads((where / "symmetric_again.json").read_text())["tensors"]}
    got = {name: struct.unpack(">f", bytes.fromhex(bits))[0] for name, bits in lines.items()}
    assert len(got) == len(scales) and all(got[name] == numpy.float32(scales[name]) for name in scales if name)


def test_evaluate(calibrated):
    """After rounding, against the same roundings in Python."""
    data = calibrated
    where, labels = data["folder"], data["labels"]
    files = [f"{method}.json" for method in METHODS] + ["int4.json", "weights4.json", "channels.json"]
    arguments = [word for file in files for word in ("--quantize", where / file)]
    got = evaluated(data, "net.pt", *arguments)
    plain = torch.cat(scores_of(data["net"], data))
    assert [one["file"] for one in got["models"][1:]] == [str(where / file) for file in files], "files"
    for file, one in zip(files, got["models"][1:]):
        tensors = json.loads((where / file).read_text())["tensors"]
        scores = torch.cat(scores_of(rounded(data["net"], tensors), data))
        want = {
            "top1": top(scores, labels, 1) / 300,
            "top5": top(scores, labels, 5) / 300,
            "changed": (scores.argmax(1) != plain.argmax(1)).sum().item(),
            "activations": len(tensors),
        }
        assert all(one[name] == value for name, value in want.items())
    assert [one["weights"] for one in got["models"]] == [0, 3, 3, 3, 3, 0, 3, 2], "weights"
    assert got["models"][5]["changed"] > 0, "four bits change something"
    # A model that writes to its inputs and returns a tuple.
    torch.jit.script(WritesToItsInput(data["net"])).save(str(where / "writes.pt"))
    calibration = json.loads((where / "int4.json").read_text())
    for tensor in calibration["tensors"]:
        tensor["path"] = ("net." + tensor["path"]).rstrip(".")
    (where / "writes.json").write_text(json.dumps(calibration))
    other = evaluated(data, "writes.pt", "--quantize", where / "writes.json")["models"]
    for a, b in ((0, 0), (1, 5)):
        left = [f"net.{path}" for path in got["models"][b].get("left_in_floating_point", [])]
        assert other[a].get("left_in_floating_point", []) == left
        same = {"file": "", "left_in_floating_point": left}
        assert {**other[a], **same} == {**got["models"][b], **same}, "it writes to its input"


def test_sensitivity(calibrated):
    data = calibrated
    where, labels = data["folder"], data["labels"]
    arguments = ("--quantize", where / "int4.json", "--quantize", where / "weights4.json", "--sensitivity")
    got = evaluated(data, "net.pt", *arguments)["layers"]
    plain = scores_of(data["net"], data)
    seen = {}
    for file in ("int4.json", "weights4.json"):
        tensors = json.loads((where / file).read_text())["tensors"]
        for path in {tensor["path"] for tensor in tensors}:
            alone = scores_of(rounded(data["net"], [one for one in tensors if one["path"] == path]), data)
            errors = [
                ((a - b).double().square().sum() / b.double().square().sum()).item() for a, b in zip(alone, plain)
            ]
            lost = top(torch.cat(plain), labels, 1) - top(torch.cat(alone), labels, 1)
            seen[str(where / file), path] = sum(errors) / len(errors), lost / 300
    assert {(one["file"], one["path"]) for one in got} == set(seen), "layers"
    for one in got:
        error, lost = seen[one["file"], one["path"]]
        assert abs(one["error"] - error) <= 1e-4 * error and abs(one["top1_lost"] - lost) < 1e-9
    assert got == sorted(got, key=lambda one: -one["error"]), "the largest first"
    for columns in (80, 200):
        text = run(
            *("evaluate", where / "net.pt", "--input", where / "images.gz", "--labels", where / "labels.gz"),
            *arguments,
            columns=columns,
        ).out
        tables = text.split("\n\n")
        assert len(tables) == 2 and max(map(len, text.splitlines())) <= columns
        rows = [line.split() for line in tables[1].splitlines()]
        assert rows[0][:3] == ["layer", "type", "dtype"]
        assert [row[0] for row in rows[1:]] == [one["path"] or "(root)" for one in got]


def test_quantize(data):
    """The file computes in int8, here as in Python."""
    where, labels = data["folder"], data["labels"]
    plain = evaluated(data, "net.pt")["models"][0]
    for method in METHODS:
        file = where / f"{method}.int8.pt"
        out = run("quantize", where / "net.pt", "--input", where / "images.gz", "--method", method, "--save", file).out
        assert out.startswith(f"5 calls, {method}, in {file}: ") and " instead of " in out, "quantize says"
        with torch.no_grad():
            (first, *_), exact = batches(data), data["net"]
            wanted, got = exact(first).double(), torch.jit.load(str(file))(first).double()
        decibels = 10 * math.log10(wanted.square().sum() / (wanted - got).square().sum())
        said = float(out.split("the signal is ")[1].split(" dB")[0])
        assert abs(said - decibels) < 0.1 + 0.01 * abs(decibels)
        model = torch.jit.load(str(file))
        assert "quantized::" in str(model.inlined_graph)
        scores = torch.cat(scores_of(model, data))
        got = evaluated(data, file.name)["models"][0]
        want = top(scores, labels, 1) / 300, top(scores, labels, 5) / 300
        assert (got["top1"], got["top5"]) == want
        # LibTorch 2.6 computes transposed convolutions wrong with oneDNN, also in Python.
        if torch.__version__.startswith("1."):
            # Of 300 images; how many change sides depends on the weights, which each processor trains to others.
            assert abs(got["top1"] - plain["top1"]) < 0.1
    original = torch.jit.load(str(where / "net.pt"))
    assert torch.equal(original(data["images"]), data["net"](data["images"])), "the model's file is as it was"
    # What cannot run is not written.
    torch.jit.script(Net().eval().double()).save(str(where / "double.pt"))
    torch.save(torch.rand(8, 1, 12, 12).double(), where / "double_images.pt")
    quantize = ("quantize", where / "double.pt", "--input", where / "double_images.pt")
    said = run(*quantize, "--save", where / "double.int8.pt", status=2).err  # beside warnings of LibTorch
    assert "does not run" in said and "Float" in said, "quantize says"
    assert not (where / "double.int8.pt").exists(), "a file that cannot run"


class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(12, 10), torch.nn.Linear(12, 3)


class Tuple(Heads):
    def forward(self, x):
        return self.a(x), self.b(x)


class Named(Heads):
    def forward(self, x):
        return Pair(self.a(x), self.b(x))


class Nested(Heads):
    def forward(self, x):
        return self.a(x), (self.b(x), [self.b(x), self.b(x + 1)]), x.argmax(1)


class Listed(Heads):
    def forward(self, x):
        return [self.a(x), self.b(x)]


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else [tensor for part in value for tensor in flat(part)]


def test_what_is_written_runs(folder):
    """Networks with several results, quantized by each method, here and in Python."""
    torch.manual_seed(2)
    x = torch.randn(64, 12)
    torch.save(x, folder / "rows.pt")
    for kind in (Tuple, Named, Nested, Listed):
        net = kind().eval()
        torch.jit.script(net).save(str(folder / "heads.pt"))
        with torch.no_grad():
            wanted = flat(net(x[:16]))
        for method in METHODS:
            file = folder / f"{kind.__name__}.{method}.pt"
            quantize = ("quantize", folder / "heads.pt", "--input", folder / "rows.pt", "--batch", 16)
            out = run(*quantize, "--method", method, "--save", file).out
            with torch.no_grad():
                got = flat(torch.jit.load(str(file))(x[:16]))
            assert [(one.shape, one.dtype) for one in got] == [(one.shape, one.dtype) for one in wanted]
            signal = sum(float(one.double().square().sum()) for one in wanted if one.is_floating_point())
            noise = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(wanted, got)
                        if a.is_floating_point())  # fmt: skip
            decibels = 10 * math.log10(signal / noise)
            assert decibels > 20 and abs(float(out.split("the signal is ")[1].split(" dB")[0]) - decibels) < 0.5
            run("record", file, "--input", folder / "rows.pt", "--save", folder / f"{file.stem} recorded")


class Ragged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(12, 8, batch_first=True)
        self.fc = torch.nn.Linear(8, 10)
        self.own = torch.nn.Parameter(torch.rand(10, 10))
        self.rows = torch.nn.Linear(8, 8)

    def forward(self, x):
        states, _ = self.lstm(x.squeeze(1))
        return torch.nn.functional.linear(self.fc(states[:, -1] + self.rows(states[:0, -1]).sum()), self.own)


def test_what_stays(data):
    """Matrices of an LSTM are rounded; what is not is named, and so is what has no range."""
    where = data["folder"]
    torch.manual_seed(3)
    torch.jit.script(Ragged().eval()).save(str(where / "ragged.pt"))
    ranges = ("--reduce", "log_histogram,min,max", "--save", where / "ragged")
    run(
        "record",
        where / "ragged.pt",
        "--input",
        where / "images.gz",
        *("--names", "lstm", "--names", "fc", "--names", "rows"),
        *ranges,
    )
    said = run("calibrate", where / "ragged", "--save", where / "ragged.json").err
    assert 'the output 0 of "rows" (Linear) stays in floating point' in said, "calibrate says"
    evaluate = ("evaluate", where / "ragged.pt", "--input", where / "images.gz", "--labels", where / "labels.gz")
    out = run(*evaluate, "--quantize", where / "ragged.json", "--json").out
    got = json.loads(out)["models"][1]
    assert got["weights"] == 3 and got["left_in_floating_point"] == ["own", "rows.weight"]
    out = run(*evaluate, "--quantize", where / "ragged.json", columns=120).out
    assert "3 of 5" in out and '"own" and "rows.weight"' in out, "evaluate says"


def test_refusals(calibrated):
    data = calibrated
    where = data["folder"]
    evaluate = ("evaluate", where / "net.pt", "--input", where / "images.gz")
    write_idx(where / "few.gz", data["labels"][:100])
    write_idx(where / "high.gz", data["labels"] + 200)
    torch.save(data["labels"].float(), where / "real.pt")
    refused(*evaluate, "--labels", where / "few.gz", says=["--labels", "2 batches", "5", "--batch"])
    refused(*evaluate, "--labels", where / "high.gz", says=["--labels", "label 20", "0 to 9"])
    refused(*evaluate, "--labels", where / "images.gz", says=["--labels", "number of a class"])
    refused(*evaluate, "--labels", where / "real.pt", "--batch", 64, says="--labels")
    refused(*evaluate, says="--labels")
    refused(*evaluate, "--labels", where / "labels.gz", "--sensitivity", says="--quantize")
    refused(*evaluate, "--labels", where / "labels.gz", "--quantize", where / "labels.gz", says="labels.gz")
    torch.jit.script(data["net"].conv1).save(str(where / "maps.pt"))
    refused(
        *("evaluate", where / "maps.pt", "--input", where / "images.gz", "--labels", where / "labels.gz"),
        says="[images, classes]",
    )
    refused(
        *("evaluate", where / "maps.pt", "--input", where / "images.gz", "--labels", where / "labels.gz"),
        *("--quantize", where / "mse.json"),
        says="lacks",
    )
    run("record", where / "net.pt", "--input", where / "images.gz", "--save", where / "samples")
    run(
        *("record", where / "net.pt", "--input", where / "images.gz", "--batch", 100, "--elementwise"),
        *("--reduce", "log_histogram", "--save", where / "elements"),
    )
    new = ("--save", where / "new")
    refused("calibrate", where / "samples", *new, says="--reduce log_histogram")
    refused("calibrate", where / "extrema", *new, says="--reduce log_histogram")
    refused("calibrate", where / "elements", *new, says="--over")
    refused("calibrate", where / "ranges", "--method", "median", *new, says="--method")
    refused("calibrate", where / "ranges", "--method", "percentile", "--percentile", 101, *new, says="101")
    refused("calibrate", where / "channels", "--to", "tensorrt", "--symmetric", *new, says=["conv1", "--over"])
    refused("calibrate", where / "net.pt", *new, says="recording")
    refused("calibrate", where / "ranges", says="--save")
    assert not (where / "new").exists(), "nothing was written"
    refused("calibrate", where / "ranges", "--save", where / "mse.json", says="--overwrite")
    run("calibrate", where / "ranges", "--save", where / "mse.json", "--overwrite")
    quantize = ("quantize", where / "net.pt", "--input", where / "images.gz")
    (where / "there.pt").touch()
    refused(*quantize, "--save", where / "there.pt", says="--overwrite")
    refused("quantize", where / "constant.pt", "--input", where / "images.gz", *new, says="can be quantized")
    refused("quantize", where / "labels.pt", "--input", where / "images.gz", *new, says="torch.save")
    assert not (where / "new").exists(), "nothing was written"
