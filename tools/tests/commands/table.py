#!/usr/bin/env python3
"""Tests that tables of the command fit the available width, whatever characters they contain.

usage: table.py TORCHTAP"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

import torch

torchtap = pathlib.Path(sys.argv[1]).resolve()
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, **environment):
    base = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [torchtap, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**base, "LC_ALL": "C.UTF-8", **environment},
    )
    check(done.returncode in (0, 1), f"{arguments}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def columns_of(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


NAMES = [
    "卷积层一.归一化层.激活函数.卷积",
    "encoder.e\u0301tage.cafe\u0301.proje\u0301te\u0301",
    "\x1b[2J\x1b[31mred\nline",
    "plain",
]

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for name in ("a", "b"):
        (folder / name).mkdir()
        for i, path in enumerate(NAMES):
            torch.save(torch.full([2, 3], float(i + (name == "b" and i == 1))), folder / name / f"{path}.pt")
    for arguments in (
        ["show", folder / "a"],
        ["show", folder / "a", "--stats"],
        ["compare", folder / "a", folder / "b"],
    ):
        whole = run(*arguments)
        check(
            NAMES[0] in whole and NAMES[1] in whole and "…" not in whole and "no room" not in whole,
            f"without a terminal everything is there: {whole}",
        )
        check("\x1b" not in whole and "\\033[2J\\033[31mred\\nline" in whole, f"control characters: {whole!r}")
        lines = whole.splitlines()[: len(NAMES) + 1]
        at = columns_of(lines[0][: lines[0].index("path")])  # the first character of the column after it
        rows = [(next(line for line in lines if name in line), name) for name in NAMES[:2]]
        ends = {columns_of(line[: line.index(name) + len(name)]) for line, name in rows}
        check(
            all(columns_of(line[: line.index(name)]) == at for line, name in rows)
            and max(ends) <= columns_of(lines[1]),
            f"aligned: {whole}",
        )
        check(
            arguments[0] == "compare" or len({columns_of(line) for line in lines}) == 1,
            f"aligned: {[columns_of(line) for line in lines]}\n{whole}",
        )
        for columns in (100, 80, 60, 50):
            text = run(*arguments, COLUMNS=str(columns))
            check(max(map(columns_of, text.splitlines())) <= columns, f"{arguments} in {columns} columns:\n{text}")
            check("plain" in text and "\x1b" not in text, f"{arguments} in {columns} columns: {text!r}")
            told = set(text.replace(",", " ").split())
            check(
                set(lines[0].split()) <= told,
                f"{arguments} in {columns} columns: nothing is said of {set(lines[0].split()) - told}\n{text}",
            )
        ascii_text = run(*arguments, COLUMNS="50", LC_ALL="C")
        check("…" not in ascii_text, f"dots in a locale without them: {ascii_text}")
    # Histogram bars shrink to fit.
    for columns in (80, 50):
        text = run("show", folder / "a", "--histogram", "--entry", "plain", COLUMNS=str(columns))
        check(
            "█" in text and max(map(columns_of, text.splitlines())) <= columns,
            f"histogram in {columns} columns:\n{text}",
        )

print("FAILED" if failures else "tables fit")
sys.exit(1 if failures else 0)
