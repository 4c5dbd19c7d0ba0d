"""Reductions fold samples as they come, and can be merged: `Moments(over=[0])`.

Options that most of them share:

over         dimensions of each sample that are folded, too; the others are kept. `over=[0]`: statistics of each feature over a
             batch, which may differ in size. Without it each sample is one row, and results have its shape
over_all     fold all dimensions: results are single numbers
non_finite   "propagate" NaN and infinities as PyTorch does, "omit" and count them, or "raise"

A reduction is given to a recorder, which makes a copy for each module, or used by itself: `update(sample)`, `merge(other)`,
`count`, `results()`, `reduction["mean"]`, or `reduction.value` where there is one result alone. It can be copied and pickled.

An object of a class of yours is one, too, if it has the methods of `Own`.
"""

from __future__ import annotations

import copy
import io
import pickle
import typing
import weakref

from torchtap._library import _C

# isort: split
import torch

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Function: typing.TypeAlias = "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
    Fold: typing.TypeAlias = "Reduction | Function | Own"
    NonFinite: typing.TypeAlias = typing.Literal["propagate", "omit", "raise"]

Reduction = _C.Reduction
catalogue = _C.catalogue

__all__ = [
    "AbsMax",
    "Blocks",
    "By",
    "Count",
    "Covariance",
    "CrossCovariance",
    "EMA",
    "Every",
    "First",
    "Formats",
    "Gram",
    "Histogram",
    "Joint",
    "Last",
    "LinearCKA",
    "LogHistogram",
    "Map",
    "Max",
    "Mean",
    "Min",
    "Moments",
    "Norm",
    "Over",
    "Own",
    "Quantiles",
    "Reduction",
    "Reservoir",
    "Series",
    "Sum",
    "TopK",
    "Where",
    "Window",
    "any_shape",
    "catalogue",
    "parse",
]

Reduction.__doc__ = "Any reduction; `parse` and `Entry.reductions` return it, and the classes below derive from it."
Reduction.__module__ = "torchtap"


class Own(typing.Protocol):
    """What an object of a class of yours has to have where a reduction is given. Each module has a copy of it, as `copy.deepcopy`
    makes it; a recorder calls one at a time. It need not derive from this.

    update(sample)            folds a sample in: a tensor of its own, without a graph, which it may keep or change. Shapes and
                              dtypes are those that come. What it raises leaves the forward, or is told to `on_error`
    results()                 a tensor, called "value", or a dict of tensors by name. Not asked before the first sample

    Where it has them, these are called, too:

    merge(other)              adds what another object of its class has seen: for `merge` and `merge_ranks`
    state_dict()              its state as data: a dict of tensors, numbers, str, lists and dicts; for `snapshot`, `merge_ranks`
    load_state_dict(state)    goes on from such a state; for `restore`
    """

    def update(self, sample: torch.Tensor, /) -> object:
        """Folds a sample in."""

    def results(self) -> torch.Tensor | Mapping[str, torch.Tensor]:
        """A tensor, or tensors by name."""


class _Objects(dict[int, typing.Any]):
    """Where the objects lie. A recorder holds its own: Python's collector sees no references that C++ holds, and would keep a
    recorder for ever that its reduction refers to."""


