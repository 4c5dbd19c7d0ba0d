"""torchtap in Python: what flows through a `torch.nn.Module` is recorded, folded and saved by the C++ library.

    import torchtap

    recorder = torchtap.ForwardOutput(reduction=torchtap.Moments(over=[0]))
    recorder.attach(model, "layer1.*")
    ...
    recorder.save("analysis", mkdir=True)

    print(torchtap.summary(model, x))

Recorders, reductions and selectors are here; `load` reads recordings and files, whichever language made them.

torchtap.rows     reads dumps, row by row, as a dataset; needs NumPy and PyTorch, and not the library
torchtap.stream   reads what a program publishes while it runs; needs numpy
torchtap.export   taps models for AOTInductor packages; needs PyTorch 2.6 and libtorchtap_taps.so
"""

import importlib

__version__ = "0.1.0"  # as in include/torchtap/version.hpp

# Loaded when they are first asked for: torchtap.stream needs no PyTorch.
_MODULES = ("recorders", "reductions", "selectors", "storage")
# Views, and the component that each needs. None is there where its component was not built.
_VIEWS = {
    **dict.fromkeys(("Fields", "Report", "Summary", "load_report", "report", "summary"), "report"),
    **dict.fromkeys(("Candidate", "History", "Node", "Tracer", "Validation", "load_trace", "trace"), "trace"),
    **dict.fromkeys(("Verdict", "compare"), "compare"),
    **dict.fromkeys(("Page", "explore"), "explorer"),
    **dict.fromkeys(("Alarm", "Monitor", "monitor"), "monitor"),
    **dict.fromkeys(("Publisher", "publish"), "stream"),
}


def _public():
    return {name: module for one in _MODULES for module in (_module(one),) for name in module.__all__}


def _module(name):
    return importlib.import_module(f"torchtap.{name}")


def _view(name):
    component = _VIEWS[name]
    library = _module("_library")
    try:
        library.need(component, f"torchtap.{name}")
    except ImportError as error:
        raise AttributeError(str(error)) from None
    return getattr(_module(f"views.{component}"), name)


def __getattr__(name):
    if name.startswith("_"):  # Python finds the module _C itself
        raise AttributeError(f"module 'torchtap' has no attribute {name!r}")
    if name in _VIEWS:
        return _view(name)
    if name in (*_MODULES, "hooks", "rows", "stream", "export"):
        return _module(name)
    try:
        return getattr(_public()[name], name)
    except KeyError:
        raise AttributeError(f"module 'torchtap' has no attribute {name!r}") from None


def __dir__():
    names = {*globals(), *_MODULES, "hooks", "rows", "stream", "export"}
    try:
        built = _module("_library")._C.views
        return sorted({*names, *_public(), *(name for name, component in _VIEWS.items() if component in built)})
    except ImportError:  # which says why when a name is used
        return sorted(names)
