"""torchtap.rows, over dumps that this file writes by docs/format.md and the format of rows, and not with torchtap's writer.

Each row's values say which run, forward, call and place it is of, so that every way to read it can be compared with them."""

import collections
import concurrent.futures
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import zlib

import numpy
import pytest
import torch
from harness import SOURCE

FILE = SOURCE / "extras/python/torchtap/rows.py"
TABLES = SOURCE / "extras/python/torchtap/rows_tables.py"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The file alone, as it is copied beside a dump; spawned workers find it too."""
    folder = tmp_path_factory.mktemp("alone")
    for file in (FILE, TABLES):
        shutil.copy(file, folder)
    sys.path.insert(0, str(folder))
    import rows

    yield rows
    sys.path.remove(str(folder))
    del sys.modules["rows"]


def name_of(dtype):
    return str(dtype).split(".")[1]


class Writer:
    """Entries of a directory, in shards of so many rows."""

    def __init__(self, folder, shard=64):
        self.folder, self.shard, self.entries = pathlib.Path(folder), shard, []
        self.folder.mkdir(parents=True, exist_ok=True)

    def stacked(self, number, name, stack):
        """One complete shard: its line in the manifest."""
        file = self.folder / f"{number}-{name}.pt"
        torch.save(stack, file)
        about = {"file": file.name, "slot": -1, "samples": len(stack), "bytes": file.stat().st_size, "holds": "tensor"}
        return {**about, "dtype": name_of(stack.dtype), "shape": [*stack.shape[1:]], "ragged": False}

    def entry(self, path, kind, type, stack):
        number = len(self.entries)
        shards = [self.stacked(number, i, part.clone()) for i, part in enumerate(stack.split(self.shard)) if len(part)]
        about = {"index": number, "path": path, "aliases": [], "type": type, "kind": kind, "samples": len(stack)}
        about |= {"reduction": "", "holds": "list", "number": len(stack), "keys": [], "dtype": name_of(stack.dtype)}
        about |= {
            "shape": [*stack.shape[1:]],
            "ragged": False,
            "file": "",
            "bytes": sum(one["bytes"] for one in shards),
        }
        self.entries.append({**about, "shards": shards})

    def with_index(self, path, kind, type, stack, lines):
        self.entry(path, kind, type, stack)
        self.entry(path, kind + ".calls", "rows 1", torch.tensor(lines, dtype=torch.int64).reshape(-1, 5))

    def manifest(self, format=2):
        about = {"format": format, "library": "0.1.0", "created": "2026-01-01T00:00:00Z", "count": len(self.entries)}
        text = json.dumps({**about, "entries": self.entries}, indent=1)[:-2] + ',\n "'
        (self.folder / "manifest.json").write_text(f'{text}crc32": "{zlib.crc32(text[:-1].encode()):08x}"\n}}\n')

    def journal(self, cut):
        """Instead of a manifest. Of the entries in `cut` the last shard is still being filled, and has so many samples."""
        lines = [{"recording": {"format": 2, "library": "0.1.0", "created": "2026-01-01T00:00:00Z"}}]
        for entry in self.entries:
            lines.append(
                {"entry": {"entry": entry["index"], **{k: entry[k] for k in ("path", "aliases", "type", "kind")}}}
            )
        for entry in self.entries:
            for shard in entry["shards"]:
                part = shard is entry["shards"][-1] and cut.get((entry["path"], entry["kind"]))
                about = {"entry": entry["index"], "name": shard["file"][:-3], "slot": -1, "dtype": shard["dtype"]}
                lines.append({"open": {**about, "shape": shard["shape"], "stacked": -1}})
                if part is None or part is False:
                    lines.append({"shard": {"entry": entry["index"], "shard": shard}})
                else:
                    file = self.folder / shard["file"]
                    stack = torch.load(file, weights_only=True)[:part]
                    file.with_suffix(".part").write_bytes(bytes(128) + stack.numpy().tobytes() + b"\1\2\3")
                    file.unlink()
        texts = [json.dumps(line).encode() for line in lines]
        torn = b"00000000 {torn"
        (self.folder / "journal.jsonl").write_bytes(b"".join(b"%08x %s\n" % (zlib.crc32(t), t) for t in texts) + torn)


Row = collections.namedtuple("Row", "run forward call place")
SIZES = [5, 17, 1, 40, 3, 0, 29, 8]  # rows of each forward before a mask


def calls_of(path, forward):
    return {"once": 1, "twice": 2, "some": int(forward % 3 == 0)}[path]


def label_of(row):
    return (row.forward * 31 + row.place * 7) % 10


def id_of(row):
    return f"größe {row.run}/{row.forward}/{row.place}"


def is_kept(row):
    return (row.forward + row.place * row.place) % 3 != 1


def values_of(row, dtype=torch.float32):
    return torch.tensor([row.run, row.forward, row.call, row.place, 9.0]).to(dtype)


def stack_of(of, dtype=torch.float32):
    return torch.stack([values_of(row, dtype) for row in of]) if of else torch.empty(0, 5, dtype=dtype)


def write(folder, runs=(11,), masked=False, dtype=torch.float32, shard=64, forwards=None, lacks=()):
    """A dump of three modules with a column of labels, one of weights [2], and one of texts. {path: rows that it has}."""
    writer, expected = Writer(folder, shard), {}
    writer.forwards = [*enumerate(SIZES)] if forwards is None else forwards
    places = {n: [p for p in range(size) if not masked or is_kept(Row(0, n, 0, p))] for n, size in writer.forwards}
    calls = [(run, n) for run in runs for n, _ in writer.forwards]
    for path in ("once", "twice", "some"):
        of = [Row(run, n, call, p) for run, n in calls for call in range(calls_of(path, n)) for p in places[n]]
        lines = [(run, n, n, call, len(places[n])) for run, n in calls for call in range(calls_of(path, n))]
        expected[path] = of
        writer.with_index(path, "ForwardOutput", "Linear", stack_of(of, dtype), lines)
    beside = [Row(run, n, 0, p) for run, n in calls for p in places[n] if n not in lacks]
    lines = [(run, n, n, 0, len(places[n])) for run, n in calls if n not in lacks]
    writer.with_index("label", "Beside", "", torch.tensor([label_of(row) for row in beside]), lines)
    weights = torch.tensor([[row.place, -row.forward] for row in beside], dtype=torch.float64)
    writer.with_index("weights", "Beside", "", weights, lines)
    texts = [[*id_of(row).encode().ljust(64, b"\0")] for row in beside]
    writer.with_index("id", "Beside", "", torch.tensor(texts, dtype=torch.uint8), lines)
    if masked:
        writer.with_index("place", "Place", "", torch.tensor([row.place for row in beside]), lines)
    writer.manifest()
    return writer, expected


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write(tmp_path_factory.mktemp("plain"))


def open_plain(rows, plain, path="once"):
    return rows.open(plain[0].folder)[path], plain[1][path]


def check(rows_of, expected):
    """All that is known of each row is what its values say."""
    x, y, where = rows_of.take(len(rows_of), beside=True)
    assert torch.equal(x, stack_of(expected)) and len(rows_of) == len(expected)
    assert torch.equal(torch.stack([*where], 1), torch.tensor([[*row] for row in expected]).reshape(-1, 4))
    assert y["label"].tolist() == [label_of(row) for row in expected]
    assert y["weights"].tolist() == [[row.place, -row.forward] for row in expected]
    assert rows_of.texts("id") == [id_of(row) for row in expected]


def test_items_and_slices(rows, plain):
    of, expected = open_plain(rows, plain)
    want = stack_of(expected)
    assert len(of) == len(want) == sum(SIZES) > 64 and of.shape == (5,) and of.dtype == torch.float32
    for i in (0, 3, 63, 64, len(of) - 1, -1, -len(of), numpy.int64(7), torch.tensor(65)):
        assert torch.equal(of[i], want[int(i)])
    for one in (
        slice(10, 20),
        slice(60, 70),
        slice(None),
        slice(-5, None),
        slice(0, 100, 7),
        slice(50, 50),
        slice(90, 1, -3),
    ):
        assert torch.equal(of[one], want[[*range(len(want))[one]]])
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(-len(of), len(of), (500,), generator=generator)
    for one in (index, index.tolist(), index.numpy(), index.int(), [], [5]):
        assert torch.equal(of[one], want[torch.as_tensor(one, dtype=torch.int64)])
    mask = torch.rand(len(of), generator=generator) < 0.3
    for one in (mask, mask.numpy(), mask.tolist()):
        assert torch.equal(of[one], want[mask])
    for bad in (len(of), -len(of) - 1, [0, len(of)], [True], [[1, 2]], [0.5], mask[1:]):
        with pytest.raises(IndexError):
            of[bad]


def test_slices_are_mapped_and_the_file_never_changes(rows, tmp_path):
    writer, expected = write(tmp_path, shard=1000)
    of = rows.open(tmp_path)["once"]
    before = [file.read_bytes() for file in sorted(tmp_path.iterdir())]
    part = of[10:20]
    assert part.data_ptr() == of[:].data_ptr() + 10 * 20 == of[10].data_ptr()
    part.zero_()
    assert torch.equal(of[10:20], torch.zeros(10, 5)), "one mapping"
    assert [file.read_bytes() for file in sorted(tmp_path.iterdir())] == before
    array = rows.open(tmp_path)["once"].numpy()
    assert isinstance(array, numpy.memmap) and (array == stack_of(expected["once"]).numpy()).all()


@pytest.mark.parametrize("path", ["once", "twice", "some"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("runs", [(11,), (8, 5, 2**62 + 1)])
def test_what_is_beside(rows, tmp_path, path, masked, runs):
    numbers = dict(zip(runs, range(1, 4)))  # float32 does not hold 2**62 + 1
    _, expected = write(tmp_path, runs, masked)
    of = rows.open(tmp_path)[path]
    x, y, where = of.take(10**6, beside=True)
    assert [*where._fields] == ["run", "forward", "call", "place"] and all(one.dtype == torch.int64 for one in where)
    assert [Row(*one) for one in torch.stack([*where], 1).tolist()] == expected[path]
    assert torch.equal(x, stack_of(expected[path]))
    assert y["label"].tolist() == [label_of(row) for row in expected[path]]
    assert of.texts("id") == [id_of(row) for row in expected[path]]
    assert torch.equal(of.beside("label", [5, 3]), y["label"][[5, 3]])
    assert torch.equal(of.beside("forward"), where.forward)
    x, y, where = of.take(torch.tensor([7, 2]), beside="weights")
    assert [*y] == ["weights"] and y["weights"].tolist() == [
        [expected[path][i].place, -expected[path][i].forward] for i in (7, 2)
    ]
    assert where.place.tolist() == [expected[path][i].place for i in (7, 2)] and len(numbers) == len(runs)
    assert torch.equal(of.take(3), stack_of(expected[path][:3])) and len(of.take(0)) == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint8", "float64", "bool", "complex64", "int64"])
def test_dtypes(rows, tmp_path, dtype):
    dtype = getattr(torch, dtype)
    _, expected = write(tmp_path, dtype=dtype, shard=30)
    of, want = rows.open(tmp_path)["twice"], stack_of(expected["twice"], dtype)
    index = torch.randperm(len(of), generator=torch.Generator().manual_seed(1))
    assert (
        of.dtype == dtype
        and torch.equal(of[:], want)
        and torch.equal(of[index], want[index])
        and torch.equal(of[31], want[31])
    )
    assert torch.equal(
        torch.cat([*of.shuffled(9)]).to(torch.complex128).abs().sum(), want.to(torch.complex128).abs().sum()
    )
    if dtype == torch.bfloat16:
        with pytest.raises(TypeError, match="BFloat16"):
            of.numpy()
    else:
        assert (of.numpy() == want.numpy()).all()


@pytest.mark.parametrize("shape", [(), (1,), (3, 2, 5), (7,), (2, 0)])
def test_shapes(rows, tmp_path, shape):
    writer, n = Writer(tmp_path, 10), 33
    want = torch.arange(n * max(numpy.prod(shape, dtype=int), 1), dtype=torch.int16)[
        : n * numpy.prod(shape, dtype=int)
    ].view(n, *shape)
    writer.with_index("m", "ForwardOutput", "Linear", want, [(1, i, i, 0, 3) for i in range(11)])
    writer.manifest()
    of = rows.open(tmp_path)["m"]
    for index in (slice(None), slice(5, 25), [32, 0, 9, 10], 12):
        assert torch.equal(of[index], want[index])


def test_large_rows_and_threads(rows, tmp_path):
    writer = Writer(tmp_path, 100)
    want = torch.randn(1000, 3000, generator=torch.Generator().manual_seed(0))
    writer.with_index("m", "ForwardOutput", "Linear", want, [(1, 0, 0, 0, 1000)])
    writer.manifest()
    of = rows.open(tmp_path)["m"]
    index = torch.randint(1000, (2000,))
    before = torch.get_num_threads()
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            assert torch.equal(of[index], want[index])
    finally:
        torch.set_num_threads(before)


def test_memory_is_used_again_when_nobody_has_it(rows, tmp_path):
    writer = Writer(tmp_path, 100)
    want = torch.randn(300, 40, generator=torch.Generator().manual_seed(0))
    writer.with_index("m", "ForwardOutput", "Linear", want, [(1, 0, 0, 0, 300)])
    writer.manifest()
    of, places, kept = rows.open(tmp_path)["m"], set(), []
    for x in of.shuffled(100, buffer="1 MB"):
        places.add(x.data_ptr())
    for i in range(100):
        index = torch.randint(300, (100,))
        x = of[index]
        places.add(x.data_ptr())
        if i % 3 == 0:
            kept.append((index, x[10:].view(-1)))  # a part is enough
        assert torch.equal(x, want[index])
    assert all(torch.equal(part, want[index][10:].flatten()) for index, part in kept)
    assert len(places) < 3 + 2 * len(kept)

    def gathers(seed):
        for _ in range(200):
            index = torch.randint(300, (100,), generator=torch.Generator().manual_seed(seed))
            assert torch.equal(of[index], want[index])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert [*pool.map(gathers, range(8))] == [None] * 8


def test_large_rows_lie_anywhere(rows, tmp_path):
    writer = Writer(tmp_path, 3)
    want = torch.randn(10, 1 << 20, generator=torch.Generator().manual_seed(0))  # 4 MB
    writer.with_index("m", "ForwardOutput", "Linear", want, [(1, 0, 0, 0, 10)])
    writer.manifest()
    of = rows.open(tmp_path)["m"]
    for index in ([9, 0, 4, 4], slice(None), slice(1, 3), 7):
        assert torch.equal(of[index], want[index])


def test_corrections(rows, tmp_path):
    """A recovered dump: after (1, 0) 3 of 5 rows of the last call are missing, then there are 2 rows without a call."""
    writer = Writer(tmp_path, 4)
    values = [(0, p) for p in range(5)] + [(1, p) for p in range(2)] + [(-1, -1)] * 2 + [(2, p) for p in range(4)]
    lines = [(1, 0, 0, 0, 5), (1, 1, 1, 0, 2), (1, 2, 2, 0, 3), (0, 0, -1, 0, -3), (0, 0, -1, 0, 2), (2, 2, 0, 0, 4)]
    writer.with_index("m", "ForwardOutput", "Linear", torch.tensor(values), lines)
    column = [10, 11, 12, 13, 14, 20, 21, 30, 31, 32, 40, 41, 42, 43]
    its = [(1, 0, 0, 0, 5), (1, 1, 1, 0, 2), (1, 2, 2, 0, 3), (2, 2, 0, 0, 4)]
    writer.with_index("n", "Beside", "", torch.tensor(column), its)
    writer.manifest()
    of = rows.open(tmp_path)["m"]
    assert of[:].tolist() == [[f, p] for f, p in values if f >= 0] and len(of) == 11
    assert of[[7, 6]].tolist() == [[2, 0], [1, 1]] and of[7].tolist() == [2, 0] and of[6:8].tolist() == [[1, 1], [2, 0]]
    assert of.beside("n").tolist() == [10, 11, 12, 13, 14, 20, 21, 40, 41, 42, 43]
    assert of.beside("run").tolist() == [1] * 7 + [2] * 4
    assert sorted(of.shuffled(3, beside="n").rows[:].tolist()) == sorted(of[:].tolist())


def test_a_column_that_lost_its_end(rows, tmp_path):
    writer = Writer(tmp_path)
    writer.with_index("m", "ForwardOutput", "Linear", torch.arange(7), [(1, 0, 0, 0, 4), (1, 1, 1, 0, 3)])
    lines = [(1, 0, 0, 0, 4), (1, 1, 1, 0, 3), (0, 0, -1, 0, -2)]
    writer.with_index("n", "Beside", "", torch.arange(5) + 10, lines)
    writer.manifest()
    of = rows.open(tmp_path)["m"]
    with pytest.raises(ValueError, match=r"2 of 7 rows of m have no 'n': rows.where\('n'\) leaves them out"):
        of.beside("n")
    with pytest.raises(ValueError, match="have no 'n'"):
        of.shuffled(2, beside="n")
    assert of.where("n").beside("n").tolist() == [10, 11, 12, 13, 14] and of.where("n")[:].tolist() == [0, 1, 2, 3, 4]


def test_forwards_without_a_value(rows, tmp_path):
    _, expected = write(tmp_path, lacks=(1, 3))
    of = rows.open(tmp_path)["twice"]
    with pytest.raises(ValueError, match="have no 'label'"):
        of.take(10**6, beside=True)
    check(of.where("label", "id"), [row for row in expected["twice"] if row.forward not in (1, 3)])


def test_where(rows, plain):
    of, expected = open_plain(rows, plain, "twice")
    check(of.where(label=3), [row for row in expected if label_of(row) == 3])
    check(of.where(label=[1, 2], call=1), [row for row in expected if label_of(row) in (1, 2) and row.call == 1])
    check(
        of.where(label=torch.tensor([1, 2])).where(forward=3),
        [r for r in expected if label_of(r) in (1, 2) and r.forward == 3],
    )
    check(of.where(weights=lambda w: w[:, 0] > 3), [row for row in expected if row.place > 3])
    wanted = [id_of(expected[9]), id_of(expected[40]), "none", "x" * 99]
    check(of.where(id=wanted), [row for row in expected if id_of(row) in wanted])
    check(of.where(id=wanted[0]), [row for row in expected if id_of(row) == wanted[0]])
    view = of.where(place=0)
    assert torch.equal(view[[2, 0]], stack_of([row for row in expected if row.place == 0])[[2, 0]])
    assert torch.equal(view[-1], view[:][-1]) and torch.equal(view[1:3], view[:][1:3]) and len(of.where(label=77)) == 0
    assert torch.equal(of.where(label=77)[:], torch.empty(0, 5))
    with pytest.raises(KeyError, match="no column 'lable'; there are label, weights, id, run, forward, call, place"):
        of.where(lable=1)
    for bad in (1, lambda w: w[:, 0], lambda w: torch.tensor([True])):
        with pytest.raises(ValueError, match="give where"):
            of.where(weights=bad)


def test_unknown_names(rows, plain, tmp_path):
    dump = rows.open(plain[0].folder)
    assert [*dump] == ["once", "twice", "some"] and len(dump) == 3 and "twice" in dump and "label" not in dump
    with pytest.raises(KeyError, match="has no rows of 'thrice'; ask for one of 'once' .ForwardOutput."):
        dump["thrice"]
    with pytest.raises(KeyError, match="no rows of 'once'"):
        dump["once", "BackwardInput"]
    with pytest.raises(KeyError, match="there is no column 'lable'"):
        dump["once"].beside("lable")
    with pytest.raises(FileNotFoundError, match="is no recording"):
        rows.open(tmp_path)
    assert dump["once", "ForwardOutput"].kind == rows.Dump(plain[0].folder)["once"].kind
    assert repr(dump["once"]) == f"Rows of once (ForwardOutput): {sum(SIZES)} of [5] float32, beside label, weights, id"


def test_two_kinds_of_a_path(rows, tmp_path):
    writer = Writer(tmp_path)
    for kind in ("ForwardInput", "ForwardOutput"):
        writer.with_index("m", kind, "Linear", torch.full((3,), len(kind)), [(1, 0, 0, 0, 3)])
    writer.manifest()
    dump = rows.open(tmp_path)
    assert dump["m", "ForwardInput"][0] == 12 and dump["m", "ForwardOutput"][0] == 13
    with pytest.raises(KeyError, match="several rows of 'm'; ask for one of 'm' .ForwardInput., 'm' .ForwardOutput."):
        dump["m"]


@pytest.mark.parametrize("filled", [None, 1, 3])
def test_a_dump_that_is_being_written(rows, tmp_path, filled):
    """Complete shards of rows count, as far as the index has them."""
    writer, expected = write(tmp_path, shard=16)
    (tmp_path / "manifest.json").unlink()
    cut = {("once", "ForwardOutput"): 2, ("label", "Beside"): 5}
    if filled is not None:  # 8 calls lie in one shard
        cut["once", "ForwardOutput.calls"] = filled
    writer.journal(cut)
    of = rows.open(tmp_path)["once"]
    complete = sum(SIZES) // 16 * 16
    count = min(complete, sum(SIZES[:filled]))
    assert len(of) == count and torch.equal(of[:], stack_of(expected["once"][:count]))
    assert of.texts("id") == [id_of(row) for row in expected["once"][:count]]
    assert of.where("label").beside("label").tolist() == [label_of(row) for row in expected["once"][:count]]
    assert len(rows.open(tmp_path)["twice"]) == len(expected["twice"])


def test_a_dump_that_goes_on_while_it_is_read(rows, tmp_path):
    writer, expected = write(tmp_path, shard=16)
    half = write(tmp_path / "half", shard=16, forwards=[*enumerate(SIZES)][:4])[0]
    of = rows.open(half.folder)["once"]
    copied = pickle.dumps(of)
    write(half.folder, shard=16)
    again = pickle.loads(copied)
    assert len(again) == len(of) == sum(SIZES[:4]) and torch.equal(again[:], stack_of(expected["once"][: len(of)]))
    assert len(rows.open(half.folder)["once"]) == sum(SIZES)


def test_gone_and_damaged(rows, tmp_path):
    writer, expected = write(tmp_path, shard=16)
    file = tmp_path / writer.entries[0]["shards"][1]["file"]
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(FileNotFoundError, match=f"{file} is gone"):
        rows.open(tmp_path)["once"]
    assert len(rows.open(tmp_path)["twice"]) == len(expected["twice"]), "other modules are read"
    for damaged in (
        content[:-1],
        b"",
        b"x" * len(content),
        content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
    ):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{file} is damaged"):
            rows.open(tmp_path)["once"]
    file.write_bytes(content)
    check(rows.open(tmp_path)["once"], expected["once"])
    shard = writer.entries[0]["shards"][1]
    for change in ({"samples": 17}, {"shape": [6]}, {"dtype": "float64"}, {"file": "../0-1.pt"}):
        kept = {**shard}
        shard.update(change)
        writer.manifest()
        with pytest.raises(ValueError, match="damaged"):
            rows.open(tmp_path)["once"]
        shard.update(kept)
    writer.manifest(format=3)
    with pytest.raises(ValueError, match="newer torchtap"):
        rows.open(tmp_path)
    writer.entries[1]["type"] = "rows 2"
    writer.manifest()
    with pytest.raises(ValueError, match="newer torchtap.*'rows 2'"):
        rows.open(tmp_path)["once"]
    text = (tmp_path / "manifest.json").read_text()
    for damaged in (text.replace('"samples": 16', '"samples": 15', 1), text[:-20]):
        (tmp_path / "manifest.json").write_text(damaged)
        with pytest.raises(ValueError, match="manifest.json is damaged"):
            rows.open(tmp_path)


def test_recordings_without_rows(rows, tmp_path):
    formats = SOURCE / "tests/formats/1"
    of = rows.open(formats / "spooled")["stacked"]
    stack = torch.cat([torch.load(formats / "spooled" / f"0-{i}.pt", weights_only=True) for i in (0, 1)])
    assert torch.equal(of[:], stack.flatten(0, 1)) and of.beside("forward").tolist() == [i // 2 for i in range(12)]
    assert rows.open(formats / "spooled")["alias of stacked"].beside("place").tolist() == [0, 1] * 6
    samples = torch.load(formats / "kept/0.pt", weights_only=True)
    assert torch.equal(rows.open(formats / "kept")["kept"][:], torch.cat(samples))
    for folder, path, why in (("spooled", "mixed", "differ"), ("spooled", "slots", "slot"), ("kept", "slots", "dict")):
        with pytest.raises(ValueError, match=f"'{path}'.* has no rows.*{why}"):
            rows.open(formats / folder)[path]
    assert len(rows.open(formats / "kept")["nothing"]) == 0
    reduced = rows.open(formats / "reduced")
    with pytest.raises(ValueError, match="has no rows"):
        reduced[next(iter(reduced))]
    writer = Writer(tmp_path)
    writer.entry("unequal", "ForwardOutput", "Linear", torch.zeros(0))
    torch.save([torch.full((n, 2), n) for n in (3, 1, 4)] + [None], tmp_path / "0.pt")
    writer.entries[0].update(file="0.pt", bytes=(tmp_path / "0.pt").stat().st_size)
    writer.entry("scalar", "ForwardOutput", "Linear", torch.arange(5.0))
    writer.manifest()
    of = rows.open(tmp_path)["unequal"]
    assert (
        of[:,][:, 0].tolist() == [3] * 3 + [1] + [4] * 4 if False else of[:][:, 0].tolist() == [3] * 3 + [1] + [4] * 4
    )
    assert of.beside("forward").tolist() == [0, 0, 0, 1, 2, 2, 2, 2] and of.beside("place").tolist() == [
        0,
        1,
        2,
        0,
        0,
        1,
        2,
        3,
    ]
    assert rows.open(tmp_path)["scalar"][:].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_data_loader(rows, plain, how):
    of, expected = open_plain(rows, plain)
    loader = torch.utils.data.DataLoader(of, batch_size=16, shuffle=True, num_workers=2, multiprocessing_context=how)
    for _ in range(2):
        batches = [*loader]
        assert [len(one) for one in batches] == [16] * 6 + [7]
        assert sorted(torch.cat(batches).tolist()) == sorted(stack_of(expected).tolist())
    shuffled = of.where(label=[1, 2, 3]).shuffled(4, beside=("label", "place"))
    loader = torch.utils.data.DataLoader(shuffled, batch_size=None, num_workers=2, multiprocessing_context=how)
    batches = [*loader]
    assert len(batches) == len(loader) == len(shuffled)
    wanted = [row for row in expected if label_of(row) in (1, 2, 3)]
    assert sorted(torch.cat([x for x, _ in batches]).tolist()) == sorted(stack_of(wanted).tolist())
    for x, y in batches:
        assert (
            y["label"].tolist() == [label_of(Row(*map(int, row[:4]))) for row in x]
            and y["place"].tolist() == x[:, 3].tolist()
        )


def long_dump(folder, count=5000, width=8, shard=700):
    writer = Writer(folder, shard)
    x = torch.arange(count)[:, None].expand(count, width).contiguous()
    writer.with_index("m", "ForwardOutput", "Linear", x, [(1, i, i, 0, 50) for i in range(count // 50)])
    writer.with_index("label", "Beside", "", torch.arange(count) % 10, [(1, i, i, 0, 50) for i in range(count // 50)])
    writer.manifest()


@pytest.fixture(scope="module")
def long(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    long_dump(folder)
    return rows.open(folder)["m"]


SMALL = {"batch": 100, "buffer": "100 KB", "block": 640}  # 5 batches at a time, of blocks of 10 rows


def numbers(batches):
    return [int(row[0]) for x in batches for row in x]


def test_shuffled_epochs(long):
    shuffled = long.shuffled(**SMALL, seed=3)
    first, second = numbers(shuffled), numbers(shuffled)
    assert sorted(first) == sorted(second) == [*range(5000)] and first != second and first != [*range(5000)]
    assert len(shuffled) == 50 and [len(x) for x in long.shuffled(300, buffer="1 MB")] == [300] * 16 + [200]
    again = long.shuffled(**SMALL, seed=3)
    assert numbers(again) == first and numbers(again) == second
    assert numbers(long.shuffled(**SMALL, seed=4)) != first
    again.set_epoch(0)
    assert numbers(again) == first
    x, y = next(iter(long.shuffled(**SMALL, beside="label")))
    assert torch.equal(y, x[:, 0] % 10)
    x, y = next(iter(long.shuffled(**SMALL, beside=("label",))))
    assert [*y] == ["label"] and torch.equal(y["label"], x[:, 0] % 10)
    x, y = next(iter(long.shuffled(**SMALL, beside=True)))
    assert [*y] == ["label"] and isinstance(next(iter(long.shuffled(**SMALL))), torch.Tensor)
    view = long.where(label=3)
    found = numbers(view.shuffled(7, buffer="5 KB", block=100))
    assert sorted(found) == [*range(3, 5000, 10)] and found != sorted(found)
    with pytest.raises(ValueError, match="buffer=1000 holds no two batches: these take 17600 bytes"):
        long.shuffled(100, buffer="1 KB")
    with pytest.raises(ValueError, match="rank 2"):
        long.shuffled(rank=2, world=2)
    with pytest.raises(KeyError, match="no column 'lable'"):
        long.shuffled(beside="lable")


@pytest.mark.parametrize("done", [0, 1, 7, 49, 50])
def test_resume_within_an_epoch(long, done):
    whole = long.shuffled(**SMALL)
    wanted = numbers(whole) + numbers(whole) + numbers(whole)
    begun = long.shuffled(**SMALL)
    got = numbers(begun)
    for i, x in enumerate(iter(begun) if done else ()):
        got += numbers([x])
        if i + 1 == done:
            break
    state = json.loads(json.dumps(begun.state_dict()))
    resumed = long.shuffled(**SMALL)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    got += numbers(resumed)
    assert got == wanted[: len(got)] and len(got) in (10000, 15000)
    got += numbers(resumed)
    assert got[:15000] == wanted
    with pytest.raises(ValueError, match="other rows or options"):
        long.shuffled(**{**SMALL, "batch": 50}).load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 3])
def test_ranks_and_workers_share_the_rows(long, workers):
    seen, counts = [], []
    for rank in range(3):
        shuffled = long.shuffled(**{**SMALL, "buffer": "300 KB"}, rank=rank, world=3)
        shuffled.set_epoch(5)
        batches = [*torch.utils.data.DataLoader(shuffled, batch_size=None, num_workers=workers)]
        assert len(batches) == len(shuffled)
        seen += numbers(batches)
        counts.append(sum(map(len, batches)))
    assert sorted(seen) == [*range(5000)] and max(counts) - min(counts) <= 1


def together(of, **options):
    """How often neighbours of the dump come in the same batch, against a perfect shuffle."""
    batch_of = numpy.zeros(len(of), int)
    for i, x in enumerate(of.shuffled(**options)):
        batch_of[x[:, 0].numpy()] = i
    return float((batch_of[1:] == batch_of[:-1]).mean()) * len(of) / options["batch"]


def test_neighbours_part_as_the_buffer_grows(long):
    found = [together(long, batch=100, block=640, buffer=size * 100 * 88) for size in (2, 8, 32, 100)]
    # Blocks of 10 rows stay together in one of 1, 4, 16 or 50 batches.
    assert 40 < found[0] < 50 and 9 < found[1] < 14 and 2 < found[2] < 4.5 and found[3] < 1.4, found
    assert found == sorted(found, reverse=True)
    order = numbers(long.shuffled(**SMALL))
    places = numpy.argsort(order)
    assert abs(numpy.corrcoef(places, numpy.arange(5000))[0, 1]) < 0.1, "blocks are anywhere"


MEMORY = """
import sys
import rows

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024

