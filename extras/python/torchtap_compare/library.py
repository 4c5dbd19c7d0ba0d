"""Finds the fingerprint in C++, which is some ten times as fast as in NumPy."""

import ctypes
import ctypes.util
import os
import pathlib
import sys

import torch

NAME = "libtorchtap_compare.so"


def find(fingerprint):
    """The function of libtorchtap_compare.so, if the library is there and gives what `fingerprint` gives without it."""
    # Installed, this file is PREFIX/share/torchtap/torchtap_compare/library.py.
    prefixes = list(pathlib.Path(__file__).resolve().parents)[3:4]
    installed = [file for at in prefixes for lib in ("lib*", "lib*/*") for file in sorted(at.glob(f"{lib}/{NAME}*"))]
    # The package torchtap has loaded its own, which is found by its name alone.
    loaded = [f"{NAME}.0.1", NAME] if "torchtap._C" in sys.modules else []
    names = [
        os.environ.get("TORCHTAP_COMPARE_LIBRARY"),
        *loaded,
        *installed,
        ctypes.util.find_library("torchtap_compare"),
    ]
    for name in filter(None, names):
        try:
            function = ctypes.CDLL(str(name)).torchtap_fingerprint
        except (OSError, AttributeError):  # it was built for another LibTorch, or is of another version
            continue
        function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        probe = torch.arange(1100.0, device="cpu")
        if fingerprint(probe, None)["digest"].tolist() == fingerprint(probe, function)["digest"].tolist():
            return function
    return None
