"""torchtap compare of recordings and files: torchvision's ResNet-18 in Python and in TorchScript against itself with one
weight changed, small folders in every way in which two can differ, and weights in .pt, .npy and .safetensors files."""

import argparse
import json
import struct

import numpy
import pytest
import torch
import torchvision
from harness import SOURCE, run

EXACT = ("--rtol", "0", "--atol", "0")
BROKEN = "layer3.0.conv2"
inf, nan = float("inf"), float("nan")


def compare(a, b, *arguments, status):
    """Returns the JSON document; also checks that the table agrees with it."""
    told, said = (run("compare", a, b, *arguments, *more, status=status) for more in (["--json"], []))
    if status == 2:
        return said.err
    told = json.loads(told.out)
    assert told["agree"] == {0: True, 1: False, 3: None}[status] and bool(told["gaps"]) >= (status == 3)
    assert ("Not all was compared: " in said.out) == bool(told["gaps"])
    if told["first"] is not None:
        assert f"is {told['first'] or '(root)'}:" in said.out
    told["by_path"] = {entry["path"]: entry for entry in told["entries"]}
    return told


def folder_of(path, tensors):
    path.mkdir()
    for name, value in tensors.items():
        torch.save(value, path / f"{name or 'root'}.pt")
    return path


def outputs_of(model, batches, path):
    """A folder with the outputs of all modules, by plain hooks; what the model returns."""
    outputs = {}

    def hook(name):
        return lambda module, inputs, output: outputs.setdefault(name, []).append(output.clone())

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    with torch.no_grad():
        results = [model(batch) for batch in batches]
    for handle in handles:
        handle.remove()
    folder_of(path, outputs)
    return results


DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "F32": torch.float32,
    "I64": torch.int64,
    "F64": torch.float64,
}


