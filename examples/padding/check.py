#!/usr/bin/env python3
"""Checks what examples/padding recorded, and draws it.

usage: check.py FOLDER [--picture FILE]

Rebuilds the GPT from the saved parameters, with PyTorch's MultiheadAttention, in float64. What was recorded without padding,
in batches of whatever size, has to be what NumPy computes of the sentences one by one, which are not padded at all; what
was recorded with padding, of the padded batches. Values may differ by 1e-5 of the deviation or the largest one.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

PADDING, LONGEST, BATCHES = 256, 192, (1, 8, 64)
WIDTH, HEADS, BLOCKS = 64, 4, 3
failed = []


def attention(p, block):
    module = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double().requires_grad_(False)
    state = {}
    for kind in "weight", "bias":
        state[f"in_proj_{kind}"] = torch.cat([p[f"{block}.attn.{part}.{kind}"] for part in ("query", "key", "value")])
        state[f"out_proj.{kind}"] = p[f"{block}.attn.proj.{kind}"]
    module.load_state_dict(state)
    return module


def forward(p, attentions, tokens):
    """The outputs of the recorded modules, [batch, tokens, features]."""

    def linear(name, x):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"])

    length, outputs = tokens.shape[1], {}
    x = outputs["drop"] = p["tok_emb.weight"][tokens] + p["pos_emb.weight"][:length]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    for block, attend in attentions.items():
        y = norm(f"{block}.ln1", x)
        y = outputs[f"{block}.attn"] = attend(y, y, y, attn_mask=future)[0]
        x = x + y
        y = F.gelu(linear(f"{block}.mlp.fc", norm(f"{block}.ln2", x)))
        y = outputs[f"{block}.mlp"] = linear(f"{block}.mlp.proj", y)
        x = outputs[block] = x + y
    x = outputs["ln_f"] = norm("ln_f", x)
    outputs["head"] = linear("head", x)
    return {name: output.numpy() for name, output in outputs.items()}


def statistics(outputs):
    """What the recorder should have, of the outputs of one module, [batch, tokens, features] each."""
    values = np.concatenate([x.ravel() for x in outputs])
    norms = np.concatenate([np.linalg.norm(x, axis=2).ravel() for x in outputs])
    positions = np.concatenate([np.tile(np.arange(x.shape[1]), x.shape[0]) for x in outputs])
    tokens = np.bincount(positions, minlength=LONGEST)
    sums = np.bincount(positions, norms, LONGEST)
    return {
        "map.position.count": tokens,
        "map.value": np.divide(sums, tokens, out=np.full(LONGEST, np.nan), where=tokens > 0),
        "moments.mean": values.mean(),
        "moments.variance": values.var(ddof=1),
        "abs_max.value": np.abs(values).max(),
    }


def check(what, want, got, prefix):
    for key in want["drop"]:
        worst = 0.0
        for path, numbers in want.items():
            its, mine = got[path][prefix + key].numpy(), numbers[key]
            scale = numbers["moments.variance"] ** 0.5 if key == "moments.mean" else np.nanmax(mine)
            same = np.array_equal(np.isnan(its), np.isnan(mine))  # no token came to that position
            worst = max(worst, np.nanmax(np.abs(its - mine)) / scale if same else np.inf)
        good = worst <= (0 if key.endswith("count") else 1e-5)
        failed.extend([] if good else [what])
        print(f"{what:22} {key:20} {worst:9.2e}   {'ok' if good else 'WRONG'}")


def load(folder):
    entries = json.loads((folder / "manifest.json").read_text())["entries"]
    return {entry["path"]: torch.load(folder / entry["file"]) for entry in entries}


def draw(path, recorded):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "padding", "font.size": 9})
    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8.6, 3.9), layout="constrained")
    paths, layer, variance = list(recorded[1]), f"blocks.{BLOCKS - 1}", "moments.variance"
    truth = np.array([recorded[1][path]["where." + variance] for path in paths])
    for color, batch, shift in ("#c8553d", 64, 0.18), ("#f4a261", 8, -0.18):
        padded, masked = (
            [recorded[batch][path][which + variance] for path in paths] for which in ("series.", "where.")
        )
        style, places = {"color": color, "label": f"with padding, batches of {batch}"}, np.arange(len(paths)) + shift
        left.barh(places, 100 * (padded / truth - 1), 0.34, **style)
        left.plot(100 * (masked / truth - 1), places, "o", color="black", markersize=2.5)
        right.plot(recorded[batch][layer]["series.map.value"], **style)
    for batch in BATCHES:
        label = None if batch > 1 else "without padding, whatever the batches"
        right.plot(recorded[batch][layer]["where.map.value"], color="black", linewidth=0.9, label=label)
    left.set_yticks(range(len(paths)), paths)
    left.invert_yaxis()
    left.set(xlabel="error of the variance, %", title="The variance with padding, and without (dots)")
    right.set(xlabel="position in the sentence", title=f"Mean norm of {layer}'s outputs by position")
    right.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description="Checks what examples/padding recorded.")
    parser.add_argument("folder", type=pathlib.Path, help="what was given to padding as --save")
    parser.add_argument("--picture", help="the picture to draw: FILE.svg, FILE.png")
    arguments = parser.parse_args()
    p = {key: value.double() for key, value in torch.load(arguments.folder / "parameters.pt").items()}
    sentences = torch.load(arguments.folder / "sentences.pt")
    attentions = {block: attention(p, block) for block in (f"blocks.{i}" for i in range(BLOCKS))}
    recorded = {batch: load(arguments.folder / f"batch_{batch}") for batch in BATCHES}
    alone = {}
    for batch in BATCHES:
        outputs = {path: [] for path in recorded[batch]}
        for rows in sentences.split(batch):
            longest = (rows != PADDING).sum(1).max()
            for path, output in forward(p, attentions, rows[:, :longest]).items():
                outputs[path].append(output)
        want = {path: statistics(parts) for path, parts in outputs.items()}
        alone.update({} if alone else want)
        check(f"{batch} at a time, masked", alone, recorded[batch], "where.")
        check(f"{batch} at a time, padded", want, recorded[batch], "series.")
    if arguments.picture:
        draw(arguments.picture, recorded)
    print(f"\n{len(failed)} of the recorded numbers are wrong." if failed else "\nPython computes the same.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
