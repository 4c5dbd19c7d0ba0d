"""Finds the module torchtap._C where it was built, if it is not installed beside the package. Import it before torchtap's modules."""

import importlib
import importlib.util
import pathlib
import sys

import torch  # noqa: F401  (has the libraries that _C needs)
import torchtap
from harness import SOURCE, given

if given("python_module"):
    spec = importlib.util.spec_from_file_location("torchtap._C", given("python_module"))
    sys.modules["torchtap._C"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["torchtap._C"])
    torchtap._C = sys.modules["torchtap._C"]
else:
    importlib.import_module("torchtap._C")

# Where another process finds the package, this module and the harness.
PATH = [
    str(pathlib.Path(torchtap.__file__).parents[1]),
    str(pathlib.Path(__file__).parent),
    str(SOURCE / "tests/python"),
]


def __getattr__(name):
    if (
        name == "KINDS"
    ):  # the kinds of recorders of modules; asked for late, as some tests import the package in their own order
        return [
            torchtap.ForwardPre,
            torchtap.ForwardInput,
            torchtap.ForwardOutput,
            torchtap.BackwardInput,
            torchtap.BackwardOutput,
        ]
    raise AttributeError(name)
