"""Each public class at its ends: copied, pickled, never initialised, asked by several threads, left open, run alone. A class that is
new has to be named here, or the first test fails."""

import copy
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import weakref

import built
import pytest
import torch
import torchtap
from torch import nn
from torchtap._library import _C

X = torch.arange(8.0).reshape(2, 4).cos()


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def recorded(kind):
    model = small()
    recorder = kind().attach(model)
    model(X.clone().requires_grad_() * 1).sum().backward()
    recorder.model = model
    return recorder


def sample():
    seen, model = [], small()
    recorder = torchtap.ForwardOutput(condition=lambda one: seen.append(one) or True).attach(model)
    model(X)
    del recorder
    return seen[0]


def recording(folder):
    with torchtap.ForwardOutput(reduction=torchtap.Moments()).attach(small()) as recorder:
        recorder.save(folder, mkdir=True)
    return torchtap.load(folder)


def candidate():
    seen = []
    torchtap.trace(small(), X, save=lambda one: seen.append(one) or True)
    return seen[0]


def alarm():
    model = small()
    with torchtap.monitor(model, cost=1.0) as watch, torch.no_grad():
        for _ in range(2):
            model(X * float("nan"))
        watch.flush()
        return watch.alarms[0]


def repeat():
    model = small()
    report = torchtap.Report(model)
    with report.record() as one:
        model(X)
    return one


def tracer():
    return torchtap.Tracer(small())


# What is made of each class, given a folder; and how it is copied: "copied", or "refused" with a TypeError.
REDUCTIONS = {
    "By": ("labels", torchtap.Count()),
    "CrossCovariance": ("other",),
    "Every": (2, torchtap.Count()),
    "Histogram": (4,),
    "Joint": ("other", torchtap.Count()),
    "LinearCKA": ("other",),
    "Map": (torch.abs, torchtap.Count()),
    "Over": (0, torchtap.Sum()),
    "Series": (torchtap.Sum(), torchtap.Count()),
    "Where": ("mask", torchtap.Count()),
    "Window": (2, torchtap.Sum()),
}
MADE = {
    "AnyShape": ("refused", lambda folder: torchtap.any_shape(torch.add)),
    "Companion": ("refused", lambda folder: torchtap.output("0")),
    "Context": ("refused", lambda folder: torchtap.Context(labels=X)),
    "Entry": ("refused", lambda folder: recording(folder)[0]),
    "Fields": ("copied", lambda folder: torchtap.Fields(a=1)),
    "Recording": ("refused", recording),
    "Sample": ("refused", lambda folder: sample()),
    "Selector": ("refused", lambda folder: torchtap.names("a")),
    "Subrecorder": ("refused", lambda folder: recorded(torchtap.ForwardOutput).subrecorders[0]),
    # Of views.
    "Alarm": ("refused", lambda folder: alarm()),
    "Argument": ("refused", lambda folder: torchtap.trace(small(), X)["linear_1"].arguments[0]),
    "Candidate": ("refused", lambda folder: candidate()),
    "Fault": None,  # of a validation that fails
    "History": ("refused", lambda folder: torchtap.trace(small(), X)),
    "ModuleCall": ("refused", lambda folder: torchtap.trace(small(), X)["linear_1"].modules[0]),
    "ModuleSummary": ("refused", lambda folder: torchtap.trace(small(), X).modules[0]),
    "Monitor": ("refused", lambda folder: torchtap.monitor(small())),
    "Node": ("refused", lambda folder: torchtap.trace(small(), X)["linear_1"]),
    "Page": ("refused", lambda folder: torchtap.explore(small())),
    "ParameterUse": ("refused", lambda folder: torchtap.trace(small(), X)["linear_1"].parameters[0]),
    "Publisher": ("refused", lambda folder: torchtap.publish(f"ends-{os.getpid()}", small())),
    "Repeat": ("refused", lambda folder: repeat()),
    "Report": ("copied", lambda folder: torchtap.report(small(), X)),
    "Summary": ("copied", lambda folder: torchtap.summary(small(), X)),
    "Tracer": ("refused", lambda folder: tracer()),
    "Validation": ("refused", lambda folder: torchtap.trace(small(), X).validate()),
    "Verdict": ("refused", lambda folder: torchtap.compare(small(), small(), X)),
}
# What nobody is handed: parts that the package's own classes are made of. And a protocol.
INSIDE = {
    "Hook",
    "Leaf",
    "Reported",
    "Measurements",
    "Tracing",
    "Compared",
    "Explored",
    "Monitored",
    "Published",
    "Unseen",
    "Own",
}


