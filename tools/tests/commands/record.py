"""Records every TorchScript model of the tests from the command line and compares with Python's hooks."""

import gzip
import json
import pathlib
import signal
import subprocess
import zipfile

import harness
import numpy
import pytest
import torch
import torchvision
from harness import FASHION, TORCHTAP, document, given, recording, start, until

MODELS = pathlib.Path(given("script_models"))
IMAGES, LABELS = (FASHION / f"t10k-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1"))


def run(*arguments, status=0):
    done = harness.run(*arguments, status=status)
    assert "\r" not in done.err, "a progress bar, although nobody looks"
    return done


def recorded(folder):
    """{"PATH#CALL#SLOT": tensor}"""
    values = {}
    for entry, slots in recording(folder):
        for slot, calls in (slots or {}).items():
            for call, value in enumerate(calls):
                if value is not None:
                    values[f"{entry['path']}#{call}#{slot}"] = value
    return values


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("name", sorted(file.name.split(".")[0] for file in MODELS.glob("*.expected.pt")))
def test_model(folder, name, how):
    if not (MODELS / f"{name}.{how}.pt").exists():
        pytest.skip("there is no such file")
    arguments = list(torch.jit.load(f"{MODELS}/{name}.arguments.pt").arguments)
    torch.save(arguments, folder / "inputs.pt")
    expected = torch.load(f"{MODELS}/{name}.expected.pt")
    for what, kind in (("output", "out"), ("pre", "pre")):
        saved = folder / f"{name}.{how}.{what}"
        run(
            *("record", f"{MODELS}/{name}.{how}.pt", "--input", folder / "inputs.pt", "--what", what, "--all-tensors"),
            *("--enable-grad", "--save", saved),
        )
        values = recorded(saved)
        compared = 0
        for key, tensor in expected.items():
            if key.startswith(kind + " "):
                assert torch.equal(values[key[len(kind) + 1 :]], tensor)
                compared += 1
        assert compared > 0


@pytest.fixture(scope="module")
def net(folder):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(2704, 10))
    torch.jit.script(net).save(folder / "net.pt")
    return net


def test_reductions(folder, net):
    """Records Fashion-MNIST through a small network in batches and compares with NumPy and PyTorch."""
    done = run(
        *("record", folder / "net.pt", "--idx3", IMAGES, "--batch", 500, "--types", "Linear|Conv2d"),
        *("--reduce", "moments,min,max", "--over", "0", "--save", folder / "moments", "--json"),
    )
    assert json.loads(done.out)["calls"] == 20
    pixels = numpy.frombuffer(gzip.open(IMAGES).read(), dtype=numpy.uint8, offset=16)
    images = torch.tensor(pixels.reshape(-1, 1, 28, 28)).float() / 255
    with torch.no_grad():
        wanted = {"0": net[0](images).double(), "3": net(images).double()}
    for index, path in enumerate(("0", "3")):
        value = torch.load(folder / "moments" / f"{index}.pt", weights_only=True)
        assert torch.allclose(value["moments.mean"].double(), wanted[path].mean(0), atol=1e-5)
        assert torch.allclose(value["moments.variance"].double(), wanted[path].var(0), rtol=1e-3, atol=1e-6)
        assert torch.allclose(value["min.value"].double(), wanted[path].amin(0), atol=1e-5)
        assert torch.allclose(value["max.value"].double(), wanted[path].amax(0), atol=1e-5)