def safetensors(path, tensors, padding=0, **more):
    """Writes a .safetensors file by hand: tensors by name, or (dtype, shape, bytes)."""
    header, data = dict(more), b""
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            (dtype,) = [key for key, value in DTYPES.items() if value == tensor.dtype]
            raw = tensor.contiguous().flatten()
            raw = raw.view(torch.int16).numpy() if dtype == "BF16" else raw.numpy()
            tensor = (dtype, list(tensor.shape), raw.tobytes())
        dtype, shape, raw = tensor
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode() + b" " * padding
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.fixture(scope="module")
def resnet(folder):
    """ResNet-18 with random weights, and with one that was changed: the names of its modules, and both state_dicts."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18().eval()
    images = [torch.randn(2, 3, 64, 64) for _ in range(2)]
    torch.save(images, folder / "images.pt")

    def record(name):
        """By Python in a folder, by the command in a recording."""
        torch.jit.script(model).save(folder / f"{name}.script")
        where = ("--input", folder / "images.pt", "--batches", "--save", folder / f"{name}-c++")
        run("record", folder / f"{name}.script", *where)
        outputs_of(model, images, folder / name)

    record("original")
    outputs_of(model, images, folder / "again")
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        model.get_submodule(BROKEN).weight[5, 7, 1, 1] += 0.1
    record("broken")
    return {name for name, _ in model.named_modules()}, weights, model.state_dict()


def test_equal(folder, resnet):
    told = compare(folder / "original", folder / "again", *EXACT, status=0)
    assert set(told["by_path"]) == resnet[0], "every module of ResNet-18"
    assert all(
        entry["status"] == "equal" and entry["cosine"] == 1 or abs(entry["cosine"] - 1) < 1e-12
        for entry in told["entries"]
    )
    compare(folder / "original", folder / "original-c++", status=0)


def test_the_layer_that_was_broken(folder, resnet):
    # A recording has the order of the model, on whichever side; files have their names.
    for one, other in (("original-c++", "broken"), ("original", "broken-c++"), ("original-c++", "broken-c++")):
        told = compare(folder / one, folder / other, status=1)
        assert told["first"] == BROKEN, "the layer that was broken"
    told = compare(folder / "original", folder / "broken", status=1)
    assert told["first"] == "avgpool", "the first by name that is broken"
    untouched = [
        entry["status"] for entry in told["entries"] if entry["path"].startswith(("conv1", "layer1", "layer2"))
    ]
    assert set(untouched) == {"equal"}, "nothing differs before"
    entry = told["by_path"][BROKEN]
    a, b = (torch.load(folder / name / f"{BROKEN}.pt") for name in ("original", "broken"))
    a, b = (torch.cat([t.flatten().double() for t in side]) for side in (a, b))
    assert abs(entry["max_abs"] - float((a - b).abs().max())) < 1e-12
    assert abs(entry["max_rel"] - float(((a - b).abs() / b.abs()).max())) < 1e-9 * entry["max_rel"]
    assert abs(entry["cosine"] - float(torch.dot(a, b) / a.norm() / b.norm())) < 1e-9
    assert compare(folder / "original", folder / "broken", "--atol", str(1e6), status=0)["first"] is None


def test_weights(folder, resnet):
    """Which of them differs, in whichever files."""
    _, weights, changed = resnet

    def saved(name, values):
        torch.save(values, folder / f"{name}.pt")
        safetensors(folder / f"{name}.safetensors", dict(reversed(values.items())), __metadata__={"format": "pt"})
        safetensors(folder / f"{name}-without-suffix", values, padding=5)
        (folder / f"{name}-npy").mkdir()
        for key, tensor in values.items():
            numpy.save(folder / f"{name}-npy/{key}.npy", tensor.numpy())
        (folder / f"{name}-parts").mkdir()
        keys = list(values)
        for part in range(3):
            safetensors(
                folder / f"{name}-parts/model-0000{part + 1}-of-00003.safetensors",
                {key: values[key] for key in keys[part::3]},
            )
        return [folder / (name + end) for end in (".pt", ".safetensors", "-without-suffix", "-npy", "-parts")]

    whole, changed = saved("weights", weights), saved("changed", changed)
    for i, one in enumerate(whole):
        told = compare(one, whole[i - 1], *EXACT, status=0)
        assert set(told["by_path"]) == set(weights), "every weight"
        told = compare(one, changed[i - 2], status=1)
        assert [entry["path"] for entry in told["entries"] if entry["status"] != "equal"] == [BROKEN + ".weight"]
        assert abs(told["by_path"][BROKEN + ".weight"]["max_abs"] - 0.1) < 1e-6
    renamed = {name.replace("fc.weight", "head.weight"): tensor for name, tensor in weights.items()}
    told = compare(whole[0], safetensors(folder / "renamed.safetensors", renamed), status=1)
    assert (told["by_path"]["fc.weight"]["status"], told["by_path"]["head.weight"]["status"]) == (
        "missing in B",
        "missing in A",
    )
    assert "All 122 tensors agree" in run("compare", *whole[:2]).out


def test_every_dtype_of_safetensors(folder):
    """And scalars, nothing, bytes that are not aligned."""
    values = {name: (torch.arange(6) % 2 + (name[0] == "I")).view(2, 3).to(dtype) for name, dtype in DTYPES.items()}
    values.update({"": torch.tensor(2.5), "nothing": torch.zeros(3, 0), "line\nbreak": torch.ones(1)})
    torch.save(values, folder / "dtypes.pt")
    for padding in (0, 1, 2, 4):
        path = safetensors(folder / "dtypes.safetensors", values, padding)
        told = compare(folder / "dtypes.pt", path, *EXACT, status=0)
        assert {entry["status"] for entry in told["entries"]} == {"equal"}, "dtypes"
    raw = {
        "U16": ("U16", [2], struct.pack("<HH", 65535, 1)),
        "U32": ("U32", [2], struct.pack("<II", 2**32 - 1, 1)),
        "U64": ("U64", [1], struct.pack("<Q", 2**63 - 1)),
        "BOOL": ("BOOL", [2], b"\0\x07"),
        "C64": ("C64", [1], struct.pack("<ff", 1, -2)),
    }
    torch.save(
        {
            "U16": torch.tensor([65535, 1]),
            "U32": torch.tensor([2**32 - 1, 1]),
            "U64": torch.tensor([2**63 - 1]),
            "BOOL": torch.tensor([False, True]),
            "C64": torch.tensor([1 - 2j]),
        },
        folder / "unsigned.pt",
    )
    path = safetensors(folder / "unsigned.safetensors", raw)
    compare(folder / "unsigned.pt", path, *EXACT, status=0)
    for dtype, shape, data, says in (("U64", [1], b"\xff" * 8, "int64"), ("F4", [2], b"\0", '"F4"')):
        text = compare(safetensors(folder / "odd.safetensors", {"x": (dtype, shape, data)}), path, status=2)
        assert "odd.safetensors" in text and '"x"' in text + '"x"' * (says == "int64") and says in text
    (folder / "model.safetensors.index.json").write_text("{}")
    text = compare(folder / "model.safetensors.index.json", path, status=2)
    assert "give the folder around it" in text, "the list of a checkpoint's files"
    eight = run("show", safetensors(folder / "f8.safetensors", {"x": ("F8_E4M3", [2], b"\x38\x40")}), status=None)
    assert "F8_E4M3" in eight.err if eight.status else "float8_e4m3fn" in eight.out


def test_two_single_tensors_are_compared_whatever_their_names(folder):
    """Also in other formats; not so two of several."""
    numpy.save(folder / "a.npy", numpy.arange(6.0).reshape(2, 3, order="F"))
    torch.save(torch.arange(6.0).view(2, 3).double(), folder / "b.pt")
    compare(folder / "a.npy", folder / "b.pt", status=1)
    torch.save(torch.from_numpy(numpy.load(folder / "a.npy")), folder / "b.pt")
    compare(folder / "a.npy", folder / "b.pt", *EXACT, status=0)


def test_natural_order_of_names_without_a_recording(folder):
    """9 before 10."""
    many = {f"{i}": torch.full([2], float(i)) for i in range(12)}
    told = compare(
        folder_of(folder / "ten", many), folder_of(folder / "nine", {**many, "10": many["0"], "9": many["0"]}), status=1
    )
    assert told["first"] == "9" and list(told["by_path"]) == list(many), "order"


BASE = {"a": [torch.ones(3)], "b": [torch.tensor([1.0, nan, inf]), torch.zeros(2)], "c": torch.ones(2)}


@pytest.fixture(scope="module")
def plain(folder):
    return folder_of(folder / "plain", BASE)


@pytest.fixture(scope="module")
def near(folder):
    return folder_of(folder / "near", {**BASE, "a": [torch.ones(3, dtype=torch.float64) + 1e-6]})


def test_all_kinds_of_differences(folder, plain):
    told = compare(plain, folder_of(folder / "same", BASE), *EXACT, status=0)
    assert [entry["status"] for entry in told["entries"]] == ["equal"] * 3, "NaN and infinities that are the same"
    ways = {
        "missing in B": {"b": BASE["b"], "c": BASE["c"]},
        "missing in A": {**BASE, "d": torch.ones(1)},
        "shapes differ": {**BASE, "a": [torch.ones(4)]},
        "samples differ in number": {**BASE, "b": BASE["b"][:1]},
        "not the same results": {**BASE, "c": {"mean": torch.ones(2)}},
        "no samples in B": {**BASE, "b": []},
        "only one is a tensor": {**BASE, "a": [None]},
        "different": {**BASE, "b": [torch.tensor([1.0, 0.0, inf]), torch.zeros(2)]},
    }
    for what, other in ways.items():
        told = compare(plain, folder_of(folder / what, other), status=1)
        found = [entry["status"] for entry in told["entries"] if entry["status"] not in ("equal", "close")]
        assert found == [what]


def test_modules_that_ran_on_neither_side(folder, plain):
    """Of which one side does not know."""
    for one, other in ((BASE, {**BASE, "d": []}), ({**BASE, "d": []}, BASE), ({**BASE, "d": []}, {**BASE, "d": []})):
        a, b = (folder_of(folder / f"idle{len(list(folder.glob('idle*')))}", tensors) for tensors in (one, other))
        told = compare(a, b, status=0)
        assert told["by_path"]["d"]["status"] == "not run", "a module that did not run"
        text = " ".join(run("compare", a, b).out.split())  # sentences are wrapped at the width of the terminal
        assert "All 3 modules agree" in text and "1 module ran on neither side." in text, "a module that did not run"
    assert (
        compare(plain, folder_of(folder / "idle-a", {**BASE, "b": []}), status=1)["by_path"]["b"]["status"]
        == "no samples in B"
    )


def test_many_small_samples_are_compared_together(folder):
    """The numbers are as of one by one."""
    torch.manual_seed(2)
    many = [torch.randn(3 if i % 1000 else 2) for i in range(5000)]
    moved = [sample + 1e-7 * i for i, sample in enumerate(many)]
    moved[4321] = moved[4321] + 5
    pair = folder_of(folder / "many", {"m": many}), folder_of(folder / "moved", {"m": moved})
    entry = compare(*pair, "--rtol", "0", "--atol", "1e-2", status=1)["by_path"]["m"]
    a, b = (torch.cat(samples).double() for samples in (many, moved))
    assert entry["detail"] == "sample 4321" and abs(entry["max_abs"] - float((a - b).abs().max())) < 1e-12
    assert abs(entry["cosine"] - float(torch.dot(a, b) / a.norm() / b.norm())) < 1e-9, "many samples"
    entry = compare(*pair, "--rtol", "0", "--atol", "6", status=0)["by_path"]["m"]
    assert entry["status"] == "close"
    assert abs(entry["max_rel"] - float(((a - b).abs() / b.abs()).max())) < 1e-9 * entry["max_rel"]
    assert compare(pair[0], pair[0], *EXACT, status=0)["by_path"]["m"]["status"] == "equal"


def test_values_that_are_not_finite(folder, plain):
    for value in (torch.tensor([1.0, nan, -inf]), torch.tensor([nan, nan, inf]), torch.tensor([1.0, nan, 3e38])):
        other = folder_of(folder / f"b{value.tolist()}", {**BASE, "b": [value, torch.zeros(2)]})
        told = compare(plain, other, "--rtol", "1", status=1)
        assert told["by_path"]["b"]["max_abs"] == "Infinity" or value[2] == 3e38
        compare(other, plain, "--rtol", "1", status=1)


def test_close(plain, near):
    told = compare(plain, near, status=0)
    assert told["by_path"]["a"]["status"] == "close" and abs(told["by_path"]["a"]["max_abs"] - 1e-6) < 1e-12
    compare(plain, near, *EXACT, status=1)
    compare(plain, SOURCE / "tests/storage/format_1", status=1)
    compare(plain / "a.pt", near / "c.pt", status=1)
    compare(plain / "c.pt", near / "c.pt", *EXACT, status=0)


def test_what_cannot_be_read(folder, plain, near):
    assert "nosuch" in compare(plain, folder / "nosuch", status=2), "no such folder"
    damaged = folder_of(folder / "damaged", BASE)
    (damaged / "b.pt").write_bytes(b"PK")
    assert "b.pt" in compare(damaged, near, status=2), "a damaged file"
    (folder / "empty").mkdir()
    assert "manifest" in compare(near, folder / "empty", status=2), "nothing in a folder"


def test_whole_numbers_that_float64_does_not_hold(folder):
    for name, value in (("large", 2**53), ("larger", 2**53 + 1), ("seed", 2**62 + 12345), ("seed2", 2**62 + 12346)):
        numpy.save(folder / f"{name}.npy", numpy.array([value, 7]))
    for a, b in (("large", "larger"), ("seed", "seed2")):
        found = compare(folder / f"{a}.npy", folder / f"{b}.npy", *EXACT, status=1)["entries"][0]
        assert found["max_abs"] == 1, "exact whole numbers"
        compare(folder / f"{a}.npy", folder / f"{a}.npy", *EXACT, status=0)
        compare(folder / f"{a}.npy", folder / f"{b}.npy", status=1)
        compare(folder / f"{a}.npy", folder / f"{b}.npy", "--rtol", "0.1", status=1)
        compare(folder / f"{a}.npy", folder / f"{b}.npy", "--atol", "1", status=0)


def test_every_value_is_compared_in_full(folder):
    """What differs, differs; what is the same, agrees or was not compared."""
    pairs = {
        "ids": (torch.tensor([5, 100000]), torch.tensor([5, 100001])),
        "large": (torch.tensor([2**63 - 1]), torch.tensor([2**63 - 2])),
        "mixed": (torch.tensor([2**53 + 1]), torch.tensor([2.0**53], dtype=torch.float64)),
        "beyond": (torch.tensor([2.0**63], dtype=torch.float64), torch.tensor([2**63 - 1])),
        "boolean": (torch.tensor([True, False]), torch.tensor([2, 0], dtype=torch.uint8)),
        "complex": (torch.tensor([complex(nan, 1)]), torch.tensor([complex(1, nan)])),
        "imaginary": (torch.tensor([complex(nan, 1)]), torch.tensor([complex(nan, 2)])),
        "text": ("resnet18", "resnet50"),
        "long": ("word " * 1000 + "cat", "word " * 1000 + "dog"),
        "texts": (["x", "y"], ["x", "z"]),
        "beside": ([torch.ones(2), "x"], [torch.ones(2), "y"]),
        "deep": (["x", {"y": "a"}], ["x", {"y": "b"}]),
        "nothing": (None, 1),
        "empty": ([], None),
        "emptied": ([], {}),
        "number": (1, "1"),
    }
    for side, name in enumerate("ab"):
        torch.save({key: pair[side] for key, pair in pairs.items()}, folder / f"{name}.pt")
    for a, b in ("ab", "ba"):
        told = compare(folder / f"{a}.pt", folder / f"{b}.pt", *EXACT, status=1)
        agree = {entry["path"] for entry in told["entries"] if entry["status"] in ("equal", "close", "not compared")}
        assert agree == {"beside[0]", "deep[0]", "texts[0]"}
        assert {path.split("[")[0] for path in told["by_path"]} == set(pairs)
        same = compare(folder / f"{a}.pt", folder / f"{a}.pt", *EXACT, status=0)
        assert {entry["status"] for entry in same["entries"]} <= {"equal", "not run"}
    details = compare(folder / "a.pt", folder / "b.pt", *EXACT, status=1)["by_path"]
    assert details["text"]["detail"] == "'resnet18' and 'resnet50'"
    assert "word cat' and " in details["long"]["detail"] and len(details["long"]["detail"]) < 200


def test_what_a_file_holds_beside_tensors(folder):
    base = torch.randn(3, 4)
    for name, a in (
        ("namespace", argparse.Namespace(lr=1)),
        ("set", {1, 2}),
        ("large", 2**70),
        ("keys", {(1, 2): base, (3, 4): base + 1}),
    ):
        torch.save({"a": a, "w": base}, folder / "a.pt")
        told = compare(folder / "a.pt", folder / "a.pt", status=3)
        assert len(told["gaps"]) == 1 and told["gaps"][0].startswith("a") and "<" in told["gaps"][0], name
        torch.save({"a": a, "w": base + 1}, folder / "b.pt")
        told = compare(folder / "a.pt", folder / "b.pt", status=1)
        assert told["first"] == "w" and len(told["gaps"]) == 1
        torch.save({"w": base}, folder / "b.pt")
        compare(folder / "a.pt", folder / "b.pt", status=1)
    torch.save({"weight": base}, folder / "a.pt")
    torch.save({"bias": base}, folder / "b.pt")
    told = compare(folder / "a.pt", folder / "b.pt", status=1)
    assert {entry["status"] for entry in told["entries"]} == {"missing in A", "missing in B"}
    torch.save(base, folder / "b.pt")  # which has no name
    compare(folder / "a.pt", folder / "b.pt", *EXACT, status=0)


def test_quantized_and_sparse_tensors_are_compared_in_full(folder):
    base = torch.arange(12.0).reshape(3, 4) / 4 * (torch.arange(12).reshape(3, 4) % 3 != 0)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2])
    index, values = torch.tensor([[0, 1], [2, 0]]), torch.tensor([1.0, 2.0])

    def qtensor(tensor=base, scale=0.25, zero=3, dtype=torch.qint8):
        return torch.quantize_per_tensor(tensor, scale, zero, dtype)

    def channels(scales=scales, zeros=zeros, axis=0):
        return torch.quantize_per_channel(torch.ones(3, 3), scales, zeros, axis, torch.quint8)

    def sparse(index=index, values=values, size=(3, 3)):
        return torch.sparse_coo_tensor(index, values, size)

    other = base.clone()
    other[2, 3] += 0.25
    last = torch.tensor([0.1, 0.2, 0.30001])
    kinds = {
        "qtensor": (
            qtensor(),
            {
                "int_repr": qtensor(other),
                "scale": qtensor(base * 2, 0.5),
                "zero_point": qtensor(zero=4),
                "scheme": channels(),
            },
        ),
        "channels": (
            channels(),
            {"scale": channels(last), "zero_point": channels(zeros=zeros + 1), "axis": channels(axis=1)},
        ),
        "sparse": (
            sparse(),
            {
                "indices": sparse(index.flip(0)),
                "values": sparse(values=values + 1),
                "size": sparse(size=(3, 4)),
                "layout": sparse().to_dense().to_sparse_csr(),
            },
        ),
        "csr": (
            base.to_sparse_csr(),
            {"values": other.to_sparse_csr(), "plain_indices": base.flip(1).contiguous().to_sparse_csr()},
        ),
        "parameter": (torch.nn.Parameter(sparse()), {"values": torch.nn.Parameter(sparse(values=values + 1))}),
    }
    for name, (one, others) in kinds.items():
        torch.save({"w": one}, folder / "a.pt")
        told = compare(folder / "a.pt", folder / "a.pt", *EXACT, status=0)
        assert not told["gaps"] and {entry["status"] for entry in told["entries"]} == {"equal"}, name
        for part, another in others.items():
            torch.save({"w": another}, folder / "b.pt")
            told = compare(folder / "a.pt", folder / "b.pt", *EXACT, status=1)
            assert f"w.{part}" in {entry["path"] for entry in told["entries"] if entry["status"] != "equal"}, (
                name,
                part,
            )
        torch.save({"w": one.to_dense() if one.layout is not torch.strided else one.dequantize()}, folder / "b.pt")
        compare(folder / "a.pt", folder / "b.pt", status=1)
    # Within a tolerance, as other numbers.
    torch.save({"w": channels()}, folder / "a.pt")
    torch.save({"w": channels(last)}, folder / "b.pt")
    compare(folder / "a.pt", folder / "b.pt", "--rtol", "0.001", status=0)
    # Two values in a byte are not read.
    torch.save({"w": torch.quantize_per_channel(base, scales, zeros.float(), 0, torch.quint4x2)}, folder / "a.pt")
    compare(folder / "a.pt", folder / "a.pt", status=3)


def test_names_behind_another_name(folder):
    layer = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    torch.save(dict(layer.state_dict()), folder / "plain.pt")
    torch.save({"state_dict": dict(layer.state_dict())}, folder / "nested.pt")
    compare(folder / "nested.pt", folder / "plain.pt", status=0)
    with torch.no_grad():
        layer[1].bias += 1
    torch.save({"model": dict(layer.state_dict())}, folder / "other.pt")
    found = compare(folder / "plain.pt", folder / "other.pt", status=1)
    assert found["first"] == "1.bias" and len(found["entries"]) == 4, "nested checkpoint"
    before = torch.load(folder / "nested.pt")
    torch.save({"epoch": 3, **before}, folder / "nested.pt")
    torch.save({"epoch": 3, "model": {"module": dict(layer.state_dict())}}, folder / "other.pt")
    found = compare(folder / "nested.pt", folder / "other.pt", status=1)
    assert found["first"] == "1.bias" and len(found["entries"]) == 5, "two nested checkpoints"


def test_options_that_say_nothing_of_what_is_compared(folder, near):
    """And sides that do not go together."""
    (folder / "run.prints").write_bytes(b"TTF1")
    for arguments, says in (
        ((near, near, "--tolerance", "0.1"), "--rtol"),
        ((near, near, "--map", "a=b"), "--map is for fingerprints"),
        ((near, near, "--bits"), "--bits"),
        ((near, near, "--all"), "--all"),
        ((folder / "run.prints", near), "only one of"),
        ((near, folder / "run.prints"), "preload --fingerprint"),
        ((folder / "run.prints", folder / "run.prints", "--rtol", "0"), "--rtol is for recordings"),
        ((folder / "run.prints", folder / "run.prints", "--csv"), "--csv is for"),
        (("-", "-", "--atol", "0"), "--atol is for"),
        ((near,), "A and B"),
        ((), "A and B"),
        (("--run", "true"), "1 time;"),
        (("--run", " ", "--run", "true"), "a command line is empty"),
        ((near, near, "--forwards", "2"), "are for --run"),
        (("--run", "true", "--run", "true", "--run", "true"), "3 times"),
        ((near, near, "--run", "true"), "--run"),
        (("--run", "true", "--run", "true", "--rtol", "0"), "--rtol is for"),
    ):
        assert says in run("compare", *arguments, status=2).err
