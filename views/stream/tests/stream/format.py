"""Compares what torchtap.stream reads from the golden file with the rule by which golden.hpp makes it.

usage: format.py FOLDER_OF_THE_PACKAGE GOLDEN_FILE VERSION
"""

import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import torchtap  # noqa: E402
from torchtap import stream  # noqa: E402

DTYPES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 23, 24, 25, 26, 27, 28, 29, 44]
BYTES = {
    0: 1,
    1: 1,
    2: 2,
    3: 4,
    4: 8,
    5: 2,
    6: 4,
    7: 8,
    8: 4,
    9: 8,
    10: 16,
    11: 1,
    15: 2,
    23: 1,
    24: 1,
    25: 1,
    26: 1,
    27: 2,
    28: 4,
    29: 8,
    44: 1,
}
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
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "float32",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
KINDS = ["ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput", "BackwardOutput", "Other"]
KINDS += ["Parameter", "Buffer", "OperationArgument", "OperationResult", "Header", "BackwardParameter"]

assert torchtap.__version__ == sys.argv[3], torchtap.__version__
frames = list(stream.read_file(sys.argv[2]))
count = len(DTYPES) + 3
assert len(frames) == count, len(frames)
for n, frame in enumerate(frames):
    dtype = DTYPES[n] if n < len(DTYPES) else 6
    last = n == count - 1
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
        continue
    shape = tuple(0 if n == len(DTYPES) else 1 + (n + i) % 3 for i in range(n % 9))
    data = bytes((7 * n + 13 * i) % 251 for i in range(int(np.prod(shape, dtype=int)) * BYTES[dtype]))
    assert frame.tensor.dtype == NUMPY.get(dtype, "uint8"), (n, frame.tensor.dtype)
    assert frame.tensor.shape == shape + ((2,) if dtype == 8 else ()), (n, frame.tensor.shape)
    if dtype == 15:
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
    assert frame.tensor.tobytes() == data, n
damaged = bytearray(open(sys.argv[2], "rb").read())
damaged[4] = 2
try:
    stream.Frame(damaged)
    sys.exit("a frame of format 2 was read")
except ValueError as error:
    assert "format 2" in str(error), error
damaged = bytearray(open(sys.argv[2], "rb").read())
damaged[192] = 0xFF  # the type of frame 0 begins here: its path is empty
assert stream.Frame(damaged).type == "\ufffdonv2d", stream.Frame(damaged).type
print(f"{count} frames are as they should be")