def test_groups(folder, net):
    """Records by labels and by a mask beside the inputs, and reads by key what was recorded."""
    labels = torch.tensor(numpy.frombuffer(gzip.open(LABELS).read(), dtype=numpy.uint8, offset=8)).long()
    pixels = numpy.frombuffer(gzip.open(IMAGES).read(), dtype=numpy.uint8, offset=16)
    images = torch.tensor(pixels.reshape(-1, 1, 28, 28)).float() / 255
    with torch.no_grad():
        wanted = net(images).double()
    common = ("record", folder / "net.pt", "--batch", 500, "--names", "3", "--over", "0")
    run(*common, "--idx3", IMAGES, "--with", f"labels={LABELS}", "--reduce", "by(labels:12, moments, count)",
        "--save", folder / "classes")  # fmt: skip
    value = torch.load(folder / "classes" / "0.pt", weights_only=True)
    assert value["labels"].equal(torch.arange(12)) and value["labels.left_out"] == 0
    assert value["labels.count"].equal(labels.bincount(minlength=12))
    for label in range(10):
        rows = wanted[labels == label]
        assert torch.allclose(value["moments.mean"][label], rows.mean(0), atol=1e-5)
        assert torch.allclose(value["moments.variance"][label], rows.var(0), rtol=1e-3, atol=1e-6)
    assert value["moments.mean"][10:].isnan().all()

    shown = document("show", folder / "classes")["entries"]
    assert [entry["keys"] for entry in shown] == [{"labels": label} for label in range(10)]
    for entry in shown:
        rows = wanted[labels == entry["keys"]["labels"]]
        assert entry["statistics"]["rows"] == len(rows)
        assert abs(entry["statistics"]["mean"]["max"] - float(rows.mean(0).max())) < 1e-5
    table = run("show", folder / "classes").out
    assert "labels=9" in table and "labels=10" not in table

    mask = torch.rand(len(images)) < 0.3
    numpy.save(folder / "mask.npy", mask.numpy())
    torch.save(labels.where(labels != 3, torch.tensor(-100)), folder / "labels.pt")
    torch.save(images, folder / "images.pt")
    run(*common, "--input", folder / "images.pt", "--with", f"mask={folder / 'mask.npy'}",
        "--with", f"labels={folder / 'labels.pt'}", "--reduce", "where(mask, by(labels, moments, count))",
        "--save", folder / "some")  # fmt: skip
    value = torch.load(folder / "some" / "0.pt", weights_only=True)
    keys = [label for label in range(10) if label != 3]
    assert value["labels"].tolist() == keys
    assert value["labels.left_out"] == (mask & (labels == 3)).sum() and value["mask.left_out"] == (~mask).sum()
    shown = document("show", folder / "some")["entries"]
    assert [entry["keys"]["labels"] for entry in shown] == keys
    assert all(entry["left_out"]["labels"] == value["labels.left_out"] for entry in shown)
    text = f"{value['labels.left_out']:,} rows without a key of labels"
    assert text in run("show", folder / "some").out and "without a key" not in table
    for place, label in enumerate(keys):
        rows = wanted[mask & (labels == label)]
        assert torch.allclose(value["moments.mean"][place], rows.mean(0), atol=1e-5)
    run(*common, "--input", folder / "images.pt", "--with", "domain=2", "--reduce", "by(domain, moments)",
        "--save", folder / "domain")  # fmt: skip
    value = torch.load(folder / "domain" / "0.pt", weights_only=True)
    assert value["domain"].tolist() == [2] and torch.allclose(value["mean"][0], wanted.mean(0), atol=1e-5)

    # Companions from another module of the same forward, and of a second model.
    run(*common, "--input", folder / "images.pt", "--with", "predicted=argmax@/", "--reduce",
        "by(predicted:10, moments, count)", "--save", folder / "predicted")  # fmt: skip
    value = torch.load(folder / "predicted" / "0.pt", weights_only=True)
    predicted = wanted.argmax(1)
    assert value["predicted.count"].equal(predicted.bincount(minlength=10))
    for label in range(10):
        rows = wanted[predicted == label]
        assert not len(rows) or torch.allclose(value["moments.mean"][label], rows.mean(0), atol=1e-5)
    rotation, _ = torch.linalg.qr(torch.randn(10, 10))
    turned = torch.jit.load(folder / "net.pt")
    with torch.no_grad():
        weight, bias = list(turned.parameters())[-2:]
        weight.copy_(rotation @ weight)
        bias.copy_(rotation @ bias)
        theirs = turned(images).double()
    turned.save(folder / "turned.pt")
    run(*common[:-2], "--input", folder / "images.pt", "--beside", folder / "turned.pt", "--reduce",
        "cka(beside), cross_covariance(beside)", "--save", folder / "cka")  # fmt: skip
    value = torch.load(folder / "cka" / "0.pt", weights_only=True)
    names = {name.split(".", 1)[1]: tensor for name, tensor in value.items()}
    assert abs(float(names["value"]) - 1) < 1e-6
    cross = (wanted - wanted.mean(0)).T @ (theirs - theirs.mean(0)) / (len(images) - 1)
    assert torch.allclose(names["covariance"], cross, atol=1e-4)

    # Keys of one side are listed; those of both are compared.
    run(*common, "--input", folder / "images.pt", "--with", f"labels={folder / 'labels.pt'}",
        "--reduce", "by(labels, moments, count)", "--save", folder / "nine")  # fmt: skip
    compared = document("compare", folder / "classes", folder / "nine", status=1)["entries"]
    assert {entry["keys"]["labels"]: entry["status"] for entry in compared} == {
        label: "missing in B" if label == 3 else "same" for label in range(10)
    }

    def error(*arguments):
        return run(*common, "--input", folder / "images.pt", *arguments, "--save", folder / "none", status=2).err

    assert "--with labels=FILE" in error("--reduce", "by(labels, mean)")
    text = error("--reduce", "by(labels, mean)", "--with", "labels=@./nowhere")
    assert 'output("./nowhere") of "3"' in text and "the nearest are" in text
    assert 'looks up "labels"' in error("--reduce", "by(labels, mean)", "--with", "other=@/")
    assert "is not a slot" in error("--reduce", "by(labels, mean)", "--with", "labels=@/:x")
    assert 'does not use "mask"' in error("--reduce", "mean", "--with", f"mask={folder / 'mask.npy'}")
    assert "character 16" in error("--reduce", "by(labels, mean")
    torch.save(labels.float(), folder / "floats.pt")
    text = error("--reduce", "by(labels, mean)", "--with", f"labels={folder / 'floats.pt'}")
    assert "to(torch::kLong)" in text
    torch.save(labels[:300], folder / "few.pt")
    text = error("--reduce", "by(labels, mean)", "--with", f"labels={folder / 'few.pt'}")
    assert "1 batches" in text and "20" in text
    torch.save(labels[:-7], folder / "few.pt")
    text = error("--reduce", "by(labels, mean)", "--with", f"labels={folder / 'few.pt'}")
    assert "batch 19" in text and "[493]" in text


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(8, 4)

    def forward(self, x):
        scores = self.scores(x)
        return scores, scores.argmax(1)


