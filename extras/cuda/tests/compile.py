"""The kernels' source compiles with NVRTC, which needs no device, for all that it is compiled for. Skipped where there is no NVRTC:
Python's packages of PyTorch with CUDA bring one."""

import ctypes
import itertools
import pathlib
import sys

import pytest
from harness import given

ELEMENTS = {
    "float32": ["-DELEMENT=float"],
    "float64": ["-DELEMENT=double"],
    "float16": ["-DELEMENT=unsigned short", "-DHALF"],
    "bfloat16": ["-DELEMENT=unsigned short", "-DBFLOAT16"],
    "int64": ["-DELEMENT=long long"],
    "bool": ["-DELEMENT=unsigned char"],
}
ARCHITECTURES = ["compute_75", "compute_90"]


def nvrtc():
    folders = [pathlib.Path(folder) for folder in sys.path if folder]
    found = [str(path) for folder in folders for path in sorted(folder.glob("nvidia/*/lib/libnvrtc.so.*"))]
    for name in [*found, "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    pytest.skip("there is no NVRTC here")


@pytest.fixture(scope="module")
def compiler():
    return nvrtc()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("which", ["kernels", "ledger"])
def test_the_source_compiles(compiler, which, element):
    source = pathlib.Path(given("cuda_source") + f".{which}.cu").read_bytes()
    parts = (0, 1, 2, 4, 8, 16, 31, 32, 33, 63) if element == "bfloat16" else (0, 31, 33)
    for number, architecture in itertools.product(parts if which == "ledger" else (0,), ARCHITECTURES):
        texts = ["--std=c++14", f"--gpu-architecture={architecture}", *ELEMENTS[element], f"-DPARTS={number}"]
        options = (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])
        program = ctypes.c_void_p()
        assert compiler.nvrtcCreateProgram(ctypes.byref(program), source, b"torchtap.cu", 0, None, None) == 0
        result = compiler.nvrtcCompileProgram(program, len(texts), options)
        size = ctypes.c_size_t()
        compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetProgramLog(program, log)
        compiler.nvrtcDestroyProgram(ctypes.byref(program))
        assert result == 0, f"{texts}: {log.value.decode()}"
        assert "warning" not in log.value.decode(), log.value.decode()
