"""Tries calls of modules again, in float64 and with what the other program gave them: did the other one compute something else, or
did it round? Then says why."""

import contextlib
import copy
import json
import math
import warnings

import torch
from torch.nn.modules import module as nn_module
from torch.utils._pytree import tree_map

from . import causes, frames
from .causes import UNIT, distance, wide
from .fingerprint import fingerprint
from .recording import results, tensors

DIMS = {2: ("row", "column"), 3: ("entry", "row", "column"), 4: ("entry", "channel", "row", "column")}
FARTHER = 8


def clones(value):
    return [tensor.detach().cpu().clone() for tensor in tensors(value)]


def results_of(value):
    """Names and copies of the tensors and numbers that a call returned."""
    found = [(name, one.detach().cpu()) for name, one in results(value) if isinstance(one, torch.Tensor)]
    return [(name, one.dequantize() if one.is_quantized else one.clone()) for name, one in found]


def copied(module):
    """A copy without hooks, but for those of PyTorch, which make weights (`weight_norm`). Copies share what cannot be copied,
    such as locks."""
    made = again(module).cpu()
    for one in made.modules():
        for hooks in (one._forward_pre_hooks, one._forward_hooks):
            for key, hook in list(hooks.items()):
                if not (getattr(hook, "__module__", None) or "").startswith("torch."):
                    del hooks[key]
    return made


def cast(module, dtype):
    """A copy that computes in another precision."""
    f = again(module).to(dtype)
    for one in f.modules():
        for name, value in vars(one).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                vars(one)[name] = value.detach().to(dtype)
    return f


def again(module):
    return copy.deepcopy(module, {id(v): v for one in module.modules() for v in vars(one).values() if uncopyable(v)})


