"""Rows of a dump as a dataset: mapped, not read, with what was known beside each row.

This file needs PyTorch (1.13 or newer) and NumPy only: copied beside a dump, it works without the library.

    import rows                                   # or torchtap.load("dump")["layer2"].rows

    layer2 = rows.open("dump")["layer2"]          # a torch.utils.data.Dataset
    layer2[7], layer2[10:20], layer2[[3, 1, 2]]   # [C], [10, C], [3, C]
    x, y, where = layer2.take(1024, beside=True)  # the first rows, {"label": [1024], ...}, where they come from
    for x, y in layer2.shuffled(batch=4096, beside=("label",)): ...
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import importlib
import itertools
import json
import math
import mmap
import os
import pathlib
import re
import types
import typing
import zipfile
import zlib

import numpy
import torch

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from numpy.typing import NDArray

    Array: typing.TypeAlias = NDArray[typing.Any]
    Index: typing.TypeAlias = "slice | Sequence[int] | Sequence[bool] | torch.Tensor | Array"
    Value: typing.TypeAlias = "float | str | list[int] | list[float] | list[str] | torch.Tensor | Callable[[torch.Tensor], torch.Tensor | Array]"

__all__ = ["Dump", "Rows", "Shuffled", "Where", "open"]

_Batch = typing.TypeVar("_Batch")


class Where(typing.NamedTuple):
    """Where rows come from: int64 tensors [n]. The place is that in the call, as it was before a mask."""

    run: torch.Tensor
    forward: torch.Tensor
    call: torch.Tensor
    place: torch.Tensor


def _need(package: str, what: str) -> typing.Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(f"{what} needs {package}, which is not installed: pip install {package}.") from None


_OTHERS = r"^Beside$|^Place$|\.calls$"  # kinds of entries that are not of modules


def _entries(directory: str) -> list[dict[str, typing.Any]]:
    """Entries of the manifest and the journal, each with its shards."""
    found = {"journal.jsonl": b"", "manifest.json": b""}  # in this order: the manifest has what is finished meanwhile
    for name in found:
        with contextlib.suppress(FileNotFoundError):
            found[name] = pathlib.Path(directory, name).read_bytes()
    journal, text = found.values()
    if not journal and not text:
        raise FileNotFoundError(f"{directory} is no recording: it has neither a manifest nor a journal.")
    whole = itertools.takewhile(lambda line: line[:8] == b"%08x" % zlib.crc32(line[9:]), journal.splitlines())
    events = [json.loads(line[9:]) for line in whole]
    try:
        manifest = json.loads(text or '{"format": 1, "entries": []}')
        if "crc32" in manifest and manifest["crc32"] != f"{zlib.crc32(text[: text.rindex(b'crc32') - 1]):08x}":
            raise ValueError("its checksum is another one")
    except ValueError as error:
        raise ValueError(f"{directory}/manifest.json is damaged: {error}.") from None
    if max(manifest["format"], *(event["recording"]["format"] for event in events[:1]), 0) > 2:
        raise ValueError(f"{directory} was written by a newer torchtap: this one reads formats up to 2.")
    entries: list[dict[str, typing.Any]] = manifest["entries"]
    opened = {}
    for entry in entries:
        entry["shards"] = entry.get("shards") or ([{**entry}] if entry.get("file") else [])
    for event in events:
        if "entry" in event and event["entry"]["entry"] >= len(entries):
            entries.append({**event["entry"], "shards": []})
        elif "open" in event:
            opened[event["open"]["name"]] = event["open"]
        elif "shard" in event:
            of, shard = entries[event["shard"]["entry"]]["shards"], event["shard"]["shard"]
            opened.pop(shard["file"][: -len(".pt")], None)
            of += [shard] if shard["file"] not in [one["file"] for one in of] else []
    for name, shard in opened.items():  # rows count in complete shards, calls and columns as far as they are there
        if re.search(_OTHERS, entries[shard["entry"]]["kind"]):
            file = name + (".pt" if os.path.exists(os.path.join(directory, name + ".pt")) else ".part")
            entries[shard["entry"]]["shards"].append({**shard, "file": file, "holds": "tensor"})
    return entries


def _samples(path: str, shard: dict[str, typing.Any]) -> tuple[typing.Any, mmap.mmap | None, int]:
    """A stack [samples, ...], its file as it is mapped, and where that begins in memory; or a list of samples, None, 0."""
    try:
        if os.path.basename(shard["file"]) != shard["file"]:
            raise ValueError("the manifest names no file in the directory")
        with pathlib.Path(path).open("rb") as file:
            size, begin = os.fstat(file.fileno()).st_size, 128
            if size != shard.get("bytes", size):
                raise ValueError(f"it has {size} bytes instead of {shard['bytes']}")
            if shard["holds"] != "tensor" or "slot" not in shard:
                value = torch.load(path, weights_only=True)
                return [value] if torch.is_tensor(value) else [one for one in value if one is not None], None, 0
            if path.endswith(".part"):  # read, since its writer may cut it
                held: typing.Any = bytearray(file.read())
            else:  # pages that are written to become this process's own, as with torch.load(mmap=True)
                held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                with zipfile.ZipFile(file) as archive:
                    (record,) = (one for one in archive.infolist() if re.search(r"/data/\d+$", one.filename))
                header, size = record.header_offset, record.file_size
                begin = header + 30 + sum(numpy.frombuffer(held[header + 26 : header + 30], "<u2").tolist())
        one = torch.empty(shard["shape"], dtype=getattr(torch, shard["dtype"]))
        each = one.numel() * one.element_size()
        count = shard.get("samples", max(min(size, len(held) - begin), 0) // max(each, 1))
        if begin + count * each > len(held) or ("samples" in shard and count * each != size):
            raise ValueError(f"it lacks some of its {count} samples")
        if not count * each:
            return one.new_empty((count, *one.shape)), None, 0
        flat = torch.frombuffer(held, dtype=one.dtype, count=count * one.numel(), offset=begin)
        return flat.view(-1, *one.shape), held if isinstance(held, mmap.mmap) else None, flat.data_ptr() - begin
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is gone: copy it again from where the dump was written.") from None
    except Exception as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


class _Piece(typing.NamedTuple):
    """Rows [n, ...] that follow each other in memory; if they are mapped, the file, its mapping and where that begins."""

    rows: torch.Tensor
    path: str
    held: mmap.mmap | None
    address: int


class _Column:
    """The rows of an entry in order, in `pieces`, whose first rows are `firsts`. `calls` are int64 [calls, 5] as in an index;
    the rows of call i are begins[i] up to begins[i + 1]."""

    def __init__(self, directory: str, entry: dict[str, typing.Any], index: dict[str, typing.Any] | None) -> None:
        what, pieces, sizes = f"{entry['path']!r} ({entry['kind']}) of {directory}", [], []
        self.matches: dict[_Column, Array] = {}
        if held := entry.get("reduction") or entry.get("holds") in ("dict", "text") and entry["holds"]:
            raise ValueError(f"{what} has no rows, but {held}: keep samples of one slot.")
        for shard in entry["shards"]:
            path = os.path.join(directory, shard["file"])
            value, mapped, address = _samples(path, shard)
            if torch.is_tensor(value) and index is None:  # a sample is a call, and its first dimension has the rows
                sizes += [value.shape[1] if value.dim() > 1 else 1] * len(value)
                value = value.flatten(0, 1) if value.dim() > 1 else value
            elif index is None:
                value = [one if one.dim() else one.reshape(1) for one in value]
                sizes += [len(one) for one in value]
            pieces += [_Piece(one, path, mapped, address) for one in ([value] if torch.is_tensor(value) else value)]
        kinds = {(one.rows.dtype, *one.rows.shape[1:]) for one in pieces} or {(torch.get_default_dtype(),)}
        if len(kinds) > 1 or len({shard.get("slot", -1) for shard in entry["shards"]}) > 1:
            raise ValueError(f"{what} has no rows: samples differ in slot, dtype or shape, {sorted(map(str, kinds))}.")
        self.dtype, *shape = kinds.pop()
        self.shape, self.each = tuple(shape), math.prod(shape) * torch.empty(0, dtype=self.dtype).element_size()
        lines: Array
        if index is None:
            lines = numpy.zeros((len(sizes), 5), numpy.int64)
            lines[:, 1] = lines[:, 2] = numpy.arange(len(sizes))
            lines[:, 4] = sizes
        elif index["type"] != "rows 1":
            raise ValueError(f"{what} was written by a newer torchtap: {index['type']!r}, and this reads 'rows 1'.")
        else:
            parts = [_samples(os.path.join(directory, one["file"]), one)[0].numpy() for one in index["shards"]]
            lines = numpy.concatenate([numpy.zeros((0, 5), numpy.int64), *parts])
            torn = (lines[:, 0] <= 0) & (lines[:, 2] >= 0)  # zeros, where the disk lost power
            lines = lines[: int(torn.argmax())] if torn.any() else lines
        # The calls whose rows are there, and the rows that belong to calls.
        self.has_index, count, at, self.pieces = index is not None, lines[:, 4].copy(), 0, []
        for i in (count < 0).nonzero()[0].tolist():  # a correction: so many rows are missing in front of it
            missing, count[i] = -count[i], 0
            while missing and (i := i - 1) >= 0:
                cut = min(missing, count[i])
                missing, count[i] = missing - cut, count[i] - cut
        ends = count.cumsum()
        count = numpy.minimum(count, (sum(len(piece.rows) for piece in pieces) - ends + count).clip(0))
        kept, holes = (lines[:, 2] >= 0) & (count > 0), (lines[:, 2] < 0) & (count > 0)
        edges = [0, *numpy.stack([ends - count, ends], 1)[holes].flatten().tolist(), int(count.sum())]
        self.calls, self.counts, self.begins = lines[kept], count[kept], numpy.append(0, count[kept].cumsum())
        for piece in pieces:
            for begin, end in zip(edges[::2], edges[1::2]):
                begin, end = max(begin - at, 0), min(end - at, len(piece.rows))
                self.pieces += [piece._replace(rows=piece.rows[begin:end])] if begin < end else []
            at += len(piece.rows)
        sizes = [len(piece.rows) for piece in self.pieces]
        self.firsts = numpy.cumsum([0, *sizes])[:-1]
        self.starts = self.firsts.tolist()
        self.equal = sizes[0] if len({*sizes[:-1], *sizes[:1]}) == 1 and sizes[-1] <= sizes[0] else 0  # but of the last
        if self.pieces and self.each:  # all memory from the first piece to the last one, as rows that may overlap
            places = numpy.array([piece.rows.data_ptr() for piece in self.pieces])
            base, step = int(places.min()), math.gcd(self.each, *(places - places.min()).tolist())
            memory = {"version": 3, "data": (base, False), "typestr": "|u1", "strides": (step, 1)}
            memory["shape"] = ((max(piece.rows[-1].data_ptr() for piece in self.pieces) - base) // step + 1, self.each)
            self.memory = torch.from_numpy(numpy.asarray(types.SimpleNamespace(__array_interface__=memory)))
            self.step, self.offsets = self.each // step, (places - base) // step - self.firsts * (self.each // step)

    def __len__(self) -> int:
        return int(self.begins[-1])

    def view(self, begin: int, end: int) -> torch.Tensor | None:
        """Rows begin up to end as they are mapped; None if they lie in several shards."""
        number = int(numpy.searchsorted(self.firsts, begin, "right")) - 1
        part: typing.Any = self.pieces[number].rows[begin - self.firsts[number] :][: end - begin] if begin < end else ()
        return part if len(part) == end - begin > 0 else None

    def gather(self, rows: Array) -> torch.Tensor:
        """Rows by their numbers, int64 [n]: a tensor [n, ...]."""
        if not len(rows) or not self.each:
            return torch.empty((len(rows), *self.shape), dtype=self.dtype)
        piece = rows // self.equal if self.equal else numpy.searchsorted(self.firsts, rows, "right") - 1
        found = self.memory.index_select(0, torch.from_numpy(rows * self.step + self.offsets[piece]))
        return found.view(self.dtype).view(len(rows), *self.shape)

    def read_ahead(self, begins: Array, ends: Array) -> None:
        """Has the system read rows begins[i] up to ends[i] of mapped files, without waiting for it."""
        for begin, end in zip(begins.tolist(), ends.tolist()):
            number = bisect.bisect_right(self.starts, begin) - 1
            rows, _, held, address = self.pieces[number]
            if held and hasattr(mmap, "MADV_WILLNEED"):
                start = rows.data_ptr() - address + (begin - self.starts[number]) * self.each
                start -= start % mmap.PAGESIZE
                held.madvise(
                    mmap.MADV_WILLNEED, start, min((end - begin) * self.each + mmap.PAGESIZE, len(held) - start)
                )

    def rows_in(self, other: _Column, rows: Array) -> Array:
        """The numbers in another column of what belongs to these rows, int64 [n]; -1 where it has nothing."""
        if not len(other) or not len(rows):
            return numpy.full_like(rows, -1)
        if other not in self.matches:  # for each call its call there, of the same run and group
            calls = numpy.concatenate([self.calls, other.calls])
            runs = numpy.unique(calls[:, 0], return_inverse=True)[1].reshape(-1)
            mine, theirs = numpy.split(runs * (calls[:, 2].max() + 1) + calls[:, 2], [len(self.calls)])
            order = theirs.argsort(kind="stable")
            found = order[numpy.searchsorted(theirs[order], mine).clip(0, len(order) - 1)]
            self.matches[other] = numpy.where(theirs[found] == mine, found, -1)
        call = numpy.searchsorted(self.begins, rows, "right") - 1
        there, place = self.matches[other][call], rows - self.begins[call]
        return numpy.where((there >= 0) & (place < other.counts[there]), other.begins[there] + place, -1)


class Dump(typing.Mapping[str, "Rows"]):
    """What a recorder wrote: Rows by path, or by (path, kind) where a path has several kinds."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self._made: dict[tuple[str, str], _Column] = {}
        self.entries = _entries(self.directory)
        self.columns = [one["path"] for one in self.entries if one["kind"] == "Beside"]
        self._modules = [one for one in self.entries if not re.search(_OTHERS, one["kind"])]

    def __getitem__(self, path: str | tuple[str, str]) -> Rows:
        return Rows(self, *((path,) if isinstance(path, str) else path))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(one["path"] for one in self._modules))

    def __len__(self) -> int:
        return len([*iter(self)])

    def column(self, path: str, kind: str | None = None) -> tuple[_Column, str]:
        """The rows of an entry of this kind, and the kind; without one, of the only module at the path."""
        among = self.entries if kind else self._modules
        found = [one for one in among if path in (one["path"], *one.get("aliases", ())) and kind in (None, one["kind"])]
        if len(found) != 1:
            known = ", ".join(f"{one['path']!r} ({one['kind']})" for one in found or self._modules[:20])
            several = "several" if found else "no"
            raise KeyError(f"{self.directory} has {several} rows of {path!r}; ask for one of {known}.")
        path, kind = key = found[0]["path"], found[0]["kind"]
        if key not in self._made:
            index = [one for one in self.entries if (one["path"], one["kind"]) == (path, kind + ".calls")]
            self._made[key] = _Column(self.directory, found[0], index[0] if index else None)
        return self._made[key], kind

    def table(self) -> pandas.DataFrame:
        """A pandas.DataFrame. Where all samples are single elements, as losses and norms: a line for each step, a column for
        each module. Else a line for each module and column: path, kind, rows, shape and dtype of a row, bytes."""
        frame, lines, scalars = _need("pandas", "table()").DataFrame, [], {}
        for one in self.entries:
            if one["kind"].endswith(".calls"):
                continue
            line = {"path": one["path"], "kind": one["kind"], "rows": None, "shape": None, "dtype": None}
            with contextlib.suppress(ValueError):  # of a reduction, or of samples that differ
                of = self.column(one["path"], one["kind"])[0]
                line.update(rows=len(of), shape=of.shape, dtype=str(of.dtype)[6:])
                if not of.has_index and len(of) == len(of.calls) and math.prod(of.shape) == 1:
                    name = one["path"] if one["path"] not in scalars else f"{one['path']} ({one['kind']})"
                    values = of.gather(numpy.arange(len(of))).flatten()
                    scalars[name] = (values.float() if of.dtype == torch.bfloat16 else values).numpy()
            lines.append({**line, "bytes": sum(shard.get("bytes", 0) for shard in one["shards"])})
        if lines and len(scalars) == len(lines):  # some modules may have fewer
            steps = {name: dict(enumerate(values)) for name, values in scalars.items()}
            return frame(steps).rename_axis("step")
        return frame(lines, columns=["path", "kind", "rows", "shape", "dtype", "bytes"]).astype({"rows": "Int64"})


