"""800 bytes that say of a tensor of any size whether, how far and in which way another one differs (views/compare/FORMAT.md)."""

import numpy as np
import torch

from . import library
from .frames import DTYPES

BLOCK, LANES, SAMPLES, CHUNK = 1024, 64, 32, 1 << 16
GOLD, ALL = 0x9E3779B97F4A7C15, 2**64 - 1
u4, u8 = np.uint32, np.uint64
NARROW = ("uint8", "int8", "int16", "bool", "float16", "bfloat16", "float32", "float8")  # float32 holds all of these
NANS = {torch.float16: 0x7E00, torch.bfloat16: 0x7FC0, torch.float32: 0x7FC00000, torch.float64: 0x7FF8 << 48}
HEADER = (
    "version:u1 dtype:u1 dims:u1 flags:u1 places:u4 sizes:8i8 digest:2u8 words:u4 exclusive:u4 either:u4 -:u4 nans:u8"
)
FIELDS = f"{HEADER} infinities:u8 zeros:u8 sum:f8 sum_sq:f8 least:f8 greatest:f8 sketch:{LANES}f8 samples:{SAMPLES}f4"
LAYOUT = np.dtype([tuple(field.split(":")) for field in FIELDS.split()])


def mix(z):
    z = (z ^ (z >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u8(27))) * u8(0x94D049BB133111EB)
    return z ^ (z >> u8(31))


def draw(stream, first, count):
    return mix(np.arange(first, first + count, dtype=u8) + u8((stream * GOLD + 1) & ALL))


