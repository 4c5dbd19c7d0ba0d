"""Every operation of a forward, with its tensors."""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import os
import threading
import typing

import torch
from torch.utils import _pytree as pytree
from torchtap._library import _C, need
from torchtap.views import _model

if typing.TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator, Mapping

    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from typing_extensions import Self

    Save: typing.TypeAlias = (
        "typing.Literal['all', 'none'] | list[str] | tuple[str, ...] | set[str] | Callable[[Candidate], bool]"
    )
    Level: typing.TypeAlias = typing.Literal["program", "leaf"]

need("trace", "torchtap.views.trace")

Candidate = _C.Candidate
History = _C.History
Node = _C.Node
Validation = _C.Validation

__all__ = ["Candidate", "History", "Node", "Tracer", "Validation", "load_trace", "trace"]


def _named(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a value, with the keys and places that lead to them: "batch.ids", "x.0"."""
    if isinstance(value, collections.abc.Mapping):  # of any class, as outputs of transformers
        for key, one in value.items():
            yield from _named(f"{name}.{key}", one)
        return
    try:
        leaves = pytree.tree_flatten_with_path(value)[0]
    except ValueError:  # a class that is registered without keys
        leaves = [((pytree.SequenceKey(place),), leaf) for place, leaf in enumerate(pytree.tree_leaves(value))]
    for path, leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            parts = (getattr(key, "key", getattr(key, "idx", getattr(key, "name", None))) for key in path)
            yield ".".join([name, *map(str, parts)]), leaf


def _arguments(
    model: torch.nn.Module, args: tuple[typing.Any, ...], kwargs: Mapping[str, typing.Any]
) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        names = [
            one.name
            for one in inspect.signature(model.forward).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    for place, value in enumerate(args):
        yield from _named(names[place] if place < len(names) else f"input.{place}", value)
    for name, value in kwargs.items():
        yield from _named(name, value)


class Tracer:
    """Logs every operation of this thread while its block runs:

        with torchtap.Tracer(model, save=["conv2d_*", "layer4"]) as tracer:
            model.generate(tokens)
        tracer.history["layer4"].tensor

    The history of a pass that an exception ended has what came before, and its `error`. The options are those of `torchtap.trace`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        save: Save = "all",
        level: Level = "program",
        gradients: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        transform: Callable[[torch.Tensor], torch.Tensor] | None = None,
        memory_budget: int | None = None,
        drop: bool = False,
    ) -> None:
        model, self._notes = _model.model_of("trace", model)
        self._model: typing.Any = model
        self._history: History | None = None
        self._open: typing.Any = None
        options = {
            "save": list(save) if isinstance(save, (tuple, set)) else save,
            "level": level,
            "gradients": gradients,
            "device": None if device is None else torch.device(device),
            "dtype": dtype,
            "transform": transform,
            "memory_budget": memory_budget,
            "drop": drop,
        }
        self._tracing: typing.Any = _C.Tracing(model, options)
        self._notes += self._tracing.notes
        self._entered = threading.Lock()

    @property
    def history(self) -> History:
        """What was logged. Raises RuntimeError before the block has ended."""
        if self._history is None:
            raise RuntimeError("torchtap.Tracer: the history is there when the block of `with` has ended.")
        return self._history

    @property
    def notes(self) -> list[str]:
        """What cannot be seen of the model, and why."""
        return list(self._notes)

    def name_inputs(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """Says that the tensors in these are the inputs of the pass, by the names of the parameters of forward."""
        for name, tensor in _arguments(self._model, args, kwargs):
            self._tracing.input(tensor, name)

    def name_outputs(self, output: object) -> None:
        """Says that the tensors in it are what the pass returns. Call it in the block."""
        parts = list(_named("output", output))
        for name, tensor in parts:
            self._tracing.output(tensor, "output.0" if len(parts) == 1 else name)

    def __enter__(self) -> Self:
        if self._history is not None or not self._entered.acquire(blocking=False):
            raise RuntimeError("torchtap.Tracer: it has logged, or logs, a pass; make another one for another pass.")
        self._open = contexts = contextlib.ExitStack()
        try:
            contexts.enter_context(_model.as_written())
            contexts.enter_context(_model.hooked(self._tracing.hooks()))
            self._tracing.start()
        except BaseException:
            contexts.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: types.TracebackType | None
    ) -> None:
        self._tracing.stop("" if kind is None else f"{kind.__name__}: {error}")
        self._open.close()
        try:
            self._history = self._tracing.finish()
            self._history.notes = self.notes
        except IndexError:  # a name in `save` finds nothing, which is said unless something else went wrong
            if error is None:
                raise
        finally:
            self._tracing = self._model = None

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("torchtap.trace: a Tracer cannot be pickled or copied; make one for each pass.")