def uncopyable(value):
    if isinstance(value, torch.Tensor):
        return not value.is_leaf
    if isinstance(value, (dict, bool, int, float, str, type(None))):
        return False
    try:
        copy.deepcopy(value)
        return False
    except Exception:
        return True


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
                    threads = self.others.setdefault(key, {})
                    threads.setdefault(frame.thread, {}).setdefault(frame.slot, (frame.text, frame.tensor()))
        except EOFError:  # the calls before are whole
            pass
        nothing = dict.fromkeys(
            ("repeatable", "proved", "own_error", "other_error", "cause", "cause_error", "where", "search")
        )
        self.suspects, self.input = request["suspects"], request.get("input")
        self.answer = {"suspects": [], "input": None}
        for suspect in self.suspects:
            known = {"path": suspect["path"], "sample": suspect["sample"], **nothing}
            self.answer["suspects"].append({**known, "reason": "the program did not make this call"})
        self.write()

    def write(self):
        if self.file:
            text = json.dumps(self.answer, indent=1, allow_nan=False)
            with open(self.file, "w", encoding="utf-8") as file:
                file.write(text)

    def of_other(self, kind, call, names=()):
        """Its inputs or outputs; of a module that was not seen there, what the modules before and after it gave and got."""
        places = call.get("inputs" if kind == frames.INPUT else "outputs")
        if places:
            tensors_of = [self.of_thread(of["kind"], of["path"], of["sample"], of.get("given")) for of in places]
            return [found[of["slot"]][1] for of, found in zip(places, tensors_of) if of["slot"] in found]
        found = self.of_thread(kind, call["other_path"], call["other_sample"], call.get("other_given"))
        found = [found[slot] for slot in sorted(found)]
        if sorted(names) == sorted(name for name, _ in found):  # a dict may have another order
            found = [found.pop(next(k for k, (of, _) in enumerate(found) if of == name)) for name in names]
        return [tensor for _, tensor in found]

    def of_thread(self, kind, path, sample, given):
        """The tensors of a call by slot, in the thread in which it was given what has this digest."""
        threads = self.others.get((kind, path, sample), {})
        inputs = self.others.get((frames.INPUT, path, sample), {})
        right = [n for n in threads if given and n in inputs and is_digest(given, inputs[n][min(inputs[n])][1])]
        return threads[(right or list(threads))[0]] if threads else {}

    def before(self, event, module, args, kwargs):
        here, own = (event["path"], event["sample"]), None
        of_input = self.input and here == (self.input["path"], self.input["sample"]) and self.answer["input"] is None
        if of_input and self.is_meant(self.input, args, kwargs):
            own = clones((args, kwargs))
            self.answer["input"] = self.why_input(own)
            self.write()
        for suspect, answer in zip(self.suspects, self.answer["suspects"]):
            if here == (suspect["path"], suspect["sample"]) and answer["repeatable"] is None:
                if not self.is_meant(suspect, args, kwargs):  # it is of another thread
                    continue
                own = clones((args, kwargs)) if own is None else own
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # a program may hear of its own alone
                        f = copied(module)
                except Exception as error:  # not all can be copied
                    f = error
                return suspect, answer, module, f, (args, kwargs), own, torch.get_rng_state()
        return None

    @staticmethod
    def is_meant(call, args, kwargs):
        """Whether this call was given what the one that is asked for was; of a single thread, it is the only one."""
        given = next(iter(tensors((args, kwargs))), None) if call.get("given") else None
        return given is None or is_digest(call["given"], given)

    def after(self, begun, output):
        suspect, answer, *call = begun
        outputs = results_of(output)
        wanted = suspect.get("digest")
        # As it was returned: `results_of` turns quantized tensors into others.
        first = next((one for _, one in results(output) if isinstance(one, torch.Tensor)), None)
        answer["repeatable"] = wanted is None or (first is not None and is_digest(wanted, first))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer.update(self.tried(suspect, outputs, *call), reason=None)
        except Exception as error:
            answer["reason"] = " ".join(str(error).split())[:500] or type(error).__name__
        self.write()

    def tried(self, suspect, own_outputs, module, plain, arguments, own_inputs, random):
        if isinstance(plain, Exception):
            raise plain
        names, own_outputs = [name for name, _ in own_outputs], [tensor for _, tensor in own_outputs]
        inputs, outputs = self.of_other(frames.INPUT, suspect), self.of_other(frames.OUTPUT, suspect, names)
        for what, mine, its in (("inputs", own_inputs, inputs), ("outputs", own_outputs, outputs)):
            if len(mine) != len(its):
                raise ValueError(f"{self.names[1]} recorded {len(its)} {what}, {self.names[0]} has {len(mine)}")

        def call(module, given):
            rest = iter(given)

            def one(old):
                if isinstance(old, torch.Tensor) and old.layout is not torch.strided:
                    raise ValueError("a sparse tensor is not given again")
                return next(rest) if isinstance(old, torch.Tensor) else old

            args, kwargs = tree_map(one, arguments)
            with torch.no_grad(), torch.random.fork_rng(devices=[]), no_global_hooks():
                torch.set_rng_state(random)  # the same elements are dropped
                return module(*args, **kwargs)

        def to(given, dtype):
            return [t.to(dtype if dtype and t.is_floating_point() else t.dtype, copy=True) for t in given]

        def in_float64(module, given):
            return call(module, to(given, torch.float64))

        def errors(module, given, results, run=in_float64):
            expected = [t for _, t in results_of(run(module, given))]
            return [wide(t) for t in expected], [apart(a, b) for a, b in zip(expected, results)]

        unit = [max(UNIT.get(t.dtype, 2.0**-53) for t in pair) for pair in zip(own_outputs, outputs)]
        f, run = None, in_float64
        try:
            f = cast(plain, torch.float64)
            exact, own = errors(again(f), own_inputs, own_outputs)
            expected, other = errors(again(f), inputs, outputs)
        except Exception as error:  # code that names a dtype: as it is, which proves to its rounding
            f, run = (
                None,
                lambda module, given: call(module, [t.to(o.dtype, copy=True) for t, o in zip(given, own_inputs)]),
            )
            try:
                exact, own = errors(again(plain), own_inputs, own_outputs, run)
                expected, other = errors(again(plain), inputs, outputs, run)
            except Exception:
                raise error from None
            unit = [16 * u for u in unit]
        times = [max(a, b) / max(min(a, b), u) for a, b, u in zip(own, other, unit)]
        if any(map(math.isnan, times)):
            raise ValueError("neither program gives NaN and infinities where it does in float64")
        slot = (
            0 if times[0] > FARTHER else max(range(len(times)), key=times.__getitem__)
        )  # rules look at the first tensor
        found = {"proved": times[slot] > FARTHER, "own_error": in_json(own[slot]), "other_error": in_json(other[slot])}
        found["proved"] = found["proved"] and not self.does_the_same(plain, call, to, inputs, outputs)
        if found["proved"]:
            sides = [(own_inputs, own_outputs[slot], exact[slot]), (inputs, outputs[slot], expected[slot])]
            order = (1, 0) if own[slot] > other[slot] else (0, 1)  # who does what the module says comes first
            (right_inputs, right, _), (wrong_inputs, wrong, meant) = (sides[k] for k in order)
            if meant.shape == wrong.shape:
                found["where"] = where(wide(wrong) - meant)
            given, said = (
                (module, right_inputs, right, wrong_inputs, wrong, f, *(self.names[k] for k in order), call),
                [],
            )
            cause = causes.find(*given, said) if slot == 0 and f is not None else None
            found["cause"], found["cause_error"] = cause or (None, None)
            found["search"] = said[0] if said else None
        return found

    @staticmethod
    def does_the_same(plain, call, to, inputs, outputs):
        """Whether the module in the other's precision makes its outputs of its inputs: where ranks and thresholds decide, a
        module gives something else in float64."""
        dtypes = {t.dtype for t in [*inputs, *outputs] if t.is_floating_point()}
        try:
            for dtype in dtypes:
                again_made = [t for _, t in results_of(call(cast(plain, dtype), to(inputs, dtype)))]
                unit = 16 * UNIT.get(dtype, 2.0**-53)
                if all(is_near(a, b, unit) for a, b in zip(again_made, outputs)):
                    return True
        except Exception:
            pass
        return False

    def why_input(self, own):
        other = self.of_other(frames.INPUT, self.input)
        for mine, its in zip(own, other):
            if mine.shape != its.shape or mine.dtype != its.dtype or not torch.equal(mine, its):
                said = []
                cause, error = causes.find_input(mine, its, *self.names, said) or (None, None)
                return {
                    "cause": cause,
                    "error": error if cause is None else in_json(error),
                    "search": said[0] if said else None,
                }
        return None


def apart(a, b):
    """How far they are from each other: not at all, if they are whole numbers, only if they are the same."""
    whole = a.dtype == b.dtype and not a.is_floating_point() and not a.is_complex()
    far = distance(wide(a), wide(b))
    return max(far, 2.0**-53) if whole and far < math.inf and not torch.equal(a, b) else far


def is_near(a, b, allowed):
    """Whether rounding explains the difference; whole numbers are not rounded."""
    whole = a.dtype == b.dtype and not a.is_floating_point() and not a.is_complex()
    return torch.equal(a, b) if whole else distance(wide(a), wide(b)) <= allowed


def is_digest(text, tensor):
    """Whether it is a tensor's digest, in either spelling."""
    digest = fingerprint(tensor)["digest"]
    return text in (digest.tobytes().hex(), "".join(f"{half:016x}" for half in digest.tolist()))


def in_json(number):
    """As JSON has it: NaN is not known, and an infinity a text."""
    return None if math.isnan(number) else float(number) if math.isfinite(number) else "Infinity"
