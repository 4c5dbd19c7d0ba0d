"""The hooks that recorders register with PyTorch: they run those of C++, in code that torch.compile made, too."""

from __future__ import annotations

import contextlib
import functools
import sys
import typing
import warnings
import weakref
from collections import OrderedDict

from torchtap._library import _C  # noqa: F401  (has the operator; says first where PyTorch is too old)

# isort: split
import torch
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary
from torchtap._private import Private

# Otherwise code that was compiled for a model without hooks runs for one with hooks, and records nothing. Code that was compiled
# before is forgotten, and compiled again when it is called.
_guards = Private("torch._dynamo.config", "torch._dynamo.config.skip_nnmodule_hook_guards")
if not _guards.missing and _guards.found[1]:
    _guards.found[0].skip_nnmodule_hook_guards = False
    _compiled = Private("torch._dynamo.utils.counters")
    if _compiled.missing or _compiled.found[0]["frames"]:
        torch.compiler.reset()

_run = torch.ops.torchtap.run_hooks.default
torch.library.register_fake("torchtap::run_hooks")(lambda inputs, outputs, before, number: None)
_operator = Private(
    "torch._higher_order_ops.effects._EffectType",
    "torch._higher_order_ops.effects._register_effectful_op",
    "torch._inductor.config",
    "torch._inductor.config.custom_should_partition_ops",
)
if not _operator.missing:
    _effect, _register_effectful_op, _config, _parted = _operator.found
    _register_effectful_op(_run, _effect.ORDERED)  # otherwise the compiler would remove a call that returns nothing
    # Between the CUDA graphs that the compiler makes (mode="reduce-overhead"), not inside: a replay calls nothing, and what hooks
    # keep would lie in the graphs' memory. The operator's tag for this is not seen where it has an effect (2.11 to 2.15).
    _config.custom_should_partition_ops = [*_parted, "torchtap::run_hooks"]

_compiler = Private(
    "torch._dynamo.symbolic_convert.InstructionTranslator.current_tx",
    "torch._dynamo.variables.higher_order_ops.TorchHigherOrderOperatorVariable.make",
    "torch._dynamo.variables.higher_order_ops.TorchHigherOrderOperatorVariable._ALLOW_FALLBACK_TO_EAGER",
    "torch._higher_order_ops.utils._in_hop_compile",
    "torch._ops.HigherOrderOperator",
)

# A model that is pickled as a whole takes its hooks along. Theirs do nothing, and need no torchtap where it is loaded. Those of
# a copy see that they are called for another module.
_nothing = functools.partial(contextlib.nullcontext.__exit__, contextlib.nullcontext())


def in_checkpoint() -> bool:
    """Whether a caller is torch.utils.checkpoint."""
    frame = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "torch.utils.checkpoint":
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def _tensors(values: object) -> list[torch.Tensor | None]:
    return [one for one in pytree.tree_leaves(values) if one is None or isinstance(one, torch.Tensor)]


# The numbers by which compiled code knows each module's hooks: those that it may call, and others. A recorder that comes when another
# one has gone gets its numbers, so that the code which was compiled for that one fits.
_numbers: typing.Any = WeakIdKeyDictionary()
_others: typing.Any = WeakIdKeyDictionary()


def number(module: torch.nn.Module, hook: _C.Hook, traceable: bool) -> int:
    """The number of the hook in compiled code; negative if an operator cannot call it."""
    traceable = traceable and not _operator.missing
    one = hook.number_among((_numbers if traceable else _others).setdefault(module, []))
    if _guards.missing:
        _C.leave_out(one, _guards.lack("without which code that was compiled before does not see a recorder"))
    return one if traceable else -one


@torch.compiler.assume_constant_result  # type: ignore[misc,untyped-decorator,unused-ignore]  # asked when code is compiled
def _exports() -> bool:
    return torch.compiler.is_exporting()


@torch.compiler.assume_constant_result  # type: ignore[misc,untyped-decorator,unused-ignore]
def _left_out(number: int) -> bool:
    """Whether a hook cannot be in the code that is being compiled, which its module's notes say then."""
    if _operator.missing:
        warnings.warn(
            "torchtap: " + _operator.lack("so compiled code breaks at each module that is recorded"), stacklevel=2
        )
    why = ""
    try:
        if not _compiler.missing and _is_taken_whole(number > 0):
            why = "it is called in what torch.cond, scan or an operator like them was given, which is compiled as a whole and may run "
            why += "once more in a backward; recorders leave it out there."
    except AttributeError as error:
        _compiler.missing = f"{type(error.obj).__name__}.{error.name}"
    if _compiler.missing:
        why = _compiler.lack(
            "which tells what torch.cond and its like were given; recorders leave out what torch.compile compiles"
        )
    if why and number:
        _C.leave_out(abs(number), why)
    return why != ""


def _is_taken_whole(traceable: bool) -> bool:
    """Whether this is inside of what torch.cond, while_loop and their like were given, where nothing may break the graph, and a hook
    is left out: their backward runs it once more, and their compiled code loses it. Without either it runs, if `traceable`."""
    translator, variable, _, in_hop_compile, operators = _compiler.found
    if traceable and in_hop_compile() and not torch.is_grad_enabled():
        return False
    tracer = translator().output.current_tracer
    while tracer.parent is not None:
        operator = tracer.source_target
        if isinstance(operator, operators):
            # Of those that may break, as a checkpoint may, the compiler leaves what they were given uncompiled.
            if not variable(operator)._ALLOW_FALLBACK_TO_EAGER:
                return True
        tracer = tracer.parent
    return False


