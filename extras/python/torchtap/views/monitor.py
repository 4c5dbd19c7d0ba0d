"""A model watched while it runs: rules, drift, and the inputs that led to an alarm."""

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
    from collections.abc import Callable

need("monitor", "torchtap.views.monitor")

Alarm = _C.Alarm

__all__ = ["Alarm", "Monitor", "monitor"]


class Monitor(Open):
    """What `torchtap.monitor` returns."""

    _view: _C.Monitored

    def __init__(self, contexts: contextlib.ExitStack, view: _C.Monitored, notes: list[str]) -> None:
        self._opens(view, contexts)
        self.notes = [*notes, *view.notes]
        self._hook(view.hooks())

    def on_alarm(self, callable: Callable[[Alarm], object]) -> Monitor:
        """Calls it with each `Alarm` that is raised or cleared, in the monitor's thread."""
        self._view.on_alarm(callable)
        return self

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms that are raised now."""
        return self._view.alarms()

    def metrics(self) -> str:
        """Prometheus' text format."""
        return self._view.metrics()

    def capture(self, reason: str = "asked for") -> str:
        """Writes an incident now, with the last inputs, and returns its folder. Raises ValueError without `save`."""
        return self._view.capture(reason)

    def flush(self) -> None:
        """Waits until all windows that ended are judged; with `learn`, writes the reference."""
        self._view.flush()

    def __repr__(self) -> str:
        return "torchtap.Monitor(closed)" if self.closed else f"torchtap.Monitor({len(self.alarms)} alarms)"


def monitor(
    model: torch.nn.Module,
    *,
    reference: str | os.PathLike[str] = "",
    learn: str | os.PathLike[str] = "",
    save: str | os.PathLike[str] = "",
    name: str = "model",
    select: selectors.Which | None = None,
    inputs: bool = True,
    ring: int = 2**26,
    window: int = 256,
    window_seconds: float = 3600.0,
    cost: float = 0.01,
    keep_incidents: int = 16,
    metrics_file: str | os.PathLike[str] = "",
    tensorboard: str | os.PathLike[str] = "",
    gradients: bool = False,
    parameters: bool = False,
    loss_scale: float = 1.0,
) -> Monitor:
    """Watches a model in production, by rules and against a reference.

        with torchtap.monitor(model, learn="learned/"):
            evaluate(model)
        watch = torchtap.monitor(model, reference="learned/", save="incidents/")

    reference     a folder that `learn` wrote; without one, rules alone judge
    learn         a folder: every forward is taken into a reference, which is written by `flush()` and at the end
    save          a folder for incidents and alarms.jsonl; with `inputs`, incidents hold the last inputs, in a `ring` of so many bytes
    window        rows that are judged together, or those of `window_seconds`
    cost          the share of a forward's time that it may take: it decides how many forwards are sampled
    gradients, parameters   whether these are watched, too

    The others are those of C++ (views/monitor/README.md). Outputs and gradients are the same bits as without, and any number of
    threads may run the model. It ends with its block, with `close()`, or with Python.
    """
    model, notes = _model.model_of("monitor", model, lasts=True)
    given = {
        "name": name,
        "save": os.fspath(save),
        "select": None if select is None else selectors._combined(select, None, None),
        "inputs": inputs,
        "ring": ring,
        "window": window,
        "window_seconds": float(window_seconds),
        "cost": float(cost),
        "keep_incidents": keep_incidents,
        "metrics_file": os.fspath(metrics_file),
        "tensorboard": os.fspath(tensorboard),
        "gradients": gradients,
        "parameters": parameters,
        "loss_scale": float(loss_scale),
        "learn": os.fspath(learn),
    }
    return Monitor(contextlib.ExitStack(), _C.Monitored(model, os.fspath(reference), given), notes)
