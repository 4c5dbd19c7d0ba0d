"""Records every TorchScript model of the tests from the command line and compares with Python's hooks.

usage: record.py TORCHTAP MODELS SOURCE
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torchvision

COMMAND, MODELS = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, sys.argv[3] + "/python")
from torchtap.record import record_folder  # noqa: E402

FASHION = "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz"


def run(*arguments, status=0):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    assert "\r" not in done.stderr, "a progress bar, although nobody looks"
    return done


def recorded(folder):
    """{"PATH#CALL#SLOT": tensor}"""
    manifest = json.loads((folder / "manifest.json").read_text())
    values = {}
    for entry in manifest["entries"]:
        if not entry["file"]:
            continue
        slots = torch.load(folder / entry["file"], weights_only=True)
        for slot, calls in slots.items():
            for call, value in enumerate(calls):
                if value is not None:
                    values[f"{entry['path']}#{call}#{slot}"] = value
    return values


def check_model(folder, name, how):
    arguments = list(torch.jit.load(f"{MODELS}/{name}.arguments.pt").arguments)
    torch.save(arguments, folder / "inputs.pt")
    expected = torch.load(f"{MODELS}/{name}.expected.pt")
    for what, kind in (("output", "out"), ("pre", "pre")):
        saved = folder / f"{name}.{how}.{what}"
        run(
            "record",
            f"{MODELS}/{name}.{how}.pt",
            "--input",
            folder / "inputs.pt",
            "--what",
            what,
            "--all-tensors",
            "--enable-grad",
            "--save",
            saved,
        )
        values = recorded(saved)
        compared = 0
        for key, tensor in expected.items():
            if key.startswith(kind + " "):
                assert torch.equal(values[key[len(kind) + 1 :]], tensor), f"{name}.{how}: {key}"
                compared += 1
        assert compared > 0
    print(f"{name}.{how}: {compared} values")


def check_reductions(folder):
    """Records Fashion-MNIST through a small network in batches and compares with NumPy and PyTorch."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(2704, 10))
    torch.jit.script(net).save(folder / "net.pt")
    done = run(
        "record",
        folder / "net.pt",
        "--idx3",
        FASHION,
        "--batch",
        500,
        "--types",
        "Linear|Conv2d",
        "--reduce",
        "moments,min,max",
        "--over",
        "0",
        "--save",
        folder / "moments",
        "--json",
    )
    assert json.loads(done.stdout)["calls"] == 20
    import gzip

    pixels = numpy.frombuffer(gzip.open(FASHION).read(), dtype=numpy.uint8, offset=16)
    images = torch.tensor(pixels.reshape(-1, 1, 28, 28)).float() / 255
    with torch.no_grad():
        wanted = {"0": net[0](images).double(), "3": net(images).double()}
    for index, path in enumerate(("0", "3")):
        value = torch.load(folder / "moments" / f"{index}.pt", weights_only=True)
        assert torch.allclose(value["moments.mean"].double(), wanted[path].mean(0), atol=1e-5), path
        assert torch.allclose(value["moments.variance"].double(), wanted[path].var(0), rtol=1e-3, atol=1e-6), path
        assert torch.allclose(value["min.value"].double(), wanted[path].amin(0), atol=1e-5), path
        assert torch.allclose(value["max.value"].double(), wanted[path].amax(0), atol=1e-5), path


def check_gradients(folder):
    run(
        "record",
        f"{MODELS}/siamese.trace.pt",
        "--random",
        "5x6",
        "--seed",
        "3",
        "--what",
        "grad-output",
        "--save",
        folder / "gradients",
    )
    model = torch.jit.load(f"{MODELS}/siamese.trace.pt")
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(3))
    gradients = torch.load(folder / "gradients" / "0.pt", weights_only=True)
    assert len(gradients) == 1 and torch.equal(gradients[0], torch.ones_like(model(x)))


def check_spool(folder):
    """Spooled samples equal those kept in memory."""
    arguments = ("record", f"{MODELS}/siamese.script.pt", "--random", "5x6", "--count", "30", "--names", "pair*")
    run(*arguments, "--save", folder / "kept_in_memory")
    run(*arguments, "--save", folder / "spooled", "--memory", "0")
    run("diff", folder / "kept_in_memory", folder / "spooled", "--rtol", "0", "--atol", "0")
    entry = json.loads((folder / "spooled" / "manifest.json").read_text())["entries"][0]
    shards = [torch.load(folder / "spooled" / shard["file"], weights_only=True) for shard in entry["shards"]]
    assert torch.equal(
        torch.cat(shards), torch.stack(torch.load(folder / "kept_in_memory" / "0.pt", weights_only=True))
    )
    run("convert", folder / "spooled", "--to", "npy", "--save", folder / "spooled_npy")