PACKAGES = "export", "hooks", "rows", "stream"


def classes():
    """All public classes that this was built with, by name."""
    found = {name: one for name, one in vars(_C).items() if isinstance(one, type)}
    for name in dir(torchtap):
        one = None if name.startswith("_") or name in PACKAGES else getattr(torchtap, name)
        if isinstance(one, type):
            found[name] = one
    return {name: one for name, one in sorted(found.items()) if name not in INSIDE}


def made(name, folder):
    kind = classes()[name]
    if name in MADE:
        return MADE[name]
    if issubclass(kind, _C.Recorder):
        return "refused", lambda folder: recorded(kind if kind.__name__ != "Recorder" else torchtap.ForwardOutput)
    if issubclass(kind, _C.Reduction):
        if name == "Formats":
            try:
                kind()
            except NotImplementedError:  # built without quantization
                return None
        return (
            "copied",
            lambda folder: torchtap.parse("sum") if kind is _C.Reduction else kind(*REDUCTIONS.get(name, ())),
        )
    return pytest.fail(f"{name} is new: say in MADE how one is made, and whether it can be copied")


def closed(one):
    if hasattr(one, "close"):
        one.close()
    if hasattr(one, "detach"):
        one.detach()


def ask(one):
    """Reads everything that is there to be read, and prints it."""
    for name in dir(one):
        if not name.startswith("_"):
            try:
                getattr(one, name)
            except (RuntimeError, ValueError, IndexError, KeyError, TypeError, NotImplementedError, AttributeError):
                pass  # said in words; the other tests have which
    for shown in (repr, str, hash, bool, len, iter, getattr(one, "_repr_html_", repr)):
        try:
            shown(one)
        except (RuntimeError, ValueError, TypeError, IndexError):
            pass


@pytest.mark.parametrize("name", classes())
def test_help_has_a_sentence_on_each_member(name):
    kind = classes()[name]
    without = [one for one in dir(kind) if not one.startswith("_") and not inspect.getdoc(getattr(kind, one))]
    assert inspect.getdoc(kind) and not without, without


@pytest.mark.parametrize("name", classes())
def test_copies_are_like_it_or_refused(name, tmp_path):
    if made(name, tmp_path) is None:
        pytest.skip("nothing makes one here")
    how, make = made(name, tmp_path)
    one = make(tmp_path / "recording")
    for copied in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        if name == "Map" and copied not in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled, because it has a function"):
                copied(one)
        elif how == "copied":
            twin = copied(one)
            # A copy of a reduction is a torchtap.Reduction.
            assert isinstance(twin, (type(one), torchtap.Reduction)) and repr(twin) == repr(one)
            ask(twin)
        else:
            with pytest.raises(TypeError, match=name if name != "Recorder" else "ForwardOutput") as raised:
                copied(one)
            assert "::" not in str(raised.value) and "pybind" not in str(raised.value), raised.value
    ask(one)
    closed(one)


UNMADE = {**classes(), **{name: one for name, one in vars(_C).items() if isinstance(one, type)}}


@pytest.mark.parametrize("name", UNMADE)
def test_what_was_never_initialised_is_refused(name):
    kind = UNMADE[name]
    one = kind.__new__(kind)
    for read in [read for read in dir(kind) if type(getattr(kind, read)).__name__ == "property"]:
        with pytest.raises((TypeError, RuntimeError, AttributeError)):
            getattr(one, read)
    if issubclass(kind, _C.Reduction):
        for use in (
            lambda one: one.update(X),
            lambda one: torchtap.Count().merge(one),
            lambda one: torchtap.ForwardOutput(reduction=one),
            lambda one: torchtap.Series(torchtap.Count(), one),
        ):
            with pytest.raises(TypeError, match="was not initialised; make it by calling its class"):
                use(one)
    try:
        ask(one)
    except AttributeError:
        pass
    with pytest.raises((TypeError, RuntimeError, AttributeError)):
        copy.deepcopy(one).nothing_of_that_name  # noqa: B018
    del one
    gc.collect()


@pytest.mark.parametrize("name", classes())
def test_two_threads_ask_one(name, tmp_path):
    if made(name, tmp_path) is None:
        pytest.skip("nothing makes one here")
    one, failed = made(name, tmp_path)[1](tmp_path / "recording"), []
    begin = threading.Barrier(3)

    def run():
        try:
            begin.wait()
            for _ in range(20):
                ask(one)
            closed(one)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


