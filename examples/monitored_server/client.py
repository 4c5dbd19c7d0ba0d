#!/usr/bin/env python3
"""Sends images to examples/monitored_server, the later ones noisy, and checks what it says.

usage: client.py SERVER FOLDER [--windows N] [--noisy N] [--samples N] [--picture FILE] [--data FOLDER]

SERVER is the program. Nothing may be raised while the images are as they were learned; noise has to raise drift of the
input and leave an incident, whose inputs are the images that were sent, and which the server replays with the same bits.
"""

import argparse
import gzip
import json
import pathlib
import re
import subprocess
import sys
import urllib.request

import numpy as np
import torch

WINDOW, BATCH = 256, 32


def read_images(folder, most):
    path = pathlib.Path(folder, "t10k-images-idx3-ubyte")
    content = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    return np.frombuffer(content, np.uint8, offset=16).reshape(-1, 28, 28)[:most]


def ratios(text):
    """T² over its limit, by module and tensor."""
    found = {}
    for labels, value in re.findall(r"^torchtap_drift_t2_limit_ratio\{(.*)\} (\S+)$", text, re.M):
        fields = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        found[f"{fields['module'] or '(model)'} {fields.get('tensor', 'output')}"] = float(value)
    return found


def draw(path, history, noisy_from):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "monitor", "font.size": 9, "font.family": "sans-serif"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.6, 3.6), layout="constrained")
    names = [name for name in history[-1] if name not in ("flatten output", "fc2 output")]  # the same as others
    axes.set_prop_cycle(color=pyplot.get_cmap("tab10").colors)
    for name in sorted(names, key=lambda name: -history[-1][name]):
        points = [(i, window[name]) for i, window in enumerate(history) if name in window]
        axes.plot(*zip(*points), marker="o", markersize=3, linewidth=1.2, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.text(0, 1.15, "limit: one false alarm in a million windows", fontsize=8)
    axes.axvspan(noisy_from - 0.5, len(history) - 0.5, color="#f3d9d5", zorder=0)
    axes.set_yscale("log")
    axes.text(noisy_from - 0.4, 0.04, "noise of σ = 0.1", fontsize=8)
    axes.set_xticks(range(0, len(history), 2))
    axes.set_xlabel("window of 256 images")
    axes.set_ylabel("T² over its limit")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description="Sends images to examples/monitored_server.")
    parser.add_argument("server")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=12, help="windows of images as they are")
    parser.add_argument("--noisy", type=int, default=6, help="windows of noisy ones behind them")
    parser.add_argument("--samples", type=int, default=19200)
    parser.add_argument("--picture")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    arguments = parser.parse_args()

    server = subprocess.Popen(
        [arguments.server, arguments.folder, "--samples", str(arguments.samples), "--data", arguments.data],
        stdout=subprocess.PIPE,
        text=True,
    )
    address = server.stdout.readline().strip()

    def ask(target, body=None):
        with urllib.request.urlopen(urllib.request.Request(address + target, data=body), timeout=60) as answer:
            return answer.read().decode()

    images = read_images(arguments.data, WINDOW * (arguments.windows + arguments.noisy))
    noise = np.random.default_rng(1).normal(0, 0.1 * 255, images.shape)
    noisy = np.clip(images + noise, 0, 255).astype(np.uint8)
    sent, history = [], []
    for window in range(arguments.windows + arguments.noisy):
        source = images if window < arguments.windows else noisy
        for begin in range(window * WINDOW, (window + 1) * WINDOW, BATCH):
            batch = source[begin : begin + BATCH]
            labels = ask("/classify", batch.tobytes()).split()
            assert len(labels) == BATCH
            sent.append(batch)
        text = ask("/metrics")
        history.append(ratios(text))
        if window == arguments.windows - 1:
            quiet = re.findall(r"^torchtap_alarms_total\{.*\} (\S+)$", text, re.M)
            assert not any(float(value) for value in quiet), text
    ask("/stop", b"")
    said = server.stdout.read()
    assert server.wait() == 0
    print(said, end="")

    alarms = [json.loads(line) for line in (arguments.folder / "incidents" / "alarms.jsonl").read_text().splitlines()]
    raised = [alarm for alarm in alarms if alarm["state"] == "raised"]
    assert raised and all(alarm["rule"] == "drift" for alarm in raised), alarms
    assert any(alarm["module"] == "" and alarm["tensor"] == "input" for alarm in raised), alarms
    incidents = sorted(path.parent for path in (arguments.folder / "incidents").glob("*/incident.json"))
    assert len(incidents) == 1, incidents

    manifest = json.loads((incidents[0] / "inputs" / "manifest.json").read_text())
    (entry,) = manifest["entries"]
    kept = torch.load(incidents[0] / "inputs" / entry["file"])["0"]
    numbers = [json.loads(line)["forward"] for line in (incidents[0] / "forwards.jsonl").read_text().splitlines()]
    assert len(kept) == len(numbers) > 0
    for number, tensor in zip(numbers, kept):
        expected = (torch.from_numpy(sent[number].copy()).float() / 255 - 0.2860) / 0.3530
        assert torch.allclose(tensor[:, 0], expected, atol=1e-6), number

    replay = [arguments.server, arguments.folder, "--replay", incidents[0]]
    lines = subprocess.run(replay, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(numbers) and all(line.endswith("the same bits") for line in lines), lines
    print(f"{len(lines)} forwards of {incidents[0].name} replayed with the same bits")
    if arguments.picture:
        draw(arguments.picture, history, arguments.windows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
