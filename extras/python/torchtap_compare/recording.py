"""Records what passes through modules, whatever program calls them."""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import os
import shlex
import sys
import threading
import time
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
    return fx or torch._C._get_tracing_state() is not None or detect_fake_mode() is not None


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
    """Names and items of all that a call returned: tensors, numbers and anything else. Names are those of keys and fields."""
    if value is None or id(value) in within:
        return
    within = (*within, id(value))
    inner = lambda key: f"{name}.{key}" if name else str(key)  # noqa: E731
    if isinstance(value, torch.Tensor):
        yield from ((name, part) for part in parts(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from items(item, inner(key), within)
    elif hasattr(value, "_fields") and isinstance(value, tuple):
        for key, item in zip(value._fields, value):
            yield from items(item, inner(key), within)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from items(getattr(value, field.name), inner(field.name), within)
    elif isinstance(value, (tuple, list)) or (isinstance(value, (set, frozenset)) and len(value) == 1):
        for item in value:
            yield from items(item, name, within)
    elif isinstance(value, np.generic):
        yield from items(value.item(), name, within)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        yield name, torch.from_numpy(np.ascontiguousarray(value))
    elif isinstance(value, (*NUMBERS, str, bytes)):
        yield name, value
    else:
        found, inside = False, {} if isinstance(value, (type, torch.nn.Module)) else getattr(value, "__dict__", {})
        for key, item in list(inside.items()) if len(within) < 8 else ():
            for path, one in items(item, inner(key), within):
                if isinstance(one, torch.Tensor):
                    found = True
                    yield path, one
        if not found:
            yield name, Opaque(f"an object of {type(value).__name__} is not looked into")


@dataclasses.dataclass
class Opaque:
    """Something whose value nobody can compare, and why."""

    reason: str


def results(value):
    """Names and values of all that a call returned, in the order of slots: tensors, numbers as tensors, and what else there is."""
    found = sorted(items(value), key=lambda item: not isinstance(item[1], torch.Tensor))
    return sorted(
        ((name, as_tensor(one)) for name, one in found), key=lambda item: not isinstance(item[1], torch.Tensor)
    )


def as_tensor(value):
    """A number as a tensor; anything else as it is."""
    if not isinstance(value, NUMBERS) or (isinstance(value, int) and abs(value) >= 1 << 63):
        return value
    dtype = next(dtype for kind, dtype in DTYPE_OF if isinstance(value, kind))
    return torch.tensor(value, dtype=dtype, device="cpu")


NUMBERS = (bool, int, float, complex)
DTYPE_OF = ((bool, torch.bool), (int, torch.int64), (float, torch.float64), (complex, torch.complex128))


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

    def __exit__(self, kind, *exception):
        self.close()
        if self.error and kind is None:
            raise self.error

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
            begun = self.reading(self.before, module, args, kwargs)
            with Inside(self, begun[0]) if begun and self.values and self.wants(begun[0]) else contextlib.nullcontext():
                try:
                    output = self.original(module, *args, **kwargs)
                except BaseException as error:
                    self.reading(self.failed, begun, error)
                    raise
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
        """Calls a function that reads. If it throws, that is not the program's error."""
        self.thread.busy = True
        try:
            return function(*arguments)
        except Exception as error:
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
                self.weights(root.module() or module, root.path)
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

    def before(self, module, args, kwargs):
        thread, root = self.thread, self.thread.root
        with self.lock:
            path = root.path_of(module)
            if path is None and root.module():  # it came to the root since
                root.add(root.module(), root.path)
                path = root.path_of(module)
            if path is None:  # a forward made it, or keeps it in a plain list
                path = self.name(module, thread.paths[-1] if thread.paths else "")
                root.add(module, path)
                self.weights(module, path)
        kwargs = ordered(module, kwargs)
        event = dict(path=path, type=type_of(module), sample=thread.samples[path], call=thread.calls[path])
        event["thread"] = thread.number
        thread.samples[path] += 1
        thread.calls[path] += 1
        thread.paths.append(path)
        self.tensors(frames.INPUT, (args, kwargs), event)
        return event, self.trial and self.trial.before(event, module, args, kwargs)

    def after(self, begun, output):
        event, tried = begun
        self.results(output, event)
        if tried:
            self.trial.after(tried, output)

    def results(self, output, event):
        """Writes all that a call returned, where values are asked for those that are tensors or numbers."""
        found = results(output) if self.wants(event) else None
        for slot, (name, one) in enumerate([("", "None")] if found == [] else found or ()):
            at = dict(event, slot=slot)
            if isinstance(one, torch.Tensor):
                self.write(frames.OUTPUT, one, text=name, **at)
            elif self.values is not None:
                continue
            elif isinstance(one, Opaque):
                self.writer.write(frames.OUTPUT, text=one.reason, result="fingerprint", **at)
            else:
                text = one if found == [] else repr(one)[:1000]
                self.writer.write(frames.OUTPUT, text=f"{name}\t{text}", result="value", **at)

    def failed(self, begun, error):
        event = begun[0]
        if self.wants(event) and self.values is None:
            text = f"\t{type(error).__name__}: {' '.join(str(error).split())[:300]}"
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
            data, dtype, sizes, event["text"] = None, 0, [], " ".join(str(error).split())[:200]
            if torch.nn.parameter.is_lazy(tensor):
                event["text"] = "it was not initialised before the first forward"
        result = "" if whole else "fingerprint"
        self.writer.write(kind, data, dtype, sizes, device=tensor.device, result=result, **event)

    def header(self):
        if self.writer and not self.has_header:
            self.has_header = True
            command = " ".join(self.command.split())[:2000]
            said = dict(language="python", command=command, torch=torch.__version__, threads=torch.get_num_threads())
            said["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self.writer.write(frames.HEADER, text="".join(f"{key}\t{value}\n" for key, value in said.items()))
