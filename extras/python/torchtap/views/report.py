"""What each module of a model costs, and its summary in one call."""

from __future__ import annotations

import contextlib
import functools
import html
import inspect
import json
import statistics
import threading
import time
import typing

import torch
from torch.utils import _pytree as pytree
from torchtap._library import _C, need
from torchtap.views import _model
from torchtap.views._model import Fields

if typing.TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pandas import DataFrame  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from typing_extensions import Self

    NonFinite: typing.TypeAlias = typing.Literal["note", "raise", "ignore"]
    Path: typing.TypeAlias = str | os.PathLike[str]
    Sizes: typing.TypeAlias = Sequence[int] | Sequence[Sequence[int]]
    Formulas: typing.TypeAlias = Mapping[str, Callable[[list[typing.Any], list[typing.Any]], int]]

need("report", "torchtap.views.report")

__all__ = ["Fields", "Report", "Summary", "load_report", "report", "summary"]


_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _fields(pairs: list[tuple[str, typing.Any]]) -> Fields:
    numbers = ("_seconds", "_fraction", "_norm", "_ratio")
    return Fields(
        (key, _NO_NUMBERS.get(one, one) if key.endswith(numbers) and isinstance(one, str) else one)
        for key, one in pairs
    )


def _rows(name: str, node: Fields, depth: int) -> list[Fields]:
    row = Fields(name=name, depth=depth, **node["info"])
    below = [_rows(child, inside, depth + 1) for child, inside in node["children"].items()]
    row["children"] = [rows[0] for rows in below]
    return [row, *(one for rows in below for one in rows)]


class _Empty(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class _Caller(torch.nn.Module):
    CALLS = 100

    def __init__(self) -> None:
        super().__init__()
        self.inner = _Empty()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.CALLS):
            self.inner(x)
        return x


def _measure_call() -> tuple[int, int]:
    """What our hooks of a call cost in the module and in its caller, in nanoseconds, beside what the report takes out itself."""
    model, x, rounds = _Caller(), torch.ones(1), 10
    bare = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        model(x)
        bare.append(time.perf_counter_ns() - began)
    plain = Report(model, memory=False, work=False, non_finite="ignore", warmup=2, _call_cost=(0, 0))
    for _ in range(rounds):
        with plain.record():
            model(x)
    whole = plain.rows[0].forward.inclusive.median_seconds * 1e9 - statistics.median(bare)
    inside = plain.rows[1].forward.inclusive.median_seconds * 1e9 / model.CALLS
    return max(round(inside), 0), max(round(whole / model.CALLS - inside), 0)


@functools.cache
def _cost() -> tuple[int, int]:
    """Measured once, in a thread without the modes of this one."""
    costs: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: costs.append(_measure_call()), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # Python is about to end
        return 0, 0
    thread.join()
    return costs[0] if costs else (0, 0)


