"""Recorders attach to modules of a model, and keep or fold what flows through them. The names are torchfunc's.

    recorder = torchtap.ForwardPre(reduction=lambda x, y: x + y)
    recorder.children(model, indices=(2, 3))

Data is by place, `recorder[0]`, or by path, `recorder["layer1.0"]`.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import typing
import weakref

import torch
from torchtap import _hooks, reductions, selectors
from torchtap._library import _C

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch.distributed import ProcessGroup
    from torch.utils.hooks import RemovableHandle
    from torchtap.reductions import Fold
    from torchtap.selectors import Classes, Which
    from typing_extensions import Self

    Condition: typing.TypeAlias = "Callable[[], bool] | Callable[[Sample], bool]"
    Hooks: typing.TypeAlias = "list[tuple[_C.Hook | _C.Leaf, list[RemovableHandle]]]"

Companion = _C.Companion
Sample = _C.Sample
Subrecorder = _C.Subrecorder
input = _C.input
output = _C.output

__all__ = [
    "BackwardInput",
    "BackwardOutput",
    "BackwardParameter",
    "Companion",
    "ForwardInput",
    "ForwardOutput",
    "ForwardPre",
    "Recorder",
    "Sample",
    "Subrecorder",
    "disable_fused_kernels",
    "enable_fused_kernels",
    "fused_kernels_enabled",
    "input",
    "output",
]


def _cuda(name: str) -> typing.Any:
    try:
        return getattr(_C, name)
    except AttributeError:
        raise NotImplementedError(
            f"torchtap.{name}: this torchtap was built without its part cuda; install it with the parts python and cuda."
        ) from None


def enable_fused_kernels() -> None:
    """From now on recorders add samples on CUDA devices up there, with one kernel for each sample, also in each replay of a CUDA
    graph (`torch.cuda.graph`), for the reductions that extras/cuda/README.md lists. Raises RuntimeError where there is no device."""
    _cuda("enable_fused_kernels")()


def disable_fused_kernels() -> None:
    """From now on reductions of samples on a device are PyTorch's operations again."""
    _cuda("disable_fused_kernels")()


def fused_kernels_enabled() -> bool:
    """Whether `enable_fused_kernels` was the later of the two."""
    return typing.cast("bool", _cuda("fused_kernels_enabled")())


def _takes_sample(condition: Condition) -> bool:
    try:
        inspect.signature(condition).bind()
        return False
    except TypeError:
        return True
    except ValueError:  # a function of C, whose parameters are unknown
        return False


class _Stop(BaseException):
    """Ends the forward of an `until_recorded`."""

    def __init__(self, until: int) -> None:
        super().__init__("torchtap stops this forward; what caught this in the model has to raise it again")
        self.until = until


class _Weakly:
    """Calls a callable that the recorder holds: Python's collector sees no references that C++ holds, and would keep an object
    for ever whose method is the condition of its own recorder."""

    def __init__(self, held: Callable[..., typing.Any]) -> None:
        self._held = weakref.ref(held)

    def __call__(self, *arguments: typing.Any) -> typing.Any:
        return self._held()(*arguments)  # type: ignore[misc]


def _weakly(given: typing.Any) -> typing.Any:
    if not callable(given) or isinstance(given, (type, _C.Reduction, _C.AnyShape, reductions._Own)):
        return given
    try:
        return _Weakly(given)
    except TypeError:  # to which there are no weak references
        return given


def _several(given: typing.Any, one: type) -> list[typing.Any] | None:
    """A list of what may be one thing or several; None stays."""
    return None if given is None else [given] if isinstance(given, one) else list(given)


def _end(recorder: weakref.ref[Recorder]) -> None:
    """Writes what was spooled, also where Python ends without destroying its objects."""
    if (alive := recorder()) is not None:
        alive.end()


def _remove(hooks: Hooks) -> None:
    for _, handles in hooks:
        for handle in handles:
            handle.remove()
    hooks.clear()
    _C.forget_idle_calls()