def trace(
    model: torch.nn.Module,
    *args: typing.Any,
    save: Save = "all",
    level: Level = "program",
    gradients: bool = False,
    device: torch.device | str | int | None = None,
    dtype: torch.dtype | None = None,
    transform: Callable[[torch.Tensor], torch.Tensor] | None = None,
    memory_budget: int | None = None,
    drop: bool = False,
    **kwargs: typing.Any,
) -> History:
    """Runs `model(*args, **kwargs)` once and logs every operation, with its tensors.

        history = torchtap.trace(model, x)
        history["relu_1"].tensor, history["layer1.0"].parents, history.draw("net.svg")

    save           "all" tensors, "none", names (labels, paths of modules, places, globs), or a callable that is asked of each
                   `Candidate`; "all" is needed to `validate`
    level          "program": operations as they are called; "leaf": as `__torch_dispatch__` sees them
    gradients      whether kept tensors get the gradients of the next backward (`Node.gradient`)
    device, dtype  where and how tensors are kept; by default as they are
    transform      maps a tensor to what is kept of it
    memory_budget  bytes of kept tensors, beyond which an error is raised, or, with `drop`, tensors are not kept

    Kept tensors share memory with the program's, and are copied just before something writes to it. Model and random numbers are
    as after this one call. Exceptions of the model are passed on; `Tracer` has the history of such a pass.
    """
    tracer = Tracer(
        model,
        save=save,
        level=level,
        gradients=gradients,
        device=device,
        dtype=dtype,
        transform=transform,
        memory_budget=memory_budget,
        drop=drop,
    )
    tracer.name_inputs(*args, **kwargs)
    with tracer:
        tracer.name_outputs(model(*args, **kwargs))
    return tracer.history


def load_trace(path: str | os.PathLike[str]) -> History:
    """Reads a trace that was saved, by Python, C++ or the command. Tensors stay on the disk until they are asked for."""
    return _C.load_history(os.fspath(path))


def _save(self: History, path: str | os.PathLike[str], *, mkdir: bool = True, overwrite: bool = False) -> None:
    """Saves a .pt file for each kept tensor and one for the graph; `load_trace`, C++ and the command read them."""
    self.save_to(os.fspath(path), mkdir, overwrite)


def _drawn(
    depth: int | None = None,
    rolled: bool = False,
    direction: typing.Literal["bottom_up", "top_down", "left_right"] = "bottom_up",
    parameters: bool = False,
    max_nodes: int = 150,
    style: Callable[[Node, dict[str, str]], dict[str, str] | None] | None = None,
    time_limit: float = 60.0,
) -> dict[str, typing.Any]:
    return {
        "depth": depth,
        "rolled": rolled,
        "direction": direction,
        "parameters": parameters,
        "max_nodes": max_nodes,
        "style": style,
        "time_limit": time_limit,
    }


def _draw(self: History, file: str | os.PathLike[str], **options: typing.Any) -> None:
    """Draws the graph to a .svg, .png or .pdf file by Graphviz, or writes .dot without it.

    depth       modules nested deeper are one box
    rolled      one node for each layer instead of one for each of its passes
    direction   "bottom_up", "top_down", "left_right"
    parameters  whether parameters are nodes
    max_nodes   above this number modules collapse
    style       (node, attributes) -> attributes of Graphviz
    """
    self.draw_to(os.fspath(file), _drawn(**options))


def _dot(self: History, **options: typing.Any) -> str:
    """The graph in Graphviz' language; the options are those of `draw`."""
    return self.dot_of(_drawn(**options))


def _pandas(self: History) -> pandas.DataFrame:
    """A `pandas.DataFrame` with a row for each node, by label. Needs pandas."""
    frame = _model.read_csv("trace", self.csv())
    return frame.set_index("label")


def _str(self: History) -> str:
    return "".join([self.text(), *(f"  note: {one}\n" for one in self.notes)]).rstrip("\n")


def _repr_html(self: History) -> str:
    """The summary, for notebooks."""
    from html import escape

    return f"<pre>{escape(str(self))}</pre>"


History.notes = ()  # of one that was read
History.save, History.draw = _save, _draw  # type: ignore[method-assign]
History.dot, History.pandas = _dot, _pandas  # type: ignore[method-assign]
History.__str__, History._repr_html_ = _str, _repr_html  # type: ignore[method-assign,assignment]