class Report:
    """Measures what each module of a model takes: time, memory, work, backward, and where the first NaN comes from.

        report = torchtap.Report(model)
        for x, y in loader:
            with report.record() as repeat:
                loss = criterion(model(x), y)
                repeat.phase("backward")
                loss.backward()
        print(report)

    memory       whether PyTorch's allocations are watched
    work         whether multiply-accumulates and bytes are counted, operation by operation
    non_finite   "note": values that are not finite are looked for; "raise": the first is an error; "ignore": none is looked for
    synchronize  whether to wait for the device before the clock is read
    warmup       the first repeats whose times do not count
    formulas     the multiply-accumulates of operations of yours: {"mylib::scale": lambda arguments, results: …}

    Outputs and gradients are the same bits as without. Times are in seconds, sizes in bytes. A module has hooks only while a
    recording lasts. Pickles and copies hold what was measured.
    """

    _shown: dict[str, typing.Any]  # of a Summary

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        memory: bool = True,
        work: bool = True,
        non_finite: NonFinite = "note",
        synchronize: bool = False,
        warmup: int = 0,
        formulas: Formulas | None = None,
        _call: str = "report",
        _call_cost: tuple[int, int] | None = None,
    ) -> None:
        model, self._notes = _model.model_of(_call, model)
        given: dict[str, typing.Any] = {
            "memory": memory,
            "work": work,
            "non_finite": non_finite,
            "synchronize": synchronize,
            "warmup": warmup,
        }
        times = _call != "summary"
        cost = [] if not times else _cost() if _call_cost is None else _call_cost
        given = {**given, "formulas": dict(formulas or {}), "times": times, "call_cost": list(cost)}
        self._reported: _C.Reported | None = _C.Reported(model, given)
        self._measured: tuple[int | None, typing.Any] = (None, None)
        self._read: tuple[int | None, typing.Any] = (None, None)
        self._recording, self._changes = threading.Lock(), 0

    @contextlib.contextmanager
    def record(self) -> Iterator[_C.Repeat]:
        """Measures while the block runs: one repeat. `repeat.phase("backward")` says that a backward comes, `"other"` that what
        comes is not the model's; `repeat.next()` ends a repeat and begins another. Counts calls by this thread and by those that
        PyTorch starts for it. Raises ValueError while another recording of this report lasts."""
        reported = self._live()
        # Before hooks are put on modules that another thread may run.
        if not self._recording.acquire(blocking=False):
            raise ValueError("torchtap.report: a recording of this report is open; let it end before the next begins.")
        try:
            with _model.as_written(), _model.hooked(reported.hooks()):
                repeat = reported.record()
                try:
                    yield repeat
                except RuntimeError as error:
                    if str(error).startswith("views::report"):  # non_finite="raise"
                        raise RuntimeError(_C.in_python(str(error))) from None
                    raise
                finally:
                    repeat.stop()
        finally:
            self._changes += 1
            self._recording.release()

    def _live(self) -> _C.Reported:
        if self._reported is None:
            raise RuntimeError(
                "torchtap.report: this is a result that was kept; make a torchtap.Report(model) to measure more."
            )
        return self._reported

    def _results(self) -> _C.Measurements:
        changes, (read_at, measured) = self._changes, self._measured
        if read_at != changes:
            measured = self._live().results()
            for note in reversed(self._notes):
                measured.add_note(note)
            self._measured = changes, measured
        return typing.cast("_C.Measurements", measured)

    def _keep(self) -> Self:
        """Lets go of the model."""
        self._results()
        self._reported = None
        return self

    def _document(self) -> tuple[Fields, list[Fields]]:
        changes, (read_at, document) = self._changes, self._read
        if read_at != changes:
            ((_, root),) = json.loads(self._results().json(), object_pairs_hook=_fields).items()
            document = root["report"], _rows("", root, 0)
            self._read = changes, document
        return typing.cast("tuple[Fields, list[Fields]]", document)

    @property
    def rows(self) -> list[Fields]:
        """A row for each module, the model first, each before those inside: `path`, `type`, `num_parameters`, `forward`, …"""
        return self._document()[1]

    def __getitem__(self, path: str) -> Fields:
        for row in self.rows:
            if path == row.path or path in row.aliases:
                return row
        raise KeyError(f"torchtap.report: the model has no module {path!r}.")

    def __iter__(self) -> Iterator[Fields]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._document()[0], name)

    def _write(self, path: Path | None, text: str) -> str | None:
        if path is None:
            return text
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return None

    @typing.overload
    def json(self, path: None = None) -> str: ...
    @typing.overload
    def json(self, path: Path) -> None: ...
    def json(self, path: Path | None = None) -> str | None:
        """The results as JSON: a text, or written to a file. `torchtap.load_report` and C++ read it."""
        return self._write(path, self._results().json())

    @typing.overload
    def csv(self, path: None = None) -> str: ...
    @typing.overload
    def csv(self, path: Path) -> None: ...
    def csv(self, path: Path | None = None) -> str | None:
        """A table with a row for each module: a text, or written to a file."""
        return self._write(path, self._results().csv())

    @typing.overload
    def html(self, path: None = None) -> str: ...
    @typing.overload
    def html(self, path: Path) -> None: ...
    def html(self, path: Path | None = None) -> str | None:
        """A page that needs no other file: a text, or written to a file."""
        return self._write(path, self._results().html())

    def pandas(self) -> DataFrame:
        """A `pandas.DataFrame` with a row for each module, by path. Needs pandas."""
        frame = _model.read_csv("report", self.csv())
        frame["path"] = [row.path for row in self.rows]
        return frame.set_index("path")

    def text(
        self,
        *,
        width: int | None = None,
        depth: int | None = None,
        columns: Iterable[str] | None = None,
        max_rows: int = 100,
        ascii: bool = False,
    ) -> str:
        """The table that `print` shows.

        width     characters in a line; by default the terminal's, or 100. Columns for which there is no room are named below
        depth     modules nested deeper are left out: 1 shows the model's children
        columns   their titles in order: "type", "input", "output", "params", "learnable", "MACs", "forward", "backward", "time",
                  "memory", "calls", "own forward", "own backward", "mark"
        max_rows  above this number the deepest modules are left out, if no depth is given
        """
        return self._results().text(
            width=_model.line_width() if width is None else width,
            depth=depth,
            columns=list(columns or ()),
            max_rows=max_rows,
            ascii=ascii,
        )

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    def __repr__(self) -> str:
        return f"torchtap.{type(self).__name__}({self.rows[0].type}, {len(self)} modules, {self.repeats} repeats)"

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        return (
            f'<iframe srcdoc="{html.escape(self.html())}" style="width:100%;height:30em;border:0" '
            f'title="{html.escape(repr(self))}"></iframe>'
        )

    def __reduce__(self) -> tuple[typing.Any, ...]:
        return _restored, (type(self), self._results().json(), getattr(self, "_shown", None))


