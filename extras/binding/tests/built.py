"""Finds the module torchtap._C where it was built, if it is not installed beside the package. Import it before torchtap's modules."""

import importlib.util
import sys

import torch  # noqa: F401  (has the libraries that _C needs)
import torchtap
from harness import given

if given("python_module"):
    spec = importlib.util.spec_from_file_location("torchtap._C", given("python_module"))
    sys.modules["torchtap._C"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["torchtap._C"])
    torchtap._C = sys.modules["torchtap._C"]
