"""Tries calls of modules again, in float64 and with what the other program gave them: did the other one compute something else, or
did it round? Then says why."""

import contextlib
import copy
import json
import sys
import warnings

import torch
from torch.nn.modules import module as nn_module
from torch.utils._pytree import tree_map

from . import causes, frames
from .causes import UNIT, distance, wide
from .fingerprint import fingerprint
from .recording import tensors

DIMS = {2: ("row", "column"), 3: ("entry", "row", "column"), 4: ("entry", "channel", "row", "column")}
FARTHER = 8


def clones(value):
    return [tensor.detach().cpu().clone() for tensor in tensors(value)]


def in_float64(module):
    """A copy without hooks, but for those of PyTorch, which make weights (`weight_norm`)."""
    f = copy.deepcopy(module).cpu().double()
    for one in f.modules():
        for hooks in (one._forward_pre_hooks, one._forward_hooks):
            for key, hook in list(hooks.items()):
                if not (getattr(hook, "__module__", None) or "").startswith("torch."):
                    del hooks[key]
        for name, value in vars(one).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                vars(one)[name] = value.detach().cpu().double()
    return f


@contextlib.contextmanager
def no_global_hooks():
    kept = [(hooks, dict(hooks)) for hooks in (nn_module._global_forward_pre_hooks, nn_module._global_forward_hooks)]
    for hooks, _ in kept:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, entries in kept:
            hooks.update(entries)


def where(difference):
    """The few places along dimensions in which nearly all of a difference lies: "channels 3, 7 of 64 (dim 1)"."""
    found, square = [], torch.nan_to_num(difference).square()
    for dim, size in enumerate(difference.shape):
        share = square.movedim(dim, 0).reshape(size, -1).sum(1)
        most, order = share.sort(descending=True)
        count = int((most.cumsum(0) < 0.99 * share.sum()).sum()) + 1
        if 2 * count <= size and share.sum() > 0:
            places, names = sorted(order[:count].tolist()), DIMS.get(difference.dim(), ("",) * 8)
            name = names[dim] or "place"
            few = ", ".join(map(str, places[:6])) + (f" and {count - 6} others" if count > 6 else "")
            plural = {"entry": "entries"}.get(name, name + "s") if count > 1 else name
            found.append((count / size, f"{plural} {few} of {size} (dim {dim})"))
    return ", ".join(text for _, text in sorted(found)) or None


