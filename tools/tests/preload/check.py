#!/usr/bin/env python3
"""torchtap preload: a program that knows nothing of torchtap behaves as without it, however it ends, and what was
recorded is what Python computes from the same weights.

usage: check.py TORCHTAP FOREIGN"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import torch

torchtap, foreign = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(command, folder, send=None):
    """Returns exit status, stdout and stderr. Sends the signal `send` once the program reports that it waits."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    head = ""
    if send is not None:
        for line in process.stdout:
            head += line
            if line == "waiting\n":
                break
        process.send_signal(send)
    out, err = process.communicate(timeout=120)
    return process.returncode, head + out, err


def recording(folder):
    manifest = json.load(open(folder / "manifest.json"))
    return {
        entry["path"]: (entry, torch.load(str(folder / entry["file"]), weights_only=True) if entry["file"] else None)
        for entry in manifest["entries"]
    }


ENDINGS = {
    "return": None,
    "exit": None,
    "throw": None,
    "handled": None,
    "fork": None,
    "abort": None,
    "terminate": signal.SIGTERM,
    "interrupt": signal.SIGINT,
}

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for ending, send in ENDINGS.items():
        bare = run([foreign, ending], folder, send)
        out = folder / ending
        with_us = run(
            [
                torchtap,
                "preload",
                "--types",
                "Conv2d|Linear",
                "--reduce",
                "mean,count",
                "--save",
                str(out),
                "--",
                foreign,
                ending,
            ],
            folder,
            send,
        )
        check(with_us[0] == bare[0], f"{ending}: exit status {with_us[0]} instead of {bare[0]}")
        check(with_us[1] == bare[1], f"{ending}: another output:\n{with_us[1]}\ninstead of\n{bare[1]}")
        said = [line for line in with_us[2].splitlines() if line.startswith("torchtap: ")]
        rest = [line for line in with_us[2].splitlines() if not line.startswith("torchtap: ")]
        check(rest == bare[2].splitlines(), f"{ending}: other errors:\n{with_us[2]}\ninstead of\n{bare[2]}")
        if ending == "abort":  # only the program's own behaviour is guaranteed
            continue
        if not (out / "manifest.json").exists():
            check(False, f"{ending}: nothing was recorded")
            continue
        entries = recording(out)
        check("layer2.0.downsample.0" in entries and "fc" in entries, f"{ending}: paths {sorted(entries)}")
        check("Linear#0" in entries, f"{ending}: the module outside of the model: {sorted(entries)}")
        check(len(entries) == 22, f"{ending}: {len(entries)} modules")
        samples = sum(entry["samples"] for entry, _ in entries.values())
        check(said == [f"torchtap: recorded {samples:,} samples of 22 modules: {out}"], f"{ending}: {said}")
        check(entries["fc"][0]["samples"] == 3 and entries["conv1"][0]["samples"] == 4, f"{ending}: samples")
        check(
            not [name for name in os.listdir(folder) if name.startswith(ending + "-")], f"{ending}: a child wrote, too"
        )

    # The recordings of two runs merge into that of one.
    status, _, errors = run(
        [torchtap, "merge", str(folder / "return"), str(folder / "exit"), "--save", str(folder / "both")], folder
    )
    check(status == 0, f"merge: {errors}")
    once, twice = recording(folder / "return"), recording(folder / "both")
    check(list(once) == list(twice), "merge: the modules")
    for path, (entry, value) in twice.items():
        check(
            entry["samples"] == 2 * once[path][0]["samples"]
            and value["count.elements"] == 2 * once[path][1]["count.elements"]
            and torch.allclose(value["mean.value"], once[path][1]["mean.value"]),
            f"merge: {path}",
        )

    # Every sample, compared with those that the program saved itself.
    out = folder / "every"
    run([torchtap, "preload", "--names", "conv1", "--save", str(out), "--", foreign], folder)
    ((entry, samples),) = recording(out).values()
    saved = next(iter(torch.jit.load(str(folder / "conv1.pt")).parameters()))
    check(len(samples) == 4 and torch.equal(samples[3], saved), "conv1 as the program saw it")

    # Exclusions.
    for excluded, want in (
        (("--not-names", "layer*"), {"conv1", "fc", "Linear#0"}),
        (("--not-types", "Conv2d"), {"fc", "Linear#0"}),
        (("--not-types", "Conv2d", "--not-names", "f?"), {"Linear#0"}),
    ):
        out = folder / "-".join(want)
        run(
            [
                torchtap,
                "preload",
                "--types",
                "Conv2d|Linear",
                *excluded,
                "--reduce",
                "count",
                "--save",
                str(out),
                "--",
                foreign,
            ],
            folder,
        )
        check(set(recording(out)) == want, f"{excluded}: {sorted(recording(out))}")
    status, _, errors = run(
        [torchtap, "preload", "--types", "Linear", "--not-types", "Lin.*", "--save", str(folder / "x"), "--", foreign],
        folder,
    )
    check(
        "no module that ran has a type like 'Linear' and has no type like 'Lin.*'; the nearest are Linear" in errors,
        f"all left out: {errors}",
    )
    status, output, errors = run(
        [torchtap, "preload", "--not-types", "(", "--save", str(folder / "x"), "--", foreign], folder
    )
    check(
        status == 2 and output == "" and "--not-types '(' is not a valid regular expression" in errors,
        f"a broken expression: {status} {errors}",
    )

    # Gradients.
    status, output, errors = run(
        [torchtap, "preload", "--what", "grad-parameter", "--save", str(folder / "x"), "--", foreign], folder
    )
    check(
        status == 2 and output == "" and "gradients of parameters come with no call" in errors,
        f"gradients of parameters: {status} {errors}",
    )
    out = folder / "gradients"
    run(
        [
            torchtap,
            "preload",
            "--what",
            "grad-output",
            "--types",
            "Linear",
            "--reduce",
            "sum",
            "--save",
            str(out),
            "--",
            foreign,
            "backward",
        ],
        folder,
    )
    entries = recording(out)
    check(float(entries["Linear#0"][1]) == 3 * 4 * 4, f"gradients that arrive are ones: {entries['Linear#0']}")

    # Invisible modules are reported; invalid options are refused before the program starts.
    status, _, errors = run(
        [torchtap, "preload", "--save", str(folder / "all"), "--reduce", "count", "--", foreign], folder
    )
    check(status == 5 and "BatchNorm2d" in errors, f"modules that cannot be seen: {errors}")
    status, _, errors = run([torchtap, "preload", "--save", str(folder / "all"), "--", foreign], folder)
    check(status == 2 and "--overwrite" in errors, f"a recording that is there: {errors}")
    status, output, errors = run(
        [torchtap, "preload", "--reduce", "median", "--save", str(folder / "x"), "--", foreign], folder
    )
    check(status == 2 and output == "" and "median" in errors, f"an unknown reduction: {status} {errors}")
    status, output, errors = run(
        [torchtap, "preload", "--types", "(", "--save", str(folder / "x"), "--", foreign], folder
    )
    check(status == 2 and output == "", f"a broken expression: {status} {errors}")
    status, _, errors = run([torchtap, "preload", "--save", str(folder / "x"), "--", "/no/such/program"], folder)
    check(status == 127 and "/no/such/program" in errors, f"no such program: {status} {errors}")
    status, _, errors = run([torchtap, "preload", "--save", str(folder / "x"), "--", "true"], folder)
    check(status == 0 and "nothing was recorded" in errors, f"a program without LibTorch: {status} {errors}")
    status, help_text, _ = run([torchtap, "preload", "--help"], folder)
    check(status == 0 and "Examples" in help_text, "the help")

print("FAILED" if failures else "torchtap preload records, and programs do not notice")
sys.exit(1 if failures else 0)