class _Own:
    """An object of a class of the user's, as C++ calls it."""

    def __init__(self, one: typing.Any, objects: Callable[[], _Objects | None]) -> None:
        self.name, self._objects = type(one).__name__, objects
        self._put(one)

    def __del__(self) -> None:
        if (objects := self._objects()) is not None:
            objects.pop(id(self), None)

    def _put(self, one: typing.Any) -> None:
        if (objects := self._objects()) is not None:  # its recorder ended, and C++ has not heard of it yet
            objects[id(self)] = one

    def _one(self) -> typing.Any:
        objects = self._objects()
        if objects is None:
            raise RuntimeError(f"torchtap: the recorder of this {self.name} has ended.")
        return objects[id(self)]

    def _method(self, name: str, what: str) -> Callable[..., typing.Any]:
        method = getattr(self._one(), name, None)
        if not callable(method):
            raise NotImplementedError(f"torchtap: {self.name} has no {name}({'…' if 'load' in name else ''}); {what}.")
        return typing.cast("Callable[..., typing.Any]", method)

    def copy(self) -> _Own:
        return _Own(_copied(self._one()), self._objects)

    def update(self, sample: torch.Tensor) -> None:
        self._one().update(sample)

    def results(self) -> dict[str, torch.Tensor]:
        given = self._one().results()
        named = {"value": given} if isinstance(given, torch.Tensor) else given
        if not isinstance(named, dict) or not all(
            isinstance(name, str) and isinstance(one, torch.Tensor) for name, one in named.items()
        ):
            raise TypeError(
                f"torchtap: results() of {self.name} returned {_what(given)}; it has to return a torch.Tensor, or a dict of them by name."
            )
        return {name: one.detach().clone() for name, one in named.items()}

    def merge(self, other: _Own) -> None:
        mine, theirs = _copied(self._one()), _copied(other._one())
        if type(mine) is not type(theirs):
            raise TypeError(f"torchtap: cannot merge {other.name} into {self.name}; both have to be of one class.")
        if not callable(getattr(mine, "merge", None)):
            raise NotImplementedError(
                f"torchtap: {self.name} has no merge(other), without which what two of them have seen cannot be put together."
            )
        mine.merge(theirs)
        self._put(mine)

    def state(self) -> bytes:
        state = self._method("state_dict", "its state can be saved if it returns that as a dict")()
        file = io.BytesIO()
        try:
            torch.save(state, file)
            _loaded(file.getvalue())
        except Exception as error:
            raise TypeError(
                f"torchtap: state_dict() of {self.name} has to return data: a dict of tensors, numbers, str, and lists and dicts of "
                f"such. {error}"
            ) from error
        return file.getvalue()

    def load_state(self, state: bytes) -> None:
        one = _copied(self._one())
        self._put(one)
        self._method("load_state_dict", "a saved state can be restored if it has that")(_loaded(state))


def _loaded(state: bytes) -> typing.Any:
    return torch.load(io.BytesIO(state), weights_only=True)  # no code of a file runs


def _what(given: object) -> str:
    if not isinstance(given, dict):
        return type(given).__name__
    return "a dict with " + ", ".join(f"{name!r}: {type(one).__name__}" for name, one in given.items())


def _copied(one: typing.Any) -> typing.Any:
    try:
        return copy.deepcopy(one)
    except (TypeError, RuntimeError, NotImplementedError, pickle.PickleError) as error:
        raise TypeError(
            f"torchtap: each module has a {type(one).__name__} of its own, and copy.deepcopy cannot make it: {error}"
        ) from error


def _own(given: typing.Any, objects: _Objects | None = None) -> _Own | None:
    """What C++ is given for an object of the user's, which is copied into `objects`; None for anything else."""
    if isinstance(given, _Own):
        return given
    if isinstance(given, (type, Reduction, _C.AnyShape)) or not callable(getattr(given, "update", None)):
        return None
    if not callable(getattr(given, "results", None)):
        if callable(given):  # (accumulated, sample) -> accumulated
            return None
        raise TypeError(
            f"torchtap: {type(given).__name__} has update(sample), but no results(); a reduction needs both."
        )
    held = _Objects() if objects is None else objects
    return _Own(_copied(given), (lambda: held) if objects is None else weakref.ref(held))


def _dims(over: int | Iterable[int]) -> list[int]:
    return [over] if isinstance(over, int) else list(over)


class _Rows(Reduction):
    def __init__(self, *, over: int | Iterable[int] = (), over_all: bool = False, **options: typing.Any) -> None:
        # Of a class of yours its base.
        name = next(one.__name__ for one in type(self).__mro__ if one.__module__ == __name__)
        super().__init__(name, over=_dims(over), over_all=over_all, **options)


class _Fold(_Rows):
    def __init__(
        self,
        *,
        over: int | Iterable[int] = (),
        over_all: bool = False,
        non_finite: NonFinite = "propagate",
        **options: typing.Any,
    ) -> None:
        super().__init__(over=over, over_all=over_all, non_finite=non_finite, **options)


class Sum(_Fold):
    """The sum, in the dtype of the samples: of half types in float32, of whole numbers in int64."""


class Mean(_Fold):
    """The arithmetic mean."""


class Min(_Fold):
    """The smallest value."""


class Max(_Fold):
    """The largest value."""