class Trial:
    """Answers a request: a path, or what such a file says. The answer is written anew behind each call that was tried; what did
    not run keeps `proved` null, and `reason` says so."""

    def __init__(self, request, answer=None):
        if not isinstance(request, dict):
            with open(request, encoding="utf-8") as file:
                request = json.load(file)
        self.file, self.others, self.names = answer, {}, (request.get("own", "A"), request.get("other", "B"))
        try:
            for frame in frames.read(request["others"]):
                if frame.result == "" and frame.data is not None:
                    key = frame.kind, frame.path, frame.sample
                    self.others.setdefault(key, {}).setdefault(frame.slot, frame.tensor())
        except EOFError:  # the calls before are whole
            pass
        nothing = dict.fromkeys(("repeatable", "proved", "own_error", "other_error", "cause", "cause_error", "where"))
        self.suspects, self.input = request["suspects"], request.get("input")
        self.answer = {"suspects": [], "input": None}
        for suspect in self.suspects:
            known = {"path": suspect["path"], "sample": suspect["sample"], **nothing}
            self.answer["suspects"].append({**known, "reason": "the program did not make this call"})
        self.write()

    def write(self):
        if self.file:
            with open(self.file, "w", encoding="utf-8") as file:
                json.dump(self.answer, file, indent=1, allow_nan=False)

    def of_other(self, kind, call):
        """Its inputs or outputs; of a module that was not seen there, what the modules before and after it gave and got."""
        of = {"kind": kind, "path": call["other_path"], "sample": call["other_sample"]}
        of = call.get("inputs" if kind == frames.INPUT else "outputs") or of
        found = self.others.get((of["kind"], of["path"], of["sample"]), {})
        return [found[slot] for slot in sorted(found)]

    def before(self, event, module, args, kwargs):
        here, own = (event["path"], event["sample"]), None
        if self.input and here == (self.input["path"], self.input["sample"]) and self.answer["input"] is None:
            own = clones((args, kwargs))
            self.answer["input"] = self.why_input(own)
            self.write()
        for suspect, answer in zip(self.suspects, self.answer["suspects"]):
            if here == (suspect["path"], suspect["sample"]) and answer["repeatable"] is None:
                own = clones((args, kwargs)) if own is None else own
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # a program may hear of its own alone
                        f = in_float64(module)
                except Exception as error:  # not all can be copied
                    f = error
                return suspect, answer, module, f, (args, kwargs), own, torch.get_rng_state()
        return None

    def after(self, begun, output):
        suspect, answer, *call = begun
        outputs = clones(output)
        digest = fingerprint(outputs[0])["digest"] if outputs else None
        spelled = (
            () if digest is None else (digest.tobytes().hex(), "".join(f"{half:016x}" for half in digest.tolist()))
        )
        answer["repeatable"] = suspect.get("digest") in (None, *spelled)
        try:
            answer.update(self.tried(suspect, outputs, *call), reason=None)
        except Exception as error:
            answer["reason"] = " ".join(str(error).split())[:500] or type(error).__name__
        self.write()

    def tried(self, suspect, own_outputs, module, f, arguments, own_inputs, random):
        if isinstance(f, Exception):
            raise f
        inputs, outputs = (self.of_other(kind, suspect) for kind in (frames.INPUT, frames.OUTPUT))
        for what, mine, its in (("inputs", own_inputs, inputs), ("outputs", own_outputs, outputs)):
            if len(mine) != len(its):
                raise ValueError(f"{self.names[1]} recorded {len(its)} {what}, {self.names[0]} has {len(mine)}")

        def call(module, given):
            rest = iter([t.to(torch.float64 if t.is_floating_point() else t.dtype, copy=True) for t in given])
            args, kwargs = tree_map(lambda t: next(rest) if isinstance(t, torch.Tensor) else t, arguments)
            with torch.no_grad(), torch.random.fork_rng(devices=[]), no_global_hooks():
                torch.set_rng_state(random)  # the same elements are dropped
                return module(*args, **kwargs)

        def errors(module, given, results):
            expected = [wide(t) for t in clones(call(module, given))]
            return expected, [distance(a, wide(b)) for a, b in zip(expected, results)]

        exact, own = errors(copy.deepcopy(f), own_inputs, own_outputs)
        expected, other = errors(copy.deepcopy(f), inputs, outputs)
        unit = [max(UNIT.get(t.dtype, 2.0**-53) for t in pair) for pair in zip(own_outputs, outputs)]
        times = [max(a, b) / max(min(a, b), u) for a, b, u in zip(own, other, unit)]
        slot = max(range(len(times)), key=times.__getitem__)
        found = {"proved": times[slot] > FARTHER, "own_error": finite(own[slot]), "other_error": finite(other[slot])}
        if found["proved"]:
            sides = [(own_inputs, own_outputs[slot], exact[slot]), (inputs, outputs[slot], expected[slot])]
            order = (1, 0) if own[slot] > other[slot] else (0, 1)  # who does what the module says comes first
            (right_inputs, right, _), (wrong_inputs, wrong, meant) = (sides[k] for k in order)
            if meant.shape == wrong.shape:
                found["where"] = where(wide(wrong) - meant)
            given = (module, right_inputs, right, wrong_inputs, wrong, f, *(self.names[k] for k in order), call)
            cause = causes.find(*given) if slot == 0 else None  # rules look at the first tensor
            found["cause"], found["cause_error"] = cause or (None, None)
        return found

    def why_input(self, own):
        other = self.of_other(frames.INPUT, self.input)
        for mine, its in zip(own, other):
            if mine.shape != its.shape or mine.dtype != its.dtype or not torch.equal(mine, its):
                cause = causes.find_input(mine, its, *self.names)
                return cause and {"cause": cause[0], "error": finite(cause[1])}
        return None


def finite(number):
    """JSON has no infinity."""
    return min(float(number), sys.float_info.max)
