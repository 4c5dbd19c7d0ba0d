"""The place of recorders in torchfunc: with `import torchtap as torchfunc` its examples run."""

from torchtap import recorders

__all__ = ["recorders"]
