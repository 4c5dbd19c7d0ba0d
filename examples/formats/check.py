#!/usr/bin/env python3
"""Checks what examples/formats saved against casts with NumPy, and draws it.

usage: check.py FOLDER [--picture FILE]

Each number of the saved outputs is looked up among all numbers of a format; ties go to the even code. Counts have to be
equal, squared errors may differ by 1e-6. Exit status 1 if one differs by more.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch


def numbers(mantissa, bias, codes):
    """The magnitudes of the codes 0 ... codes - 1, and where the next one would be."""
    code = np.arange(codes + 1)
    exponent, fraction = code >> mantissa, (code & ((1 << mantissa) - 1)) / 2.0**mantissa
    return np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))


# The magnitudes, the least normal one, and how many neighbours have a scale in common.
E4M3, E5M2, E2M1 = numbers(3, 7, 127), numbers(2, 15, 124), numbers(1, 1, 8)
FORMATS = {
    "e4m3": (E4M3, 2.0**-6, None),
    "e5m2": (E5M2, 2.0**-14, None),
    "bf16": (numbers(7, 127, 255 << 7), 2.0**-126, None),
    "f16": (numbers(10, 15, 31 << 10), 2.0**-14, None),
    "int8": (np.arange(129.0), 0, None),
    "mxfp8": (E4M3, 2.0**-6, 32),
    "nvfp4": (E2M1, 1, 16),
}


def nearest(x, table):
    """The code of the number next to each magnitude; of two the even one."""
    above = np.clip(np.searchsorted(table, x), 1, len(table) - 1)
    up, down = table[above] - x, x - table[above - 1]
    return np.where((up < down) | ((up == down) & (above % 2 == 0)), above, above - 1)


def scales(x, name, table, block):
    """The scale of each number of a float32 tensor [rows, width], from its block."""
    rows, width = x.shape
    padded = np.zeros((rows, -(-width // block) * block), np.float32)
    padded[:, :width] = x
    most = padded.reshape(rows, -1, block).max(2)
    if name == "nvfp4":
        encode = np.float32(6 * 448) / x.max()
        wanted = most / np.float32(6) * encode
        found = E4M3[np.minimum(nearest(wanted.astype(float), E4M3), 126)].astype(np.float32)
        scale = found * (np.float32(1) / encode)
    else:
        largest = np.floor(np.log2(table[-2]))
        _, exponent = np.frexp(most)
        scale = np.float32(2) ** np.maximum(exponent - 1 - largest, -127).astype(np.float32)
        scale[most == 0] = 1
    return np.repeat(scale, block, 1)[:, :width]


def cast(x, name):
    """The rounded magnitudes of a float32 tensor, and which underflow, become subnormal, overflow."""
    table, least_normal, block = FORMATS[name]
    x = np.abs(x.reshape(-1, x.shape[-1]))
    scale = np.float32(1) if block is None else scales(x, name, table, block)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(scale == 0, np.float32(0), x * (np.float32(1) / scale))
    code = nearest(scaled.astype(float), table)
    rounded = table[np.minimum(code, len(table) - 2)].astype(np.float32) * scale
    some = x != 0
    return rounded, some & (code == 0), some & (code > 0) & (table[code] < least_normal), code == len(table) - 1


def recording(folder):
    entries = json.loads((folder / "manifest.json").read_text())["entries"]
    return {entry["path"]: torch.load(folder / entry["file"], weights_only=True) for entry in entries}


def check(model, folder):
    """What is wrong, and the shares lost by module and format."""
    wrong, lost = [], {}
    costs, samples = recording(folder / "costs"), recording(folder / "samples")
    for path, got in costs.items():
        tensors = [tensor.float().numpy() for tensor in samples[path]]
        count = sum(tensor.size for tensor in tensors)
        for name in FORMATS:
            squares, shares = 0.0, np.zeros(3)
            for x in tensors:
                rounded, *kinds = cast(x, name)
                squares += ((np.abs(x).reshape(rounded.shape).astype(float) - rounded) ** 2).sum()
                shares += [kind.sum() for kind in kinds]
            want = [*(shares / count), squares / count]
            have = [float(got[f"{name}.{what}"]) for what in ("underflow", "subnormal", "overflow", "mse")]
            if not np.allclose(have, want, rtol=1e-6, atol=0):
                wrong.append(f"{model} {path} {name}: {have} instead of {want}")
            lost[path, name] = have[0] + have[2]
    print(f"{model}: {len(costs)} modules, {len(FORMATS)} formats, {len(wrong)} wrong")
    return wrong, lost


def draw(file, models):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "formats", "font.size": 8})
    from matplotlib import colors, pyplot

    figure, axes = pyplot.subplots(1, len(models), figsize=(10, 9), layout="constrained")
    figure.suptitle(
        "Share of the values of each module's output that become zero or overflow (formats without blocks: scale 1)"
    )
    for axis, (model, lost) in zip(axes, models.items()):
        paths = list(dict.fromkeys(path for path, _ in lost))
        value = np.array([[lost[path, name] for name in FORMATS] for path in paths])
        norm = colors.LogNorm(1e-5, 1)
        mesh = axis.pcolormesh(
            np.maximum(value, 1e-5), norm=norm, cmap="magma_r", edgecolors="white", linewidth=0.5, rasterized=True
        )
        for i, row in enumerate(value):
            for j, number in enumerate(row):
                if number >= 0.0005:
                    color = "white" if number > 0.004 else "black"
                    axis.text(j + 0.5, i + 0.5, f"{number:.1%}", color=color, size=6, ha="center", va="center")
        axis.set_xticks(np.arange(len(FORMATS)) + 0.5, FORMATS)
        axis.set_yticks(np.arange(len(paths)) + 0.5, paths)
        axis.invert_yaxis()
        axis.set_title(model)
    figure.colorbar(mesh, ax=axes, label="share", shrink=0.6)
    figure.savefig(file, metadata={"Date": None, "Creator": None} if file.endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--picture", help="an SVG or PNG to draw")
    arguments = parser.parse_args()
    wrong, models = [], {}
    for model in ("resnet18", "gpt"):
        found, models[model] = check(model, arguments.folder / model)
        wrong += found
    print(*wrong, sep="\n")
    if arguments.picture:
        draw(arguments.picture, models)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
