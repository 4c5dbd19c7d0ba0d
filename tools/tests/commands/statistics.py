#!/usr/bin/env python3
"""Tests torchtap show and compare on recordings of statistics against torch and NumPy.

usage: statistics.py TORCHTAP"""

import csv
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

torchtap = str(pathlib.Path(sys.argv[1]).resolve())
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, status=0, **environment):
    """Returns stdout and stderr. The test sets the terminal's properties."""
    base = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [torchtap, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**base, "LC_ALL": "C.UTF-8", **environment},
    )
    check(
        done.returncode == status,
        f"{' '.join(map(str, arguments))}: exit status {done.returncode} instead of {status}\n{done.stdout}\n{done.stderr}",
    )
    return done.stdout, done.stderr


def document(*arguments, status=0):
    return json.loads(run(*arguments, "--json", status=status)[0])


def rows_of(*arguments, status=0):
    return list(csv.DictReader(io.StringIO(run(*arguments, "--csv", status=status)[0])))


def close(got, want, tolerance=1e-6):
    got, want = float(got), float(want)
    return (
        math.isnan(got) and math.isnan(want) or got == want or abs(got - want) <= tolerance * max(abs(got), abs(want))
    )


class Scale(torch.nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Spoil(torch.nn.Module):
    """Returns a NaN and an infinity for large values."""

    def forward(self, x):
        return torch.where(
            x > 2, torch.full_like(x, float("nan")), torch.where(x < -2, torch.full_like(x, float("inf")), x)
        )


class Net(torch.nn.Module):
    def __init__(self, big: float):
        super().__init__()
        self.first = Scale(1.0)
        self.before = Scale(1.2)
        self.big = Scale(big)
        self.after = Scale(0.9)
        self.dead = Scale(0.0)
        self.last_of_a_long_line_of_names = Scale(1.1)
        self.relu = torch.nn.ReLU()
        self.spoil = Spoil()

    def forward(self, x):
        a = (
            self.first(x)
            + self.before(x)
            + self.big(x) / 100
            + self.after(x)
            + self.dead(x)
            + self.last_of_a_long_line_of_names(x)
        )
        return a + self.relu(x), self.spoil(x)


OF = {
    "first": lambda x: x,
    "before": lambda x: x * 1.2,
    "after": lambda x: x * 0.9,
    "dead": lambda x: x * 0,
    "last_of_a_long_line_of_names": lambda x: x * 1.1,
    "relu": torch.relu,
    "spoil": Spoil(),
}


def record(
    folder, name, batches, *arguments, big=1.0, reduce="moments,histogram:64:-4:4,count,min,max,abs_max", expect=0
):
    model, inputs = folder / f"{name}.model.pt", folder / f"{name}.inputs.pt"
    torch.jit.script(Net(big).eval()).save(str(model))
    torch.save([[batch] for batch in batches], inputs)
    run(
        "record",
        model,
        "--input",
        inputs,
        "--batches",
        "--save",
        folder / name,
        *(["--reduce", reduce] if reduce else []),
        *arguments,
        status=expect,
    )
    return folder / name


def moments(x):
    """Computes the statistics of all elements that Moments has."""
    x = x.double().flatten()
    central = x - x.mean()
    m2, m3, m4 = ((central**k).mean() for k in (2, 3, 4))
    return {"mean": x.mean(), "std": x.var().sqrt(), "skewness": m3 / m2**1.5, "kurtosis": m4 / m2**2 - 3}


def check_values(folder, batches):
    """Compares all numbers in all formats with torch."""
    stats = record(folder, "stats", batches)
    entries = {entry["path"]: entry for entry in document("show", stats)["entries"]}
    lines = {row["path"]: row for row in rows_of("show", stats)}
    raw_manifest = json.load(open(stats / "manifest.json"))
    check(set(entries) == {"", "big", *OF}, f"show: one entry a module: {set(entries)}")
    for path, function in OF.items():
        x = function(torch.cat(batches))
        entry, line = entries[path]["statistics"], lines[path]
        want = {
            "rows": len(batches),
            "elements": x.numel(),
            "nan": x.isnan().sum(),
            "inf": x.isinf().sum(),
            "zeros": (x == 0).sum(),
            "min": x.min(),
            "max": x.max(),
            "abs_max": x.abs().max(),
            **moments(x),
        }
        for name in ("elements", "nan", "inf", "zeros"):
            check(
                type(entry[name]) is int and entry[name] == int(want[name]),
                f"show: {path} {name} {entry[name]} instead of {want[name]}",
            )
        if path == "spoil":
            continue
        for name in ("mean", "std", "min", "max", "abs_max", "skewness", "kurtosis"):
            check(close(entry[name], want[name], 1e-5), f"show: {path} {name} {entry[name]} instead of {want[name]}")
            check(
                close(line[name], entry[name], 0), f"show: {path} {name} in CSV {line[name]} instead of {entry[name]}"
            )
        counts, edges = numpy.histogram(x.double().numpy(), 64, (-4, 4))
        check(
            entry["histogram"]["counts"] == counts.tolist() and numpy.allclose(entry["histogram"]["edges"], edges),
            f"show: {path} histogram",
        )
        check(
            [int(word) for word in line["histogram.counts"].split()] == counts.tolist(),
            f"show: {path} histogram in CSV",
        )
        check(
            entry["underflow"] == int((x < -4).sum()) and entry["overflow"] == int((x > 4).sum()),
            f"show: {path} outside of the histogram",
        )
    for entry in raw_manifest["entries"]:
        for field in ("index", "type", "kind", "samples", "dtype", "shape"):
            check(entries[entry["path"]][field] == entry[field], f"show --json: {field} of the manifest")
    check(
        "variance" not in json.dumps(entries["first"]["statistics"]),
        "show: a standard deviation stands for the variance",
    )

    table = run("show", stats)[0].splitlines()
    titles = table[0].split()
    for title in (
        "path",
        "type",
        "mean",
        "std",
        "skewness",
        "kurtosis",
        "min",
        "max",
        "abs_max",
        "zeros",
        "nan",
        "inf",
        "histogram",
        "mark",
    ):
        check(title in titles, f"show: column {title}: {titles}")
    line = next(line for line in table if " before " in line)
    x = torch.cat(batches) * 1.2
    for value in (f"{float(moments(x)['std']):.4g}", f"{float(x.max()):.4g}", str(x.numel())):
        check(f" {value} " in line, f"show: {value} in {line}")
    check("Scale" in line and "__torch__" not in line, f"show: a short type in {line}")
    return stats


def check_sparkline(folder):
    """Sparkline levels are eighths of the largest count; an empty bin is blank."""
    counts = torch.tensor([0, 8, 4, 1, 0, 2, 8, 0], dtype=torch.int64)
    torch.save({"counts": counts, "edges": torch.linspace(0, 8, 9)}, folder / "bins.pt")
    text = run("show", folder / "bins.pt")[0].splitlines()[1]
    check("█▄▁ ▂█" in text, f"sparkline: {text}")
    text = run("show", folder / "bins.pt", LC_ALL="C")[0]
    check("@=. :@" in text and text.isascii(), f"sparkline in ASCII: {text}")
    # 64 bins on 32 characters: two bins each.
    counts = torch.zeros(64, dtype=torch.int64)
    counts[10:12] = torch.tensor([3, 5])
    counts[40] = 4
    torch.save({"counts": counts, "edges": torch.linspace(0, 1, 65)}, folder / "bins.pt")
    text = run("show", folder / "bins.pt")[0].splitlines()[1]
    check("█" + " " * 14 + "▄" in text, f"sparkline of 64 bins: {text!r}")
    check(
        "█" + " " * 7 + "▄" in run("show", folder / "bins.pt", COLUMNS="50")[0],
        "sparkline of 64 bins where there is less room",
    )


def check_sort(stats):
    for column in ("std", "mean", "zeros", "max"):
        for sign in ("", "-"):
            got = [
                entry["statistics"][column] for entry in document("show", stats, f"--sort={sign}{column}")["entries"]
            ]
            got = [float(value) for value in got if float(value) == float(value)]
            check(got == sorted(got, reverse=not sign), f"show --sort {sign}{column}: {got}")
            check(
                [row["path"] for row in rows_of("show", stats, "--sort", sign + column)]
                == [entry["path"] for entry in document("show", stats, "--sort", sign + column)["entries"]],
                "show --sort: CSV as JSON",
            )
    paths = [entry["path"] for entry in document("show", stats, "--sort", "path")["entries"]]
    check(paths == sorted(paths), f"show --sort path: {paths}")
    entries = document("show", stats, "--sort", "mean")["entries"]
    check(
        [entry["path"] for entry in entries][-1] in ("", "spoil") and entries[-1]["statistics"]["mean"] == "NaN",
        "show --sort: NaN comes last",
    )
    table = run("show", stats, "--sort", "std")[0].splitlines()
    check(table[1].split()[1] == entries_sorted(stats, "std"), f"show --sort: the table {table[1]}")
    check("std" in run("show", stats, "--sort", "nosuch", status=2)[1], "show --sort: the columns there are")
    run("show", stats, "--sort", "histogram", status=2)


def entries_sorted(stats, column):
    entries = [entry for entry in document("show", stats)["entries"] if entry["statistics"][column] != "NaN"]
    return max(entries, key=lambda entry: entry["statistics"][column])["path"] or "(root)"


def check_marks(folder, batches):
    """big is between 1.2 and 0.9, so the geometric mean of its neighbours is known."""
    mean = math.sqrt(1.2 * 0.9)
    for times, marked in ((100.5, True), (99.5, False)):
        name = f"big-{times}"
        stats = record(folder, name, batches, big=mean * times)
        marks = {entry["path"]: entry["marks"] for entry in document("show", stats)["entries"]}
        want = {path: [] for path in marks}
        want.update({"dead": ["all_zero"], "spoil": ["nonfinite"], "big": ["scale_outlier"] if marked else []})
        check(marks == want, f"marks with {times}: {marks}")
        check({row["path"]: row["marks"].split() for row in rows_of("show", stats)} == want, "marks in CSV")
        table = run("show", stats)[0]
        for path, words in want.items():
            line = next(line for line in table.splitlines() if f" {path or '(root)'} " in line)
            for word in ("all_zero", "nonfinite", "scale_outlier"):
                check((word in line.split()) == (word in words), f"marks: {word} in {line}")
        for word, shown in (("all_zero:", True), ("nonfinite:", True), ("scale_outlier:", marked)):
            check((word in table) == shown, f"marks: the legend of {word} {table}")
    # Norms, extrema and vector results are marked too; healthy modules have no mark and no legend.
    for reduce in ("norm", "min,max", "abs_max", "ema"):
        over = ["--over", "0"] if reduce == "ema" else []
        stats = record(folder, "marks-" + reduce, batches, *over, reduce=reduce, big=150.0)
        marks = {entry["path"]: entry["marks"] for entry in document("show", stats)["entries"]}
        check(
            marks["dead"] == ["all_zero"]
            and marks["big"] == ["scale_outlier"]
            and marks["first"] == []
            and marks["spoil"] == ["nonfinite"],
            f"marks by {reduce}: {marks}",
        )
    stats = record(folder, "unmarked", batches, "--names", "first", "--names", "before", "--names", "relu")
    table = run("show", stats)[0]
    check("mark" not in table and "all_zero:" not in table, f"no marks, no legend: {table}")
    # Where zeros are counted, 99 % are enough.
    for ones, want in ((1, ["dead_relu"]), (2, [])):
        batch = torch.zeros(16, 8)  # 1 of 128 is 0.8 %
        batch[:ones, 0] = 1
        stats = record(folder, f"nearly-dead-{ones}", [batch], "--names", "relu", reduce="count")
        (entry,) = document("show", stats)["entries"]
        check(entry["marks"] == want, f"{ones} of 128 values are not zero: {entry['marks']}")
    # A minimum of zero after a ReLU is not marked, nor is the skewness of a constant.
    stats = record(folder, "minimum", batches, reduce="min")
    check(
        {entry["path"]: entry["marks"] for entry in document("show", stats)["entries"]}["relu"] == [],
        "the minimum of a ReLU",
    )
    stats = record(folder, "constant", [torch.ones(4, 8)], "--names", "first")
    (entry,) = document("show", stats)["entries"]
    check(entry["statistics"]["kurtosis"] == "NaN" and entry["marks"] == [], f"the kurtosis of a constant: {entry}")


def check_width(stats):
    """Lines fit the terminal; missing columns are named; JSON and CSV always have everything."""
    for columns in (60, 80, 100, 120):
        for more in ([], ["--sort", "kurtosis"]):
            text = run("show", stats, *more, COLUMNS=str(columns))[0]
            check(max(map(len, text.splitlines())) <= columns, f"show in {columns} columns:\n{text}")
            titles = text.splitlines()[0].split()
            check(
                {"path", "mark"} <= set(titles) and ("kurtosis" in titles or not more),
                f"show in {columns} columns: {titles}",
            )
            wide = set(run("show", stats)[0].splitlines()[0].split())
            told = text.replace(",", " ").split()
            check(wide <= set(told), f"show in {columns} columns: nothing is said of {wide - set(told)}")
    text = run("show", stats, COLUMNS="80")[0]
    check("std" in text.splitlines()[0].split() and "nan" in text, "show in 80 columns: what matters most")
    text = run("show", stats, COLUMNS="60")[0]
    check("…" in text and "of_names" in text, f"show: a path that was cut keeps its end\n{text}")
    check(
        run("show", stats, "--json", COLUMNS="40") == run("show", stats, "--json"),
        "show --json does not depend on the terminal",
    )


def check_vectors(folder, batches):
    stats = record(folder, "vectors", batches, "--over", "0", reduce="moments,max,quantiles,histogram:16:-4:4")
    x = torch.cat(batches).double()
    entry = {entry["path"]: entry for entry in document("show", stats)["entries"]}["first"]["statistics"]
    for name, want in (("mean", x.mean(0)), ("std", x.std(0)), ("max", x.max(0).values)):
        got = entry[name]
        check(
            close(got["min"], want.min(), 1e-5) and close(got["max"], want.max(), 1e-5) and got["elements"] == 8,
            f"vectors: {name} {got}",
        )
        row = {row["path"]: row for row in rows_of("show", stats)}["first"]
        check(
            close(row[name + ".min"], got["min"], 0) and close(row[name + ".max"], got["max"], 0),
            f"vectors: {name} in CSV",
        )
    check(
        entry["histogram"]["counts"] == numpy.histogram(x.numpy(), 16, (-4, 4))[0].tolist(),
        "vectors: histograms are added up",
    )
    check(any(name.startswith("q0.5") for name in entry), f"quantiles by level: {list(entry)}")
    line = next(line for line in run("show", stats)[0].splitlines() if " first " in line)
    check(f"{float(x.mean(0).min()):.3g} … {float(x.mean(0).max()):.3g}" in line, f"vectors: the range in {line}")
    check(run("show", stats, LC_ALL="C")[0].isascii(), "vectors in ASCII")
    text = run("show", stats, "--entry", "first")[0]
    check("moments.std" in text and "quantiles.q0.5" in text and "█" in text, f"show --entry of a module: {text}")
    got = document("show", stats, "--entry", "first", "--result", "moments.mean")["values"]
    check(numpy.allclose(got, x.mean(0).numpy(), rtol=1e-5), "show --entry --result has the values")
    (got,) = document("show", stats, "--entry", "first", "--result", "std")["entries"]
    check(list(got["statistics"]) == ["std"], f"show --entry --result has a column: {got}")
    got = rows_of("show", stats, "--result", "max")
    check(
        set(got[0])
        == {
            "index",
            "path",
            "type",
            "kind",
            "samples",
            "marks",
            "max.min",
            "max.max",
            "max.elements",
            "max.nan",
            "max.inf",
        },
        f"show --result: {got[0]}",
    )
    check(
        "moments.variance" in run("show", stats, "--entry", "first", "--result", "nosuch", status=2)[1],
        "show --result: the results there are",
    )
    check("std" in run("show", stats, "--result", "nosuch", status=2)[1], "show --result: the columns there are")


def check_slots(folder, batches):
    """A model with two outputs gets a row for each, compared with the corresponding row."""
    for reduce in ("moments", "mean"):
        stats = record(folder, "slots-" + reduce, batches, "--all-tensors", reduce=reduce, big=2.0)
        other = record(
            folder, "slots-other-" + reduce, [batch + 1 for batch in batches], "--all-tensors", reduce=reduce, big=2.0
        )
        entries = [(entry["path"], entry["slot"]) for entry in document("show", stats)["entries"]]
        check(entries[:3] == [("", 0), ("", 1), ("first", 0)] and len(entries) == 10, f"slots: {entries}")
        first = document("show", stats)["entries"][2]["statistics"]
        check(close(first["mean"], torch.cat(batches).double().mean(), 1e-5), f"slots: {first}")
        table = run("show", stats)[0]
        check(
            "(root)[1]" in table and "nonfinite" in next(line for line in table.splitlines() if "(root)[1]" in line),
            f"slots: {table}",
        )
        got = {
            (entry["path"], entry["slot"]): entry for entry in document("compare", stats, other, status=1)["entries"]
        }
        check(set(got) == set(entries), f"compare of slots: {set(got)}")
        if reduce == "moments":
            x = torch.cat(batches).double()
            check(close(got["first", 0]["mean_shift"], 1 / x.std(), 1e-5), f"compare of slots: {got['first', 0]}")


def check_single(folder, batches):
    """A single reduction, whose result has no name; --stats of single numbers; no samples; kept samples."""
    stats = record(folder, "single", batches, reduce="mean")
    entry = {entry["path"]: entry for entry in document("show", stats)["entries"]}["first"]["statistics"]
    check(
        list(entry) == ["mean"] and close(entry["mean"], torch.cat(batches).double().mean(), 1e-5),
        f"one result: {entry}",
    )
    text = run("show", stats, "--stats")[0]
    line = next(line for line in text.splitlines() if " first " in line).split()
    check(line[5] == "-" and "nan" not in line, f"--stats: one number has no deviation: {line}")
    stat = next(stat for stat in document("show", stats, "--stats")["stats"] if stat["path"] == "first")
    check(stat["std"] is None and stat["elements"] == 1, f"--stats: one number has no deviation: {stat}")

    raw = record(folder, "raw", batches, reduce="")
    table = run("show", raw)[0]
    check(
        table.splitlines()[0].split()
        == ["index", "path", "type", "kind", "samples", "reduction", "dtype", "shape", "bytes"],
        "show of samples",
    )
    rows = rows_of("show", raw)
    check(
        rows[1]["path"] == "first"
        and rows[1]["samples"] == "3"
        and rows[1]["shape"] == "-1 8"
        and rows[1]["dtype"] == "float32",
        f"samples in CSV: {rows[1]}",
    )
    for columns in (60, 80):
        text = run("show", raw, COLUMNS=str(columns))[0]
        titles = set(text.splitlines()[0].split())
        check(
            max(map(len, text.splitlines())) <= columns and {"path", "samples", "shape"} <= titles,
            f"samples in {columns} columns:\n{text}",
        )
    check("samples" in run("show", raw, "--sort", "std", status=2)[1], "--sort is for statistics")
    stats = rows_of("show", raw, "--stats")
    x = torch.cat(batches).double()
    check(close(next(row for row in stats if row["path"] == "first")["std"], x.std(), 1e-6), "--stats in CSV")
    return raw


def cdf(counts, edges, below, above, x):
    """For values spread evenly over their bins, and values outside at the outermost edges."""
    total = counts.sum() + below + above
    inside = numpy.interp(x, edges, numpy.concatenate([[0], numpy.cumsum(counts)])) + below
    return numpy.where(x < edges[0], 0, numpy.where(x >= edges[-1], total, inside)) / total


def wasserstein(a, b):
    """Computes the area between two distribution functions on a fine grid."""
    low, high = min(a[1][0], b[1][0]), max(a[1][-1], b[1][-1])
    steps = 2_000_000
    x = low + (numpy.arange(steps) + 0.5) * (high - low) / steps
    return numpy.abs(cdf(*a, x) - cdf(*b, x)).mean() * (high - low)


def binned(x, bins, low, high):
    x = x.double().flatten().numpy()
    counts, edges = numpy.histogram(x, bins, (low, high))
    return counts, edges, (x < low).sum(), (x > high).sum()


def check_compare(folder, batches, raw):
    names = ["--names", "first", "--names", "relu", "--names", "before"]
    a = record(folder, "A", batches, *names, reduce="moments,histogram:64:-4:4,count,max")
    other = [batch * 1.3 + 0.2 for batch in batches[:2]]
    b = record(folder, "B", other, *names, reduce="moments,histogram:48:-3:5,count,max")
    got = document("compare", a, b, status=1)
    distances = [entry["distance"] for entry in got["entries"]]
    check(distances == sorted(distances, reverse=True) and not got["agree"], f"compare: the largest first: {distances}")
    by_path = {entry["path"]: entry for entry in got["entries"]}
    for path in ("first", "relu", "before"):
        x, y = OF[path](torch.cat(batches)), OF[path](torch.cat(other))
        entry = by_path[path]
        std = float(x.double().std())
        want = {
            "mean_shift": float(y.double().mean() - x.double().mean()) / std,
            "std_ratio": float(y.double().std()) / std,
            "wasserstein": wasserstein(binned(x, 64, -4, 4), binned(y, 48, -3, 5)) / std,
            "zeros_share": float((y == 0).double().mean() - (x == 0).double().mean()),
        }
        for name, value in want.items():
            check(
                close(entry[name], value, 1e-4) or abs(entry[name] - value) < 1e-6,
                f"compare: {path} {name} {entry[name]} instead of {value}",
            )
        largest = max(
            abs(want["mean_shift"]), abs(math.log(want["std_ratio"])), abs(want["zeros_share"]), want["wasserstein"]
        )
        check(
            close(entry["distance"], largest, 1e-4),
            f"compare: {path} distance {entry['distance']} instead of {largest}",
        )
        check(entry["wasserstein_unit"] == "std of A" and entry["samples"] == {"a": 3, "b": 2}, f"compare: {entry}")
        change = entry["changes"]["max.value" if "max.value" in entry["changes"] else "max"]
        check(
            close(change["a"], x.max(), 1e-6)
            and close(change["b"], y.max(), 1e-6)
            and close(change["absolute"], y.max() - x.max(), 1e-5)
            and close(change["relative"], abs(y.max() - x.max()) / max(abs(x.max()), abs(y.max())), 1e-5),
            f"compare: {path} {change}",
        )
    rows = rows_of("compare", a, b, status=1)
    check(
        [row["path"] for row in rows] == [entry["path"] for entry in got["entries"]]
        and all(close(row["mean_shift"], by_path[row["path"]]["mean_shift"], 0) for row in rows),
        "compare --csv",
    )
    for columns in (80, 120):
        text = run("compare", a, b, status=1, COLUMNS=str(columns))[0]
        check(max(map(len, text.splitlines())) <= columns, f"compare in {columns} columns:\n{text}")
        check(
            {"path", "distance", "shift", "W1", "status"} <= set(text.splitlines()[0].split()),
            f"compare in {columns} columns:\n{text}",
        )
    check(
        "shift: of the mean" in text and "3 of 3 rows are not within 0.1" in text and "different" in text,
        f"compare: {text}",
    )
    check(text.splitlines()[1].split()[0] == got["entries"][0]["path"], "compare: the largest first in the table")
    run("compare", a, b, "--tolerance", max(distances) * 1.001, status=0)
    run("compare", a, b, "--tolerance", max(distances) * 0.999, status=1)

    # The same data, other data of the same distribution, other numbers of samples.
    got = document("compare", a, a, "--tolerance", "0", status=0)
    check(
        got["agree"]
        and got["first"] is None
        and all(entry["status"] == "same" and entry["distance"] == 0 for entry in got["entries"]),
        f"compare with itself: {got}",
    )
    generator = torch.Generator().manual_seed(7)
    sizes = (700, 900)
    big = [torch.randn(size, 8, generator=generator) for size in (*sizes, 800)]
    alike = [torch.randn(size, 8, generator=generator) for size in sizes]
    more = document("compare", record(folder, "C", big, *names), record(folder, "D", alike, *names), status=0)
    check({entry["status"] for entry in more["entries"]} == {"close"}, f"compare of other data: {more}")
    run("compare", folder / "C", folder / "D", "--tolerance", "1e-6", status=1)

    # Number by number if a tolerance for numbers is given, and for samples.
    got = document("compare", a, b, "--rtol", "1e-4", status=1)
    check("max_abs" in got["entries"][0], f"compare --rtol: {got}")
    run("compare", a, a, "--rtol", "0", "--atol", "0", status=0)
    got = document("compare", raw, raw, status=0)
    check("cosine" in got["entries"][0], "compare of samples")
    check([row["status"] for row in rows_of("compare", raw, raw)] == ["equal"] * 9, "compare of samples in CSV")
    check("--rtol" in run("compare", raw, raw, "--tolerance", "1", status=2)[1], "--tolerance is for statistics")
    run("compare", a, b, "--tolerance", "1", "--rtol", "1", status=2)
    run("compare", a, folder / "nosuch", status=2)

    # Modules that cannot be compared come first.
    missing = document(
        "compare",
        a,
        record(folder, "fewer", batches, "--names", "first", "--names", "relu", reduce="moments"),
        status=1,
    )
    check(
        missing["entries"][0]["path"] == "before"
        and missing["entries"][0]["status"] == "missing in B"
        and missing["entries"][0]["distance"] == "Infinity",
        f"compare: missing: {missing}",
    )
    check(
        missing["entries"][1]["status"] == "same" and "only in A" in missing["entries"][1]["detail"],
        f"compare: other results: {missing}",
    )
    spoiled = document(
        "compare",
        record(folder, "whole", [batch.clamp(-1, 1) for batch in batches], "--names", "spoil"),
        record(folder, "spoiled", batches, "--names", "spoil"),
        status=1,
    )
    check(spoiled["entries"][0]["status"] == "nonfinite in B", f"compare: NaN: {spoiled}")
    nothing = document("compare", a, record(folder, "other", batches, *names, reduce="last"), status=1)
    check(
        {entry["status"] for entry in nothing["entries"]} == {"not the same results"},
        f"compare: nothing in common: {nothing}",
    )


def check_wasserstein(folder):
    """Histograms without moments, with different edges, values outside, and curves that cross between edges."""
    generator = numpy.random.default_rng(0)
    for trial in range(6):
        sides = []
        for side in ("a", "b"):
            bins, low, high = int(generator.integers(3, 40)), *sorted(generator.uniform(-5, 5, 2))
            x = torch.tensor(generator.normal(generator.uniform(-1, 1), generator.uniform(0.5, 2), 500))
            counts, edges, below, above = binned(x, bins, low, high)
            sides.append((counts, edges, below, above))
            torch.save(
                {
                    "counts": torch.tensor(counts),
                    "edges": torch.tensor(edges),
                    "underflow": torch.tensor(below),
                    "overflow": torch.tensor(above),
                    "nan": torch.tensor(0),
                },
                folder / f"w{side}.pt",
            )
        entry = json.loads(
            subprocess.run(
                [torchtap, "compare", folder / "wa.pt", folder / "wb.pt", "--json"], capture_output=True, text=True
            ).stdout
        )["entries"][0]
        check(
            abs(entry["wasserstein"] - wasserstein(*sides)) < 1e-4 and entry["wasserstein_unit"] == "value",
            f"Wasserstein: {entry} instead of {wasserstein(*sides)}",
        )
    # A known distance: all values move by two bins of 0.5.
    for side, counts in (("a", [4, 6, 0, 0]), ("b", [0, 0, 4, 6])):
        torch.save({"counts": torch.tensor(counts), "edges": torch.tensor([0, 0.5, 1, 1.5, 2])}, folder / f"w{side}.pt")
    entry = document("compare", folder / "wa.pt", folder / "wb.pt", status=1)["entries"][0]
    check(close(entry["wasserstein"], 1.0, 1e-12) and close(entry["distance"], 1.0, 1e-12), f"Wasserstein: {entry}")


def check_rows(folder, batches):
    """For elementwise statistics, the element that moved most counts."""
    moved = [batch.clone() for batch in batches]
    for batch in moved:
        batch[:, 5] = batch[:, 5] * 2 - 1
    names = ["--names", "first", "--over", "0"]
    a = record(folder, "rows-a", batches, *names, reduce="moments,histogram:32:-4:4")
    b = record(folder, "rows-b", moved, *names, reduce="moments,histogram:32:-4:4")
    (entry,) = document("compare", a, b, status=1)["entries"]
    x, y = torch.cat(batches)[:, 5], torch.cat(moved)[:, 5]
    std = float(x.double().std())
    check(
        close(entry["mean_shift"], float(y.double().mean() - x.double().mean()) / std, 1e-5),
        f"elementwise shift: {entry}",
    )
    check(close(entry["std_ratio"], 2, 1e-5), f"elementwise ratio: {entry}")
    check(
        close(entry["wasserstein"], wasserstein(binned(x, 32, -4, 4), binned(y, 32, -4, 4)) / std, 1e-4),
        f"elementwise Wasserstein: {entry}",
    )
    c = record(folder, "rows-c", batches, "--names", "first", reduce="moments,histogram:32:-4:4")
    check(document("compare", a, c, status=1)["entries"][0]["status"] == "shapes differ", "other shapes")


def check_log_histograms(folder, batches):
    """Bins without a range are drawn by octaves and compared as they are."""
    names = ["--names", "first", "--names", "relu", "--names", "dead"]
    a = record(folder, "log-a", batches, *names, reduce="log_histogram,moments")
    b = record(folder, "log-b", [batch + 0.5 for batch in batches], *names, reduce="log_histogram,moments")
    entries = {entry["path"]: entry["statistics"] for entry in document("show", a)["entries"]}
    for path in ("first", "relu", "dead"):
        x, bins = OF[path](torch.cat(batches)).numpy(), entries[path]["log_histogram"]
        check(
            bins["counts"] == numpy.histogram(x, bins["edges"])[0].tolist() and sum(bins["counts"]) == x.size,
            f"log_histogram of {path}: {bins}",
        )
        check(bins["edges"] == sorted(set(bins["edges"])), f"log_histogram of {path}: edges ascend")
        text = run("show", a, "--entry", path, "--histogram", "--result", "log_histogram")[0]
        rows = [[float(word) for word in line.split()[:3]] for line in text.splitlines()[2:]]
        check(
            sum(row[2] for row in rows) == x.size and len(rows) <= 45 and len(rows) <= len(bins["counts"]),
            f"log_histogram of {path} by octaves:\n{text}",
        )
        check(
            all(row[0] <= 0 <= row[1] or row[1] * row[0] > 0 for row in rows),
            f"log_histogram of {path}: octaves of a sign:\n{text}",
        )
    (entry,) = [entry for entry in document("compare", a, b, status=1)["entries"] if entry["path"] == "first"]
    x = torch.cat(batches).double()
    check(close(entry["wasserstein"], 0.5 / float(x.std()), 0.01), f"log_histogram: moved by a half {entry}")


def check_keys(folder):
    """Statistics by key: one row for each, which fit the terminal, and comparisons of the keys that both have."""
    generator = torch.Generator().manual_seed(8)
    for number, paths in ((10, ("first", "after")), (1000, ("relu",))):
        batches = [torch.randn(3 * number // 2, 8, generator=generator) for _ in range(2)]
        keys = [torch.randperm(3 * number // 2, generator=generator) % number - 1 for _ in range(2)]
        torch.save(keys, folder / "keys.pt")
        by_key = record(
            folder, f"by{number}", batches, *(text for path in paths for text in ("--names", path)), "--over", "0",
            "--with", f"key={folder / 'keys.pt'}", reduce="by(key, moments, count)",
        )  # fmt: skip
        x, key = torch.cat(batches), torch.cat(keys)
        entries = document("show", by_key)["entries"]
        check(
            [(entry["path"], entry["keys"]) for entry in entries]
            == [(path, {"key": k}) for path in paths for k in range(number - 1)],
            f"show: {number - 1} keys of {paths}, ascending",
        )
        for entry in entries:
            rows = OF[entry["path"]](x[key == entry["keys"]["key"]]).double()
            got = entry["statistics"]
            check(
                got["rows"] == len(rows)
                and close(got["mean"]["max"], rows.mean(0).max(), 1e-5)
                and (len(rows) < 2 or close(got["std"]["max"], rows.std(0).max(), 1e-5)),
                f"show: of {entry['keys']}: {got}",
            )
        wide = set(run("show", by_key)[0].splitlines()[0].split())
        for columns in (80, 140):
            text = run("show", by_key, COLUMNS=str(columns))[0]
            check(max(map(len, text.splitlines())) <= columns, f"show by key in {columns} columns:\n{text[:2000]}")
            for path in paths:
                shown = [line for line in text.splitlines() if f"{path} key=" in line]
                check(
                    [int(line.split("key=")[1].split()[0]) for line in shown] == list(range(number - 1)),
                    f"show by key in {columns} columns: a row for each of {number - 1}, got {len(shown)}",
                )
            check({"path", "mean", "std"} <= set(text.splitlines()[0].split()), f"show by key: {text[:200]}")
            told = set(text.replace(",", " ").split())
            check(wide <= told, f"show by key in {columns} columns: nothing is said of {wide - told}")
        check(
            [(row["path"], int(row["key"])) for row in rows_of("show", by_key)]
            == [(entry["path"], entry["keys"]["key"]) for entry in entries],
            "show --csv by key",
        )

    # Five keys in common, of which one has other values; five on each side alone.
    x = torch.randn(400, 8, generator=generator)
    key = torch.arange(400) % 10
    other = x + 3 * (key == 7).unsqueeze(1)
    torch.save([key], folder / "keys.pt")
    torch.save([torch.where(key < 5, key + 20, key)], folder / "others.pt")
    more = ("--names", "first", "--over", "0")
    left = record(folder, "left", [x], *more, "--with", f"key={folder / 'keys.pt'}", reduce="by(key, moments, count)")
    right = record(
        folder, "right", [other], *more, "--with", f"key={folder / 'others.pt'}", reduce="by(key, moments, count)"
    )
    status = {
        k: "missing in B" if k < 5 else "missing in A" if k >= 20 else "same" for k in [*range(10), *range(20, 25)]
    }
    entries = document("compare", left, right, status=1)["entries"]
    got = {entry["keys"]["key"]: entry for entry in entries}
    check(len(entries) == 15 and set(got) == set(status), f"compare by key: {sorted(got)}")
    for k, entry in got.items():
        if k != 7:
            check(entry["status"] == status[k], f"compare of key {k}: {entry}")
    moved = got[7]
    check(
        moved["status"] not in ("same", "close") and moved["distance"] > 1,
        f"compare: the key whose values moved: {moved}",
    )
    rows = rows_of("compare", left, right, status=1)
    check(
        {int(row["keys.key"]): row["status"] for row in rows} == {k: entry["status"] for k, entry in got.items()},
        "compare --csv by key",
    )
    for columns in (80, 140):
        text = run("compare", left, right, status=1, COLUMNS=str(columns))[0]
        check(max(map(len, text.splitlines())) <= columns, f"compare by key in {columns} columns:\n{text}")
        check(
            all(f"key={k} " in text or f"key={k}\n" in text for k in status if status[k] != "same" or k == 7),
            f"compare by key in {columns} columns: each that differs is listed:\n{text}",
        )
    same_keys = document("compare", left, left, status=0)["entries"]
    check({entry["status"] for entry in same_keys} == {"same"} and len(same_keys) == 10, "compare by key with itself")
    whole = record(folder, "ungrouped", [x], *more, reduce="moments,count")
    got = document("compare", left, whole, status=1)["entries"]
    check(
        sorted(entry["status"] for entry in got) == ["missing in A"] + ["missing in B"] * 10,
        f"compare of one by key and one without: {got}",
    )
    # Keys within keys.
    torch.save([key % 3], folder / "threes.pt")
    nested = record(
        folder, "nested", [x], *more, "--with", f"key={folder / 'keys.pt'}", "--with", f"three={folder / 'threes.pt'}",
        reduce="by(three:4, by(key, moments, count))",
    )  # fmt: skip
    got = document("show", nested)["entries"]
    check(
        [(entry["keys"]["three"], entry["keys"]["key"]) for entry in got] == sorted({(int(k) % 3, int(k)) for k in key})
        and all(entry["statistics"]["rows"] == 40 for entry in got),
        f"show of keys within keys: {[entry['keys'] for entry in got]}",
    )


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(rows, 8, generator=generator) for rows in (40, 60, 50)]
    stats = check_values(folder, batches)
    check_sparkline(folder)
    check_sort(stats)
    check_marks(folder, batches)
    check_width(stats)
    check_vectors(folder, batches)
    check_slots(folder, batches)
    raw = check_single(folder, batches)
    check_compare(folder, batches, raw)
    check_wasserstein(folder)
    check_rows(folder, batches)
    check_log_histograms(folder, batches)
    check_keys(folder)

print("FAILED" if failures else "show and compare of statistics say what torch and NumPy do")
sys.exit(1 if failures else 0)