class Moe(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = torch.nn.Linear(8, 4 * 8)

    def forward(self, x):
        _, expert = self.router(x)
        each = self.experts(x).view(-1, 4, 8)
        return each.gather(1, expert.view(-1, 1, 1).expand(-1, 1, 8)).squeeze(1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.moe = Moe()

    def forward(self, x):
        return x + self.moe(self.norm(x))


class Experts(torch.nn.Module):
    """A mixture of experts for each token of a batch, whose model fails for inputs of zeros."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, tokens):
        assert bool(tokens.ne(0).any()), "the model ran"
        x = self.embed(tokens).flatten(0, 1)
        for block in self.blocks:
            x = block(x)
        return x


def inside(model, modules, *inputs):
    """What these modules return in a forward in Python."""
    values = {}
    hooks = [
        model.get_submodule(path).register_forward_hook(lambda _, __, out, path=path: values.update({path: out}))
        for path in modules
    ]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return values


def test_companions(folder):
    """A mask of tokens, experts of a router in the same forward, two models, and mistakes."""
    torch.manual_seed(6)
    model = Experts().eval()
    torch.jit.script(model).save(folder / "moe.pt")
    tokens, mask = torch.randint(1, 50, (40, 7)), torch.rand(40, 7) < 0.6
    labels = torch.randint(-1, 3, (40,))
    for name, tensor in (("tokens", tokens), ("mask", mask), ("labels", labels)):
        torch.save(tensor, folder / f"{name}.pt")
    moes = ("blocks.0.moe", "blocks.1.moe")
    values = inside(model, ("embed", *moes, *(f"{path}.router" for path in moes)), tokens)
    common = ("record", folder / "moe.pt", "--input", folder / "tokens.pt", "--batch", 16, "--over", "0")

    # Tokens that are no padding: a mask [batch, tokens] over [batch, tokens, features]; and each sequence's class.
    embedded = values["embed"].double()
    run(*common, "--names", "embed", "--with", f"mask={folder / 'mask.pt'}", "--reduce", "where(mask, moments, abs_max)",
        "--save", folder / "real")  # fmt: skip
    value = torch.load(folder / "real" / "0.pt", weights_only=True)
    real = embedded[mask]
    assert value["mask.left_out"] == (~mask).sum()
    assert torch.allclose(value["moments.mean"], real.mean(0), rtol=1e-5, atol=1e-6)
    assert torch.allclose(value["moments.variance"], real.var(0), rtol=1e-5)
    assert torch.equal(value["abs_max.value"].double(), real.abs().amax(0))
    run(*common, "--names", "embed", "--with", f"mask={folder / 'mask.pt'}", "--with", f"labels={folder / 'labels.pt'}",
        "--reduce", "by(labels:3, where(mask, mean, count))", "--save", folder / "classes_of_tokens")  # fmt: skip
    value = torch.load(folder / "classes_of_tokens" / "0.pt", weights_only=True)
    for label in range(3):
        rows = embedded[(labels == label).unsqueeze(1) & mask]
        assert torch.allclose(value["mean.value"][label].double(), rows.mean(0), rtol=1e-5, atol=1e-6)
        assert value["count.rows"][label].eq(len(rows)).all()
    assert value["labels.left_out"] == (labels < 0).sum()

    # Statistics per expert: the router below each recorded module says which rows are whose.
    run(*common, "--names", "blocks.*.moe", "--with", "expert=@./router:1", "--reduce", "by(expert, moments, count)",
        "--save", folder / "experts")  # fmt: skip
    manifest = json.loads((folder / "experts" / "manifest.json").read_text())["entries"]
    assert [entry["path"] for entry in manifest] == list(moes)
    for index, path in enumerate(moes):
        value = torch.load(folder / "experts" / f"{index}.pt", weights_only=True)
        rows, expert = values[path].double(), values[f"{path}.router"][1]
        assert value["expert"].equal(expert.unique()) and value["expert.left_out"] == 0
        assert value["expert.count"].equal(expert.bincount()[expert.unique()])
        for place, key in enumerate(value["expert"].tolist()):
            of_key = rows[expert == key]
            assert torch.allclose(value["moments.mean"][place], of_key.mean(0), rtol=1e-5, atol=1e-5), (path, key)
            if len(of_key) > 1:
                assert torch.allclose(value["moments.variance"][place], of_key.var(0), rtol=1e-4, atol=1e-6)

    # Two models: each module with the one of its path, whatever the batches.
    other = Experts().eval()
    torch.jit.script(other).save(folder / "b.pt")
    theirs = inside(other, moes, tokens)

    def gram(x):
        x = x.double() - x.double().mean(0)
        return x @ x.T

    for batch in (7, 40):
        run("record", folder / "moe.pt", "--beside", folder / "b.pt", "--input", folder / "tokens.pt", "--batch", batch,
            "--names", "blocks.*.moe", "--reduce", "cka(beside)", "--save", folder / f"cka{batch}")  # fmt: skip
        for index, path in enumerate(moes):
            a, b = gram(values[path]), gram(theirs[path])
            want = (a * b).sum() / (a.norm() * b.norm())
            got = torch.load(folder / f"cka{batch}" / f"{index}.pt", weights_only=True)
            got = got["value"] if isinstance(got, dict) else got
            assert abs(float(got) - float(want)) < 1e-6, (path, float(got), float(want))

    # Mistakes are found before the model runs, which fails for these inputs.
    torch.save(torch.zeros(40, 7, dtype=torch.long), folder / "zeros.pt")
    torch.save([labels, labels], folder / "two.pt")

    def error(*arguments):
        done = run("record", folder / "moe.pt", "--input", folder / "zeros.pt", "--batch", 16, "--over", "0", "--names",
                   "embed", *arguments, "--save", folder / "mistaken", status=2)  # fmt: skip
        assert not (folder / "mistaken").exists()
        return done.err

    by = ("--reduce", "by(labels, mean)")
    given = ("--with", f"labels={folder / 'labels.pt'}")
    assert "the model ran" in error(*by, *given)  # nothing else is wrong
    for says, arguments in (
        ("name its tensor: --with labels=FILE", by),
        ("name its tensor: --with mask=FILE", ("--reduce", "by(labels, where(mask, mean))", *given)),
        ('does not use "mask"', (*by, *given, "--with", "mask=1")),
        ('"labels" was given before', (*by, *given, *given)),
        ("expected NAME=FILE", (*by, "--with", "labels")),
        ("expected NAME=FILE", (*by, "--with", "labels=")),
        ("expected NAME=FILE", (*by, "--with", "=3")),
        ("missing.pt", (*by, "--with", "labels=missing.pt")),
        ("1.5", (*by, "--with", "labels=1.5")),
        ("the nearest are", (*by, "--with", "labels=@./router:1")),
        ("is not a slot", (*by, "--with", "labels=@/blocks.0.moe.router:one")),
        ("character", ("--reduce", "by(labels, mean", *given)),
        ("positive number of keys", ("--reduce", "by(labels:-1, mean)", *given)),
        ("by", ("--reduce", "by(mean)", *given)),
        ("window", ("--reduce", "window(2, by(labels, mean))", *given)),
        ('"labels", too', ("--reduce", "by(labels, where(labels, mean))", *given)),
        ("beside", ("--reduce", "cka(beside)")),
    ):
        text = error(*arguments)
        assert says in text and "the model ran" not in text, (arguments, text)


def test_gradients(folder):
    run(
        *("record", f"{MODELS}/siamese.trace.pt", "--random", "5x6", "--seed", "3", "--what", "grad-output"),
        *("--save", folder / "gradients"),
    )
    model = torch.jit.load(f"{MODELS}/siamese.trace.pt")
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(3))
    gradients = torch.load(folder / "gradients" / "0.pt", weights_only=True)
    assert len(gradients) == 1 and torch.equal(gradients[0], torch.ones_like(model(x)))


def test_parameters(folder):
    """Gradients of parameters, of a model that uses one module twice and holds a frozen parameter."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)
            self.scale = torch.nn.Parameter(torch.full([4], 2.0), requires_grad=False)

        def forward(self, x: torch.Tensor):
            return self.fc(torch.tanh(self.fc(x))) * self.scale

    torch.manual_seed(5)
    net = torch.jit.script(Net().eval())
    net.save(str(folder / "parameters.pt"))
    x = torch.randn(3, 4)
    torch.save(x, folder / "x.pt")
    what = ("record", folder / "parameters.pt", "--input", folder / "x.pt", "--what", "grad-parameter")
    run(*what, "--save", folder / "parameters")
    net(x).sum().backward()
    manifest = json.loads((folder / "parameters" / "manifest.json").read_text())
    entries = {entry["path"]: entry for entry in manifest["entries"]}
    assert list(entries) == ["scale", "fc.weight", "fc.bias"]
    assert entries["fc.weight"]["kind"] == "BackwardParameter" and entries["fc.weight"]["type"] == "Linear"
    assert entries["scale"]["samples"] == 0 and "frozen" in entries["scale"]["note"]
    for name in ["weight", "bias"]:
        file = folder / "parameters" / entries[f"fc.{name}"]["file"]
        (gradient,) = torch.load(file, weights_only=True)
        assert torch.equal(gradient, getattr(net.fc, name).grad)
    run(*what, "--names", "fc", "--save", folder / "of_one")
    chosen = json.loads((folder / "of_one" / "manifest.json").read_text())["entries"]
    assert [entry["path"] for entry in chosen] == ["fc.weight", "fc.bias"]


def test_left_out(folder):
    """The last, smaller batch, and a nested tensor of one module: left out, counted and said."""

    class Ragged(torch.nn.Module):
        def forward(self, x: torch.Tensor):
            return torch._nested_tensor_from_mask(x.unsqueeze(0), torch.ones([1, x.size(0)], dtype=torch.bool))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.ragged = torch.nn.Linear(4, 3), Ragged()

        def forward(self, x: torch.Tensor):
            y = self.fc(x)
            return y + self.ragged(y).numel()

    torch.jit.script(Net()).save(folder / "ragged.pt")
    torch.save(torch.rand(40, 4), folder / "forty.pt")
    for reduce in ("moments", "log_histogram", "blocks", ""):
        saved = folder / f"ragged_{reduce}"
        how = ("--reduce", reduce, "--elementwise") if reduce else ()
        done = run("record", folder / "ragged.pt", "--input", folder / "forty.pt", "--batch", "16",
                   "--names", "fc", "--names", "ragged", *how, "--save", saved, "--json",
                   status=1 if reduce else 0)  # fmt: skip
        said = json.loads(done.out)
        assert said["calls"] == 3
        smaller = reduce in ("moments", "log_histogram")
        assert said["left_out"] == (["fc", "ragged"] if smaller else ["ragged"])
        assert "a nested tensor" in done.err or smaller
        shown = run("show", saved, "--json").out
        notes = {entry["path"]: entry["note"] for entry in json.loads(shown)["entries"]}
        assert "3 of its samples were left out" in notes["ragged"]
        assert ("1 of its samples was left out" in notes["fc"]) == smaller
        assert "were left out" in run("show", saved).out


def test_spool(folder):
    """Spooled samples equal those kept in memory."""
    arguments = ("record", f"{MODELS}/siamese.script.pt", "--random", "5x6", "--count", "30", "--names", "pair*")
    run(*arguments, "--save", folder / "kept_in_memory")
    run(*arguments, "--save", folder / "spooled", "--memory", "0")
    run("compare", folder / "kept_in_memory", folder / "spooled", "--rtol", "0", "--atol", "0")
    entry = json.loads((folder / "spooled" / "manifest.json").read_text())["entries"][0]
    shards = [torch.load(folder / "spooled" / shard["file"], weights_only=True) for shard in entry["shards"]]
    assert torch.equal(
        torch.cat(shards), torch.stack(torch.load(folder / "kept_in_memory" / "0.pt", weights_only=True))
    )
    run("convert", folder / "spooled", "--to", "npy", "--save", folder / "spooled_npy")


def test_list():
    done = run("list", f"{MODELS}/resnet18.script.pt", "--json")
    modules = json.loads(done.out)["modules"]
    assert len(modules) == 68
    assert modules[0]["parameters"] == 11689512
    conv = modules[1]
    assert (conv["path"], conv["type"], conv["parameters"]) == ("conv1", "Conv2d", 9408)
    text = run("list", f"{MODELS}/resnet18.script.pt", "--depth", "1").out
    assert len(text.splitlines()) == 17 and "layer4" in text and "downsample" not in text


def test_errors(folder):
    def error(*arguments, status=2):
        done = run(*arguments, status=status)
        assert any(line.startswith("torchtap: ") for line in done.err.splitlines())  # LibTorch may warn before
        return done.err

    model = f"{MODELS}/siamese.script.pt"
    torch.save({"weight": torch.ones(3)}, folder / "weights.pt")
    torch.save({"weight": torch.ones(3)}, folder / "old.pt", _use_new_zipfile_serialization=False)
    assert "no code" in error("list", folder / "weights.pt")
    assert "old format" in error("list", folder / "old.pt")
    assert "cannot read" in error("list", folder / "nothing.pt")
    (folder / "compiled.so").write_bytes(b"\x7fELF" + bytes(100))
    assert "AOTInductor" in error("list", folder / "compiled.so")
    for name, says in (
        ("serialized_exported_program.json", "torch.export"),
        ("data/aotinductor/model/x.cpp", "AOTInductor"),
    ):
        with zipfile.ZipFile(folder / "package.pt2", "w") as package:
            package.writestr("package/" + name, "{}")
        assert says in error("list", folder / "package.pt2")
    (folder / "broken.pt").write_bytes((MODELS / "siamese.script.pt").read_bytes()[:-100])
    error("list", folder / "broken.pt")
    x = ("--random", "4x6")
    assert "nearest" in error("record", model, *x, "--names", "piar", "--save", folder / "e1")
    assert "matches none" in error("record", model, *x, "--types", "Conv2d", "--save", folder / "e2")

    class Force(torch.nn.Module):
        def forward(self, x):
            x = x.detach().requires_grad_()
            return torch.autograd.grad([(x * x).sum()], [x])[0]

    torch.jit.script(Force()).save(folder / "force.pt")
    assert "use --enable-grad" in error("record", folder / "force.pt", *x, "--save", folder / "e6")
    assert "takes 1" in error("record", model, *x, *x, "--save", folder / "e3")
    assert "frozen" in error("record", f"{MODELS}/resnet18.frozen.pt", "--random", "1x3x64x64", "--save", folder / "e4")
    assert "no method" in error("record", model, *x, "--method", "decode", "--names", "", "--save", folder / "e5")
    assert not list(folder.glob("e?"))

    # The recording before a failing batch is kept.
    torch.save([torch.ones(4, 6), torch.ones(4, 7)], folder / "batches.pt")
    text = error(
        "record", model, "--input", folder / "batches.pt", "--batches", "--names", "pair", "--save", folder / "kept"
    )
    assert "batch 1" in text and "kept" in text
    assert len(torch.load(folder / "kept" / "0.pt", weights_only=True)) == 2
    assert "--overwrite" in error("record", model, *x, "--save", folder / "kept")
    run("record", model, *x, "--save", folder / "kept", "--overwrite")

    # A recording that is to be replaced stays until the new one is whole: after an error, and after a kill.
    def contents(path):
        return {file.name: file.read_bytes() for file in path.iterdir()}

    old = contents(folder / "kept")
    error("record", model, "--random", "4x7", "--memory", "0", "--overwrite", "--save", folder / "kept")
    assert contents(folder / "kept") == old and not list(folder.glob(".kept.*"))
    again = ("--count", 100000000, "--memory", "0", "--overwrite", "--save", folder / "kept")
    process = start(TORCHTAP, "record", model, *x, *again, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    new = ".kept.torchtap-new-*/*.part"
    until(
        lambda: any(file.stat().st_size > 0 for file in folder.glob(new)) or process.poll() is not None, "no new file"
    )
    process.kill()
    assert process.wait() == -signal.SIGKILL and contents(folder / "kept") == old
    run("record", model, *x, "--memory", "0", "--overwrite", "--save", folder / "kept")
    assert len(torch.load(folder / "kept" / "0-0.pt", weights_only=True)) == 1 and not list(folder.glob(".kept.*"))

    # Transformer layers bypass their submodules when gradients are disabled.
    torch.save(torch.randint(50, (2, 7)), folder / "tokens.pt")
    text = run("record", f"{MODELS}/transformer.script.pt", "--input", folder / "tokens.pt", "--save", folder / "t").err
    assert "linear1" in text and "--enable-grad" in text


def test_port(folder):
    """Compares the original in Python with its TorchScript file, before and after changing a weight of the file."""
    torch.manual_seed(1)
    model = torchvision.models.resnet18(weights=None).eval()
    images = torch.randn(2, 3, 64, 64)
    torch.save(images, folder / "images.pt")
    outputs = {name: [] for name, _ in model.named_modules()}
    handles = [
        module.register_forward_hook(lambda _, inputs, output, name=name: outputs[name].append(output.clone()))
        for name, module in model.named_modules()
    ]
    with torch.no_grad():
        model(images)
    for handle in handles:
        handle.remove()
    (folder / "original").mkdir()
    for name, tensors in outputs.items():
        torch.save(tensors, folder / f"original/{name or 'root'}.pt")
    torch.jit.script(model).save(folder / "port.pt")
    with torch.no_grad():
        model.layer2[1].conv1.weight[0] *= 1.5
    torch.jit.script(model).save(folder / "broken.pt")
    for name in ("port", "broken"):
        run("record", folder / f"{name}.pt", "--input", folder / "images.pt", "--save", folder / name)
    assert document("compare", folder / "original", folder / "port")["agree"]
    for first in ("original", "port"):
        found = document("compare", folder / first, folder / "broken", status=1)
        assert found["first"] == "layer2.1.conv1"
    # Separately recorded parts of a data set merge into the whole.
    for name, rows in (("both", images), ("one", images[:1]), ("two", images[1:])):
        torch.save(rows, folder / "rows.pt")
        run(
            *("record", folder / "port.pt", "--input", folder / "rows.pt", "--types", "Conv2d"),
            *("--reduce", "moments,max", "--over", "0", "--save", folder / name),
        )
    run("merge", folder / "one", folder / "two", "--save", folder / "merged")
    # Batches of one and of two rows may run different kernels.
    run("compare", folder / "both", folder / "merged", "--rtol", "1e-3", "--atol", "1e-4")
