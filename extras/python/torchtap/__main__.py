"""usage: python3 -m torchtap --cmake-prefix    the folders for CMAKE_PREFIX_PATH: of torchtap and of PyTorch
torchtap …                            the command, if it was built (extras/binding/README.md)"""

import os
import pathlib
import sys

_HERE = pathlib.Path(__file__).resolve().parent


def command() -> None:
    """Runs the command torchtap."""
    program = _HERE / "bin/torchtap"
    if not program.exists():
        sys.exit(
            "torchtap was installed without its command; install it in the source with "
            '`pip install . --config-settings cmake.define.TORCHTAP_COMPONENTS="python;tools"`.'
        )
    os.execv(program, [str(program), *sys.argv[1:]])


def main() -> None:
    if sys.argv[1:] != ["--cmake-prefix"]:
        sys.exit(__doc__)
    import torch

    print(f"{_HERE};{torch.utils.cmake_prefix_path}")


if __name__ == "__main__":
    main()
