"""What the views share: a model, as views see it, and what they leave behind."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import shutil
import sys
import threading
import typing

from torchtap import _hooks  # says first where PyTorch is too old
from torchtap._library import _C

# isort: split
import torch
from torch.utils import _pytree as pytree
from torchtap._private import Private

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

    Hooks: typing.TypeAlias = list[tuple[torch.nn.Module, _C.Hook]]


_lacks: list[str] = []  # what each view says first


def _private(use: str, *names: str) -> list[typing.Any] | None:
    one = Private(*names)
    if one.missing:
        _lacks.append(one.lack(use))
    return None if one.missing else one.found


# Operations are seen by this dispatch key. Higher-order operators (torch.cond, those of torch.func in torch.vmap) are Python's
# and look for a kernel of each key; they pass this one, and what they compute is seen.
if _found := _private(
    "so models with torch.cond or torch.func may raise NotImplementedError under views",
    "torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS",
    "torch._ops._higher_order_ops",
):
    _found[0].append(_C.operations_key())
    for _one in _found[1].values():
        _one.fallthrough(_C.operations_key())


def _unseen(function: Callable[..., typing.Any]) -> Callable[..., typing.Any]:
    """Hides what it computes from views."""

    @functools.wraps(function)
    def hidden(*arguments: typing.Any, **named: typing.Any) -> typing.Any:
        with _C.Unseen():
            return function(*arguments, **named)

    return hidden


# torch.cond and its like compile what they are given in the midst of a forward, and its gradient, with tensors that have shapes
# alone: of that the program runs nothing.
if _found := _private(
    "so views of models with torch.cond and its like show operations of the compiler, too",
    "torch._dynamo.convert_frame.ConvertFrameAssert",
    "torch._dynamo.convert_frame.ConvertFrameAssert.__call__",
    "torch.fx.experimental.proxy_tensor._MakefxTracer",
    "torch.fx.experimental.proxy_tensor._MakefxTracer._trace_inner",
):
    _found[0].__call__ = _unseen(_found[1])
    _found[2]._trace_inner = _unseen(_found[3])

_stances = _private(
    "so views run the whole program uncompiled, and torch.cond has no gradients there",
    "torch._dynamo.eval_frame",
    "torch._dynamo.eval_frame._stance",
    "torch._dynamo.eval_frame._set_stance",
    "torch._higher_order_ops.utils._in_hop_compile",
)


class Fields(dict[str, typing.Any]):
    """Facts by name, as keys and as attributes: `row["forward"]["work"]["macs"]`, `row.forward.work.macs`."""

    def __getattr__(self, name: str) -> typing.Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no {name!r} here; there are: {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


def line_width() -> int:
    return max(shutil.get_terminal_size().columns, 40) if sys.stdout is not None and sys.stdout.isatty() else 100


def model_of(call: str, model: torch.nn.Module, lasts: bool = False) -> tuple[torch.nn.Module, list[str]]:
    """The module that views attach to, and what has to be said of it first. A view that `lasts` does not run it itself."""
    if not isinstance(model, torch.nn.Module):
        made = f"; call it with an object: torchtap.{call}({model.__name__}(…))" if isinstance(model, type) else ""
        raise TypeError(f"torchtap.{call}: expected a torch.nn.Module, got {_name(model)}{made}.")
    notes = [*_lacks]
    if is_compiled(model):
        notes.append(
            "torch.compile breaks the code of this model at each module that is watched, and leaves the parts between them compiled."
            if lasts
            else "The model ran as it is written, not as torch.compile compiled it: compiled code calls no modules that could be seen."
        )
        model = getattr(model, "_orig_mod", model)
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        notes.append(
            "This is one rank's part; the ranks exchange gradients inside of backward, and waiting for that counts as backward."
        )
    return model, notes


def _name(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__


def read_csv(call: str, text: str) -> pandas.DataFrame:
    """A `pandas.DataFrame`."""
    try:
        import pandas
    except ImportError:
        raise ImportError(
            f"torchtap.{call}: pandas() needs pandas, which is not installed; csv() needs nothing."
        ) from None
    return pandas.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])


def is_compiled(model: torch.nn.Module) -> bool:
    return hasattr(model, "_orig_mod") or any(getattr(one, "_compiled_call_impl", None) for one in model.modules())


class _Stance:
    """What torch.compile is told: in threads that are in as_written() to run all as it is written, but for torch.cond and its like,
    which compile what they are given and compute gradients only then; in others what the program tells it."""

    def __init__(self, program: typing.Any, in_operator: Callable[[], bool]) -> None:
        self.program, self.in_operator, self.threads = program, in_operator, collections.Counter[int]()

    @property
    def stance(self) -> str:
        if threading.get_ident() in self.threads and not self.in_operator():
            return "force_eager"
        return typing.cast("str", self.program.stance)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self.program, name)


_stance_lock = threading.Lock()
_stance: _Stance | None = None


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """While it lasts, this thread passes by code that torch.compile made: views see what a program calls."""
    # The stance is the process's: the first of several threads sets it, and the last one puts the program's back.
    global _stance
    if _stances is None:
        with torch.compiler.set_stance("force_eager"):
            yield
        return
    thread, holder = threading.get_ident(), _stances[0]
    with _stance_lock:
        if _stance is None:
            one = _Stance(holder._stance, _stances[3])
            holder._set_stance(one)
            _stance = one
        _stance.threads[thread] += 1
    try:
        yield
    finally:
        with _stance_lock:
            _stance.threads -= collections.Counter([thread])
            if not _stance.threads:
                if holder._stance is _stance:  # unless the program has set another one meanwhile
                    holder._stance = _stance.program
                _stance = None


@contextlib.contextmanager
def hooked(hooks: Hooks) -> Iterator[None]:
    """Registers the hooks of a view with PyTorch, while it lasts. They come after those that are there, and have to be the last
    to see arguments: what they see is what forward gets."""
    handles = []
    try:
        for module, hook in hooks:
            handles.append(_hooks.Before(hook, module).register(with_kwargs=True))
            handles.append(_hooks.After(hook, module).register(with_kwargs=False, always_call=True))
        hooks = module = None  # type: ignore[assignment]  # what waits here does not keep the model
        yield
    finally:
        for handle in handles:
            handle.remove()
        _C.forget_idle_calls()


def _leaves(values: object) -> list[torch.Tensor]:
    return [one for one in pytree.tree_leaves(values) if isinstance(one, torch.Tensor)]


_users_lock = threading.Lock()
_users: dict[int, int] = {}  # of modules that a view runs: by their identity, the thread


@contextlib.contextmanager
def _alone(model: torch.nn.Module) -> Iterator[None]:
    """Refuses a model whose modes another thread has changed for a view: each would put back what the other one made."""
    modules, thread = [*model.modules()], threading.get_ident()
    with _users_lock:
        if any(_users.get(id(module), thread) != thread for module in modules):
            raise RuntimeError(
                "torchtap: another thread is at a view of this model, which changes modes and hooks and puts them back; "
                "run one after the other, or give each thread a copy of the model."
            )
        mine = [id(module) for module in modules if id(module) not in _users]
        _users.update(dict.fromkeys(mine, thread))
    try:
        yield
    finally:
        with _users_lock:
            for one in mine:
                del _users[one]


@contextlib.contextmanager
def untouched(model: torch.nn.Module, inputs: object = (), gradients: bool = True) -> Iterator[None]:
    """Puts back what a forward and a backward change: modes, buffers, gradients, and the state of random numbers. What a module
    made of itself, as a lazy one does, stays."""
    with _alone(model), _restored(model, inputs, gradients):
        yield


@contextlib.contextmanager
def _restored(model: torch.nn.Module, inputs: object, gradients: bool) -> Iterator[None]:
    tensors = [*model.parameters(), *model.buffers(), *_leaves(inputs)]
    modes = [(module, module.training) for module in model.modules()]
    plain = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    slots = [(module._buffers, name, one) for module in plain for name, one in module._buffers.items()]
    buffers = [(one, one.detach().clone()) for one in model.buffers() if not torch.nn.parameter.is_lazy(one)]
    leaves = {id(one): one for one in tensors if one.is_leaf and one.requires_grad}
    kept = [(one, one.grad) for one in leaves.values()] if gradients else []
    devices = sorted({one.device for one in tensors if one.device.type not in ("cpu", "meta")}, key=str)
    random = torch.get_rng_state()
    others = [(device, torch.get_device_module(device).get_rng_state(device)) for device in devices]
    try:
        for one, _ in kept:
            one.grad = None
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for held, name, was in slots:
                if held.get(name) is not was and was is not None and not torch.nn.parameter.is_lazy(was):
                    held[name] = was
            for buffer, saved in buffers:
                if not torch.equal(buffer, saved):  # batch normalisation does not count up the version
                    buffer.data.copy_(saved)
        for one, gradient in kept:
            one.grad = gradient
        torch.set_rng_state(random)
        for device, state in others:
            torch.get_device_module(device).set_rng_state(state, device)