class Recorder(_C.Recorder):
    """Records one kind of data from many modules, with a subrecorder for each of them.

    condition       decides whether a sample is recorded: a callable without arguments, or with a `Sample`
    reduction       folds samples instead of keeping them: a reduction such as `Moments()`, an object of a class of yours (see
                    `Own`), or a callable (accumulated, sample) -> accumulated, which gets samples of one shape; see `any_shape`
    slot            which of several tensors of a call is recorded
    all_tensors     record all of them, with data for each: {"0": …, "1": …}
    transform       maps a tensor to what is recorded
    device, dtype   where and how tensors are kept or reduced
    companions      tensors of other modules for the reduction: {"expert": output("./router")}
    alias           keep samples without a copy; a later change in place is an error when they are read
    on_error        receives (path, exception) instead of an exception out of `forward` or `backward`
    spool           a folder that samples are written to as they come
    memory_budget   bytes of kept samples, beyond which an error is raised, or samples go to `spool`
    rows            dimensions whose elements are kept as rows, (0, 1) of [B, T, C]; into `spool`, see torchtap.rows
    where           a name of torchtap.Context: only the rows that are true in it
    beside          names of torchtap.Context, kept beside the rows: ("label", "id")
    recomputed      record forwards again that torch.utils.checkpoint runs again in a backward (`Sample.recomputed` tells them)
    defer           bytes of samples on a device that may wait, so that one launch of a fused kernel adds up many

    Tensors are found in tuples, lists, dicts, data classes and what is registered with PyTorch's pytree. Callables get the model's own
    tensors, and are to read them, not to write to them. Results never change: outputs and gradients are the same bits. Hooks are
    removed when the recorder ends, or by `detach()`.
    """

    def __init__(
        self,
        condition: Condition | None = None,
        reduction: Fold | None = None,
        *,
        slot: int = 0,
        all_tensors: bool = False,
        transform: Callable[[torch.Tensor], torch.Tensor] | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        companions: dict[str, Companion] | None = None,
        alias: bool = False,
        on_error: Callable[[str, Exception], object] | None = None,
        spool: str | os.PathLike[str] | None = None,
        memory_budget: int | None = None,
        rows: int | Iterable[int] | None = None,
        where: str | None = None,
        beside: str | Iterable[str] | None = None,
        recomputed: bool = False,
        defer: int = 0,
    ) -> None:
        objects = reductions._Objects()
        super().__init__(
            next(
                one.__name__ for one in type(self).__mro__ if one.__module__ == __name__
            ),  # of a class of yours its base
            condition=_weakly(condition),
            takes_sample=condition is not None and _takes_sample(condition),
            reduction=_weakly(reductions._own(reduction, objects) or reduction),
            slot=slot,
            all_tensors=all_tensors,
            transform=_weakly(transform),
            device=None if device is None else torch.device(device),
            dtype=dtype,
            companions=companions,
            alias=alias,
            on_error=_weakly(on_error),
            spool=None if spool is None else os.fspath(spool),
            memory_budget=memory_budget,
            rows=_several(rows, int),
            where=where,
            beside=_several(beside, str),
            defer=defer,
        )
        self._callables, self._objects = (condition, reduction, transform, on_error), objects
        self._hooks: Hooks = []
        self._noted: list[_C.Hook | _C.Leaf] = []
        self._alias, self._recomputed = alias, recomputed
        weakref.finalize(self, _remove, self._hooks).atexit = False
        if spool is not None:
            at_end = functools.partial(_end, weakref.ref(self))
            atexit.register(at_end)
            weakref.finalize(self, atexit.unregister, at_end).atexit = False

    @property
    def condition(self) -> Condition | None:
        """What decides, as it was given."""
        return self._callables[0]

    @property
    def reduction(self) -> Fold | None:
        """What folds, as it was given."""
        return self._callables[1]

    def __setattr__(self, name: str, value: typing.Any) -> None:
        if name in _OPTIONS:
            raise AttributeError(
                f"torchtap.{self.kind}: {name} is chosen when a recorder is made; make another one, or give a callable that asks "
                "what you change."
            )
        super().__setattr__(name, value)

    def attach(
        self,
        model: torch.nn.Module,
        selector: Which | None = None,
        *,
        types: Classes | None = None,
        indices: int | Iterable[int] | None = None,
    ) -> Self:
        """Attaches to the modules of `model` that all of the given ones select; without any to all that have a forward.

        selector   a path, a glob, a selector, or a callable (path, module) -> bool
        types      classes
        indices    places in `model.modules()`, where the model is 0

        A name or place that does not exist is an error, and so is a selection without a module. Returns the recorder.
        """
        return self._attach(model, selector, types, indices, children=False)

    def modules(
        self,
        model: torch.nn.Module,
        types: Classes | None = None,
        indices: int | Iterable[int] | None = None,
        *,
        selector: Which | None = None,
    ) -> Self:
        """Attaches as `attach` does, under torchfunc's name."""
        return self._attach(model, selector, types, indices, children=False)

    def children(
        self,
        model: torch.nn.Module,
        types: Classes | None = None,
        indices: int | Iterable[int] | None = None,
        *,
        selector: Which | None = None,
    ) -> Self:
        """Attaches to direct children of `model`; indices count children."""
        return self._attach(model, selector, types, indices, children=True)

    def _attach(
        self,
        model: torch.nn.Module,
        selector: Which | None,
        types: Classes | None,
        indices: int | Iterable[int] | None,
        children: bool,
    ) -> Self:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"torchtap.{self.kind}: expected a torch.nn.Module, got {type(model).__name__}.")
        chosen = selectors._combined(selector, types, indices)
        before, was_attached = len(self), bool(self._hooks)
        try:
            for one in self.attach_to(model, chosen, children, self._recomputed):
                self._register(*one)
        except BaseException:  # PyTorch may refuse a hook: what was attached before it must not stay
            while len(self) > before:
                self.remove(len(self) - 1)
            if not was_attached:
                self.detach()
            raise
        return self

    def _register(
        self, module: torch.nn.Module, hook: _C.Hook, before: bool, after: bool, inputs: bool, paired: bool
    ) -> None:
        # Code of torch.compile uses the memory of what it computes again, and carries nothing from one side to the other.
        number = _hooks.number(module, hook, not paired and not self._alias)
        handles: list[RemovableHandle] = []
        if before:
            handles.append(_hooks.Before(hook, module, number).register(with_kwargs=True))
        if after:
            one = (_hooks.AfterWithInputs if inputs else _hooks.After)(hook, module, number)
            handles.append(one.register(with_kwargs=inputs, always_call=paired))
        self._hooks.append((hook, handles))

    @property
    def subrecorders(self) -> list[Subrecorder]:
        """A `Subrecorder` for each module, in order of attachment."""
        return [self.subrecorder(index) for index in range(len(self))]

    @property
    def data(self) -> list[typing.Any]:
        """The data of each subrecorder: a tensor or a dict of results if reduced, otherwise the list of samples."""
        return list(self)

    def __iter__(self) -> Iterator[typing.Any]:
        return (one.value for one in self.subrecorders)

    def __getitem__(self, index: int | str) -> typing.Any:
        """The data of the subrecorder at a place, or of the module at a path."""
        return self.subrecorder(index).value

    def __setitem__(self, index: int | str, value: object) -> None:
        self.subrecorder(index).set(value)

    def samples(self, index: int | str | None = None) -> int:
        """How many samples subrecorder `index` recorded: calls, not rows; without an index all of them did."""
        if index is None:
            return sum(self.iter_samples())
        return self.subrecorder(index).samples

    def iter_samples(self) -> Iterator[int]:
        """The number of samples of each subrecorder."""
        return (one.samples for one in self.subrecorders)

    def remove(self, index: int) -> typing.Any:
        """Removes a subrecorder and its hook, and returns its data. Those behind it move up by one place."""
        data = self.drop(index)
        gone = [one for one in self._hooks if one[0].idle]
        self._hooks[:] = [one for one in self._hooks if not one[0].idle]
        _remove(gone)
        return data

    def detach(self) -> None:
        """Removes all hooks; the data stays."""
        self.detach_all()
        self._noted = [hook for hook, _ in self._hooks] or self._noted  # notes go on saying why there are no samples
        _remove(self._hooks)

    def until_recorded(self, forward: Callable[[], object]) -> bool:
        """Calls `forward` and stops it once every module has recorded in it: nothing after the last of them is computed.

        Returns True if it was stopped, False if it ran to its end. Of recorders of forwards alone. What stops it is raised through
        the model as KeyboardInterrupt is, so that `except Exception` in it does not catch it.
        """
        return self.run_until_recorded(forward)

    def save(
        self, path: str | os.PathLike[str], mkdir: bool = False, *, overwrite: bool = False, sync: bool = True
    ) -> None:
        """Saves a .pt file for each subrecorder and a manifest that says which module each belongs to.

        mkdir       make the folder, and those above it
        overwrite   replace a recording that is there
        sync        wait until all is on the disk

        `torch.load(…, weights_only=True)`, `torchtap.load` and C++ read the files.
        """
        self.save_to(os.fspath(path), mkdir, overwrite, sync)

    def snapshot(self, file: str | os.PathLike[str]) -> None:
        """Writes the state of the whole recorder to a file, from which `restore` resumes it, in any process."""
        self.snapshot_to(os.fspath(file))

    def restore(self, file: str | os.PathLike[str]) -> None:
        """Resumes from a snapshot of a recorder of the same kind, reduction and paths of modules."""
        self.restore_from(os.fspath(file))

    def merge_ranks(self, group: ProcessGroup | None = None, *, everywhere: bool = True, samples: int = 0) -> None:
        """Merges what the ranks of a process group recorded (torch.distributed); each gets the same bits.

        everywhere   whether all ranks get the result, or rank 0
        samples      bytes of kept samples that may be merged
        """
        import torch.distributed

        _C.merge_ranks(self, group or torch.distributed.group.WORLD, everywhere, samples)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"torchtap.{self.kind}({len(self)} modules, {self.samples()} samples)"

    def _repr_html_(self) -> str:
        """A table of the subrecorders, for notebooks."""
        rows = ((one.path or "(model)", one.type, one.samples, _shape(one), one.note) for one in self.subrecorders)
        return _table(self.kind, ("module", "type", "samples", "recorded", "note"), rows)


