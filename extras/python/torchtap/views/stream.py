"""What a model computes, for other processes."""

from __future__ import annotations

import contextlib
import os
import typing

import torch
from torchtap import selectors
from torchtap._library import _C, need
from torchtap.views import _model
from torchtap.views._open import Open

if typing.TYPE_CHECKING:
    from collections.abc import Iterable

    Kind: typing.TypeAlias = typing.Literal[
        "ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput", "BackwardOutput"
    ]

need("stream", "torchtap.views.stream")

__all__ = ["Publisher", "publish"]


class Publisher(Open):
    """What `torchtap.publish` returns."""

    _view: _C.Published
    name: str
    notes: list[str]

    def __init__(self, contexts: contextlib.ExitStack, view: _C.Published) -> None:
        self._opens(view, contexts)
        self.notes, self.name = [], view.name

    def attach(
        self,
        model: torch.nn.Module,
        selector: selectors.Which | None = None,
        *,
        kinds: Iterable[Kind] = ("ForwardOutput",),
    ) -> Publisher:
        """Publishes what passes through the selected modules: "ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput",
        "BackwardOutput"."""
        model, notes = _model.model_of("publish", model, lasts=True)
        hooks, more = self._view.attach(model, selectors._combined(selector, None, None), list(kinds))
        self._hook(hooks)
        self.notes += [*notes, *more]
        return self

    def send(self, path: str, tensor: torch.Tensor) -> bool:
        """Publishes a tensor of yours; false if no reader wants it."""
        return self._view.send(path, tensor)

    def annotate(self, text: str) -> None:
        """A text that goes with each frame from now on: "epoch 3"."""
        self._view.annotate(text)

    @property
    def socket(self) -> str:
        """The path by which readers find it."""
        return self._view.socket

    @property
    def readers(self) -> int:
        """How many readers have joined."""
        return self._view.readers()

    @property
    def sent(self) -> int:
        """How many frames were published."""
        return self._view.sent()

    def __repr__(self) -> str:
        return (
            "torchtap.Publisher(closed)" if self.closed else f"torchtap.Publisher({self.name}, {self.readers} readers)"
        )


def publish(
    name: str,
    model: torch.nn.Module | None = None,
    selector: selectors.Which | None = None,
    *,
    kinds: Iterable[Kind] = ("ForwardOutput",),
    bytes: int = 2**28,
    directory: str | os.PathLike[str] = "",
    rank: int = 0,
) -> Publisher:
    """Sends tensors to other processes of this user while the model runs, which read them by this name.

        with torchtap.publish("resnet", model, "layer1*"):
            train()                     # elsewhere: for frame in torchtap.stream.Reader("resnet"), or `torchtap watch resnet`

    kinds      what of the modules: "ForwardOutput" and the other recorders' names
    bytes      the most shared memory for all readers
    directory  where readers find it; by default a folder of this user alone

    Without readers it costs next to nothing. Outputs and gradients are the same bits as without. It ends with its block, with
    `close()`, or with Python. Linux only.
    """
    publisher = Publisher(contextlib.ExitStack(), _C.Published(name, bytes, os.fspath(directory), rank))
    if model is not None:
        try:
            publisher.attach(model, selector, kinds=kinds)
        except BaseException:
            publisher.close()
            raise
    return publisher
