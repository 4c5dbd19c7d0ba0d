"""Tests torchtap recover on the files of a killed program: messages, exit statuses, and reading them in Python."""

import os
import signal

import pytest
import torch
from harness import call, entries, given, run


@pytest.fixture
def recording(tmp_path):
    """What a killed program left."""
    call(given("cut_off"), tmp_path / "rec", status=-signal.SIGKILL)
    return tmp_path / "rec"


def samples(recording, path):  # as in docs/guides/long-runs.md
    for entry in entries(recording):
        if entry["path"] == path:
            for shard in entry["shards"]:
                yield from torch.load(recording / shard["file"], weights_only=True)


def recover(*arguments, status=0):
    done = run("recover", *arguments, status=status)
    return done.out + done.err


def test_recovered(recording):
    before = sorted(os.listdir(recording))
    assert "manifest.json" not in before and "journal.jsonl" in before
    # Sealed shards are readable without recovery.
    assert len(torch.load(recording / "0-0.pt", weights_only=True)) == 100

    # A sample may be cut in the middle by chance; it is then missing.
    text = run("recover", "--check", recording, status=None).out
    assert "not finished" in text and "from unfinished shards" in text
    assert sorted(os.listdir(recording)) == before

    text = run("recover", recording, status=None).out
    assert "finished now" in text and " 1 module " in text
    values = [int(sample[7]) for sample in samples(recording, "layer1.conv")]
    assert values == list(range(len(values))) and len(values) > 300
    assert f"{len(values):,} samples" in text
    assert not [name for name in os.listdir(recording) if name.endswith((".part", ".jsonl"))]
    assert "nothing to do" in recover(recording)


def test_damaged(recording):
    run("recover", recording, status=None)
    assert "0-0.pt" not in recover("--quick", recording)
    with open(recording / "0-0.pt", "r+b") as file:
        file.seek(1000)
        file.write(b"\xff\xff")
    text = recover("--check", recording, status=1)
    assert "missing: 0-0.pt" in text and "checksum" in text
    os.truncate(recording / "0-0.pt", 100)
    assert "missing: 0-0.pt" in recover("--check", "--quick", recording, status=1)


def test_errors(folder, recording):
    for arguments in ([folder], [], ["--frobnicate", recording]):
        assert recover(*arguments, status=2)
    assert "no such directory" in recover(folder / "nowhere", status=2)
