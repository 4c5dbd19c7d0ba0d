"""What pyproject.toml cannot say of the wheel: its version, and the one PyTorch that it fits."""

import pathlib
import re
import subprocess
import sys


def _version():
    header = (pathlib.Path(__file__).resolve().parents[2] / "include/torchtap/version.hpp").read_text()
    return ".".join(re.findall(r"TORCHTAP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE))


def _torch():
    """The version of the environment's PyTorch. -I looks past the environment that pip makes for the build alone."""
    asked = subprocess.run(
        [sys.executable, "-I", "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
    )
    if asked.returncode != 0:
        raise SystemExit(
            f"torchtap is built for the PyTorch of its environment, and {sys.executable} has none; `pip install torch` first. "
            "`python -m build` needs --no-isolation."
        )
    return asked.stdout.strip()


def dynamic_metadata(settings, project):
    major, minor = _torch().split(".")[:2]
    return {"version": _version(), "dependencies": [f"torch=={major}.{minor}.*"]}


def dynamic_wheel(settings):
    return {"dependencies": True}