@pytest.mark.parametrize("name", classes())
def test_it_ends_with_a_circle_around_it(name, tmp_path):
    """What lies in a model that it refers to is collected, or, where C++ alone sees one of the two, has no part in the circle."""
    if made(name, tmp_path) is None:
        pytest.skip("nothing makes one here")
    one = made(name, tmp_path)[1](tmp_path / "recording")
    holder = nn.Identity()
    holder.one = one
    if hasattr(one, "__dict__") and not isinstance(one, dict):
        try:
            one.holder = holder
        except AttributeError:
            pass
    gone = weakref.ref(holder)
    del one, holder
    gc.collect()
    assert gone() is None


@pytest.mark.skipif("report" not in _C.views, reason="built without report")
def test_a_report_of_a_model_that_is_gone_says_so():
    report = torchtap.Report(small())
    gc.collect()
    with pytest.raises(RuntimeError, match="the Sequential that this view is of is gone"), report.record():
        pass
    model = small()
    report = torchtap.Report(model)
    model[0] = nn.Linear(4, 4)
    gc.collect()
    with report.record():
        model(X)
    assert report["2"].forward.inclusive.calls == 1


MODULES = sorted(
    f"torchtap.{one}" for one in ("recorders", "reductions", "selectors", "storage", "_hooks", "_library", *PACKAGES)
) + [f"torchtap.views.{one}" for one in ("_model", "_open", *_C.views)]


def alone(code, *arguments, timeout=300):
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "error::RuntimeWarning",
            "-c",
            f"import sys; sys.path[:0] = {built.PATH!r}\n{code}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_each_module_alone():
    """Each as the first of the package, in a child of a process that has PyTorch and the built module alone."""
    code = """
import importlib, os, built
assert not [one for one in sys.modules if one.startswith("torchtap.") and one != "torchtap._C"]
failed = 0
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except ImportError as error:
            if "Install torchtap::exported" not in str(error):  # built without
                raise
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        print(name)
"""
    done = alone(code, *MODULES)
    assert done.returncode == 0 and done.stdout == "", done.stderr


OPEN = {
    "recorder": "torchtap.ForwardOutput().attach(model)",
    "reduced": "torchtap.BackwardOutput(reduction=torchtap.Moments()).attach(model)",
    "report": "enter(torchtap.Report(model).record())",
    "trace": "enter(torchtap.Tracer(model))",
    "explorer": "torchtap.explore(model, every=1)",
    "monitor": "torchtap.monitor(model, cost=1.0, learn=sys.argv[1])",
    "stream": "torchtap.publish(f'ends-{os.getpid()}', model)",
}
OPEN = {name: code for name, code in OPEN.items() if name in ("recorder", "reduced", *_C.views)}
BEGIN = """
import contextlib, gc, os, threading, torch, ends, torchtap
torch.set_num_threads(1)  # those of PyTorch do not survive a fork
kept = contextlib.ExitStack()
enter = kept.enter_context
class Moody(torch.nn.Module):
    error = None
    def forward(self, x):
        if self.error is not None:
            raise self.error
        return x
model = torch.nn.Sequential(*ends.small(), Moody())
def step():
    model.zero_grad()
    y = model(ends.X)
    y.sum().backward()
    return [y.detach(), *(one.grad.clone() for one in model.parameters())]
bare = step()
def same(got):
    assert all(map(torch.equal, bare, got))
opened = {open}
same(step())
"""
THROUGH = """
thread = threading.Thread(target=step)
thread.start()
thread.join()

model[3].error = KeyboardInterrupt("mine")
for _ in range(3):
    try:
        step()
    except KeyboardInterrupt as error:
        assert str(error) == "mine"
    else:
        raise AssertionError("passed over")
model[3].error = None
same(step())

class Collects(torch.nn.Module):
    def forward(self, x):
        gc.collect()
        return x
model.append(Collects())
same(step())

for how in "os._exit(0)", "opened = None; gc.collect(); sys.exit(0)":
    child = os.fork()
    if child == 0:
        same(step())
        exec(how)
    assert os.waitpid(child, 0)[1] == 0, how
same(step())
"""
GONE = """
import weakref
gone = weakref.ref(model)
del model, opened
kept.pop_all().close()
gc.collect()
assert gone() is None
"""
ENDS = {"with Python, after a thread, interrupts, collections and forks": THROUGH, "when the model is gone": GONE}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("view", OPEN)
def test_what_is_open_ends(view, how, tmp_path):
    done = alone(BEGIN.replace("{open}", OPEN[view]) + ENDS[how], str(tmp_path / "folder"))
    assert done.returncode == 0, done.stderr