of = rows.open(sys.argv[1])["m"]
next(iter(of.shuffled(64, buffer="1 MB")))
before, most, seen = anonymous(), 0, 0
for x, y in of.shuffled(1024, buffer="32 MB", beside="label"):
    most, seen = max(most, anonymous()), seen + len(x)
assert seen == len(of)
print((most - before) / 1e6)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux says how much memory a process has")
def test_memory_is_that_of_the_buffer(tmp_path):
    long_dump(tmp_path, 100_000, 256, 20_000)  # 205 MB
    shutil.copy(FILE, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 32 + 64, done.stdout


ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
import rows, torch
of = rows.open(sys.argv[1])["twice"]
x, y, where = of.take(1024, beside=True)
loader = torch.utils.data.DataLoader(of, batch_size=16, shuffle=True, num_workers=2)
shuffled = torch.cat([x for x, _ in of.shuffled(16, beside=("label",))])
assert torch.equal(torch.cat([*loader]).sort(0)[0], x.sort(0)[0]) and torch.equal(shuffled.sort(0)[0], x.sort(0)[0])
assert torch.equal(where.place, x[:, 3].long()) and torch.equal(of[:], x) and "torchtap" not in sys.modules
assert of.texts("id")[70:72] == sys.argv[2:] and (of.numpy() == x.numpy()).all()
print(torch.__version__)
"""


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_the_file_alone(tmp_path, python):
    """As it is copied to a laptop, with the PyTorch there."""
    if subprocess.run([python, "-c", "import torch, numpy"], capture_output=True).returncode:
        pytest.skip(f"{python} has no PyTorch")
    _, expected = write(tmp_path, masked=True)
    shutil.copy(FILE, tmp_path)
    texts = [id_of(row) for row in expected["twice"][70:72]]
    subprocess.run([python, "-I", "-W", "error::UserWarning", "-c", ALONE, tmp_path, *texts], check=True, cwd="/")
    code = "import torchtap.rows; print(torchtap.rows.Rows)"
    where = {**os.environ, "PYTHONPATH": str(SOURCE / "extras/python")}
    subprocess.run([python, "-c", code], check=True, env=where, capture_output=True)


def test_table(rows, plain):
    pandas = pytest.importorskip("pandas")
    table = rows.open(plain[0].folder).table()
    assert isinstance(table, pandas.DataFrame) and [*table.columns] == [
        "path",
        "kind",
        "rows",
        "shape",
        "dtype",
        "bytes",
    ]
    assert table.path.tolist() == ["once", "twice", "some", "label", "weights", "id"]
    assert table.rows.tolist()[:2] == [sum(SIZES), 2 * sum(SIZES)] and table["shape"].tolist()[-1] == (64,)
    assert table.bytes.sum() == sum(entry["bytes"] for entry in plain[0].entries if not entry["kind"].endswith("calls"))
    assert len(rows.open(SOURCE / "tests/formats/1/reduced").table()) > 0


def test_arrow_without_a_copy(rows, plain):
    pyarrow = pytest.importorskip("pyarrow")
    of, expected = open_plain(rows, plain)
    table = of.arrow(texts=("id",))
    assert table.num_rows == len(of) and isinstance(table, pyarrow.Table)
    assert (
        table["once"].to_pylist() == stack_of(expected).tolist()
        and table["label"].to_pylist() == of.beside("label").tolist()
    )
    assert table["id"].to_pylist() == of.texts("id") and table["place"].to_pylist() == [row.place for row in expected]
    chunk = next(one for one in table["once"].chunks if len(one))
    assert chunk.values.buffers()[1].address == of[0].data_ptr()
    view = of.where(label=3)
    assert view.arrow()["once"].to_pylist() == view[:].tolist()


def test_parquet(rows, plain, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    of, expected = open_plain(rows, plain)
    of.where(label=3).parquet(tmp_path / "threes.parquet", texts=("id",))
    table = parquet.read_table(tmp_path / "threes.parquet")
    wanted = [row for row in expected if label_of(row) == 3]
    assert table["once"].to_pylist() == stack_of(wanted).tolist() and table["id"].to_pylist() == [*map(id_of, wanted)]


def test_dataset(rows, plain):
    pytest.importorskip("datasets")
    of, expected = open_plain(rows, plain)
    dataset = of.dataset(texts=("id",))
    assert len(dataset) == len(of) and dataset[5]["once"] == of[5].tolist() and dataset[5]["id"] == id_of(expected[5])
    assert torch.equal(dataset.with_format("torch")[:4]["once"], of[:4])


@pytest.mark.parametrize(
    "package,call", [("pandas", "table"), ("pyarrow", "arrow"), ("pyarrow", "parquet"), ("datasets", "dataset")]
)
def test_packages_that_are_not_installed(rows, plain, monkeypatch, package, call):
    monkeypatch.setitem(sys.modules, package, None)
    of = rows.open(plain[0].folder)
    with pytest.raises(
        ImportError, match=rf"{call}\(\) needs {package}, which is not installed: pip install {package}"
    ):
        getattr(of if call == "table" else of["once"], call)(*["file"] if call == "parquet" else [])
