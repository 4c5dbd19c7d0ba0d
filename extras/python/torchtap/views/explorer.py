"""A model as a live page in the browser."""

from __future__ import annotations

import contextlib
import html
import os
import typing

import torch
from torchtap import selectors
from torchtap._library import _C, need
from torchtap.views import _model
from torchtap.views._open import Open

if typing.TYPE_CHECKING:
    from collections.abc import Iterable

    Recorded: typing.TypeAlias = typing.Literal[
        "input", "output", "grad_input", "grad_output", "parameter", "parameter_grad"
    ]

need("explorer", "torchtap.views.explorer")

__all__ = ["Page", "explore"]


class Page(Open):
    """The page of `torchtap.explore`; `url` is its address, and a notebook shows it."""

    _view: _C.Explored
    url: str
    notes: list[str]

    def __init__(self, contexts: contextlib.ExitStack, view: _C.Explored) -> None:
        self._opens(view, contexts)
        self.url, self.notes, self._saved = "", [], ""

    def attach(self, model: torch.nn.Module, selector: selectors.Which | None = None, *, name: str = "") -> Page:
        """Shows a further model, or the selected modules of it."""
        model, notes = _model.model_of("explore", model, lasts=True)
        hooks, more = self._view.attach(model, selectors._combined(selector, None, None), name)
        self._hook(hooks)
        self.notes += [*notes, *more]
        return self

    def step(self, number: int) -> None:
        """Says which step begins; without it, a step begins with the first forward after a backward."""
        self._view.step(number)

    @property
    def steps(self) -> int:
        """The number of the current step."""
        return self._view.steps()

    def scalar(self, name: str, value: torch.Tensor | typing.SupportsFloat) -> None:
        """A number of the current step, drawn above all panels: the loss. A tensor of a device is read only in steps that are
        recorded."""
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)
        self._view.scalar(name, tensor)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the page with all recorded data into one file, which needs no server: `path`, or "explorer.html" in it if it is
        a folder or ends with "/". Returns the file."""
        path = os.fspath(path)
        if path.endswith(("/", os.sep)) or os.path.isdir(path):
            os.makedirs(path, exist_ok=True)
            path = os.path.join(path, "explorer.html")
        self._view.export_page(path)
        self._saved = path
        return path

    @property
    def errors(self) -> list[str]:
        """At what recording failed; the model never notices."""
        return self._view.errors()

    def __repr__(self) -> str:
        return "torchtap.Page(closed)" if self.closed else f"torchtap.Page({self.url})"

    def _repr_html_(self) -> str:
        """The live page in a frame, for notebooks; of one that was closed what was saved last."""
        shown = f'src="{html.escape(self.url)}"'
        if self.closed:
            if not os.path.isfile(self._saved):
                return "<p>This page was closed. Show it in its block, or call <code>save</code> there.</p>"
            with open(self._saved, encoding="utf-8") as saved:
                shown = f'srcdoc="{html.escape(saved.read())}"'
        return f'<iframe {shown} style="width:100%;height:45em;border:0"></iframe>'


def explore(
    model: torch.nn.Module,
    selector: selectors.Which | None = None,
    *,
    port: int = 0,
    address: str = "127.0.0.1",
    token: str = "",
    control: bool = False,
    every: int | None = None,
    overhead: float | None = None,
    record: Iterable[Recorded] = (),
    save: str | os.PathLike[str] = "",
    name: str = "",
    memory: int = 2**28,
) -> Page:
    """Shows a model in the browser as it trains: its graph, and how each tensor is distributed over time.

        with torchtap.explore(model) as page:
            print(page.url)
            train()
            page.save("run/")

    selector   which modules: a path, a glob, a selector, a callable; by default all
    port       0 for the first free one from 8080 on; `address` anything but this machine lets others in, who need the token
    token      the secret that the page has to know, at least 16 letters; by default one is made
    control    whether the page may change how often is recorded
    every      records every so many steps; else `overhead` is the share of time that recording may take, by default 0.02
    record     "input", "output", "grad_input", "grad_output", "parameter", "parameter_grad"; by default all
    save       a folder that gets everything in full resolution, for the command `torchtap explore`
    memory     bytes that all columns may take

    Outputs, gradients and trained weights are the same bits as without. It ends with the block, with `close()`, or with Python.
    """
    kept = {
        "every": every,
        "overhead": overhead,
        "record": list(record),
        "save": os.fspath(save),
        "name": name,
        "memory": memory,
    }
    page = Page(contextlib.ExitStack(), _C.Explored(kept))
    try:
        page.attach(model, selector, name=name)
        page.url = page._view.serve(port, address, token, control)
    except BaseException:
        page.close()
        raise
    return page