def check_list():
    done = run("list", f"{MODELS}/resnet18.script.pt", "--json")
    modules = json.loads(done.stdout)["modules"]
    assert len(modules) == 68
    assert modules[0]["parameters"] == 11689512
    conv = modules[1]
    assert (conv["path"], conv["type"], conv["parameters"]) == ("conv1", "Conv2d", 9408)
    text = run("list", f"{MODELS}/resnet18.script.pt", "--depth", "1").stdout
    assert len(text.splitlines()) == 17 and "layer4" in text and "downsample" not in text


def check_errors(folder):
    def error(*arguments, status=2):
        done = run(*arguments, status=status)
        assert done.stderr.startswith("torchtap: "), done.stderr
        return done.stderr

    model = f"{MODELS}/siamese.script.pt"
    torch.save({"weight": torch.ones(3)}, folder / "weights.pt")
    torch.save({"weight": torch.ones(3)}, folder / "old.pt", _use_new_zipfile_serialization=False)
    assert "no code" in error("list", folder / "weights.pt")
    assert "old format" in error("list", folder / "old.pt")
    assert "cannot read" in error("list", folder / "nothing.pt")
    (folder / "compiled.so").write_bytes(b"\x7fELF" + bytes(100))
    assert "AOTInductor" in error("list", folder / "compiled.so")
    import zipfile

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
    process = subprocess.Popen(
        [
            COMMAND,
            "record",
            str(model),
            *x,
            "--count",
            "100000000",
            "--memory",
            "0",
            "--overwrite",
            "--save",
            str(folder / "kept"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while (
        not [file for file in folder.glob(".kept.torchtap-new-*/*.part") if file.stat().st_size > 0]
        and process.poll() is None
    ):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL and contents(folder / "kept") == old
    run("record", model, *x, "--memory", "0", "--overwrite", "--save", folder / "kept")
    assert len(torch.load(folder / "kept" / "0-0.pt", weights_only=True)) == 1 and not list(folder.glob(".kept.*"))

    # Transformer layers bypass their submodules when gradients are disabled.
    torch.save(torch.randint(50, (2, 7)), folder / "tokens.pt")
    text = run(
        "record", f"{MODELS}/transformer.script.pt", "--input", folder / "tokens.pt", "--save", folder / "t"
    ).stderr
    assert "linear1" in text and "--enable-grad" in text


def check_port(folder):
    """Compares the original in Python with its TorchScript file, before and after changing a weight of the file."""
    torch.manual_seed(1)
    model = torchvision.models.resnet18(weights=None).eval()
    images = torch.randn(2, 3, 64, 64)
    torch.save(images, folder / "images.pt")
    with torch.no_grad(), record_folder(model, str(folder / "original")):
        model(images)
    torch.jit.script(model).save(folder / "port.pt")
    with torch.no_grad():
        model.layer2[1].conv1.weight[0] *= 1.5
    torch.jit.script(model).save(folder / "broken.pt")
    for name in ("port", "broken"):
        run("record", folder / f"{name}.pt", "--input", folder / "images.pt", "--save", folder / name)
    assert json.loads(run("diff", folder / "original", folder / "port", "--json").stdout)["agree"]
    for first in ("original", "port"):
        found = json.loads(run("diff", folder / first, folder / "broken", "--json", status=1).stdout)
        assert found["first"] == "layer2.1.conv1", found["first"]
    # Separately recorded parts of a data set merge into the whole.
    for name, rows in (("both", images), ("one", images[:1]), ("two", images[1:])):
        torch.save(rows, folder / "rows.pt")
        run(
            "record",
            folder / "port.pt",
            "--input",
            folder / "rows.pt",
            "--types",
            "Conv2d",
            "--reduce",
            "moments,max",
            "--over",
            "0",
            "--save",
            folder / name,
        )
    run("merge", folder / "one", folder / "two", "--save", folder / "merged")
    # Batches of one and of two rows may run different kernels.
    run("diff", folder / "both", folder / "merged", "--rtol", "1e-3", "--atol", "1e-4")


with tempfile.TemporaryDirectory() as temporary:
    here = pathlib.Path(temporary)
    for model_file in sorted(MODELS.glob("*.expected.pt")):
        model_name = model_file.name.split(".")[0]
        for kind_of_file in ("script", "trace"):
            if (MODELS / f"{model_name}.{kind_of_file}.pt").exists():
                check_model(here, model_name, kind_of_file)
    check_reductions(here)
    check_gradients(here)
    check_spool(here)
    check_list()
    check_errors(here)
    check_port(here)
