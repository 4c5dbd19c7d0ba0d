"""Rows for other packages, where they are installed: pandas, pyarrow, Hugging Face datasets. rows.py calls this file."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import typing

import torch

if typing.TYPE_CHECKING:
    from collections.abc import Sequence

    import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from torchtap.rows import Dump, Rows


def _need(package: str, what: str) -> typing.Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(f"{what} needs {package}, which is not installed: pip install {package}.") from None


def table(dump: Dump) -> pandas.DataFrame:
    """A pandas.DataFrame. Where all samples are single elements, as losses and norms: a line for each step, a column for each
    module. Else a line for each module and column: path, kind, rows, shape and dtype of a row, bytes."""
    frame, lines, scalars = _need("pandas", "table()").DataFrame, [], {}
    for one in dump.entries:
        if one["kind"].endswith(".calls"):
            continue
        line = {"path": one["path"], "kind": one["kind"], "rows": None, "shape": None, "dtype": None}
        with contextlib.suppress(ValueError):  # of a reduction, or of samples that differ
            of = dump[one["path"], one["kind"]]
            line.update(rows=len(of), shape=of.shape, dtype=str(of.dtype)[6:])
            if not of._has_calls and len(of) == len(of._calls) and math.prod(of.shape) == 1:
                name = one["path"] if one["path"] not in scalars else f"{one['path']} ({one['kind']})"
                values = of[:].flatten()
                scalars[name] = (values.float() if of.dtype == torch.bfloat16 else values).numpy()
        lines.append({**line, "bytes": sum(shard.get("bytes", 0) for shard in one["shards"])})
    if lines and len(scalars) == len(lines):  # some modules may have fewer
        steps = {name: dict(enumerate(values)) for name, values in scalars.items()}
        return frame(steps).rename_axis("step")
    return frame(lines, columns=["path", "kind", "rows", "shape", "dtype", "bytes"]).astype({"rows": "Int64"})


def arrow(rows: Rows, texts: Sequence[str] = ()) -> pyarrow.Table:
    """A pyarrow.Table: the rows under the module's path, the columns, run, forward, call and place. Rows are mapped, not
    copied (but bool, and views of where()). `texts` are columns to decode."""
    made = _need("pyarrow", "arrow()")

    def array(tensor: torch.Tensor) -> typing.Any:
        values = made.array(tensor.reshape(-1).numpy())
        for size in reversed(tensor.shape[1:]):
            values = made.FixedSizeListArray.from_arrays(values, size)
        return values

    parts = [rows[at : at + len(piece)] for at, piece in zip(rows._firsts.tolist(), rows._pieces)]
    if rows._chosen is not None or len(rows._shifts) > 1:
        parts = [rows[:]]
    columns = {rows.path: made.chunked_array([array(part) for part in [rows[:0], *parts]])}
    for name in [*rows._names(), "run", "forward", "call", "place"]:
        columns.setdefault(name, rows.texts(name) if name in texts else array(rows.beside(name)))
    return made.table(columns)


def dataset(rows: Rows, texts: Sequence[str] = ()) -> datasets.Dataset:
    """A datasets.Dataset of Hugging Face: arrow() as it is."""
    return _need("datasets", "dataset()").Dataset(arrow(rows, texts))


def parquet(rows: Rows, path: str | os.PathLike[str], texts: Sequence[str] = ()) -> None:
    """Writes arrow() to a Parquet file."""
    _need("pyarrow", "parquet()")
    importlib.import_module("pyarrow.parquet").write_table(arrow(rows, texts), os.fspath(path))
