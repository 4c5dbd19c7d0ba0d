"""Where two models differ first, and why."""

from __future__ import annotations

import os
import tempfile
import threading
import typing

import torch
from torch.utils import _pytree as pytree
from torchtap._library import _C, need
from torchtap.views import _model
from torchtap.views._model import Fields

if typing.TYPE_CHECKING:
    from collections.abc import Iterable

    Inputs: typing.TypeAlias = tuple[tuple[typing.Any, ...], dict[str, typing.Any]]

need("compare", "torchtap.views.compare")

__all__ = ["Verdict", "compare"]


class Verdict:
    """What `torchtap.compare` found: true if everything was compared and agrees.

    agrees         whether everything was compared and agrees
    first          what differs first: a `Fields` with `kind` ("weight", "input", "module", "between"), `path`, `path_b`, `type`,
                   `error` (relative), `allowed` (what rounding explains), `scale`, `cause`, …; None if nothing differs
    cause          why, as far as the fingerprints show it: "B = 0.5 A"
    gaps           what was not compared, so that agreement of the rest proves nothing
    suspects       up to five places that differ, in the order in which they ran
    rows           each pair of calls, with its errors; `weights`: each pair of weights
    only_a, only_b paths of calls without a partner
    compared, largest_error, largest_at, first_bits, not_compared, dtypes, map
    """

    def __init__(self, compared: _C.Compared, names: tuple[str, str]) -> None:
        self._compared, self._names = compared, names
        self._facts = _fields(compared.facts())

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._facts, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._facts]

    def __bool__(self) -> bool:
        return bool(self._facts.agrees)

    def text(self, *, width: int | None = None, all: bool = False) -> str:
        """What `print` shows, as the command prints it; with `all`, a row for every call."""
        return self._compared.text(*self._names, _model.line_width() if width is None else width, all).rstrip("\n")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        first = self._facts.first
        found = f"{first.kind} {first.path or first.path_b or '(root)'} differs" if first else ""
        return f"torchtap.Verdict({found or ('agrees' if self else 'not all was compared')})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("torchtap.compare: a Verdict cannot be pickled or copied; keep its text() or its fields.")


def _fields(value: typing.Any) -> typing.Any:
    if isinstance(value, dict):
        return Fields((key, _fields(one)) for key, one in value.items())
    return [_fields(one) for one in value] if isinstance(value, list) else value


def _fitting(model: torch.nn.Module, inputs: Inputs) -> Inputs:
    """Copies of inputs, which a forward may change: on the model's device, and of its dtype where all its weights have one."""
    weights = [*model.parameters(), *model.buffers()]
    devices = {one.device for one in weights}
    kinds = {one.dtype for one in model.parameters() if one.is_floating_point()}

    def fit(one: typing.Any) -> typing.Any:
        if not isinstance(one, torch.Tensor):
            return one
        kept = one.detach().to(next(iter(devices))) if len(devices) == 1 else one.detach()
        kept = (
            kept.to(next(iter(kinds)))
            if len(kinds) == 1 and one.is_floating_point() and one.element_size() > 1
            else kept
        )
        return (kept.clone() if kept.data_ptr() == one.data_ptr() else kept).requires_grad_(one.requires_grad)

    return typing.cast("Inputs", pytree.tree_map(fit, inputs))


def _recorded(model: torch.nn.Module, inputs: Inputs, file: str) -> typing.Any:
    try:
        from torchtap_compare.recording import Recorder
    except ImportError as error:
        raise ImportError(f"torchtap.compare needs numpy: {error}.") from error

    class OfThread(Recorder):
        def run(self, module: torch.nn.Module, args: typing.Any, kwargs: typing.Any) -> typing.Any:
            if threading.get_ident() != thread:  # of what else the program runs
                return self.original(module, *args, **kwargs)
            return super().run(module, args, kwargs)

    thread = threading.get_ident()
    args, kwargs = _fitting(model, inputs)
    with OfThread(file, command="torchtap.compare") as recorder:
        model(*args, **kwargs)
    return recorder


def compare(
    a: torch.nn.Module,
    b: torch.nn.Module,
    *args: typing.Any,
    map: Iterable[str] = (),
    tolerance: tuple[float, float] | None = None,
    bits: bool = False,
    names: tuple[str, str] | None = None,
    **kwargs: typing.Any,
) -> Verdict:
    """Runs `a(*args, **kwargs)` and `b(*args, **kwargs)` and says where they differ first by more than rounding, and why.

        verdict = torchtap.compare(model, ported, x)
        print(verdict)
        assert verdict, verdict.first.path

    map        renames of modules: ["layer1.*=stage1.*"]; others are paired by path, then by values and order
    tolerance  units of rounding that a module may add, and times by which it may amplify the error of its inputs: (16, 4)
    bits       whether any different bit counts
    names      what the two are called when it is printed

    Both run from the same random numbers, with copies of the inputs on their device, in their dtype where all weights have one.
    Weights, inputs and outputs of all modules are compared by fingerprints, so models of any size are. Buffers, modes and random
    numbers are as before. In code of torch.compile no modules are seen: what it returns is compared.
    """
    for model in (a, b):
        _model.model_of("compare", model)
    if isinstance(map, str):
        raise TypeError(f'torchtap.compare: map is a list of renames, ["{map}"], not a str.')
    if tolerance is not None and not (len(tolerance) == 2 and min(tolerance) >= 0):
        raise ValueError(
            f"torchtap.compare: tolerance is {tolerance}; it has to be two numbers, 0 or greater: (16, 4)."
        )
    if names is None:
        names = (type(a).__name__, type(b).__name__)
    with tempfile.TemporaryDirectory(prefix="torchtap-compare-") as folder:
        files = [os.path.join(folder, one) for one in ("a.prints", "b.prints")]
        for model, file in zip((a, b), files):
            with _model.untouched(model, (args, kwargs), gradients=False):
                recorder = _recorded(model, (args, kwargs), file)
            if recorder.error:
                raise RuntimeError(f"torchtap.compare: not all was recorded: {recorder.error}.") from recorder.error
        try:
            compared = _C.Compared(
                files[0], files[1], list(map), None if tolerance is None else (tolerance[0], tolerance[1]), bits
            )
        except ValueError as error:
            told = str(error)
            for file, name in zip(files, names):
                told = told.replace(file, name)
            raise ValueError(told) from None
    return Verdict(compared, typing.cast("tuple[str, str]", tuple(names)))