class AbsMax(_Fold):
    """The largest magnitude."""


class Gram(_Fold):
    """The Gram matrix of features: the sum of x xᵀ over rows."""


class Count(_Rows):
    """Results "rows", "elements", and of these "nan", "inf" and "zeros"."""


class First(_Rows):
    """The first sample."""


class Last(_Rows):
    """The last sample."""


class Moments(_Fold):
    """Results "mean", "variance", "skewness" and "kurtosis", in one pass, float64.

    unbiased   divide the variance by n - 1, as `torch.var` does, or by n
    order      4, or 2 for mean and variance only
    """

    def __init__(
        self,
        *,
        over: int | Iterable[int] = (),
        over_all: bool = False,
        non_finite: NonFinite = "propagate",
        unbiased: bool = True,
        order: typing.Literal[2, 4] = 4,
    ) -> None:
        super().__init__(over=over, over_all=over_all, non_finite=non_finite, unbiased=unbiased, order=order)


class Norm(_Fold):
    """The p-norm; `math.inf` gives the largest magnitude."""

    def __init__(
        self,
        p: float = 2.0,
        *,
        over: int | Iterable[int] = (),
        over_all: bool = False,
        non_finite: NonFinite = "propagate",
    ) -> None:
        super().__init__(over=over, over_all=over_all, non_finite=non_finite, p=p)


class EMA(_Fold):
    """The exponential moving average: each step keeps `decay` of the former value."""

    def __init__(
        self,
        decay: float = 0.9,
        *,
        over: int | Iterable[int] = (),
        over_all: bool = False,
        non_finite: NonFinite = "propagate",
    ) -> None:
        super().__init__(over=over, over_all=over_all, non_finite=non_finite, decay=decay)


class Histogram(_Rows):
    """Bins of equal width from `low` to `high`, or over a range that grows with the samples.

    Results "counts", "edges", "underflow", "overflow", "nan".
    """

    def __init__(
        self,
        bins: int,
        low: float | None = None,
        high: float | None = None,
        *,
        over: int | Iterable[int] = (),
        over_all: bool = False,
    ) -> None:
        super().__init__(over=over, over_all=over_all, bins=bins, low=low, high=high)


class LogHistogram(_Rows):
    """Bins for numbers of any size, 2 ** mantissa_bits for each power of two; has quantiles.

    Results "counts", "low", "high", "zeros", "negative_infinity", "positive_infinity", "nan".
    """

    def __init__(self, mantissa_bits: int = 3, *, over: int | Iterable[int] = (), over_all: bool = False) -> None:
        super().__init__(over=over, over_all=over_all, mantissa_bits=mantissa_bits)


class Quantiles(_Rows):
    """Results "quantiles" at "levels" from a sketch of some `k` rows, and "nan"; `quantile(q)` gives any."""

    def __init__(
        self,
        at: Iterable[float] = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0),
        *,
        k: int = 512,
        seed: int = 0,
        over: int | Iterable[int] = (),
        over_all: bool = False,
    ) -> None:
        super().__init__(over=over, over_all=over_all, at=list(at), k=k, seed=seed)


class TopK(_Fold):
    """Results "values", the k largest (or smallest), and "indices" of the samples that had them."""

    def __init__(
        self,
        k: int = 10,
        *,
        largest: bool = True,
        over: int | Iterable[int] = (),
        over_all: bool = False,
        non_finite: NonFinite = "propagate",
    ) -> None:
        super().__init__(over=over, over_all=over_all, non_finite=non_finite, k=k, largest=largest)


class Reservoir(_Rows):
    """Results "samples", k of them, each chosen with the same probability, and their "indices"."""

    def __init__(self, k: int = 100, *, seed: int = 0, over: int | Iterable[int] = (), over_all: bool = False) -> None:
        super().__init__(over=over, over_all=over_all, k=k, seed=seed)


class Covariance(_Fold):
    """Results "mean", "covariance" and "correlation" of the features of rows."""

    def __init__(
        self,
        *,
        over: int | Iterable[int] = (),
        over_all: bool = False,
        non_finite: NonFinite = "propagate",
        unbiased: bool = True,
    ) -> None:
        super().__init__(over=over, over_all=over_all, non_finite=non_finite, unbiased=unbiased)


