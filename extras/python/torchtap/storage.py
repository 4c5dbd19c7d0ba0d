"""Reads and merges recordings, of Python and of C++."""

from __future__ import annotations

import os
import typing

from torchtap._library import _C

if typing.TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from torchtap.rows import Rows

Context = _C.Context
Entry = _C.Entry
Recording = _C.Recording

__all__ = ["Context", "Entry", "Recording", "load", "merge"]


def load(path: str | os.PathLike[str]) -> typing.Any:
    """The recording in a folder, or the value in a .pt file.

    A recording has entries, by index or path of the module: `load("analysis")["layer1"].value`. Entries are read when they
    are asked for, so a recording may be larger than memory. Files are read as data: no code in them runs.
    """
    path = os.fspath(path)
    return _C.load_recording(path) if os.path.isdir(path) else _C.load_value(path)


def merge(
    parts: Iterable[str | os.PathLike[str]],
    directory: str | os.PathLike[str],
    *,
    mkdir: bool = False,
    overwrite: bool = False,
    all_modules: bool = False,
) -> None:
    """Merges recordings of the same model into one, as if one run had recorded them in this order.

    all_modules   take modules that only some parts have, as those of a pipeline's ranks
    """
    _C.merge([os.fspath(part) for part in parts], os.fspath(directory), mkdir, overwrite, all_modules)


def _rows(entry: Entry) -> Rows:
    """The rows of a dump as a dataset, see `torchtap.rows`. Needs NumPy."""
    from torchtap import rows  # NumPy is not needed for anything else

    return rows.Dump(entry.directory)[entry.path, entry.kind]


def _table(recording: Recording) -> pandas.DataFrame:
    """A pandas.DataFrame: of modules, or of scalars by step where all samples are single elements. See `torchtap.rows`."""
    if not len(recording):
        raise ValueError("torchtap.Recording.table: the recording has no entries.")
    from torchtap import rows

    return rows.Dump(recording.directory).table()


Entry.rows = property(_rows)  # type: ignore[assignment,method-assign]
Recording.table = _table  # type: ignore[assignment,method-assign]

Context.__doc__ = """Names tensors for reductions, around a forward: `with torchtap.Context(labels=y): model(x)`.

By, Where, Joint and others look them up by name."""
Recording.__doc__ = "A recording: entries by index or path, in the order of their subrecorders."
Entry.__doc__ = "What was recorded of one module: `value` as it was saved, `reductions` to continue from."
for _one in (Context, Entry, Recording):
    _one.__module__ = "torchtap"