KEYS = (draw(1, 0, BLOCK) >> u8(32)).astype(u4)
SIGNS = np.where(draw(2, 0, BLOCK) >> u8(63), -1, 1).astype("f4")
TURNED = np.stack([np.roll(SIGNS, -LANES * k) for k in range(BLOCK // LANES)])
PICKS = draw(6, 0, SAMPLES).tolist()


def rows(values, multiple):
    """Values as rows of a block, and those that are left, padded to a multiple, as one row more."""
    full, rest = len(values) // BLOCK, len(values) % BLOCK
    if full:
        yield 0, values[: full * BLOCK].reshape(-1, BLOCK)
    if rest:
        yield full, np.concatenate([values[full * BLOCK :], np.zeros(-rest % multiple, values.dtype)]).reshape(1, -1)


def elements(tensor):
    """The real numbers of a tensor, one after the other. Throws ValueError if it has none."""
    what = "nested" if getattr(tensor, "is_nested", False) else "meta" if tensor.is_meta else str(tensor.layout)[6:]
    if what != "strided":
        raise ValueError(f"a {what} tensor has no fingerprint")
    if tensor.dim() > 8 or tensor.dtype not in DTYPES:
        raise ValueError(f"a tensor of {tensor.dim()} dimensions and dtype {tensor.dtype} has no fingerprint")
    tensor = tensor.detach().dequantize() if tensor.is_quantized else tensor.detach()
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).contiguous().reshape(-1)


def in_numpy(flat, out):
    names = "words exclusive either places nans infinities zeros sum sum_sq".split()
    halves, counts = [0, 0], dict.fromkeys(names, 0)
    least, greatest, sketch = np.inf, -np.inf, np.zeros(LANES)
    wide = torch.float32 if str(flat.dtype)[6:].startswith(NARROW) else torch.float64
    bits = flat.view(torch.uint8).numpy().view(f"u{flat.element_size()}")
    for start in range(0, len(bits), CHUNK):
        raw, numbers = bits[start : start + CHUNK], flat[start : start + CHUNK].to(wide).numpy()
        finite, there = np.isfinite(numbers), numbers
        counts["zeros"] += np.count_nonzero(numbers == 0)
        if not finite.all():
            nan, there = np.isnan(numbers), numbers[finite]
            counts["nans"] += np.count_nonzero(nan)
            counts["infinities"] += np.count_nonzero(~finite & ~nan)
            raw = np.where(nan, raw.dtype.type(NANS[flat.dtype]), raw) if flat.dtype in NANS else raw
            at = np.flatnonzero(~finite)
            kinds = np.where(nan[at], 1, np.where(numbers[at] > 0, 2, 3))
            counts["places"] += int(mix(((start + at) * 4 + kinds).astype(u8)).sum(dtype=u8))
            numbers = np.where(finite, numbers, numbers.dtype.type(0))
        low, high = there.min(initial=np.inf), there.max(initial=-np.inf)
        least, greatest = min(least, low + 0.0), max(greatest, high + 0.0)  # 0, and not -0
        if not 1e-12 < max(-low, high) < 1e15:  # float32 does not hold the sum of squares
            numbers = numbers.astype("f8")
        words = np.concatenate([raw.view("u1"), np.zeros(-raw.nbytes % 4, "u1")]) if raw.nbytes % 4 else raw
        whole = raw.view(u4) if raw.itemsize == 8 else raw
        counts["words"] += int(whole.sum(dtype=u8))
        counts["exclusive"] ^= int(np.bitwise_xor.reduce(whole))
        counts["either"] |= int(np.bitwise_or.reduce(whole))
        for block, row in rows(words.view(u4), 64):
            keyed = row + KEYS[: row.shape[1]]
            products = keyed[:, 0::2].astype(u8) * keyed[:, 1::2]
            left = np.arange(row.shape[1] // 16, 0, -1).astype(u8).repeat(8)
            block += start * raw.itemsize // 4 // BLOCK
            b = products @ left + u8(GOLD) * (row.sum(1, dtype=u8) & u8(0xFFFFFFFF))
            halves[0] += int(mix(products.sum(1) + draw(3, block, len(row))).sum())
            halves[1] += int(mix(b + draw(4, block, len(row))).sum())
        for block, row in rows(numbers, BLOCK):
            counts["sum"] += row.sum(1).sum(dtype="f8")
            counts["sum_sq"] += np.einsum("ij,ij->i", row, row).sum(dtype="f8")
            random = draw(5, start // BLOCK + block, len(row))
            lanes = (row * TURNED[(random >> u8(8)) & u8(15)]).reshape(len(row), -1, LANES).sum(1)
            lanes *= np.where(random >> u8(63), -1, 1).astype("f4")[:, None]
            at = (np.arange(LANES) + (random & u8(63)).astype("i8")[:, None]) % LANES
            sketch += np.bincount(at.reshape(-1), lanes.reshape(-1), LANES)
    shape = int(out["dtype"]) + 1
    for size in out["sizes"][: out["dims"]].tolist():
        shape = (shape * GOLD + size + 1) & ALL
    out["digest"] = mix(np.array([halves[0] & ALL ^ shape, halves[1] + shape & ALL], u8))
    counts["words"] &= 0xFFFFFFFF
    counts["places"] = counts["places"] & 0xFFFFFFFF or int(counts["nans"] + counts["infinities"] > 0)
    for name, value in (*counts.items(), ("least", least), ("greatest", greatest), ("sketch", sketch)):
        out[name] = value
    n = len(bits)
    strata = [(k * n // SAMPLES, (k + 1) * n // SAMPLES) for k in range(SAMPLES)]
    places = [a + (PICKS[k] * (b - a) >> 64) for k, (a, b) in enumerate(strata)] if n > SAMPLES else range(n)
    samples = flat[torch.from_numpy(np.array(places, "i8"))].to(torch.float32).numpy()
    out["samples"][: len(places)] = np.where(np.isnan(samples), np.float32(np.nan), samples)


def fingerprint(tensor, function=...):
    """The 800 bytes as a record of LAYOUT. Throws ValueError that names the reason if the tensor has none."""
    flat, out = elements(tensor), np.zeros((), LAYOUT)
    out["version"], out["dtype"], out["dims"] = 1, DTYPES[tensor.dtype], tensor.dim()
    out["sizes"][: tensor.dim()] = tensor.shape
    function = LIBRARY if function is ... else function
    sizes, to = out["sizes"].ctypes.data, out.ctypes.data
    if not function or function(flat.data_ptr(), int(out["dtype"]), tensor.dim(), sizes, to):
        with np.errstate(all="ignore"):
            in_numpy(flat, out)
    return out


LIBRARY = library.find(fingerprint)
