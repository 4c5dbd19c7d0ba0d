"""Rows of a dump as a dataset: mapped, not read, with what was known beside each row.

This file needs PyTorch (1.13 or newer) and NumPy only: copied beside a dump, it works without the library.

    layer2 = rows.open("dump")["layer2"]          # torchtap.load("dump")["layer2"].rows, a torch.utils.data.Dataset
    layer2[7], layer2[10:20], layer2[[3, 1, 2]]   # [C], [10, C], [3, C]
    x, y, where = layer2.take(1024, beside=True)  # the first rows, {"label": [1024], ...}, where they come from
    for x, y in layer2.shuffled(batch=4096, beside=("label",)): ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
import json
import math
import mmap
import os
import pathlib
import re
import struct
import weakref
import zipfile
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Union, cast

import numpy
import torch
from torch import Tensor

__all__ = ["Dump", "Rows", "Shuffled", "Where", "open"]

Array = numpy.ndarray[Any, numpy.dtype[Any]]
Entry = Dict[str, Any]
Index = Union[slice, Sequence[int], Sequence[bool], Tensor, Array]
Size = Union[int, str]
Names = Union[bool, str, Iterable[str]]
Value = Union[float, str, List[int], List[float], List[str], Tensor, Callable[[Tensor], Any]]

_NO_MODULES = re.compile(r"^Beside$|^Place$|\.calls$")  # kinds of entries


class Where(NamedTuple):
    """Where rows come from: int64 tensors [n]. The place is that in the call, as it was before a mask."""

    run: Tensor
    forward: Tensor
    call: Tensor
    place: Tensor


def _elsewhere(name: str) -> Callable[..., Any]:
    """A function of rows_tables.py, which may lie beside this file."""
    return lambda *these, **how: getattr(importlib.import_module(f"{__name__}_tables"), name)(*these, **how)


def _entries(directory: str) -> list[Entry]:
    """Entries of the manifest and the journal, each with its shards."""
    found = {"journal.jsonl": b"", "manifest.json": b""}  # in this order: the manifest has what is finished meanwhile
    for name in found:
        with contextlib.suppress(FileNotFoundError):
            found[name] = pathlib.Path(directory, name).read_bytes()
    journal, text = found.values()
    if not journal and not text:
        raise FileNotFoundError(f"{directory} is no recording: it has neither a manifest nor a journal.")
    try:
        manifest = json.loads(text or '{"format": 1, "entries": []}')
        if "crc32" in manifest and manifest["crc32"] != f"{zlib.crc32(text[: text.rindex(b'crc32') - 1]):08x}":
            raise ValueError("its checksum is another one")
    except ValueError as error:
        raise ValueError(f"{directory}/manifest.json is damaged: {error}.") from None
    lines = itertools.takewhile(lambda line: line[:8] == b"%08x" % zlib.crc32(line[9:]), journal.splitlines())
    events = [next(iter(json.loads(line[9:]).items())) for line in lines]  # up to one that was cut off
    if max(manifest["format"], *(about["format"] for _, about in events[:1]), 0) > 2:
        raise ValueError(f"{directory} was written by a newer torchtap: this one reads formats up to 2.")
    entries: list[Entry] = manifest["entries"]
    for entry in entries:
        entry["shards"] = entry.get("shards") or ([{**entry}] if entry.get("file") else [])
    entries += [
        {**about, "shards": []} for event, about in events if event == "entry" and about["entry"] >= len(entries)
    ]
    opened = {about["name"]: about for event, about in events if event == "open"}
    for shards, shard in [(entries[one["entry"]]["shards"], one["shard"]) for event, one in events if event == "shard"]:
        opened.pop(shard["file"][: -len(".pt")], None)
        shards += [shard] if shard["file"] not in [one["file"] for one in shards] else []
    for name, shard in opened.items():  # rows count in complete shards, calls and columns as far as they are there
        if _NO_MODULES.search(entries[shard["entry"]]["kind"]):
            file = name + (".pt" if os.path.exists(os.path.join(directory, name + ".pt")) else ".part")
            entries[shard["entry"]]["shards"].append({**shard, "file": file, "holds": "tensor"})
    return entries


def _samples(directory: str, shard: Entry) -> list[tuple[Array, torch.dtype, list[int]]]:
    """Samples as bytes [n, each], their dtype and shape: those of a stack, mapped, or each one of a list."""
    path = os.path.join(directory, shard["file"])
    try:
        if os.path.basename(shard["file"]) != shard["file"]:
            raise ValueError("the manifest names no file in the directory")
        size = os.path.getsize(path)
        if size != shard.get("bytes", size):
            raise ValueError(f"it has {size} bytes instead of {shard['bytes']}")
        if shard["holds"] != "tensor" or "slot" not in shard:
            value = torch.load(path, weights_only=True)
            samples = [one for one in ([value] if torch.is_tensor(value) else value) if one is not None]
            return [(one.reshape(-1).view(torch.uint8).numpy()[None], one.dtype, [*one.shape]) for one in samples]
        dtype, part = getattr(torch, shard["dtype"]), numpy.zeros(0, numpy.uint8)
        if path.endswith(".part"):  # read, since its writer may cut it
            part = numpy.fromfile(path, numpy.uint8)[128:]
            size = len(part)
        else:
            with pathlib.Path(path).open("rb") as file, zipfile.ZipFile(file) as archive:
                (record,) = (one for one in archive.infolist() if re.search(r"/data/\d+$", one.filename))
                file.seek(record.header_offset + 26)
                begin, size = record.header_offset + 30 + sum(struct.unpack("<2H", file.read(4))), record.file_size
        each = math.prod(shard["shape"]) * torch.empty(0, dtype=dtype).element_size()
        count = shard.get("samples", size // max(each, 1))
        if count * each > size or ("samples" in shard and count * each != size):
            raise ValueError(f"it lacks some of its {count} samples")
        if len(part) or not count * each:
            return [(part[: count * each].reshape(count, each), dtype, shard["shape"])]
        # What is written to these pages becomes this process's own, as with torch.load(mmap=True).
        return [(numpy.memmap(path, numpy.uint8, "c", begin, (count, each)), dtype, shard["shape"])]
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is gone: copy it again from where the dump was written.") from None
    except Exception as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


class Dump(Mapping[str, "Rows"]):
    """What a recorder wrote: Rows by path, or by (path, kind) where a path has several kinds."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self.entries = _entries(self.directory)
        self.columns = [one["path"] for one in self.entries if one["kind"] == "Beside"]
        self._modules = [one for one in self.entries if not _NO_MODULES.search(one["kind"])]
        self._made: dict[tuple[str, str], Rows] = {}

    def __getitem__(self, key: str | tuple[str, str]) -> Rows:
        path, kind = (key, None) if isinstance(key, str) else key
        among = self.entries if kind else self._modules
        found = [one for one in among if path in (one["path"], *one.get("aliases", ())) and kind in (None, one["kind"])]
        if len(found) != 1:
            known = ", ".join(f"{one['path']!r} ({one['kind']})" for one in found or self._modules[:20])
            several = "several" if found else "no"
            raise KeyError(f"{self.directory} has {several} rows of {path!r}; ask for one of {known}.")
        path, kind = found[0]["path"], found[0]["kind"]
        if (path, kind) not in self._made:
            index = [one for one in self.entries if (one["path"], one["kind"]) == (path, kind + ".calls")]
            self._made[path, kind] = Rows(self, found[0], *index)
        return self._made[path, kind]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(one["path"] for one in self._modules))

    def __len__(self) -> int:
        return len([*iter(self)])

    table = _elsewhere("table")  # a pandas.DataFrame of modules, or of scalars by step


