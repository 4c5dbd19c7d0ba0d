"""Each module of Python's packages by itself, as the first thing that a process imports: it works, or one sentence says what it
needs, whichever PyTorch this is."""

import pathlib
import re
import sys

import pytest
import torch
from harness import SOURCE, call, given

PACKAGES = SOURCE / "extras/python"
MODULES = [
    ".".join(path.relative_to(PACKAGES).with_suffix("").parts).removesuffix(".__init__")
    for package in ("torchtap", "torchtap_compare")
    for path in sorted((PACKAGES / package).rglob("*.py"))
]
VERSION = (*map(int, torch.__version__.split(".")[:2]),)
BUILT = given("torchtap_python")  # the module _C, where it was built
# What needs nothing but Python, or reads other programs' streams and files.
EVERYWHERE = {
    "torchtap",
    "torchtap.__main__",
    "torchtap._private",
    "torchtap.rows",
    "torchtap.rows_tables",
    "torchtap.stream",
} | {one for one in MODULES if "_compare" in one or one == "torchtap.views"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """As it is installed, with _C beside the package's files."""
    folder = tmp_path_factory.mktemp("packages")
    for name in ("torchtap", "torchtap_compare"):
        (folder / name).mkdir()
        for file in (PACKAGES / name).iterdir():
            (folder / name / file.name).symlink_to(file)
    if BUILT:
        (folder / "torchtap" / pathlib.Path(BUILT).name).symlink_to(BUILT)
    return folder


def works(module):
    return module in EVERYWHERE or (bool(BUILT) and module != "torchtap.export")


def check(installed, module, statement):
    done = call(sys.executable, "-c", statement, status=None, cwd=installed, PYTHONPATH=str(installed))
    if done.status == 0 and module == "torchtap.export" and VERSION >= (2, 6):
        return  # its library is installed beside it, or where the linker looks
    if module.startswith("torchtap.views.") and BUILT and "needs the component" in done.err:
        assert f"ImportError: {module} needs the component {module.rpartition('.')[2]}, which" in done.err
        return
    if works(module):
        assert done.status == 0, done.err
        return
    error = [line for line in done.err.splitlines() if re.match(r"\w+(Error|Exception)?: ", line)][-1]
    assert done.status == 1 and error.startswith("ImportError: torchtap"), done.err
    wanted = " needs? (its C\\+\\+ library|PyTorch 2\\.(6|11) or newer)|libtorchtap_taps.so"
    assert re.search(wanted, error) and "partially initialized" not in error, error


@pytest.mark.parametrize("module", MODULES)
def test_a_module_alone(installed, module):
    if module == "torchtap_compare.__main__":
        pytest.skip("it is the program")
    check(installed, module, f"import {module}")


@pytest.mark.parametrize("statement", ["import torchtap; torchtap.{}", "from torchtap import {}"])
@pytest.mark.parametrize("name", ["reductions", "Moments"])
def test_a_name_alone(installed, name, statement):
    check(installed, "torchtap.reductions", statement.format(name))


def test_what_there_is_can_be_listed(installed):
    done = call(
        sys.executable, "-c", "import torchtap; print(*dir(torchtap))", cwd=installed, PYTHONPATH=str(installed)
    )
    names = done.out.split()
    assert {"recorders", "stream", "export"} <= {*names} and ("ForwardOutput" in names) == bool(BUILT)