class _Hook:
    """With a positive `number` the compiler may put an operator in place of the call, which breaks no graph. 0: of a view."""

    def __init__(self, hook: _C.Hook, module: torch.nn.Module, number: int = 0) -> None:
        self.hook, self.module, self.number = hook, weakref.ref(module), number

    def __deepcopy__(self, known: typing.Any) -> _Hook:
        return self

    def __reduce__(self) -> typing.Any:
        return _nothing.__reduce__()

    @property
    def __name__(self) -> str:
        raise AttributeError("torch.jit.script compiles hooks that are Python code; detach torchtap's recorders first")

    def traced(self, module: torch.nn.Module, inputs: object, outputs: object, before: bool) -> bool:
        """Whether there is nothing to do but in the code that PyTorch's compiler makes."""
        if _exports():  # programs that are exported are the same with hooks and without
            return True
        if self.module() is not module:  # a copy, which took the hooks along
            return True
        if _left_out(self.number):
            return True
        if self.number > 0:
            _run(_tensors(inputs), _tensors(outputs), before, self.number)
            return True
        return False

    def register(self, with_kwargs: bool, always_call: bool = False) -> RemovableHandle:
        """Registers it with PyTorch. Compiled code is for the places of hooks in their dict, so those with a number have theirs."""
        module, hook = typing.cast("torch.nn.Module", self.module()), typing.cast("typing.Any", self)
        if isinstance(self, Before):
            handle = module.register_forward_pre_hook(hook, with_kwargs=with_kwargs)
        else:
            handle = module.register_forward_hook(hook, with_kwargs=with_kwargs, always_call=always_call)
        hooks: typing.Any = [one() for one in (handle.hooks_dict_ref, *handle.extra_dict_ref)]
        place = -self.number  # those of PyTorch are 0 and more
        if place < 0 and place not in hooks[0]:
            for one in hooks:
                if handle.id in one:
                    one[place] = one.pop(handle.id)
            handle.id = place
        return handle


class Before(_Hook):
    def __call__(
        self, module: torch.nn.Module, args: tuple[typing.Any, ...], kwargs: dict[str, typing.Any]
    ) -> typing.Any:
        if torch.compiler.is_dynamo_compiling() and self.traced(module, (args, kwargs), (), True):
            return None
        return self.hook.before(module, args, kwargs)


class After(_Hook):
    def __call__(self, module: torch.nn.Module, args: tuple[typing.Any, ...], output: typing.Any) -> typing.Any:
        if torch.compiler.is_dynamo_compiling() and self.traced(module, (), output, False):
            return None
        return self.hook.after(module, args, output)


class AfterWithInputs(_Hook):
    def __call__(
        self, module: torch.nn.Module, args: tuple[typing.Any, ...], kwargs: dict[str, typing.Any], output: typing.Any
    ) -> typing.Any:
        if torch.compiler.is_dynamo_compiling() and self.traced(module, (args, kwargs), output, False):
            return None
        return self.hook.after(module, args, kwargs, output)


class Gradient:
    """What `register_hook` calls with the gradient of a parameter; `accumulated`, or with the parameter itself, as
    `register_post_accumulate_grad_hook` does."""

    def __init__(self, leaf: _C.Leaf, accumulated: bool) -> None:
        self.leaf, self.accumulated = leaf, accumulated

    def __call__(self, given: torch.Tensor) -> None:
        gradient = given.grad if self.accumulated else given
        if gradient is not None:  # unless a hook before this one has used it up
            self.leaf.hand_over(gradient.to_local() if hasattr(gradient, "to_local") else gradient)

    def __deepcopy__(self, known: typing.Any) -> Gradient:
        return self

    def __reduce__(self) -> typing.Any:
        return _nothing.__reduce__()


def on_parameter(parameter: torch.Tensor, leaf: _C.Leaf, accumulated: bool) -> RemovableHandle:
    """Registers as PyTorch's two methods do, which refuse a parameter that is frozen now."""
    name = "_post_accumulate_grad_hooks" if accumulated else "_backward_hooks"
    hook = Gradient(leaf, accumulated)
    try:
        with torch._C.DisableTorchFunctionSubclass():
            if getattr(parameter, name) is None:
                setattr(parameter, name, OrderedDict())
            hooks = getattr(parameter, name)
    except AttributeError as error:
        if not parameter.requires_grad:
            raise NotImplementedError(
                f"torchtap.BackwardParameter: PyTorch {torch.__version__} has no {error.name}, without which a frozen parameter takes "
                "no hook; attach to modules whose parameters require a gradient."
            ) from None
        register = parameter.register_post_accumulate_grad_hook if accumulated else parameter.register_hook
        return typing.cast("RemovableHandle", register(hook))  # type: ignore[no-untyped-call,unused-ignore]
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


# Where nothing is compiled the C++ hook is called at once, past the methods above, which the compiler reads.
_C.call_directly(Before, After, AfterWithInputs)