open = Dump  # rows.open("dump")


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    """The rows of a module in the order of its calls: a dataset whose items are tensors of `shape` and `dtype`.

        rows[7], rows[10:20], rows[[3, 1, 2]], rows[mask]    [...], [10, ...], [3, ...], [n, ...]

    One row, and a slice within a shard, are mapped: read when they are used; what is written to them stays in this process.
    `columns` are the names of what is beside the rows. Always there are "run" (a number for each time the dump was opened),
    "forward" (its number in the run), "call" (the module's in the forward) and "place". In a recording without rows each
    sample is a call, and its first dimension has the rows."""

    columns: list[str]
    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    _chosen: typing.Any

    def __init__(
        self,
        directory: Dump | str | os.PathLike[str],
        path: str,
        kind: str | None = None,
        chosen: Array | int | None = None,
    ) -> None:
        self._dump, self.path = directory if isinstance(directory, Dump) else Dump(directory), path
        self._own, self.kind = self._dump.column(path, kind)
        self.directory, self.columns = self._dump.directory, self._dump.columns
        self.shape, self.dtype, self._chosen = self._own.shape, self._own.dtype, chosen
        if isinstance(chosen, int):  # so many had the process that this is a copy of, before its writer went on
            self._chosen = None if chosen == len(self._own) else numpy.arange(chosen)

    def __reduce__(self) -> tuple[typing.Any, ...]:
        return Rows, (self.directory, self.path, self.kind, len(self) if self._chosen is None else self._chosen)

    def __len__(self) -> int:
        return len(self._own if self._chosen is None else self._chosen)

    def __repr__(self) -> str:
        shown = f"Rows of {self.path} ({self.kind}): {len(self)} of {[*self.shape]} {str(self.dtype)[6:]}"
        return f"{shown}, beside {', '.join(self.columns) or 'nothing'}"

    def __getitem__(self, index: int | Index) -> torch.Tensor:
        if isinstance(index, int) or getattr(index, "shape", None) == ():
            (number,) = self._numbers([int(index)]).tolist()  # type: ignore[arg-type]
            return self._own.view(number, number + 1)[0]  # type: ignore[index]
        if isinstance(index, slice) and self._chosen is None and index.step in (None, 1):
            if (view := self._own.view(*index.indices(len(self))[:2])) is not None:
                return view
        return self._own.gather(self._numbers(index))

    def __getitems__(self, indices: Sequence[int]) -> list[torch.Tensor]:
        return [*self[indices]]

    def _numbers(self, index: Index = slice(None)) -> Array:
        """Numbers of these rows among all of the module, int64 [n]."""
        index, size = (
            numpy.arange(*index.indices(len(self))) if isinstance(index, slice) else numpy.asarray(index),
            len(self),
        )
        if index.dtype == bool and index.shape == (size,):
            index = index.nonzero()[0]
        if index.ndim != 1 or (index.dtype.kind not in "iu" and index.size):
            raise IndexError(f"{index.dtype} {[*index.shape]} are no numbers of rows, and no mask of {size}.")
        index = index.astype(numpy.int64, copy=False)
        least, most = (index.min(), index.max()) if index.size else (0, -1)
        if least < -size or most >= size:
            raise IndexError(f"there is no row {least if least < -size else most}: {self.path} has {size}.")
        index = numpy.where(index < 0, index + size, index) if least < 0 else index
        return index if self._chosen is None else self._chosen[index]

    def _read(self, name: str, numbers: Array, some: bool = False) -> tuple[torch.Tensor, Array]:
        """A column of these rows, and which of them have a value in it, int64 [n]: `some`, or all."""
        own, there = self._own, numpy.arange(len(numbers))
        at: typing.Any = None
        if name in self.columns or (name == "place" and any(one["kind"] == "Place" for one in self._dump.entries)):
            of = self._dump.column(name, "Beside" if name in self.columns else "Place")[0]
            at = own.rows_in(of, numbers)
        if name in self.columns:
            there = (at >= 0).nonzero()[0]
            if len(there) < len(numbers) and not some:
                lack = f"{len(numbers) - len(there)} of {len(numbers)} rows of {self.path} have no {name!r}"
                raise ValueError(f"{lack}: rows.where({name!r}) leaves them out.")
            return of.gather(at[there]), there
        if name not in Where._fields:
            raise KeyError(f"there is no column {name!r}; there are {', '.join([*self.columns, *Where._fields])}.")
        call = numpy.searchsorted(own.begins, numbers, "right") - 1
        at_call = {"run": 0, "forward": 1, "call": 3}
        values = numbers - own.begins[call] if name == "place" else own.calls[call, at_call[name]]
        if at is not None:
            values[at >= 0] = of.gather(at[at >= 0]).numpy()
        return torch.from_numpy(values), there

    def _names(self, beside: bool | str | Iterable[str] | None) -> tuple[str, ...]:
        if beside is not True:
            return (beside,) if isinstance(beside, str) else tuple(beside or ())
        return tuple(name for name in self.columns if len(self._read(name, self._own.begins[:-1], True)[1]))

    def beside(self, name: str, rows: Index = slice(None)) -> torch.Tensor:
        """A column, a tensor [n, ...] aligned with these rows. ValueError where a row has no value."""
        return self._read(name, self._numbers(rows))[0]

    def texts(self, name: str, rows: Index = slice(None)) -> list[str]:
        """A column of texts, as a list of str."""
        return [bytes(text).rstrip(b"\0").decode() for text in self.beside(name, rows).numpy()]

    @typing.overload
    def take(self, rows: int | Index, beside: typing.Literal[False] = False) -> torch.Tensor: ...
    @typing.overload
    def take(
        self, rows: int | Index, beside: typing.Literal[True] | str | Iterable[str]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor], Where]: ...
    def take(self, rows: int | Index, beside: bool | str | Iterable[str] = False) -> typing.Any:
        """The first n rows, or those of an index: x [n, ...]; with `beside`, names or True for all columns, (x, y, where): y
        {name: [n, ...]}, where the run, forward, call and place of each row."""
        numbers = self._numbers(slice(0, max(rows, 0)) if isinstance(rows, int) else rows)
        x = self._own.gather(numbers)
        y = {name: self._read(name, numbers)[0] for name in self._names(beside)}
        return x if beside is False else (x, y, Where(*(self._read(name, numbers)[0] for name in Where._fields)))

    def where(self, *names: str, **values: Value) -> Rows:
        """The rows that have a value in the columns named, and in others this one: a number, a text, a list of them, or a
        function of the values [n, ...] that returns bool [n]. Rows again, in the same order."""
        view = copy.copy(self)
        view._chosen = self._numbers()
        for name, value in [*dict.fromkeys(names).items(), *values.items()]:
            held, there = self._read(name, view._chosen, True)
            several: list[typing.Any] = value if isinstance(value, list) else [value]
            keep: typing.Any
            if name not in values:
                keep = torch.ones(len(held), dtype=torch.bool)
            elif isinstance(several[0], str):
                keep = numpy.isin(held.numpy().view(f"S{held.shape[1]}")[:, 0], [one.encode() for one in several])
            else:
                keep = value(held) if callable(value) else torch.isin(held, torch.as_tensor(value))
            if (keep := numpy.asarray(keep)).dtype != bool or keep.shape != (len(held),):
                raise ValueError(f"{name!r} is {[*held.shape]}: give where() a function of it to bool [{len(held)}].")
            view._chosen = view._chosen[there[keep]]
        return view

    @typing.overload
    def shuffled(
        self,
        batch: int = 256,
        seed: int = 0,
        buffer: int | str = "256 MB",
        beside: tuple[()] = (),
        *,
        rank: int = 0,
        world: int = 1,
        block: int | str = "256 KB",
    ) -> Shuffled[torch.Tensor]: ...
    @typing.overload
    def shuffled(
        self,
        batch: int = 256,
        seed: int = 0,
        buffer: int | str = "256 MB",
        beside: str = ...,
        *,
        rank: int = 0,
        world: int = 1,
        block: int | str = "256 KB",
    ) -> Shuffled[tuple[torch.Tensor, torch.Tensor]]: ...
    @typing.overload
    def shuffled(
        self,
        batch: int = 256,
        seed: int = 0,
        buffer: int | str = "256 MB",
        beside: typing.Literal[True] | tuple[str, ...] | list[str] = ...,
        *,
        rank: int = 0,
        world: int = 1,
        block: int | str = "256 KB",
    ) -> Shuffled[tuple[torch.Tensor, dict[str, torch.Tensor]]]: ...
    def shuffled(
        self,
        batch: int = 256,
        seed: int = 0,
        buffer: int | str = "256 MB",
        beside: bool | str | Iterable[str] = (),
        **options: typing.Any,
    ) -> typing.Any:
        """Batches of all rows in random order, in constant memory: see Shuffled."""
        return Shuffled(self, batch, seed, buffer, beside, **options)

    def numpy(self) -> Array:
        """An array [n, ...]: a numpy.memmap where the rows lie in one shard, else an array that is read."""
        pieces = self._own.pieces if self._chosen is None else []
        if len(pieces) != 1 or not pieces[0].held:
            return self._own.gather(self._numbers()).numpy()
        rows, path, _, address = pieces[0]
        return numpy.memmap(path, rows.numpy().dtype, "r", rows.data_ptr() - address, tuple(rows.shape))

    def arrow(self, texts: Sequence[str] = ()) -> pyarrow.Table:
        """A pyarrow.Table: the rows under the module's path, the columns, run, forward, call and place. Rows are mapped, not
        copied (but bool, and views of where()). `texts` are columns to decode."""
        arrow = _need("pyarrow", "arrow()")

        def array(tensor: torch.Tensor) -> typing.Any:
            values = arrow.array(tensor.reshape(-1).numpy())
            for size in reversed(tensor.shape[1:]):
                values = arrow.FixedSizeListArray.from_arrays(values, size)
            return values

        views = [piece.rows for piece in self._own.pieces] if self._chosen is None else [self[:]]
        made = {self.path: arrow.chunked_array([array(view) for view in [self[:0], *views]])}
        for name in [*self._names(True), *Where._fields]:
            made.setdefault(name, self.texts(name) if name in texts else array(self.beside(name)))
        return arrow.table(made)

    def dataset(self, texts: Sequence[str] = ()) -> datasets.Dataset:
        """A datasets.Dataset of Hugging Face: arrow() as it is."""
        return _need("datasets", "dataset()").Dataset(self.arrow(texts))


