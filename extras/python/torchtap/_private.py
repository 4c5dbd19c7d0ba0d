"""Names of PyTorch's that are not its public interface, looked up in one place. A PyTorch that lacks one has all of torchtap but what
the name is for, and that says in a sentence what is missing. (`torch.utils._pytree` and `torch.utils._python_dispatch` are used
directly: PyTorch's guides send people there.)"""

from __future__ import annotations

import pkgutil
import typing

import torch


class Private:
    """What several names stand for, `found`, all or none."""

    def __init__(self, *names: str) -> None:
        self.found: list[typing.Any] = []
        self.missing = ""  # the first that there is not
        for name in names:
            try:
                self.found.append(pkgutil.resolve_name(name))
            except (ImportError, AttributeError):
                self.missing = name
                return

    def lack(self, use: str) -> str:
        """The sentence, with what the names are for."""
        return f"PyTorch {torch.__version__} has no {self.missing}, {use}."
