"""Tests the inputs that the command reads against NumPy, torch and Python's own gzip."""

import gzip
import json
import pathlib
import struct
import tempfile

import numpy
import torch
from harness import FASHION, call, given, recording


def batches(folder, *arguments):
    """Returns the batches of these options, each a list of tensors."""
    call(given("batches"), *arguments, "--save", folder / "out")
    return [value for _, value in recording(folder / "out")]


def refused(folder, *arguments):
    """Returns the error message; a crash fails the test."""
    done = call(given("batches"), *arguments, "--save", folder / "out", status=None)
    assert done.status > 0 and done.err.strip() != ""
    return done.err


def each_refused(files, *arguments):
    """Returns the reason why each of these files, {description: bytes}, is refused."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(pathlib.Path(folder) / str(i), data) for i, data in enumerate(files.values())]
        why = call(given("batches"), "--input", *paths, *arguments, "--one-by-one").out.splitlines()
    assert len(why) == len(files)
    assert [what for what, line in zip(files, why) if line == "accepted"] == []
    return dict(zip(files, why))


def same(got, want):
    assert len(got) == len(want) and all(len(a) == len(b) for a, b in zip(got, want))
    for a, b in zip(got, want):
        for x, y in zip(a, b):
            if y is None:
                assert x is None
            else:
                assert x is not None and x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y)


def test_safetensors(folder):
    """A dict of tensors, and every way in which a header can be wrong."""
    x, ids = torch.arange(6.0).view(2, 3), torch.arange(3)
    data = x.numpy().tobytes() + ids.numpy().tobytes()

    def file(header, data=data):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    sound = {
        "x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "ids": {"dtype": "I64", "shape": [3], "data_offsets": [24, 48]},
    }
    write(folder / "a.safetensors", file(sound))
    ((got,),) = batches(folder, "--input", folder / "a.safetensors")
    assert list(got) == ["x", "ids"] and torch.equal(got["x"], x) and torch.equal(got["ids"], ids), "a dict"

    def changed(name, **fields):
        return file({**sound, name: {**sound[name], **fields}})

    bad = {f"{size} bytes": file(sound)[:size] for size in range(9, len(file(sound)))}
    bad["more"] = file(sound) + b"x"
    bad["a longer header than the file"] = struct.pack("<Q", 2**31) + file(sound)[8:]
    bad["no JSON"], bad["no object"] = file(b"{" + b"[" * 100000), file(b'{"x": 1}')
    bad["an overlap"] = changed("ids", data_offsets=[16, 40])
    bad["a gap"] = file({**sound, "ids": {**sound["ids"], "data_offsets": [32, 56]}}, data + b"12345678")
    bad["the same bytes twice"] = file({"x": sound["x"], "y": sound["x"]}, data[:24])
    bad["the other way round"] = changed("ids", data_offsets=[48, 24])
    bad["another size"] = changed("x", shape=[2, 4])
    bad["a negative size"] = changed("x", shape=[-2, -3])
    bad["a fraction"] = changed("x", shape=[2.0, 3])
    bad["too large a size"] = changed("x", shape=[2**63, 2])
    bad["a product that wraps"] = changed("x", shape=[2**62, 4, 0], data_offsets=[0, 0])
    bad["no list"] = changed("x", shape=6)
    bad["three offsets"] = changed("x", data_offsets=[0, 24, 24])
    bad["an unknown dtype"] = changed("x", dtype="F31")
    bad["no dtype"] = file({"x": {"shape": [2, 3], "data_offsets": [0, 24]}}, data[:24])
    bad["65 dimensions"] = changed("x", shape=[1] * 63 + [2, 3])
    why = each_refused(bad)
    for what, says in (
        ("no JSON", "JSON"),
        ("an overlap", '"ids" begins at byte 16'),
        ("a gap", "the one before ends at 24"),
        ("another size", "takes 32 bytes"),
        ("an unknown dtype", 'no dtype "F31"'),
        ("no dtype", "dtype"),
        ("a product that wraps", "shape"),
        ("65 dimensions", "65 dimensions"),
        ("more", "49 follow"),
    ):
        assert says in why[what]


def write(path, data):
    path.write_bytes(data)
    return path


VALUES = numpy.arange(24).reshape(2, 3, 4) - 3


def test_npy(folder):
    """.npy: every dtype, both byte orders, both orders of dimensions, shapes and versions."""
    widened = {"u2": torch.int32, "u4": torch.int64, "u8": torch.int64}
    paths, want = [], []

    def expect(array, tensor, version=None):
        paths.append(folder / f"{len(paths)}.npy")
        want.append([tensor])
        with open(paths[-1], "wb") as file:
            numpy.lib.format.write_array(file, array, version=version)

    for kind in ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]:
        for order in "<>":
            array = (abs(VALUES) if kind[0] == "u" else VALUES * (1.25 + 0.5j) if kind[0] == "c" else VALUES).astype(
                order + kind
            )
            native = array.astype("=" + kind)
            tensor = (
                torch.from_numpy(native.astype("i8")).to(widened[kind]) if kind in widened else torch.from_numpy(native)
            )
            expect(array, tensor)
            expect(numpy.asfortranarray(array), tensor)
    for shape in [(), (0,), (5,), (3, 0, 2), (1, 1)]:
        array = numpy.array(numpy.random.RandomState(0).standard_normal(shape), dtype="f4")
        expect(array, torch.from_numpy(array))
    for version in [(1, 0), (2, 0), (3, 0)]:
        expect(VALUES, torch.from_numpy(VALUES), version)
    same(batches(folder, "--input", *paths), want)
    both = numpy.concatenate([VALUES, VALUES])
    for array in (both, numpy.asfortranarray(both)):
        numpy.save(folder / "a.npy", array)
        rows = torch.from_numpy(both)
        same(batches(folder, "--input", folder / "a.npy", "--batch", 3), [[rows[:3]], [rows[3:]]])


def test_npy_of_wrong_sizes(folder):
    """The sizes that a .npy declares are checked."""
    numpy.save(folder / "a.npy", VALUES)
    whole = (folder / "a.npy").read_bytes()
    bad = {f"a .npy of {size} bytes": whole[:size] for size in range(0, len(whole), 7)}
    bad["a longer .npy"] = whole + b"x"
    bad["a header of 4 GB"] = whole[:6] + b"\x02\x00\xff\xff\xff\xff" + whole[10:]
    head = whole[10 : whole.index(b"\n")].replace(b"(2", b"(" + b"1," * 10000 + b"2") + b"\n"
    bad["a header of 20 kB"] = whole[:8] + struct.pack("<H", len(head)) + head + whole[-192:]
    for old, new in [
        (b"(2, 3, 4)", b"(2, 3, 5)"),
        (b"(2, 3, 4)", b"(2,3,-4)"),
        (b"(2, 3, 4)", b"(9999999999999999999999,)"),
        (b"(2, 3, 4)", b"(4611686018427387904, 16)"),
        (b"<i8", b"|O8"),
        (b"<i8", b"<U2"),
        (b"descr", b"dexcr"),
        (b"False", b"Maybe"),
    ]:
        text = whole.replace(old, new)
        head = text[10:].split(b"\n")[0] + b"\n"
        bad[f"a .npy with {new}"] = text[:8] + struct.pack("<H", len(head)) + text[10:]
    numpy.save(folder / "large.npy", numpy.array([2**63], dtype="u8"))
    bad["a uint64 that does not fit"] = (folder / "large.npy").read_bytes()
    bad["a text"], bad["an empty file"] = b"hello, world", b""
    why = each_refused(bad)
    assert "data" in why["a longer .npy"] and "int64" in why["a uint64 that does not fit"], "what is wrong"


def test_pt(folder):
    """.pt: a tensor, positional inputs, batches, None."""
    path = folder / "a.pt"
    a, b = torch.randn(5, 3), torch.arange(10).view(5, 2)
    torch.save(a, path)
    same(batches(folder, "--input", path), [[a]])
    same(batches(folder, "--input", path, path), [[a], [a]])
    same(batches(folder, "--input", path, "--batch", 2), [[a[:2]], [a[2:4]], [a[4:]]])
    torch.save((a, None, b), path)
    same(batches(folder, "--input", path), [[a, None, b]])
    same(batches(folder, "--input", path, "--batch", 4), [[a[:4], None, b[:4]], [a[4:], None, b[4:]]])
    torch.save([a, [b, a], (b,)], path)
    same(batches(folder, "--input", path, "--batches"), [[a], [b, a], [b]])
    nested = batches(folder, "--input", path)[0]  # without --batches: three inputs, two of them lists
    same([[nested[0], *nested[1], *nested[2]]], [[a, b, a, b]])
    assert "--batch" in refused(folder, "--input", path, "--batch", 2)
    torch.save([a, torch.ones(3)], path)
    refused(folder, "--input", path, "--batch", 2)
    torch.save({"x": a}, path)
    got = batches(folder, "--input", path)[0]
    assert list(got[0]) == ["x"] and torch.equal(got[0]["x"], a), "a dict is an input"
    refused(folder, "--input", path, "--batch", 2)
    refused(folder)


def test_idx_files(folder):
    """idx: real data, plain and gzipped, and every type."""
    for name in ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]:
        raw = gzip.decompress((FASHION / (name + ".gz")).read_bytes())
        plain = write(folder / name, raw)
        zipped = write(folder / (name + ".gz"), gzip.compress(raw, 1))
        images = "images" in name
        array = numpy.frombuffer(raw, "u1", offset=16 if images else 8)
        want = torch.from_numpy(array.copy())
        if images:
            want = want.view(10000, 1, 28, 28).float() / 255
        for file in (plain, zipped):
            got = batches(folder, "--idx3", file, "--batch", 3000)
            same(got, [[want[i : i + 3000]] for i in range(0, 10000, 3000)])
        same(batches(folder, "--input", zipped)[155:157], [[want[155 * 64 : 156 * 64]], [want[156 * 64 :]]])


def test_idx_of_every_type(folder):
    paths, want, bad = [], [], {}
    for code, kind in {8: "u1", 9: "i1", 11: "i2", 12: "i4", 13: "f4", 14: "f8"}.items():
        array = (numpy.arange(12).reshape(2, 6) * 3).astype(">" + kind)
        paths.append(write(folder / f"{code}.idx", bytes([0, 0, code, 2]) + struct.pack(">2I", 2, 6) + array.tobytes()))
        want.append([torch.from_numpy(array.astype("=" + kind))])
        whole = paths[-1].read_bytes()
        for what, damaged in {
            "shorter": whole[:-1],
            "longer": whole + b"x",
            "of 200 dimensions": bytes([0, 0, code, 200]) + b"1" * 900,
            "huge": bytes([0, 0, code, 2]) + struct.pack(">2I", 2**32 - 1, 2**31) + b"0" * 100,
            "without sizes": bytes([0, 0, code, 2, 0]),
        }.items():
            bad[f"idx of type {code}, {what}"] = damaged
            bad[f"idx of type {code}, {what}, gzipped"] = gzip.compress(damaged)
    same(batches(folder, "--input", *paths), want)
    cut = gzip.compress(whole * 1000)
    bad["a gzip stream that ends too early"] = cut[: len(cut) // 2]
    each_refused(bad)


def test_random(folder):
    """Random inputs equal Python's."""
    generator = torch.Generator().manual_seed(7)
    want = [
        [torch.randn(2, 3, 4, generator=generator), torch.randint(100, (5,), generator=generator)] for _ in range(3)
    ]
    same(batches(folder, "--random", "2x3x4", "--random", "5:int64:100", "--seed", 7, "--count", 3), want)
    (half,) = batches(folder, "--random", "4x4:float16")
    assert half[0].dtype == torch.float16, "random float16"
    for text in ("", "x", "3x", "3x-1", "3:float99", "3:int64:0", "999999999x999999999"):
        refused(folder, "--random", text)
