"""Compares what torchtap.stream reads from the golden file with the rule by which golden.hpp makes it."""

import sys

import numpy as np
import pytest
from harness import SOURCE, given

sys.path.insert(0, str(SOURCE / "extras/python"))
import torchtap
from torchtap import stream

GOLDEN = SOURCE / "tests/formats/1/frames.bin"
DTYPES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 23, 24, 25, 26, 27, 28, 29, 44]
BYTES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 8: 4, 9: 8, 10: 16, 11: 1, 15: 2, 23: 1, 24: 1, 25: 1, 26: 1}
BYTES.update({27: 2, 28: 4, 29: 8, 44: 1})
NUMPY = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    8: "float16",
}
NUMPY.update({9: "complex64", 10: "complex128", 11: "bool", 15: "float32", 27: "uint16", 28: "uint32", 29: "uint64"})
KINDS = ["ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput", "BackwardOutput", "Other"]
KINDS += ["Parameter", "Buffer", "OperationArgument", "OperationResult", "Header", "BackwardParameter"]

FRAMES = list(stream.read_file(GOLDEN))
COUNT = len(DTYPES) + 3


def test_the_whole_file():
    assert torchtap.__version__ == given("version")
    assert len(FRAMES) == COUNT


@pytest.mark.parametrize("n, frame", enumerate(FRAMES))
def test_frame(n, frame):
    dtype = DTYPES[n] if n < len(DTYPES) else 6
    last = n == COUNT - 1
    assert frame.sequence == 1000 + n and frame.sample == 10 * n and frame.call == n % 3
    assert frame.time_ns == 1700000000000000000 + n and frame.missed == n
    assert (frame.thread, frame.rank, frame.slot) == (n % 4, n % 5, n % 7)
    assert frame.kind == KINDS[n % 6]
    assert frame.path == ("" if n == 0 else f"layer{n}.0.conv")
    assert frame.type == ("Conv2d" if n % 2 == 0 else "")
    assert frame.text == ("the tensor is sparse" if last else f"épochè {n}" if n % 3 == 0 else "")
    assert frame.result == ("mean" if n % 4 == 0 else "")
    if last:
        assert frame.tensor is None
        return
    shape = tuple(0 if n == len(DTYPES) else 1 + (n + i) % 3 for i in range(n % 9))
    data = bytes((7 * n + 13 * i) % 251 for i in range(int(np.prod(shape, dtype=int)) * BYTES[dtype]))
    assert frame.tensor.dtype == NUMPY.get(dtype, "uint8")
    assert frame.tensor.shape == shape + ((2,) if dtype == 8 else ())
    if dtype == 15:
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
    assert frame.tensor.tobytes() == data


def test_a_later_format():
    damaged = bytearray(GOLDEN.read_bytes())
    damaged[4] = 2
    with pytest.raises(ValueError, match="format 2"):
        stream.Frame(damaged)


def test_text_that_is_not_utf8():
    damaged = bytearray(GOLDEN.read_bytes())
    damaged[192] = 0xFF  # the type of frame 0 begins here: its path is empty
    assert stream.Frame(damaged).type == "\ufffdonv2d"
