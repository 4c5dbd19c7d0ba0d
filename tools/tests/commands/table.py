"""Tests that tables of the command fit the available width, whatever characters they contain."""

import pytest
import torch
from harness import columns_of, run

NAMES = [
    "卷积层一.归一化层.激活函数.卷积",
    "encoder.e\u0301tage.cafe\u0301.proje\u0301te\u0301",
    "\x1b[2J\x1b[31mred\nline",
    "plain",
]


@pytest.fixture(scope="module")
def files(folder):
    for name in ("a", "b"):
        (folder / name).mkdir()
        for i, path in enumerate(NAMES):
            torch.save(torch.full([2, 3], float(i + (name == "b" and i == 1))), folder / name / f"{path}.pt")
    return folder


@pytest.mark.parametrize("words", ["show a", "show a --stats", "compare a b"])
def test_tables_fit(files, words):
    arguments = [files / word if len(word) == 1 else word for word in words.split()]
    status = int(arguments[0] == "compare")
    whole = run(*arguments, status=status).out
    assert NAMES[0] in whole and NAMES[1] in whole and "…" not in whole and "no room" not in whole
    assert "\x1b" not in whole and "\\033[2J\\033[31mred\\nline" in whole, "control characters"
    lines = whole.splitlines()[: len(NAMES) + 1]
    at = columns_of(lines[0][: lines[0].index("path")])  # the first character of the column after it
    rows = [(next(line for line in lines if name in line), name) for name in NAMES[:2]]
    ends = {columns_of(line[: line.index(name) + len(name)]) for line, name in rows}
    assert all(columns_of(line[: line.index(name)]) == at for line, name in rows)
    assert max(ends) <= columns_of(lines[1])
    assert arguments[0] == "compare" or len({columns_of(line) for line in lines}) == 1, "aligned"
    for columns in (100, 80, 60, 50):
        text = run(*arguments, status=status, COLUMNS=str(columns)).out
        assert max(map(columns_of, text.splitlines())) <= columns
        assert "plain" in text and "\x1b" not in text
        assert set(lines[0].split()) <= set(text.replace(",", " ").split())
    assert "…" not in run(*arguments, status=status, COLUMNS="50", LC_ALL="C").out, "dots in a locale without them"


@pytest.mark.parametrize("columns", [80, 50])
def test_bars_of_histograms_shrink_to_fit(files, columns):
    text = run("show", files / "a", "--histogram", "--entry", "plain", COLUMNS=str(columns)).out
    assert "█" in text and max(map(columns_of, text.splitlines())) <= columns