class Summary(Report):
    """What `torchtap.summary` returns: a report of one forward, printed without times."""

    def text(self, **how: typing.Any) -> str:
        return super().text(**{**self._shown, **{key: one for key, one in how.items() if one is not None}})


def _restored(kind: type[Report], text: str, shown: dict[str, typing.Any] | None) -> Report:
    one = kind.__new__(kind)
    one._reported, one._notes, one._changes, one._read = None, [], 0, (None, None)
    one._measured = 0, _C.measurements_from_json(text)
    if shown is not None:
        one._shown = shown
    return one


def load_report(path: Path) -> Report:
    """Reads what `Report.json` wrote, or C++."""
    with open(path, encoding="utf-8") as file:
        return _restored(Report, file.read(), None)


def _sum(call: str, output: object) -> torch.Tensor:
    parts = [one for one in pytree.tree_leaves(output) if isinstance(one, torch.Tensor) and one.requires_grad]
    if not parts:
        raise ValueError(
            f"torchtap.{call}: backward=True, and nothing that the model returned has a gradient. Does it run in torch.no_grad(), or "
            "with parameters that need none? `loss=` makes a scalar of what the model returns."
        )
    return typing.cast("torch.Tensor", sum(one.sum().abs() if one.is_complex() else one.sum() for one in parts))