class CrossCovariance(_Fold):
    """The covariance of the sample's features with those of the tensor that a `Context` or a companion calls `name`."""

    def __init__(
        self,
        name: str,
        *,
        over: int | Iterable[int] = (),
        over_all: bool = False,
        non_finite: NonFinite = "propagate",
        unbiased: bool = True,
    ) -> None:
        super().__init__(over=over, over_all=over_all, non_finite=non_finite, name=name, unbiased=unbiased)


class LinearCKA(CrossCovariance):
    """Linear centred kernel alignment of the sample's rows with those of the tensor called `name`."""


class Formats(_Rows):
    """What rounding to number formats loses: results "e4m3.sqnr", "e4m3.mse", "e4m3.overflow", …, float64, and "abs_max".

    formats   names such as "e4m3", "e5m2", "int8", "bf16"; seven unless given
    scales    what numbers are divided by before they are rounded to a format: {"int8": 0.05}

    Needs the component quantization, whose README has the formats.
    """

    def __init__(
        self,
        formats: Iterable[str] | None = None,
        *,
        scales: Mapping[str, float] | None = None,
        over: int | Iterable[int] = (),
        over_all: bool = False,
    ) -> None:
        names = None if formats is None else list(formats)
        super().__init__(over=over, over_all=over_all, formats=names, scales=dict(scales or {}))


class Blocks(Reduction):
    """The history of a stream: summaries of at most `most` blocks of samples, which grow as more come."""

    def __init__(self, most: int = 512) -> None:
        super().__init__("Blocks", most=most)


class Series(Reduction):
    """Several reductions of one stream, which is read once: `Series(Moments(), Count())`. Results are "moments.mean", …"""

    def __init__(self, *members: Fold) -> None:
        super().__init__("Series", members=list(members))


class By(Reduction):
    """A reduction for each key of the tensor called `name`, which has one for each row: classes, experts.

    n      keys are 0 … n - 1, each with its row in the results; otherwise those that come
    most   at most so many different keys
    """

    def __init__(self, name: str, reduction: Fold, *, n: int | None = None, most: int | None = None) -> None:
        super().__init__("By", name=name, reduction=reduction, n=n, most=most)


class Where(Reduction):
    """A reduction of the rows where the mask called `name` is true."""

    def __init__(self, name: str, reduction: Fold) -> None:
        super().__init__("Where", name=name, reduction=reduction)


class Joint(Reduction):
    """A reduction of rows of the sample beside rows of the tensor called `name`."""

    def __init__(self, name: str, reduction: Fold) -> None:
        super().__init__("Joint", name=name, reduction=reduction)


class Every(Reduction):
    """A reduction of every n-th sample."""

    def __init__(self, n: int, reduction: Fold) -> None:
        super().__init__("Every", n=n, reduction=reduction)


class Window(Reduction):
    """A reduction of the last n samples, which it keeps."""

    def __init__(self, n: int, reduction: Fold) -> None:
        super().__init__("Window", n=n, reduction=reduction)


class Over(Reduction):
    """A reduction without `over` of its own, say a callable, applied to the rows of each sample along `dims`."""

    def __init__(self, dims: int | Iterable[int], reduction: Fold) -> None:
        super().__init__("Over", dims=_dims(dims), reduction=reduction)


class Map(Reduction):
    """A reduction of `function(sample)`, or of `function(sample, other)` with the tensor called `other`."""

    def __init__(
        self, function: Callable[[torch.Tensor], torch.Tensor] | Function, reduction: Fold, *, other: str | None = None
    ) -> None:
        super().__init__("Map", function=function, reduction=reduction, other=other)


def any_shape(callable: Function) -> _C.AnyShape:
    """Says that a callable (accumulated, sample) -> accumulated takes samples of any shapes, as one that concatenates them does:
    `any_shape(lambda x, y: torch.cat([x, y]))`. Otherwise a sample of another shape than the first one's is left out and counted.
    """
    return _C.any_shape(callable)


def parse(text: str, *, over: int | Iterable[int] = (), over_all: bool = False) -> Reduction:
    """Reductions from text, as the command takes them: `parse("mean,histogram:64:-4:4")`; `catalogue()` lists them."""
    return _C.parse(text, _dims(over), over_all)