def _bytes(size: int | str) -> int:
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)B?\s*", str(size))
    if not found:
        raise ValueError(f"{size!r} is no number of bytes: give one, or a text such as '256 MB'.")
    return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))


class Shuffled(torch.utils.data.IterableDataset[_Batch]):
    """Batches of rows in random order: x [batch, ...]; (x, y) with `beside` a name, (x, {name: y}) with a tuple of names.

    Blocks of neighbours come in random order. Half of the buffer is mixed and handed out, while the system reads the other half.
    Each `iter` is an epoch in another order; the same seed gives the same orders.

    batch         rows of a batch; the last one has fewer
    buffer        bytes, also "1 GB", of the mapped files; workers of a DataLoader (batch_size=None) share them, and the batches
    rank, world   which part of the rows, of how many
    block         bytes that are read together

    state_dict() between two batches and load_state_dict() go on in the middle of an epoch. Workers are copies, which count no
    epochs: set_epoch() before each."""

    _now: tuple[int, int]
    _next: tuple[int, int] | None

    def __init__(
        self,
        rows: Rows,
        batch: int,
        seed: int,
        buffer: int | str,
        beside: bool | str | Iterable[str],
        rank: int = 0,
        world: int = 1,
        block: int | str = "256 KB",
    ) -> None:
        self.rows, self.batch, self.seed, self.single = rows, batch, seed, isinstance(beside, str)
        self.buffer, self.block, self.beside = _bytes(buffer), _bytes(block), rows._names(beside)
        if batch < 1 or not 0 <= rank < world:
            raise ValueError(f"a batch of {batch} rows has to have one, and rank {rank} to be one of {world}.")
        for name in self.beside:  # what is missing is said now
            calls = numpy.append(rows._own.begins[:-1], rows._own.begins[1:] - 1)
            rows._read(name, calls if rows._chosen is None else rows._chosen)
        self.part = range(rank * len(rows) // world, (rank + 1) * len(rows) // world)
        self.least = 2 * batch * (rows._own.each + 24)  # with three numbers for each row
        if self.buffer < self.least:
            raise ValueError(f"buffer={self.buffer} holds no two batches: these take {self.least} bytes.")
        self._of, self._now, self._next = [len(rows), batch, seed, self.buffer, self.block, world], (0, 0), (0, 0)

    def __len__(self) -> int:
        return -(-len(self.part) // self.batch)

    def set_epoch(self, epoch: int) -> None:
        """The next `iter` begins this epoch."""
        self._next = (epoch, 0)

    def state_dict(self) -> dict[str, typing.Any]:
        """Where the next batch is, for load_state_dict() of an equal object."""
        epoch, batch = self._next or self._now
        return {"epoch": epoch + (batch >= len(self)), "batch": batch % max(len(self), 1), "of": self._of}

    def load_state_dict(self, state: dict[str, typing.Any]) -> None:
        """The next `iter` goes on there."""
        if state["of"] != self._of:
            raise ValueError(f"the state is of other rows or options: {state['of']}, not {self._of}.")
        self._next = (state["epoch"], state["batch"])

    def __iter__(self) -> Iterator[_Batch]:
        self._now, self._next = self._next or (self._now[0] + 1, 0), None
        return self._run(*self._now)

    def _run(self, epoch: int, done: int) -> Iterator[typing.Any]:
        worker = torch.utils.data.get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        first, last = (one * len(self) // workers for one in (number, number + 1))
        own, chosen, fit = self.rows._own, self.rows._chosen, max(self.buffer // self.least // workers, 1)
        # Blocks of neighbours in random order: their first rows, and the places in the epoch where they end.
        most = self.block // max(own.each, 1) + 1
        blocks = numpy.random.default_rng([self.seed, epoch]).permutation(-(-len(self.rows) // most)) * most
        sizes = numpy.minimum(len(self.rows) - blocks, most)
        ends = sizes.cumsum()

        def window(at: int) -> tuple[Array, dict[str, torch.Tensor], torch.Tensor]:
            """The numbers of the rows of some batches, what is beside them, and the order to hand them out. From now on the
            system reads the rows."""
            low, high = (min(self.part.start + one * self.batch, self.part.stop) for one in (at, min(at + fit, last)))
            here = slice(numpy.searchsorted(ends, low, "right"), numpy.searchsorted(ends, high) + 1)
            begins = blocks[here] + numpy.maximum(low - ends[here] + sizes[here], 0)
            stops = blocks[here] + sizes[here] - numpy.maximum(ends[here] - high, 0)
            rows = numpy.concatenate([numpy.arange(*pair) for pair in zip(begins.tolist(), stops.tolist())])
            if chosen is not None:
                rows, begins, stops = chosen[rows], chosen[begins], chosen[stops - 1] + 1
            near = stops - begins < 8 * most  # not what lies between rows that are far apart
            own.read_ahead(begins[near], stops[near])
            mixed = numpy.random.default_rng([self.seed, epoch, 1 + low]).permutation(len(rows))
            return rows[mixed], {name: self.rows._read(name, rows)[0] for name in self.beside}, torch.from_numpy(mixed)

        starts = [at for at in range(first, last, fit) if at + fit > first + done]
        coming: typing.Any = window(starts[0]) if starts else None
        for at, following in zip(starts, [*starts[1:], None]):
            (rows, values, mixed), coming = coming, None if following is None else window(following)
            for i in range(max(at, first + done), min(at + fit, last)):
                part = slice((i - at) * self.batch, (i - at + 1) * self.batch)
                self._now = (epoch, i + 1 - first)
                x, y = own.gather(rows[part]), {name: value[mixed[part]] for name, value in values.items()}
                yield (x, y[self.beside[0]] if self.single else y) if y else x
