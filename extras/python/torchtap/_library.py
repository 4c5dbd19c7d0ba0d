"""Loads the C++ library for the PyTorch of this process."""

from __future__ import annotations

import torch


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


if (*map(int, _minor(torch.__version__)),) < (2, 11):
    raise ImportError(
        f"torchtap's recorders, reductions and files need PyTorch 2.11 or newer; this is {torch.__version__}. Here torchtap.stream "
        "reads what other programs publish, torchtap_compare records for comparison, and torch.load(…, weights_only=True) reads the "
        ".pt files of recordings."
    )

try:
    from torchtap import _C as _C
except ImportError as error:
    raise ImportError(
        f"torchtap's recorders need its C++ library, which is not beside this package or was built for another PyTorch "
        f"than {torch.__version__}: {error}. Install torchtap in this environment with `pip install .` in its source."
    ) from error


if _minor(_C.torch_version) != _minor(torch.__version__):
    raise ImportError(
        f"torchtap was built for PyTorch {_C.torch_version}, and this is {torch.__version__}, whose C++ interface differs; "
        "install it again."
    )


def need(component: str, name: str) -> None:
    """Raises ImportError, which says how to get it, where the C++ library was built without the component of a view."""
    built = _C.views
    if component not in built:
        has = f" (it has {', '.join(built)})" if built else ""
        together = ";".join(["python", *built, component])
        raise ImportError(
            f"{name} needs the component {component}, which this torchtap was built without{has}. Install it in the source with "
            f'`pip install . --config-settings cmake.define.TORCHTAP_COMPONENTS="{together}"`.'
        )
