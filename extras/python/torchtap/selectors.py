"""Selectors say which modules of a model: `types(torch.nn.Linear) & ~names("head*")`.

A str is a selector: a path, or a glob in which `*` also crosses dots. So is a callable `(path, module) -> bool`.
"""

from __future__ import annotations

import typing

from torchtap._library import _C

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    Which: typing.TypeAlias = "str | Selector | Callable[[str, torch.nn.Module], bool]"
    Classes: typing.TypeAlias = "type | str | Sequence[type | str]"

Selector = _C.Selector
everything = _C.everything
leaves = _C.leaves

__all__ = ["Selector", "depth", "everything", "indices", "leaves", "names", "regex", "types"]


def names(*patterns: str) -> Selector:
    """Modules by path or glob. A name that the model does not have is an error that lists the nearest."""
    return _C.names(list(patterns))


def regex(expression: str) -> Selector:
    """Modules whose whole path matches a regular expression (ECMAScript)."""
    return _C.regex(expression)


def indices(*wanted: int) -> Selector:
    """Modules by their place in `modules()`, where the model is 0, or in `children()`."""
    return _C.indices(list(wanted))


def types(*classes: type | str) -> Selector:
    """Modules of these classes or of classes derived from one; a str is the name of a class."""
    named = [one for one in classes if isinstance(one, str)]
    real = tuple(one for one in classes if not isinstance(one, str))
    if wrong := [one for one in real if not isinstance(one, type)]:
        raise TypeError(f"torchtap.types: expected classes and names of classes, got {wrong[0]!r}.")
    if not real:
        return _C.types(named)
    description = f"types({', '.join(one.__name__ for one in real)})"
    chosen = Selector(lambda path, module: isinstance(module, real), description)
    return chosen | _C.types(named) if named else chosen


def depth(least: int, most: int | None = None) -> Selector:
    """Modules so many steps below the model, or `least` to `most` steps."""
    return _C.depth(least, least if most is None else most)


def _combined(selector: Which | None, classes: Classes | None, places: int | Iterable[int] | None) -> Selector:
    """What all of the given ones select."""
    chosen: list[Selector] = []
    if selector is not None:
        chosen.append(selector if isinstance(selector, Selector) else Selector(selector))
    if classes is not None:
        chosen.append(types(*(classes if isinstance(classes, (tuple, list)) else (classes,))))
    if places is not None:
        chosen.append(indices(*([places] if isinstance(places, int) else places)))
    if not chosen:
        return everything()
    result = chosen[0]
    for one in chosen[1:]:
        result = result & one
    return result