def report(
    model: torch.nn.Module,
    *args: typing.Any,
    backward: bool = False,
    loss: Callable[[typing.Any], torch.Tensor] | None = None,
    repeats: int = 1,
    warmup: int = 0,
    memory: bool = True,
    work: bool = True,
    non_finite: NonFinite = "note",
    synchronize: bool = False,
    formulas: Formulas | None = None,
    **kwargs: typing.Any,
) -> Report:
    """Runs `model(*args, **kwargs)` and measures what each module takes.

    backward   whether to run a backward, of the sum of all that the model returned, or of `loss`
    loss       makes a scalar of what the model returned: `lambda output: output.loss`
    repeats    how often it runs; times are medians
    warmup     how often before, which does not count

    The others are those of `torchtap.Report`, which measures steps of your own. The model's buffers, gradients and modes, gradients
    of the inputs, and the state of random numbers are as before.
    """
    if repeats < 1 or warmup < 0:
        raise ValueError(f"torchtap.report: repeats is {repeats} and warmup {warmup}; pass at least 1, and at least 0.")
    how: dict[str, typing.Any] = {
        "memory": memory,
        "work": work,
        "non_finite": non_finite,
        "synchronize": synchronize,
        "formulas": formulas,
    }
    result = Report(model, warmup=warmup, **how)
    backward = backward or loss is not None
    for _ in range(warmup + repeats):
        with _model.untouched(model, (args, kwargs)):
            with result.record() as repeat:
                output = model(*args, **kwargs)
                if backward:
                    repeat.phase("other")
                    scalar = loss(output) if loss is not None else _sum("report", output)
                    repeat.phase("backward")
                    scalar.backward()  # type: ignore[no-untyped-call,unused-ignore]
                    del scalar
                del output
            result._results()  # while the gradients are there
    return result._keep()


def _made(model: torch.nn.Module, input_size: Sizes, dtypes: Iterable[torch.dtype] | None) -> list[torch.Tensor]:
    sizes: typing.Any = [input_size] if not input_size or isinstance(input_size[0], int) else list(input_size)
    kinds = list(dtypes) if dtypes is not None else [torch.get_default_dtype()] * len(sizes)
    if len(kinds) != len(sizes):
        raise ValueError(f"torchtap.summary: {len(sizes)} sizes and {len(kinds)} dtypes; give a dtype for each size.")
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    numbers = torch.Generator(device).manual_seed(0)  # the program's own stay as they are
    return [
        torch.rand(tuple(size), device=device, generator=numbers).to(kind)
        if kind.is_floating_point or kind.is_complex
        else torch.zeros(tuple(size), device=device, dtype=kind)
        for size, kind in zip(sizes, kinds)
    ]


def _takes_nothing(model: torch.nn.Module) -> bool:
    try:
        inspect.signature(model.forward).bind()
        return True
    except (TypeError, ValueError):
        return False


def summary(
    model: torch.nn.Module,
    *args: typing.Any,
    input_size: Sizes | None = None,
    dtypes: Iterable[torch.dtype] | None = None,
    depth: int | None = None,
    columns: Iterable[str] = ("input", "output", "params", "MACs", "memory"),
    width: int | None = None,
    mode: typing.Literal["eval", "train", "same"] = "eval",
    **kwargs: typing.Any,
) -> Summary:
    """Shows the modules of a model, nested, with what one forward tells: shapes, parameters, multiply-accumulates, memory.

        print(torchtap.summary(model, x, depth=2))
        print(torchtap.summary(model, input_size=(1, 3, 224, 224)))

    args, kwargs   what the model is called with. Without any, the modules and their parameters are shown
    input_size     the size of an input to be made of random numbers, or a list of sizes for several; on the device of the model
    dtypes         a dtype for each size; by default the one of PyTorch. Of whole numbers zeros are made
    depth          modules nested deeper are left out
    columns        titles of columns; `torchtap.Report.text` lists them
    mode           "eval", "train", or "same" as the model is

    Parameters that several modules share count once, which is said, as are modules that are registered twice and modules that were
    not called. It runs without gradients, and buffers, modes and the state of random numbers are as before.
    """
    if mode not in ("eval", "train", "same"):
        raise ValueError(f'torchtap.summary: mode is {mode!r}; it has to be "eval", "train" or "same".')
    result = Summary(model, non_finite="ignore", _call="summary")
    result._shown = {"depth": depth, "columns": columns, "width": width}
    if input_size is not None:
        if args:
            raise ValueError("torchtap.summary: input_size and inputs were given; give one of them.")
        args = (*_made(model, input_size, dtypes),)
    if args or kwargs or _takes_nothing(model):
        with _model.untouched(model, (args, kwargs)), torch.no_grad(), result.record():
            if mode != "same":
                model.train(mode == "train")
            model(*args, **kwargs)
    return result._keep()
