"""Compares columns with NumPy's histograms of the same tensors, over the bins' edges as views/explorer/FORMAT.md has them.

usage: columns.py DIRECTORY     NAME.tensor.pt and NAME.column.pt for each case: the numbers of the bins, their counts,
                                [count, nan, +inf, -inf, zeros], [min, max, sum, sum of squares]
"""

import pathlib
import sys

import numpy as np
import torch


def edge(k):
    if k < 8:
        return k * 2.0**-129
    octave = k // 8 - 1
    return float(np.ldexp(float(k - 8 * octave), octave - 129))


EDGES = np.array([edge(k) for k in range(2041)])


def numbers(tensor):
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double().numpy().ravel()


def bins(values):
    """Number of a bin to its count. Beyond float32, values count in the last bin; below it, in the first."""
    counts = {}
    for first, part in ((0, values[values > 0]), (2048, -values[values < 0])):
        part = np.minimum(part, np.nextafter(EDGES[-1], 0))
        for k in np.flatnonzero(found := np.histogram(part, EDGES)[0]):
            counts[first + int(k)] = int(found[k])
    return counts


def check(name, tensor, column):
    values = numbers(tensor)
    finite = values[np.isfinite(values)]
    got = dict(zip(column["bins"].tolist(), column["counts"].tolist()))
    assert got == bins(finite), (name, got, bins(finite))
    expected = [
        values.size,
        np.isnan(values).sum(),
        np.isposinf(values).sum(),
        np.isneginf(values).sum(),
        (values == 0).sum(),
    ]
    assert column["numbers"].tolist() == [int(number) for number in expected], (name, column["numbers"], expected)
    least, most, total, squares = column["sums"].tolist()
    if finite.size == 0:
        assert np.isnan(least) and np.isnan(most) and total == 0 and squares == 0, name
        return
    assert (least, most) == (finite.min(), finite.max()), (name, least, most)
    with np.errstate(over="ignore"):
        assert abs(total - finite.sum()) <= 1e-5 * np.abs(finite).sum(), (name, total, finite.sum())
        expected = (finite**2).sum()
    assert squares == expected or abs(squares - expected) <= 1e-5 * expected, (name, squares, expected)


directory = pathlib.Path(sys.argv[1])
cases = sorted(path.name[: -len(".tensor.pt")] for path in directory.glob("*.tensor.pt"))
assert len(cases) > 50, len(cases)
for case in cases:
    check(case, torch.load(directory / f"{case}.tensor.pt"), torch.load(directory / f"{case}.column.pt"))
