#!/usr/bin/env python3
"""Tests torchtap recover on the files of a killed program: messages, exit statuses, and reading them in Python.

usage: check.py TORCHTAP CUT_OFF
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

import torch

torchtap, cut_off = sys.argv[1:]


def run(*arguments, status=0):
    done = subprocess.run([torchtap, "recover", *arguments], capture_output=True, text=True)
    assert done.returncode == status, (arguments, done)
    return done.stdout + done.stderr


def samples(directory, path):  # as in docs/guides/long-runs.md
    manifest = json.load(open(directory + "/manifest.json"))
    for entry in manifest["entries"]:
        if entry["path"] == path:
            for shard in entry["shards"]:
                yield from torch.load(directory + "/" + shard["file"], weights_only=True)


with tempfile.TemporaryDirectory() as folder:
    recording = os.path.join(folder, "rec")
    assert subprocess.run([cut_off, recording]).returncode == -signal.SIGKILL
    before = sorted(os.listdir(recording))
    assert "manifest.json" not in before and "journal.jsonl" in before, before
    # Sealed shards are readable without recovery.
    assert len(torch.load(recording + "/0-0.pt", weights_only=True)) == 100

    # A sample may be cut in the middle by chance; it is then missing.
    text = subprocess.run([torchtap, "recover", "--check", recording], capture_output=True, text=True).stdout
    assert "not finished" in text and "from unfinished shards" in text, text
    assert sorted(os.listdir(recording)) == before

    text = subprocess.run([torchtap, "recover", recording], capture_output=True, text=True).stdout
    assert "finished now" in text and " 1 module " in text, text
    values = [int(sample[7]) for sample in samples(recording, "layer1.conv")]
    assert values == list(range(len(values))) and len(values) > 300, values
    assert f"{len(values):,} samples" in text, text
    assert not [name for name in os.listdir(recording) if name.endswith(".part") or name.endswith(".jsonl")]

    assert "nothing to do" in run(recording)
    assert "0-0.pt" not in run("--quick", recording)
    with open(recording + "/0-0.pt", "r+b") as file:
        file.seek(1000)
        file.write(b"\xff\xff")
    text = run("--check", recording, status=1)
    assert "missing: 0-0.pt" in text and "checksum" in text, text
    os.truncate(recording + "/0-0.pt", 100)
    assert "missing: 0-0.pt" in run("--check", "--quick", recording, status=1)

    for arguments in ([os.path.join(folder, "nowhere")], [folder], [], ["--frobnicate", recording]):
        text = run(*arguments, status=2)
        assert text, arguments
    assert "no such directory" in run(os.path.join(folder, "nowhere"), status=2)
print("what a killed program left is recovered, and said")
