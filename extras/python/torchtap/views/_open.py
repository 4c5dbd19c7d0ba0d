"""Views that last: their hooks stay until they are closed."""

from __future__ import annotations

import atexit
import functools
import typing
import weakref

from torchtap.views import _model

if typing.TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from typing_extensions import Self


def _close(close: Callable[[], None], contexts: contextlib.ExitStack, at_end: Callable[[], None]) -> None:
    atexit.unregister(at_end)
    try:
        contexts.close()
    finally:
        close()


class Open:
    """Closes with its block, when nothing refers to it any more, or at the end of Python."""

    def _opens(self, view: typing.Any, contexts: contextlib.ExitStack) -> None:
        self._view, self._contexts = view, contexts
        at_end = functools.partial(_at_end, weakref.ref(self))
        self._finalizer = weakref.finalize(self, _close, view.close, contexts, at_end)
        self._finalizer.atexit = False
        atexit.register(at_end)  # before PyTorch and threads of the library end

    def _hook(self, hooks: _model.Hooks) -> None:
        self._contexts.enter_context(_model.hooked(hooks))

    def close(self) -> None:
        """Removes the hooks and ends what was begun. May be called again."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._finalizer.alive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError(
            f"torchtap: a {type(self).__name__} watches a model of this process, and cannot be pickled or copied."
        )


def _at_end(reference: weakref.ref[Open]) -> None:
    if (one := reference()) is not None:
        one.close()
