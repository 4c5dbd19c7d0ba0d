"""Records what passes through modules, whatever program calls them."""

import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import inspect
import itertools
import os
import pathlib
import re
import shlex
import struct
import sys
import threading
import time
import types
import uuid
import warnings
import weakref
from collections import Counter

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import frames
from .fingerprint import LAYOUT, elements, fingerprint
from .frames import DTYPES, Writer

try:  # PyTorch 2
    from torch._guards import detect_fake_mode
    from torch.compiler import is_compiling  # a constant to a compiler, which then leaves us out
except ImportError:

    def is_compiling():
        return False

    def detect_fake_mode():
        return None


def is_traced():
    """Whether modules are called to see what they do, as `torch.jit.trace`, `torch.fx` and `torch.export` call them."""
    fx = getattr(sys.modules.get("torch.fx._symbolic_trace"), "_is_fx_tracing_flag", False)
    return fx or torch.jit.is_tracing() or detect_fake_mode() is not None


def parts(tensor):
    """The tensors that hold the values of a tensor: itself, or those of a sparse one."""
    if tensor.layout is torch.sparse_coo:
        whole = tensor.detach().coalesce()
        return [whole.indices(), whole.values()]
    for layout, rows, columns in (
        ("csr", "crow", "col"),
        ("csc", "ccol", "row"),
        ("bsr", "crow", "col"),
        ("bsc", "ccol", "row"),
    ):
        if tensor.layout is getattr(torch, f"sparse_{layout}", None):
            plain = tensor.detach()
            return [getattr(plain, f"{rows}_indices")(), getattr(plain, f"{columns}_indices")(), plain.values()]
    return [tensor]


def tensors(value):
    """The tensors of arguments or results, in the order of slots."""
    if isinstance(value, torch.Tensor):
        return parts(value)
    if isinstance(value, dict):
        value = value.values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for item in value for tensor in tensors(item)]