open = Dump  # rows.open("dump")


def _copied(directory: str, path: str, kind: str, chosen: Any) -> Rows:
    rows = Dump(directory)[path, kind]  # its writer may have gone on: `chosen` is how many rows there were
    return rows._view(numpy.arange(chosen) if isinstance(chosen, int) else chosen)


class Rows(torch.utils.data.Dataset[Tensor]):
    """The rows of a module in the order of its calls: a dataset whose items are tensors of `shape` and `dtype`.

        rows[7], rows[10:20], rows[[3, 1, 2]], rows[mask]    [...], [10, ...], [3, ...], [n, ...]

    One row, and a slice within a shard, are mapped: read when they are used; what is written to them stays in this process.
    `columns` are the names of what is beside the rows. Always there are "run" (a number for each time the dump was opened),
    "forward" (its number in the run), "call" (the module's in the forward) and "place". In a recording without rows each
    sample is a call, and its first dimension has the rows."""

    def __init__(self, dump: Dump, entry: Entry, index: Entry | None = None) -> None:
        self.path, self.kind, self.directory, self.columns = entry["path"], entry["kind"], dump.directory, dump.columns
        what = f"{self.path!r} ({self.kind}) of {dump.directory}"
        if held := entry.get("reduction") or entry.get("holds") in ("dict", "text") and entry["holds"]:
            raise ValueError(f"{what} has no rows, but {held}: keep samples of one slot.")
        samples = [one for shard in entry["shards"] for one in _samples(dump.directory, shard)]
        if index is None:  # a sample is a call, and its first dimension has the rows
            sizes = [shape[0] if shape else 1 for stack, _, shape in samples for _ in stack]
            samples = [(stack, dtype, shape[1:]) for stack, dtype, shape in samples]
            lines = numpy.array([(0, call, call, 0, size) for call, size in enumerate(sizes)]).reshape(-1, 5)
        elif index["type"] != "rows 1":
            raise ValueError(f"{what} was written by a newer torchtap: {index['type']!r}, and this reads 'rows 1'.")
        else:
            parts = [part.view("<i8") for shard in index["shards"] for part, *_ in _samples(dump.directory, shard)]
            lines = numpy.concatenate([numpy.zeros((0, 5), numpy.int64), *parts])
            torn = (lines[:, 0] <= 0) & (lines[:, 2] >= 0)  # zeros, where the disk lost power
            lines = lines[: int(torn.argmax())] if torn.any() else lines
        kinds = {(dtype, tuple(shape)) for _, dtype, shape in samples} or {(torch.get_default_dtype(), ())}
        if len(kinds) > 1 or len({shard.get("slot", -1) for shard in entry["shards"]}) > 1:
            raise ValueError(f"{what} has no rows: samples differ in slot, dtype or shape, {sorted(map(str, kinds))}.")
        self.dtype, self.shape = kinds.pop()
        each = math.prod(self.shape) * torch.empty(0, dtype=self.dtype).element_size()
        stacks = [stack for stack, *_ in samples if len(stack)]
        self._pieces = [stack.reshape(-1, each) for stack in stacks if stack.size] if each else stacks
        self._dump, self._each, self._has_calls, self._matches = dump, each, index is not None, dict[Rows, Array]()
        ends: Array = numpy.cumsum([0, *map(len, self._pieces)])
        self._firsts, counts = ends[:-1], lines[:, 4].copy()
        # The calls [n, 5] whose rows are there; the rows of call i are begins[i] up to begins[i + 1]. Holes are of no call.
        for i in (counts < 0).nonzero()[0]:  # a correction: so many rows are missing in front of it
            left = counts[: i + 1].sum().clip(0)
            counts[:i], counts[i] = numpy.diff(counts[:i].cumsum().clip(0, left), prepend=0), 0
        counts = numpy.diff(counts.cumsum().clip(0, ends[-1]), prepend=0)
        of_call = lines[:, 2] >= 0
        self._calls, self._counts = lines[of_call & (counts > 0)], counts[of_call & (counts > 0)]
        self._begins, self._holes = numpy.append(0, self._counts.cumsum()), (of_call * counts).cumsum()[~of_call]
        self._shifts = numpy.append(0, counts[~of_call].cumsum())
        self._chosen: Any = None  # numbers of rows, for a view of where()
        # Memory of the last gathers, to be used again: the system's clearing of new memory takes as long as the copy.
        self._spare: list[Any] = [(numpy.empty(0), None)] * 2
        if self._pieces:  # all memory from the first piece to the last one; what lies between them is not touched
            places = numpy.array([piece.ctypes.data for piece in self._pieces])
            self._starts, size = places - places.min(), int(numpy.ptp(places)) + self._pieces[places.argmax()].size
            memory = numpy.lib.stride_tricks.as_strided(self._pieces[places.argmin()].reshape(-1), (size,), (1,))
            self._memory = torch.from_numpy(memory)

    def __len__(self) -> int:
        return int(self._begins[-1]) if self._chosen is None else len(self._chosen)

    def __repr__(self) -> str:
        shown = f"Rows of {self.path} ({self.kind}): {len(self)} of {[*self.shape]} {str(self.dtype)[6:]}"
        return f"{shown}, beside {', '.join(self.columns) or 'nothing'}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (self.directory, self.path, self.kind, len(self) if self._chosen is None else self._chosen)

    def __getitem__(self, index: int | Index) -> Tensor:
        if isinstance(index, int) or getattr(index, "shape", None) == ():
            return self._mapped(*self._numbers([int(index)] * 2))[0]  # type: ignore[arg-type]
        if isinstance(index, slice) and self._chosen is None and index.step in (None, 1):
            begin, end, _ = index.indices(len(self))
            return self._mapped(begin, end - 1)
        return self._gather(self._numbers(index))

    def __getitems__(self, indices: Sequence[int]) -> list[Tensor]:
        return [*self[indices]]

    def _numbers(self, index: Index = slice(None)) -> Array:
        """Numbers of these rows among all of the module, int64 [n]."""
        size = len(self)
        index = numpy.arange(*index.indices(size)) if isinstance(index, slice) else numpy.asarray(index)
        if index.dtype == bool and index.shape == (size,):
            index = index.nonzero()[0]
        if index.ndim != 1 or (index.dtype.kind not in "iu" and index.size):
            raise IndexError(f"{index.dtype} {[*index.shape]} are no numbers of rows, and no mask of {size}.")
        index = index.astype(numpy.int64)
        for bad in index[(index < -size) | (index >= size)]:
            raise IndexError(f"there is no row {bad}: {self.path} has {size}.")
        index[index < 0] += size
        return index if self._chosen is None else self._chosen[index]

    def _find(self, rows: Array) -> tuple[Array, Array]:
        """The pieces of rows by their numbers, int64 [n], and where their bytes begin in all memory."""
        if len(self._holes):
            rows = rows + self._shifts[numpy.searchsorted(self._holes, rows, "right")]
        piece = numpy.searchsorted(self._firsts, rows, "right") - 1
        return piece, self._starts[piece] + (rows - self._firsts[piece]) * self._each

    def _tensor(self, bytes_of: Tensor, count: int) -> Tensor:
        bytes_of = bytes_of.view(self.dtype) if len(bytes_of) else torch.empty(0, dtype=self.dtype)
        return bytes_of.view(count, *self.shape)

    def _mapped(self, first: int, last: int) -> Tensor:
        """Rows first to last, copied where they do not lie together."""
        if self._each and first <= last:
            begin, end = self._find(numpy.array([first, last]))[1].tolist()
            if end - begin == (last - first) * self._each:
                return self._tensor(self._memory[begin : end + self._each], last + 1 - first)
        return self._gather(numpy.arange(first, last + 1))

    def _gather(self, rows: Array) -> Tensor:
        """Rows by their numbers: a tensor [n, ...]."""
        memory, lent = numpy.empty(0), None
        with contextlib.suppress(IndexError):  # other threads have it
            memory, lent = self._spare.pop(0)
        if memory.size != len(rows) * self._each or (lent and lent() is not None):  # somebody has those rows
            memory = numpy.empty(len(rows) * self._each, numpy.uint8)
        view = memory[:]  # which lives as long as the tensors of it
        self._spare.append((memory, weakref.ref(view)) if memory.size <= 32 << 20 else (numpy.empty(0), None))
        found = torch.from_numpy(view).view(len(rows), self._each)
        begins = self._find(rows)[1] if found.numel() else rows
        if self._each >= 1 << 16:
            for to, begin in zip(found, begins.tolist()):
                to.copy_(self._memory[begin : begin + self._each])
        elif found.numel():
            # Rows that overlap and begin every `step` bytes: one call gathers from all files, twice as fast as a call for each.
            step = math.gcd(self._each, *self._starts.tolist())
            of = self._memory.as_strided(((len(self._memory) - self._each) // step + 1, self._each), (step, 1))
            torch.index_select(of, 0, torch.from_numpy(begins // step), out=found)
        return self._tensor(found.view(-1), len(rows))

    def _read_ahead(self, rows: Array, near: int) -> None:
        """Has the system read rows of mapped files, and what is between them if that is near, without waiting for it."""
        far = (numpy.diff(rows) < 1) | (numpy.diff(rows) > near)
        begins, lasts = rows[numpy.append(True, far)[: len(rows)]], rows[numpy.append(far, True)[: len(rows)]]
        for number, begin, count in zip(*(one.tolist() for one in (*self._find(begins), lasts - begins + 1))):
            piece: Any = self._pieces[number]
            if (held := getattr(piece, "_mmap", None)) and hasattr(mmap, "MADV_WILLNEED"):
                start = piece.offset % mmap.ALLOCATIONGRANULARITY + begin - int(self._starts[number])
                end, start = min(start + count * self._each, len(held)), start - start % mmap.PAGESIZE
                held.madvise(mmap.MADV_WILLNEED, start, end - start)

    def _there(self, column: Rows, rows: Array) -> Array:
        """The numbers in a column of what belongs to these rows, int64 [n]; -1 where it has nothing."""
        if not len(column):
            return numpy.full_like(rows, -1)
        if column not in self._matches:  # for each call the first one there of the same run and group
            theirs = {(run, group): i for i, (run, _, group, *_) in reversed([*enumerate(column._calls.tolist())])}
            found = [theirs.get((run, group), -1) for run, _, group, *_ in self._calls.tolist()]
            self._matches[column] = numpy.array(found, numpy.int64)
        call = numpy.searchsorted(self._begins, rows, "right") - 1
        there, place = self._matches[column][call], rows - self._begins[call]
        held = (there >= 0) & (place < column._counts[there])
        return numpy.where(held, column._begins[there] + place, -1)

    def _read(self, name: str, rows: Array, some: bool = False) -> tuple[Tensor, Array]:
        """A column of these rows, and which of them have a value in it, int64 [n]: `some`, or all."""
        every = numpy.arange(len(rows))
        if name in self.columns:
            column = self._dump[name, "Beside"]
            at = self._there(column, rows)
            if (at < 0).any() and not some:
                lack = f"{(at < 0).sum()} of {len(rows)} rows of {self.path} have no {name!r}"
                raise ValueError(f"{lack}: rows.where({name!r}) leaves them out.")
            return column._gather(at[at >= 0]), every[at >= 0]
        if name not in Where._fields:
            raise KeyError(f"there is no column {name!r}; there are {', '.join([*self.columns, *Where._fields])}.")
        call, at_call = numpy.searchsorted(self._begins, rows, "right") - 1, {"run": 0, "forward": 1, "call": 3}
        values = rows - self._begins[call] if name == "place" else self._calls[call, at_call[name]]
        if name == "place" and any(one["kind"] == "Place" for one in self._dump.entries):  # with a mask
            column = self._dump[name, "Place"]
            at = self._there(column, rows)
            values[at >= 0] = column._gather(at[at >= 0]).numpy()
        return torch.from_numpy(values), every

    def _names(self, beside: Names = True) -> list[str]:
        if beside is True:  # those of which there is something
            return [name for name in self.columns if len(self._read(name, self._begins[:-1], some=True)[1])]
        return [beside] if isinstance(beside, str) else [*(beside or ())]

    def _view(self, chosen: Array) -> Rows:
        view = Rows.__new__(Rows)
        all_rows = self._chosen is None and len(chosen) == len(self)
        view.__dict__.update(self.__dict__, _chosen=None if all_rows else chosen)
        return view

    def beside(self, name: str, rows: Index = slice(None)) -> Tensor:
        """A column, a tensor [n, ...] aligned with these rows. ValueError where a row has no value."""
        return self._read(name, self._numbers(rows))[0]

    def texts(self, name: str, rows: Index = slice(None)) -> list[str]:
        """A column of texts, as a list of str."""
        return [bytes(text).rstrip(b"\0").decode() for text in self.beside(name, rows).numpy()]

    def take(self, rows: int | Index, beside: Names = False) -> Any:
        """The first n rows, or those of an index: a tensor [n, ...]; with `beside`, names or True for all columns, that, {name:
        [n, ...]}, and the Where of each row."""
        numbers = self._numbers(slice(0, max(rows, 0)) if isinstance(rows, int) else rows)
        x, y = self._gather(numbers), {name: self._read(name, numbers)[0] for name in self._names(beside)}
        return x if beside is False else (x, y, Where(*(self._read(name, numbers)[0] for name in Where._fields)))

    def where(self, *names: str, **values: Value) -> Rows:
        """The rows that have a value in the columns named, and in others this one: a number, a text, a list of them, or a
        function of the values [n, ...] that returns bool [n]. Rows again, in the same order."""
        chosen = self._numbers()
        for name in dict.fromkeys([*names, *values]):
            held, there = self._read(name, chosen, some=True)
            value: Any = values.get(name, lambda held: torch.ones(len(held), dtype=torch.bool))
            several = value if isinstance(value, list) else [value]
            if isinstance(several[0], str):
                keep = numpy.isin(held.numpy().view(f"S{held.shape[1]}")[:, 0], [one.encode() for one in several])
            else:
                keep = numpy.asarray(value(held) if callable(value) else torch.isin(held, torch.as_tensor(value)))
            if keep.dtype != bool or keep.shape != (len(held),):
                raise ValueError(f"{name!r} is {[*held.shape]}: give where() a function of it to bool [{len(held)}].")
            chosen = chosen[there[keep]]
        return self._view(chosen)

    def numpy(self) -> Array:
        """An array [n, ...]: a numpy.memmap where the rows lie in one shard, else an array that is read."""
        pieces, dtype = self._pieces, torch.empty(0, dtype=self.dtype).numpy().dtype
        if self._chosen is None and len(pieces) == 1 and len(pieces[0]) == len(self):
            return cast(Array, pieces[0].reshape(-1).view(dtype).reshape(-1, *self.shape))
        return self._gather(self._numbers()).numpy()

    def shuffled(self, *how: Any, **more: Any) -> Shuffled:
        """Batches of all rows in random order, in constant memory: `batch`, `seed`, `buffer`, `beside`, ... as of Shuffled."""
        return Shuffled(self, *how, **more)

    arrow = _elsewhere("arrow")  # a pyarrow.Table
    dataset = _elsewhere("dataset")  # a datasets.Dataset of Hugging Face
    parquet = _elsewhere("parquet")  # writes a file


@dataclasses.dataclass(repr=False, eq=False)
class Shuffled(torch.utils.data.IterableDataset[Any]):
    """Batches of rows in random order: x [batch, ...]; (x, y) with `beside` a name, (x, {name: y}) with several or True.

    Blocks of neighbours come in random order. Half of the buffer is mixed and handed out, while the system reads the other half.
    Each `iter` is an epoch in another order; the same seed gives the same orders. state_dict() between two batches and
    load_state_dict() go on in the middle of one. Workers of a DataLoader(batch_size=None) share the buffer and the batches. They
    are copies, which count no epochs: set_epoch() before each."""

    rows: Rows
    batch: int = 256  # the last one has fewer
    seed: int = 0
    buffer: Size = "256 MB"  # of the mapped files
    beside: Names = ()
    rank: int = 0  # which part of the rows, of how many
    world: int = 1
    block: Size = "256 KB"  # read together

    def __post_init__(self) -> None:
        rows, self._names = self.rows, self.rows._names(self.beside)
        if self.batch < 1 or not 0 <= self.rank < self.world:
            raise ValueError(f"no batch of {self.batch} rows, and no rank {self.rank} of {self.world}.")
        for name in self._names:  # what is missing is said now
            calls = numpy.append(rows._begins[:-1], rows._begins[1:] - 1)
            rows._read(name, calls if rows._chosen is None else rows._chosen)
        self._part = range(self.rank * len(rows) // self.world, (self.rank + 1) * len(rows) // self.world)
        buffer, least = _bytes(self.buffer), 2 * self.batch * (rows._each + 24)  # with three numbers for each row
        if buffer < least:
            raise ValueError(f"buffer={buffer} holds no two batches: these take {least} bytes.")
        self._fit, self._block = buffer // least, _bytes(self.block)
        self._of = [len(rows), self.batch, self.seed, buffer, self._block, self.world]
        self._now = (0, 0)
        self._next: tuple[int, int] | None = (0, 0)

    def __len__(self) -> int:
        return -(-len(self._part) // self.batch)

    def set_epoch(self, epoch: int) -> None:
        """The next `iter` begins this epoch."""
        self._next = (epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch is, for load_state_dict() of an equal object."""
        epoch, batch = self._next or self._now
        return {"epoch": epoch + (batch >= len(self)), "batch": batch % max(len(self), 1), "of": self._of}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter` goes on there."""
        if state["of"] != self._of:
            raise ValueError(f"the state is of other rows or options: {state['of']}, not {self._of}.")
        self._next = (state["epoch"], state["batch"])

    def __iter__(self) -> Iterator[Any]:
        epoch, done = self._now = self._next or (self._now[0] + 1, 0)
        self._next = None
        worker = torch.utils.data.get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        first, last = (one * len(self) // workers for one in (number, number + 1))
        count, fit = max(len(self.rows), 1), max(self._fit // workers, 1)
        # All rows are a ring of blocks that begins anywhere: its blocks in random order, then what is left.
        size = self._block // max(self.rows._each, 1) + 1
        random = numpy.random.default_rng([self.seed, epoch])
        start, order = random.integers(count), numpy.append(random.permutation(count // size), count // size)

        def window(at: int) -> Array:
            """Numbers of the rows of some batches, mixed; the system reads these rows from now on."""
            ends = [min(self._part.start + min(one, last) * self.batch, self._part.stop) for one in (at, at + fit)]
            block, place = numpy.divmod(numpy.arange(*ends), size)
            rows = (order[block] * size + place + start) % count
            rows = rows if self.rows._chosen is None else self.rows._chosen[rows]
            self.rows._read_ahead(rows, near=1 + self._block // 8 // max(self.rows._each, 1))
            return numpy.random.default_rng([self.seed, epoch, 1 + ends[0]]).permutation(rows)

        begin = first + done // fit * fit
        coming = window(begin)
        for at in range(begin, last, fit):
            rows, coming = coming, window(at + fit)
            for i in range(max(at, first + done), min(at + fit, last)):
                part = rows[(i - at) * self.batch : (i - at + 1) * self.batch]
                self._now = (epoch, i + 1 - first)
                x, y = self.rows._gather(part), {name: self.rows._read(name, part)[0] for name in self._names}
                yield (x, y[self.beside] if isinstance(self.beside, str) else y) if y else x


def _bytes(size: int | str) -> int:
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)B?\s*", str(size))
    if not found:
        raise ValueError(f"{size!r} is no number of bytes: give one, or a text such as '256 MB'.")
    return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))