def _shape(one: Subrecorder) -> str:
    if not one.samples:
        return ""
    return _describe(one.value)


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_describe(item)}" for name, item in value.items())
    return f"{len(value)} × {_describe(value[0])}" if isinstance(value, list) and value else str(value)


def _table(caption: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    from html import escape

    def line(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


class ForwardPre(Recorder):
    """Inputs before `forward`."""


class ForwardInput(Recorder):
    """Inputs after `forward`, with the module's changes in place."""


class ForwardOutput(Recorder):
    """Outputs of `forward`."""


class BackwardInput(Recorder):
    """Gradients with respect to inputs, as far as they flow through this module."""


class BackwardOutput(Recorder):
    """Gradients with respect to outputs."""


class BackwardParameter(Recorder):
    """Gradients with respect to parameters, with a subrecorder for each, called as in `named_parameters`: "0.weight".

    accumulated     record `parameter.grad` after a backward has added to it, as `register_post_accumulate_grad_hook` sees it, instead
                    of what the backward adds, as `register_hook` sees it

    `attach` takes the parameters that the selected modules hold themselves. One that several share (tied weights) is recorded once,
    and has its other names as `aliases`. A sample is of one backward, in the shape and dtype of the parameter; of a DTensor the local
    shard. What no backward reached has no samples, and `note` says which parameters are frozen.
    """

    def __init__(
        self,
        condition: Condition | None = None,
        reduction: Fold | None = None,
        *,
        accumulated: bool = False,
        **options: typing.Any,
    ) -> None:
        super().__init__(condition, reduction, **options)
        self._accumulated = accumulated

    def _register(self, parameter: torch.Tensor, leaf: _C.Leaf) -> None:  # type: ignore[override]
        self._hooks.append((leaf, [_hooks.on_parameter(parameter, leaf, self._accumulated)]))

    @property
    def subrecorders(self) -> list[Subrecorder]:
        """A `Subrecorder` for each parameter, in order of attachment."""
        for leaf, _ in self._hooks:
            typing.cast("_C.Leaf", leaf).follow()  # notes say what is frozen now
        return super().subrecorders


# What has no effect later.
_OPTIONS = frozenset(inspect.signature(Recorder).parameters) | {"accumulated"}

_about_all = (Recorder.__doc__ or "").partition("\n\n")[2]
for _one in (ForwardPre, ForwardInput, ForwardOutput, BackwardInput, BackwardOutput, BackwardParameter):
    _one.__doc__ = "\n\n".join((_one.__doc__ or "", _about_all))