def items(value, name="", within=()):
    """Names and items of all that a call returned: tensors, numbers, what its text says in full (`Said`), and what nobody can compare
    (`Opaque`). Nothing is left out: None and containers without items are items, too. Names are the keys, fields and places that
    lead to an item."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        yield from of_tensor(value, name)
    elif isinstance(value, np.generic) and (isinstance(value, (np.str_, np.bytes_)) or value.dtype.name in ARRAYS):
        yield from items(value.item(), name, within)
    elif isinstance(value, (np.ndarray, np.generic)):
        yield from of_array(np.asarray(value), name, within)
        if kind not in (np.ndarray, np.memmap) and isinstance(value, np.ndarray):
            yield name, Opaque(f"what a {kind.__name__} has beside its elements")
    elif kind in NUMBERS and not is_large(value):
        yield name, value
    elif is_plain(value):
        yield name, Said(text_of(value))
    elif id(value) in within:
        yield name, Said(f"the same as {len(within) - within.index(id(value))} levels above")
    elif kind in (list, tuple) and len(value) > MANY and is_of_numbers(value):
        yield from of_array(np.array(value), name, within)
    else:
        yield from of_object(value, name, (*within, id(value)))


def of_tensor(tensor, name):
    """A tensor; or the tensors that a sparse one is made of, and its shape."""
    whole = parts(tensor)
    if whole[0] is tensor:
        yield name, tensor
        return
    yield from ((f"{name}[{place}]", part) for place, part in enumerate(whole))
    yield name, Said(f"{str(tensor.layout)[6:]} of shape {list(tensor.shape)}")


def of_array(array, name, within):
    """An array of NumPy: a tensor if PyTorch has its dtype, else the text of all its elements."""
    # A copy: PyTorch warns of an array that may not be written.
    array = array.astype(array.dtype.newbyteorder("="), order="C")
    what = f"array of {array.dtype}, shape {array.shape}"
    if array.dtype.name in ARRAYS:
        yield name, torch.from_numpy(array)
    elif array.dtype.hasobject:
        yield name, Said(what)
        yield from items(array.reshape(-1).tolist(), name, (*within, id(array)))
    elif array.dtype.kind == "u" and array.size > MANY:
        digest = hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()
        yield name, Said(f"{what}: {array.reshape(-1)[:8].tolist()} …, SHA-256 {digest}")
    else:
        elements = array.astype(str) if array.dtype.kind in "fc" else array  # of other versions, too
        yield name, Said(f"{what}: {elements.tolist()!r}")


def of_object(value, name, within):
    """The parts of a container or of any other object."""
    inside, whole = parts_of(value)
    whole = whole and len(within) <= DEPTH
    if not whole:
        yield name, Opaque(f"an object of {type(value).__name__} is not looked into")
    elif not inside:
        yield name, Said("[]" if isinstance(value, (tuple, list, collections.deque)) else "{}")
    for step, item in inside if len(within) <= DEPTH else ():
        yield from items(item, name + step if step[0] == "[" or not name else f"{name}.{step}", within)


def parts_of(value):
    """The parts of an object, each behind the step that leads to it; and whether these are all of it."""
    whole = True
    if isinstance(value, (type, torch.nn.Module)):
        return [], False
    if isinstance(value, dict) or type(value) is types.MappingProxyType:
        inside = [(key_text(key), item) for key, item in value.items()]
        whole = all(is_plain(key, True) for key in value)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        inside = list(zip(map(key_text, value._fields), value))
    elif isinstance(value, (tuple, list, collections.deque)) or (
        isinstance(value, (set, frozenset)) and len(value) == 1
    ):
        inside = [(f"[{place}]", item) for place, item in enumerate(value)]  # a set of more has no order
    elif isinstance(value, str):
        inside = [("<text>", str.__str__(value))]
    else:
        kinds = type(value).__mro__
        slots = [slot for kind in kinds for slot, of in vars(kind).items() if type(of) is types.MemberDescriptorType]
        known = len(slots) + sum(any(of in vars(kind) for kind in kinds) for of in ("__dict__", "__weakref__"))
        known = object.__basicsize__ + known * struct.calcsize("P")
        whole = kinds[0].__itemsize__ == 0 and kinds[0].__basicsize__ <= known  # what C adds is not known
        inside = [(key_text(slot), getattr(value, slot)) for slot in slots if hasattr(value, slot)] if whole else []
    known = {(step, id(item)) for step, item in inside}  # an attribute may be another name of a part
    attributes = [(key_text(key), item) for key, item in getattr(value, "__dict__", {}).items()]
    return inside + [(step, item) for step, item in attributes if (step, id(item)) not in known], whole


def key_text(key):
    """A key as a name has it: a text is its own, unless it could be taken for a place or for another key."""
    if isinstance(key, str) and key and not re.search(r"[\[<\t\n]", key):
        return str.__str__(key)
    return f"<{text_of(key) if is_plain(key, True) else type(key).__name__}>"


def is_large(value):
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 63


def is_of_numbers(values):
    """Whether all are numbers of one type, and none too large for it."""
    return any(set(map(type, values)) == {kind} for kind in NUMBERS) and not any(map(is_large, values))


def is_plain(value, tuples=False):
    """Whether a text says all of it; tuples are looked into otherwise."""
    if type(value) in (tuple, set, frozenset):
        return (tuples or type(value) is not tuple) and all(is_plain(item, True) for item in value)
    return type(value) in PLAIN or isinstance(value, (enum.Enum, pathlib.PurePath))


def text_of(value):
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name or value.value}"
    if type(value) is tuple:
        return f"({', '.join(map(text_of, value))})"
    if type(value) in (set, frozenset):
        return f"set({', '.join(sorted(map(text_of, value)))})"
    return hex(value) if type(value) is int and value.bit_length() > 1000 else repr(value)  # more digits are refused


DEPTH, MANY = 32, 64  # what holds something may refer to anything; so many numbers are written one by one
ARRAYS = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()  # as of PyTorch 1.13
PLAIN = (
    *(type(None), str, bytes, bytearray, bool, int, float, complex, range, type(...)),
    *(decimal.Decimal, fractions.Fraction, uuid.UUID),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


@dataclasses.dataclass
class Said:
    """Something that is compared by its text."""

    text: str


@dataclasses.dataclass
class Opaque:
    """Something whose value nobody can compare, and why."""

    reason: str


def results(value):
    """Names and values of all that a call returned, in the order of slots: tensors and where there is None, numbers as tensors, and what
    else there is."""

    def rank(item):
        if isinstance(item[1], torch.Tensor) or item[1] == Said("None"):
            return 0
        return 1 if isinstance(item[1], NUMBERS) else 2

    found = [(name, as_tensor(one)) for name, one in sorted(items(value), key=rank)]
    return found if len(found) <= SLOTS else [("", Opaque(f"{len(found)} values are more than are recorded"))]


def as_tensor(value):
    """A number as a tensor; anything else as it is."""
    if not isinstance(value, NUMBERS):
        return value
    dtype = next(dtype for kind, dtype in DTYPE_OF if isinstance(value, kind))
    return torch.tensor(value, dtype=dtype, device="cpu")


SLOTS = 1 << 16
NUMBERS = (bool, int, float, complex)
DTYPE_OF = ((bool, torch.bool), (int, torch.int64), (float, torch.float64), (complex, torch.complex128))


def in_words(error):
    return " ".join(str(error).split())[:300]


def named(name, reason):
    """The text of a frame without data."""
    return f"{name}\t{reason}" if name else reason


def in_full(text, most):
    """The text, or of a longer one its beginning, its length and its digest: two are the same only if these are."""
    data = text.encode(errors="backslashreplace")
    if len(data) <= most:
        return text
    beginning = data[: most - 200].decode(errors="ignore")
    return f"{beginning} … ({len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()})"


def ordered(module, kwargs):
    """Keyword arguments in the order in which the module names them, whatever order the caller chose."""
    if len(kwargs) < 2:
        return kwargs
    try:
        places = {name: place for place, name in enumerate(inspect.signature(module.forward).parameters)}
    except (TypeError, ValueError):  # as of TorchScript
        return kwargs
    return dict(sorted(kwargs.items(), key=lambda item: places.get(item[0], len(places))))


def type_of(module):
    return getattr(module, "original_name", None) or type(module).__name__


def join(*names):
    """A path; what `torch.compile` puts around a module is no part of it."""
    return ".".join(name for whole in names for name in whole.split(".") if name not in ("", "_orig_mod"))


def weighs(module):
    return next(itertools.chain(module.parameters(), module.buffers()), None) is not None


class Root:
    """A module that was called from outside of all others, and the paths of the modules inside."""

    def __init__(self, module, path):
        self.module, self.path, self.names, self.number = weakref.ref(module), path, {}, 0
        self.recorded, self.is_new = None, True
        self.add(module, path)

    def add(self, module, path):
        for name, one in module.named_modules():
            if self.path_of(one) is None:
                self.names[id(one)] = weakref.ref(one), join(path, name)

    def path_of(self, module):
        reference, path = self.names.get(id(module), (None, None))
        return path if reference and reference() is module else None  # another module may have got its number


class Inside(TorchDispatchMode):
    """Writes fingerprints of what each operation of a call takes and gives; their `call` counts operations."""

    def __init__(self, recorder, event):
        super().__init__()
        self.recorder, self.event, self.count = recorder, event, itertools.count()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, recorder = kwargs or {}, self.recorder
        if recorder.thread.busy:  # it is ours
            return function(*args, **kwargs)
        event = {**self.event, "type": function._schema.name, "call": next(self.count)}
        recorder.reading(recorder.tensors, frames.ARGUMENT, (args, kwargs), event)
        result = function(*args, **kwargs)
        recorder.reading(recorder.tensors, frames.RESULT, result, event)
        return result


class Thread(threading.local):
    """What a thread is at: its outermost call, and how often it came to a path."""

    def __init__(self):
        self.number = self.root = self.start = None
        self.depth, self.recorded, self.busy, self.paths = 0, False, False, []
        self.forwards, self.samples, self.calls = Counter(), Counter(), Counter()


class Begun:
    """A call that is recorded; `tried` is what the trial made of it."""

    def __init__(self, event):
        self.event, self.given, self.tried = event, False, None


class Recorder:
    """While it is entered, writes the events of all modules to a path, descriptor or file object; with `values`, which are pairs
    of path and sample, all tensors of these calls instead. A `trial` sees all calls that are recorded."""

    def __init__(self, to=None, forwards=1, skip=0, values=None, trial=None, command=None):
        self.window = range(skip, skip + forwards if forwards else sys.maxsize)
        self.values, self.trial, self.command = values, trial, command or shlex.join(sys.argv)
        self.writer, self.has_header, self.is_open, self.error = None if to is None else Writer(to), False, False, None
        self.thread, self.threads, self.lock, self.process = Thread(), itertools.count(), threading.RLock(), os.getpid()
        self.main, self.root_of, self.taken, self.later = None, {}, set(), Counter()

    def __enter__(self):
        """Takes the place of `torch.nn.Module.__call__`: PyTorch's global hooks see neither keyword arguments, nor what other
        hooks make of a result, nor a call that throws."""
        original = self.original = torch.nn.Module.__call__

        @functools.wraps(original)
        def __call__(module, *args, **kwargs):
            if is_compiling() or not self.is_open:
                return original(module, *args, **kwargs)
            return self.run(module, args, kwargs)

        self.is_open, self.replacement, torch.nn.Module.__call__ = True, __call__, __call__
        return self

    def __exit__(self, *exception):
        self.close()
        if self.error:
            warnings.warn(f"not all was recorded: {self.error!r}", RuntimeWarning, stacklevel=2)

    def close(self):
        if self.is_open and torch.nn.Module.__call__ is self.replacement:  # else what took its place goes on calling it
            torch.nn.Module.__call__ = self.original
        if self.is_open and self.writer and os.getpid() == self.process:
            self.header()
            if self.values is None and self.later:
                self.writer.write(frames.HEADER, text=f"later_forwards\t{max(self.later.values())}\n")
            self.writer.close()
            self.error = self.error or self.writer.error
        self.is_open = False

    def run(self, module, args, kwargs):
        thread = self.thread
        if thread.busy or (thread.depth and not thread.recorded) or os.getpid() != self.process or is_traced():
            return self.original(module, *args, **kwargs)
        outermost = thread.depth == 0
        if outermost:
            thread.recorded = self.reading(self.begin, module)
        thread.depth += 1
        try:
            if not thread.recorded:
                return self.original(module, *args, **kwargs)
            begun = self.reading(self.before, module)
            behind = begun and self.reading(self.behind_hooks, module, begun, kwargs)
            if begun and not behind:
                self.reading(self.given, begun, module, args, kwargs)
            with (
                Inside(self, begun.event)
                if begun and self.values and self.wants(begun.event)
                else contextlib.nullcontext()
            ):
                try:
                    output = self.original(module, *args, **kwargs)
                except BaseException as error:
                    if begun and not begun.given:
                        self.reading(self.given, begun, module, args, kwargs)
                    self.reading(self.failed, begun, error)
                    raise
                finally:
                    if behind:
                        behind.remove()
            self.reading(self.after, begun, output)
            return output
        finally:
            thread.depth -= 1
            del thread.paths[thread.depth :]
            if outermost and thread.root:
                if thread.start == thread.root.path:
                    thread.root.recorded = None
                thread.root = None
            if outermost and thread.recorded and self.writer:
                self.writer.sync()  # however the program may end

    def reading(self, function, *arguments):
        """Calls a function that reads. If it throws, that is not the program's error, and the file says so."""
        self.thread.busy = True
        try:
            return function(*arguments)
        except Exception as error:
            if self.error is None and self.writer:
                self.header()
                self.writer.write(frames.HEADER, text=f"not_recorded\t{type(error).__name__}: {in_words(error)}\n")
            self.error = self.error or error
        finally:
            self.thread.busy = False

    def begin(self, module):
        """Whether this call from outside of all modules is recorded."""
        thread = self.thread
        with self.lock:
            root = self.root_of.get(id(module))
            if root is None or root.path_of(module) is None:
                root = self.new_root(module)
        thread.root, start = root, root.path_of(module)
        thread.start = start
        around = self.main if getattr(module, "_is_replica", False) else root if start != root.path else None
        if around and around.recorded is not None:  # a forward runs its parts, or copies (DataParallel), in threads
            recorded = around.recorded
        else:
            recorded = thread.forwards[start, root.number] in self.window
            thread.forwards[start, root.number] += 1
            if thread.forwards[start, root.number] > self.window.stop:
                self.later[start, root.number] += 1
        if start == root.path:
            root.recorded = recorded
        if recorded:
            thread.calls = Counter()
            with self.lock:
                thread.number = next(self.threads) if thread.number is None else thread.number
                self.header()
                is_new, root.is_new = root.is_new, False
            if is_new:
                known = root.module()  # whose truth may be its length
                self.weights(module if known is None else known, root.path)
        return recorded

    def new_root(self, module):
        """The first root with weights is the main one, whose path is empty; so is what contains it. Others are called by type."""
        is_main = weighs(module) and (not self.main or any(one is self.main.module() for one in module.modules()))
        root = Root(module, "" if is_main else self.name(module, ""))
        if is_main:
            root.number, self.main = self.main.number + 1 if self.main else 1, root
        self.root_of.update(dict.fromkeys(root.names, root))
        return root

    def name(self, module, caller):
        """A path for a module that is in none. Those without weights, which may be made anew for each call, share one."""
        plain = path = join(caller, type_of(module))
        for number in itertools.count(2):
            if path not in self.taken or not weighs(module):
                break
            path = f"{plain}_{number}"
        self.taken.add(path)
        return path

    def behind_hooks(self, module, begun, kwargs):
        """A last pre-hook, for this call: the inputs are those that the module's own pre-hooks chose, as later hooks see them, and
        as they are seen of a TorchScript file that has these hooks. PyTorch's own (`weight_norm`) choose none."""
        own = getattr(module, "_forward_pre_hooks", None) or {}
        if all((getattr(hook, "__module__", None) or "").startswith("torch.") for hook in own.values()):
            return None
        thread, depth = self.thread.number, self.thread.depth

        def hook(module, args, kwargs=kwargs):
            if self.thread.number == thread and self.thread.depth == depth:  # else another call of the module
                self.reading(self.given, begun, module, args, kwargs)

        has_kwargs = hasattr(module, "_forward_pre_hooks_with_kwargs")  # LibTorch 2.0 and later
        return module.register_forward_pre_hook(hook, **(dict(with_kwargs=True) if has_kwargs else {}))

    def before(self, module):
        thread, root = self.thread, self.thread.root
        with self.lock:
            path = root.path_of(module)
            if path is None and root.module() is not None:  # it came to the root since
                root.add(root.module(), root.path)
                path = root.path_of(module)
            if path is None:  # a forward made it, or keeps it in a plain list
                path = self.name(module, thread.paths[-1] if thread.paths else "")
                root.add(module, path)
                self.weights(module, path)
        event = dict(path=path, type=type_of(module), sample=thread.samples[path], call=thread.calls[path])
        event["thread"] = thread.number
        thread.samples[path] += 1
        thread.calls[path] += 1
        thread.paths.append(path)
        return Begun(event)

    def given(self, begun, module, args, kwargs):
        begun.given = True
        kwargs = ordered(module, kwargs)
        self.tensors(frames.INPUT, (args, kwargs), begun.event)
        begun.tried = self.trial and self.trial.before(begun.event, module, args, kwargs)

    def after(self, begun, output):
        self.results(output, begun.event)
        if begun.tried:
            self.trial.after(begun.tried, output)

    def results(self, output, event):
        """Writes all that a call returned, where values are asked for those that are tensors or numbers."""
        try:
            found = results(output) if self.wants(event) else ()
        except Exception as error:
            found = [("", Opaque(f"{type(error).__name__}: {in_words(error)}"))]
        for slot, (name, one) in enumerate(found):
            name, at = in_full(name, 1000), dict(event, slot=slot)
            if isinstance(one, torch.Tensor):
                self.write(frames.OUTPUT, one, text=name, **at)
            elif self.values is None:
                opaque = isinstance(one, Opaque)
                text = named(name, one.reason) if opaque else f"{name}\t{in_full(one.text, 2000)}"
                self.writer.write(frames.OUTPUT, text=text, result="fingerprint" if opaque else "value", **at)

    def failed(self, begun, error):
        event = begun.event
        if self.wants(event) and self.values is None:
            text = f"\t{type(error).__name__}: {in_words(error)}"
            self.writer.write(frames.OUTPUT, text=text, result="exception", slot=0, **event)

    def weights(self, module, path):
        if self.values is not None or self.writer is None:
            return
        for inside, one in module.named_modules():
            for kind, named in ((frames.PARAMETER, one.named_parameters), (frames.BUFFER, one.named_buffers)):
                for name, tensor in named(recurse=False):
                    self.write(
                        kind, tensor, path=join(path, inside, name), type=type_of(one), thread=self.thread.number
                    )

    def wants(self, event):
        return self.writer and (self.values is None or (event["path"], event["sample"]) in self.values)

    def tensors(self, kind, value, event):
        if self.wants(event):
            for slot, tensor in enumerate(tensors(value)):
                self.write(kind, tensor, slot=slot, **event)

    def write(self, kind, tensor, **event):
        whole = self.values is not None and kind in (frames.INPUT, frames.OUTPUT)
        try:
            if whole:
                data, sizes = elements(tensor).view(torch.uint8).numpy().tobytes(), tensor.shape
                dtype = DTYPES[torch.float32 if tensor.is_quantized else tensor.dtype]
            else:
                data, dtype, sizes = fingerprint(tensor).tobytes(), 0, [LAYOUT.itemsize]
        except Exception as error:
            lazy = torch.nn.parameter.is_lazy(tensor)
            reason = "it was not initialised before the first forward" if lazy else in_words(error)
            data, dtype, sizes, event["text"] = None, 0, [], named(event.get("text", ""), reason)
        result = "" if whole else "fingerprint"
        self.writer.write(kind, data, dtype, sizes, device=tensor.device, result=result, **event)

    def header(self):
        if self.writer and not self.has_header:
            self.has_header = True
            command = " ".join(self.command.split())[:2000]
            said = dict(language="python", command=command, torch=torch.__version__, threads=torch.get_num_threads())
            said["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self.writer.write(frames.HEADER, text="".join(f"{key}\t{value}\n" for key, value in said.items()))
