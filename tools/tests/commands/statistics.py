"""Tests torchtap show and compare on recordings of statistics against torch and NumPy."""

import json
import math

import numpy
import pytest
import torch
from harness import document, entries, rows_of, run


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
    how = ["--reduce", reduce] if reduce else []
    run("record", model, "--input", inputs, "--batches", "--save", folder / name, *how, *arguments, status=expect)
    return folder / name


def moments(x):
    """Computes the statistics of all elements that Moments has."""
    x = x.double().flatten()
    central = x - x.mean()
    m2, m3, m4 = ((central**k).mean() for k in (2, 3, 4))
    return {"mean": x.mean(), "std": x.var().sqrt(), "skewness": m3 / m2**1.5, "kurtosis": m4 / m2**2 - 3}


@pytest.fixture(scope="module")
def batches():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, 8, generator=generator) for rows in (40, 60, 50)]


@pytest.fixture(scope="module")
def stats(folder, batches):
    return record(folder, "stats", batches)


@pytest.fixture(scope="module")
def raw(folder, batches):
    return record(folder, "raw", batches, reduce="")


def test_values(stats, batches):
    """Compares all numbers in all formats with torch."""
    found = {entry["path"]: entry for entry in document("show", stats)["entries"]}
    lines = {row["path"]: row for row in rows_of("show", stats)}
    assert set(found) == {"", "big", *OF}, "show: one entry a module"
    for path, function in OF.items():
        x = function(torch.cat(batches))
        entry, line = found[path]["statistics"], lines[path or "(root)"]
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
            assert type(entry[name]) is int and entry[name] == int(want[name]), "show"
        if path == "spoil":
            continue
        for name in ("mean", "std", "min", "max", "abs_max", "skewness", "kurtosis"):
            assert close(entry[name], want[name], 1e-5), "show"
            assert close(line[name], entry[name], 0), "show"
        counts, edges = numpy.histogram(x.double().numpy(), 64, (-4, 4))
        assert entry["histogram"]["counts"] == counts.tolist() and numpy.allclose(entry["histogram"]["edges"], edges)
        assert [int(word) for word in line["histogram.counts"].split()] == counts.tolist(), "show"
        assert entry["underflow"] == int((x < -4).sum()) and entry["overflow"] == int((x > 4).sum()), "show"
    for entry in entries(stats):
        for field in ("index", "type", "kind", "samples", "dtype", "shape"):
            assert found[entry["path"]][field] == entry[field], "show --json"
    assert "variance" not in json.dumps(found["first"]["statistics"])

    table = run("show", stats).out.splitlines()
    titles = table[0].split()
    for title in "path type mean std skewness kurtosis min max abs_max zeros nan inf histogram mark".split():
        assert title in titles
    line = next(line for line in table if " before " in line)
    x = torch.cat(batches) * 1.2
    for value in (f"{float(moments(x)['std']):.4g}", f"{float(x.max()):.4g}", str(x.numel())):
        assert f" {value} " in line, "show"
    assert "Scale" in line and "__torch__" not in line


def test_sparkline(folder):
    """Sparkline levels are eighths of the largest count; an empty bin is blank."""
    counts = torch.tensor([0, 8, 4, 1, 0, 2, 8, 0], dtype=torch.int64)
    torch.save({"counts": counts, "edges": torch.linspace(0, 8, 9)}, folder / "bins.pt")
    text = run("show", folder / "bins.pt").out.splitlines()[1]
    assert "█▄▁ ▂█" in text, "sparkline"
    text = run("show", folder / "bins.pt", LC_ALL="C").out
    assert "@=. :@" in text and text.isascii(), "sparkline in ASCII"
    # 64 bins on 32 characters: two bins each.
    counts = torch.zeros(64, dtype=torch.int64)
    counts[10:12] = torch.tensor([3, 5])
    counts[40] = 4
    torch.save({"counts": counts, "edges": torch.linspace(0, 1, 65)}, folder / "bins.pt")
    text = run("show", folder / "bins.pt").out.splitlines()[1]
    assert "█" + " " * 14 + "▄" in text, "sparkline of 64 bins"
    assert "█" + " " * 7 + "▄" in run("show", folder / "bins.pt", COLUMNS="50").out


def test_sort(stats):
    for column in ("std", "mean", "zeros", "max"):
        for sign in ("", "-"):
            got = [
                entry["statistics"][column] for entry in document("show", stats, f"--sort={sign}{column}")["entries"]
            ]
            got = [float(value) for value in got if float(value) == float(value)]
            assert got == sorted(got, reverse=not sign)
            assert [row["path"] for row in rows_of("show", stats, "--sort", sign + column)] == [
                entry["path"] or "(root)" for entry in document("show", stats, "--sort", sign + column)["entries"]
            ]
    paths = [entry["path"] for entry in document("show", stats, "--sort", "path")["entries"]]
    assert paths == sorted(paths), "show --sort path"
    entries = document("show", stats, "--sort", "mean")["entries"]
    assert [entry["path"] for entry in entries][-1] in ("", "spoil") and entries[-1]["statistics"]["mean"] == "NaN"
    table = run("show", stats, "--sort", "std").out.splitlines()
    assert table[1].split()[1] == entries_sorted(stats, "std")
    assert "std" in run("show", stats, "--sort", "nosuch", status=2).err, "show --sort: the columns there are"
    run("show", stats, "--sort", "histogram", status=2)


def entries_sorted(stats, column):
    entries = [entry for entry in document("show", stats)["entries"] if entry["statistics"][column] != "NaN"]
    return max(entries, key=lambda entry: entry["statistics"][column])["path"] or "(root)"


def test_marks(folder, batches):
    """big is between 1.2 and 0.9, so the geometric mean of its neighbours is known."""
    mean = math.sqrt(1.2 * 0.9)
    for times, marked in ((100.5, True), (99.5, False)):
        name = f"big-{times}"
        stats = record(folder, name, batches, big=mean * times)
        marks = {entry["path"]: entry["marks"] for entry in document("show", stats)["entries"]}
        want = {path: [] for path in marks}
        want.update({"dead": ["all_zero"], "spoil": ["nonfinite"], "big": ["scale_outlier"] if marked else []})
        assert marks == want
        rows = {row["path"]: row["marks"].split() for row in rows_of("show", stats)}
        assert rows == {path or "(root)": words for path, words in want.items()}, "marks in CSV"
        table = run("show", stats).out
        for path, words in want.items():
            line = next(line for line in table.splitlines() if f" {path or '(root)'} " in line)
            for word in ("all_zero", "nonfinite", "scale_outlier"):
                assert (word in line.split()) == (word in words), "marks"
        for word, shown in (("all_zero:", True), ("nonfinite:", True), ("scale_outlier:", marked)):
            assert (word in table) == shown
    # Norms, extrema and vector results are marked too; healthy modules have no mark and no legend.
    for reduce in ("norm", "min,max", "abs_max", "ema"):
        over = ["--over", "0"] if reduce == "ema" else []
        stats = record(folder, "marks-" + reduce, batches, *over, reduce=reduce, big=150.0)
        marks = {entry["path"]: entry["marks"] for entry in document("show", stats)["entries"]}
        assert marks["dead"] == ["all_zero"]
        assert marks["big"] == ["scale_outlier"]
        assert marks["first"] == []
        assert marks["spoil"] == ["nonfinite"]
    stats = record(folder, "unmarked", batches, "--names", "first", "--names", "before", "--names", "relu")
    table = run("show", stats).out
    assert "mark" not in table and "all_zero:" not in table, "no marks, no legend"
    # Where zeros are counted, 99 % are enough.
    for ones, want in ((1, ["dead_relu"]), (2, [])):
        batch = torch.zeros(16, 8)  # 1 of 128 is 0.8 %
        batch[:ones, 0] = 1
        stats = record(folder, f"nearly-dead-{ones}", [batch], "--names", "relu", reduce="count")
        (entry,) = document("show", stats)["entries"]
        assert entry["marks"] == want
    # A minimum of zero after a ReLU is not marked, nor is the skewness of a constant.
    stats = record(folder, "minimum", batches, reduce="min")
    assert {entry["path"]: entry["marks"] for entry in document("show", stats)["entries"]}["relu"] == []
    stats = record(folder, "constant", [torch.ones(4, 8)], "--names", "first")
    (entry,) = document("show", stats)["entries"]
    assert entry["statistics"]["kurtosis"] == "NaN" and entry["marks"] == [], "the kurtosis of a constant"


def test_width(stats):
    """Lines fit the terminal; missing columns are named; JSON and CSV always have everything."""
    for columns in (60, 80, 100, 120):
        for more in ([], ["--sort", "kurtosis"]):
            text = run("show", stats, *more, COLUMNS=str(columns)).out
            assert max(map(len, text.splitlines())) <= columns
            titles = text.splitlines()[0].split()
            assert {"path", "mark"} <= set(titles) and ("kurtosis" in titles or not more)
            wide = set(run("show", stats).out.splitlines()[0].split())
            told = text.replace(",", " ").split()
            assert wide <= set(told)
    text = run("show", stats, COLUMNS="80").out
    assert "std" in text.splitlines()[0].split() and "nan" in text, "show in 80 columns: what matters most"
    text = run("show", stats, COLUMNS="60").out
    assert "…" in text and "of_names" in text
    assert run("show", stats, "--json", COLUMNS="40") == run("show", stats, "--json")


def test_vectors(folder, batches):
    stats = record(folder, "vectors", batches, "--over", "0", reduce="moments,max,quantiles,histogram:16:-4:4")
    x = torch.cat(batches).double()
    entry = {entry["path"]: entry for entry in document("show", stats)["entries"]}["first"]["statistics"]
    for name, want in (("mean", x.mean(0)), ("std", x.std(0)), ("max", x.max(0).values)):
        got = entry[name]
        assert close(got["min"], want.min(), 1e-5) and close(got["max"], want.max(), 1e-5) and got["elements"] == 8
        row = {row["path"]: row for row in rows_of("show", stats)}["first"]
        assert close(row[name + ".min"], got["min"], 0) and close(row[name + ".max"], got["max"], 0), "vectors"
    assert entry["histogram"]["counts"] == numpy.histogram(x.numpy(), 16, (-4, 4))[0].tolist()
    assert any(name.startswith("q0.5") for name in entry), "quantiles by level"
    line = next(line for line in run("show", stats).out.splitlines() if " first " in line)
    assert f"{float(x.mean(0).min()):.3g} … {float(x.mean(0).max()):.3g}" in line
    assert run("show", stats, LC_ALL="C").out.isascii(), "vectors in ASCII"
    text = run("show", stats, "--entry", "first").out
    assert "moments.std" in text and "quantiles.q0.5" in text and "█" in text, "show --entry of a module"
    got = document("show", stats, "--entry", "first", "--result", "moments.mean")["values"]
    assert numpy.allclose(got, x.mean(0).numpy(), rtol=1e-5), "show --entry --result has the values"
    (got,) = document("show", stats, "--entry", "first", "--result", "std")["entries"]
    assert list(got["statistics"]) == ["std"], "show --entry --result has a column"
    got = rows_of("show", stats, "--result", "max")
    assert set(got[0]) == {
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
    }
    assert "moments.variance" in run("show", stats, "--entry", "first", "--result", "nosuch", status=2).err
    assert "std" in run("show", stats, "--result", "nosuch", status=2).err, "show --result: the columns there are"


def test_slots(folder, batches):
    """A model with two outputs gets a row for each, compared with the corresponding row."""
    for reduce in ("moments", "mean"):
        stats = record(folder, "slots-" + reduce, batches, "--all-tensors", reduce=reduce, big=2.0)
        other = record(
            folder, "slots-other-" + reduce, [batch + 1 for batch in batches], "--all-tensors", reduce=reduce, big=2.0
        )
        entries = [(entry["path"], entry["slot"]) for entry in document("show", stats)["entries"]]
        assert entries[:3] == [("", 0), ("", 1), ("first", 0)] and len(entries) == 10, "slots"
        first = document("show", stats)["entries"][2]["statistics"]
        assert close(first["mean"], torch.cat(batches).double().mean(), 1e-5), "slots"
        table = run("show", stats).out
        assert "(root)[1]" in table
        assert "nonfinite" in next(line for line in table.splitlines() if "(root)[1]" in line)
        got = {
            (entry["path"], entry["slot"]): entry for entry in document("compare", stats, other, status=1)["entries"]
        }
        assert set(got) == set(entries), "compare of slots"
        if reduce == "moments":
            x = torch.cat(batches).double()
            assert close(got["first", 0]["mean_shift"], 1 / x.std(), 1e-5), "compare of slots"


def test_single(folder, batches):
    """A single reduction, whose result has no name; --stats of single numbers; no samples; kept samples."""
    stats = record(folder, "single", batches, reduce="mean")
    entry = {entry["path"]: entry for entry in document("show", stats)["entries"]}["first"]["statistics"]
    assert list(entry) == ["mean"] and close(entry["mean"], torch.cat(batches).double().mean(), 1e-5), "one result"
    text = run("show", stats, "--stats").out
    line = next(line for line in text.splitlines() if " first " in line).split()
    assert line[5] == "-" and "nan" not in line, "--stats: one number has no deviation"
    stat = next(stat for stat in document("show", stats, "--stats")["stats"] if stat["path"] == "first")
    assert stat["std"] is None and stat["elements"] == 1, "--stats: one number has no deviation"


def test_whole_numbers(folder):
    """Those beyond 2^53 have all their digits, in files as in results of reductions."""
    values = torch.tensor([2**53 + 1, -(2**62) - 1, 2**63 - 1])
    low, high = int(values.min()), int(values.max())
    file = folder / "whole.pt"
    torch.save(values, file)
    (told,) = document("show", file, "--stats")["stats"]
    (row,) = rows_of("show", file, "--stats")
    assert (told["min"], told["max"]) == (low, high) == (int(row["min"]), int(row["max"]))
    place = folder / "extremes"
    place.mkdir()
    torch.save({"mean": values[:2], "variance": values[1:], "min": values, "max": values[2]}, place / "fc.pt")
    (entry,) = document("show", place)["entries"]
    of = entry["statistics"]
    assert (of["min"]["min"], of["min"]["max"], of["max"]) == (low, high, high)
    (row,) = rows_of("show", place)
    assert (int(row["min.min"]), int(row["min.max"]), int(row["max"])) == (low, high, high)


def test_samples(batches, raw):
    table = run("show", raw).out
    assert table.splitlines()[0].split() == "index path type kind samples reduction dtype shape bytes".split()
    rows = rows_of("show", raw)
    assert rows[1]["path"] == "first"
    assert rows[1]["samples"] == "3"
    assert rows[1]["shape"] == "-1 8"
    assert rows[1]["dtype"] == "float32"
    for columns in (60, 80):
        text = run("show", raw, COLUMNS=str(columns)).out
        titles = set(text.splitlines()[0].split())
        assert max(map(len, text.splitlines())) <= columns and {"path", "samples", "shape"} <= titles
    assert "samples" in run("show", raw, "--sort", "std", status=2).err, "--sort is for statistics"
    stats = rows_of("show", raw, "--stats")
    x = torch.cat(batches).double()
    assert close(next(row for row in stats if row["path"] == "first")["std"], x.std(), 1e-6), "--stats in CSV"


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


def test_compare(folder, batches, raw):
    names = ["--names", "first", "--names", "relu", "--names", "before"]
    a = record(folder, "A", batches, *names, reduce="moments,histogram:64:-4:4,count,max")
    other = [batch * 1.3 + 0.2 for batch in batches[:2]]
    b = record(folder, "B", other, *names, reduce="moments,histogram:48:-3:5,count,max")
    got = document("compare", a, b, status=1)
    distances = [entry["distance"] for entry in got["entries"]]
    assert distances == sorted(distances, reverse=True) and not got["agree"], "compare: the largest first"
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
            assert close(entry[name], value, 1e-4) or abs(entry[name] - value) < 1e-6, "compare"
        largest = max(
            abs(want["mean_shift"]), abs(math.log(want["std_ratio"])), abs(want["zeros_share"]), want["wasserstein"]
        )
        assert close(entry["distance"], largest, 1e-4), "compare"
        assert entry["wasserstein_unit"] == "std of A" and entry["samples"] == {"a": 3, "b": 2}, "compare"
        change = entry["changes"]["max.value" if "max.value" in entry["changes"] else "max"]
        assert close(change["a"], x.max(), 1e-6)
        assert close(change["b"], y.max(), 1e-6)
        assert close(change["absolute"], y.max() - x.max(), 1e-5)
        assert close(change["relative"], abs(y.max() - x.max()) / max(abs(x.max()), abs(y.max())), 1e-5)
    rows = rows_of("compare", a, b, status=1)
    assert [row["path"] for row in rows] == [entry["path"] or "(root)" for entry in got["entries"]]
    assert all(close(row["mean_shift"], by_path[row["path"].replace("(root)", "")]["mean_shift"], 0) for row in rows)
    for columns in (80, 120):
        text = run("compare", a, b, status=1, COLUMNS=str(columns)).out
        assert max(map(len, text.splitlines())) <= columns
        assert {"path", "distance", "shift", "W1", "status"} <= set(text.split("\n\n")[1].split("\n")[0].split())
    assert (
        "shift: of the mean" in text
        and "3 of 3 rows do not agree" in text
        and "what chance gives" in text
        and "different" in text
    )
    assert text.split("\n\n")[1].split("\n")[1].split()[0] == got["entries"][0]["path"], (
        "compare: the largest first in the table"
    )
    run("compare", a, b, "--tolerance", max(distances) * 1.001, status=0)
    run("compare", a, b, "--tolerance", max(distances) * 0.999, status=1)

    # The same data, other data of the same distribution, other numbers of samples.
    got = document("compare", a, a, "--tolerance", "0", status=0)
    assert got["agree"]
    assert got["first"] is None
    assert all(entry["status"] == "same" and entry["distance"] == 0 for entry in got["entries"])
    generator = torch.Generator().manual_seed(7)
    sizes = (700, 900)
    big = [torch.randn(size, 8, generator=generator) for size in (*sizes, 800)]
    alike = [torch.randn(size, 8, generator=generator) for size in sizes]
    more = document("compare", record(folder, "C", big, *names), record(folder, "D", alike, *names), status=0)
    assert {entry["status"] for entry in more["entries"]} == {"close"}, "compare of other data"
    run("compare", folder / "C", folder / "D", "--tolerance", "1e-6", status=1)

    # Number by number if a tolerance for numbers is given, and for samples.
    got = document("compare", a, b, "--rtol", "1e-4", status=1)
    assert "max_abs" in got["entries"][0], "compare --rtol"
    run("compare", a, a, "--rtol", "0", "--atol", "0", status=0)
    got = document("compare", raw, raw, status=0)
    assert "cosine" in got["entries"][0], "compare of samples"
    assert [row["status"] for row in rows_of("compare", raw, raw)] == ["equal"] * 9, "compare of samples in CSV"
    assert "--rtol" in run("compare", raw, raw, "--tolerance", "1", status=2).err, "--tolerance is for statistics"
    run("compare", a, b, "--tolerance", "1", "--rtol", "1", status=2)
    run("compare", a, folder / "nosuch", status=2)

    # Modules that cannot be compared come first.
    missing = document(
        *("compare", a, record(folder, "fewer", batches, "--names", "first", "--names", "relu", reduce="moments")),
        status=1,
    )
    assert missing["entries"][0]["path"] == "before"
    assert missing["entries"][0]["status"] == "missing in B"
    assert missing["entries"][0]["distance"] == "Infinity"
    assert missing["entries"][1]["status"] == "same" and "only in A" in missing["entries"][1]["detail"]
    spoiled = document(
        *("compare", record(folder, "whole", [batch.clamp(-1, 1) for batch in batches], "--names", "spoil")),
        record(folder, "spoiled", batches, "--names", "spoil"),
        status=1,
    )
    assert spoiled["entries"][0]["status"] == "nonfinite in B", "compare: NaN"
    nothing = document("compare", a, record(folder, "other", batches, *names, reduce="last"), status=1)
    assert {entry["status"] for entry in nothing["entries"]} == {"not the same results"}, "compare: nothing in common"


def test_wasserstein(folder):
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
        entry = document("compare", folder / "wa.pt", folder / "wb.pt", status=None)["entries"][0]
        assert abs(entry["wasserstein"] - wasserstein(*sides)) < 1e-4 and entry["wasserstein_unit"] == "value"
    # A known distance: all values move by two bins of 0.5.
    for side, counts in (("a", [4, 6, 0, 0]), ("b", [0, 0, 4, 6])):
        torch.save({"counts": torch.tensor(counts), "edges": torch.tensor([0, 0.5, 1, 1.5, 2])}, folder / f"w{side}.pt")
    entry = document("compare", folder / "wa.pt", folder / "wb.pt", status=1)["entries"][0]
    assert close(entry["wasserstein"], 1.0, 1e-12) and close(entry["distance"], 1.0, 1e-12), "Wasserstein"


def test_rows(folder, batches):
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
    assert close(entry["mean_shift"], float(y.double().mean() - x.double().mean()) / std, 1e-5), "elementwise shift"
    assert close(entry["std_ratio"], 2, 1e-5), "elementwise ratio"
    assert close(entry["wasserstein"], wasserstein(binned(x, 32, -4, 4), binned(y, 32, -4, 4)) / std, 1e-4)
    c = record(folder, "rows-c", batches, "--names", "first", reduce="moments,histogram:32:-4:4")
    assert document("compare", a, c, status=1)["entries"][0]["status"] == "shapes differ", "other shapes"


def test_log_histograms(folder, batches):
    """Bins without a range are drawn by octaves and compared as they are."""
    names = ["--names", "first", "--names", "relu", "--names", "dead"]
    a = record(folder, "log-a", batches, *names, reduce="log_histogram,moments")
    b = record(folder, "log-b", [batch + 0.5 for batch in batches], *names, reduce="log_histogram,moments")
    entries = {entry["path"]: entry["statistics"] for entry in document("show", a)["entries"]}
    for path in ("first", "relu", "dead"):
        x, bins = OF[path](torch.cat(batches)).numpy(), entries[path]["log_histogram"]
        assert bins["counts"] == numpy.histogram(x, bins["edges"])[0].tolist() and sum(bins["counts"]) == x.size
        assert bins["edges"] == sorted(set(bins["edges"]))
        text = run("show", a, "--entry", path, "--histogram", "--result", "log_histogram").out
        rows = [[float(word) for word in line.split()[:3]] for line in text.splitlines()[2:]]
        assert sum(row[2] for row in rows) == x.size and len(rows) <= 45 and len(rows) <= len(bins["counts"])
        assert all(row[0] <= 0 <= row[1] or row[1] * row[0] > 0 for row in rows)
    (entry,) = [entry for entry in document("compare", a, b, status=1)["entries"] if entry["path"] == "first"]
    x = torch.cat(batches).double()
    assert close(entry["wasserstein"], 0.5 / float(x.std()), 0.01)


def test_keys(folder):
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
        assert [(entry["path"], entry["keys"]) for entry in entries] == [
            (path, {"key": k}) for path in paths for k in range(number - 1)
        ]
        for entry in entries:
            rows = OF[entry["path"]](x[key == entry["keys"]["key"]]).double()
            got = entry["statistics"]
            assert got["rows"] == len(rows)
            assert close(got["mean"]["max"], rows.mean(0).max(), 1e-5)
            assert len(rows) < 2 or close(got["std"]["max"], rows.std(0).max(), 1e-5)
        wide = set(run("show", by_key).out.splitlines()[0].split())
        for columns in (80, 140):
            text = run("show", by_key, COLUMNS=str(columns)).out
            assert max(map(len, text.splitlines())) <= columns
            for path in paths:
                shown = [line for line in text.splitlines() if f"{path} key=" in line]
                assert [int(line.split("key=")[1].split()[0]) for line in shown] == list(range(number - 1))
            assert {"path", "mean", "std"} <= set(text.splitlines()[0].split()), "show by key"
            told = set(text.replace(",", " ").split())
            assert wide <= told
        assert [(row["path"], int(row["key"])) for row in rows_of("show", by_key)] == [
            (entry["path"] or "(root)", entry["keys"]["key"]) for entry in entries
        ]

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
    assert len(entries) == 15 and set(got) == set(status), "compare by key"
    for k, entry in got.items():
        if k != 7:
            assert entry["status"] == status[k]
    moved = got[7]
    assert moved["status"] not in ("same", "close") and moved["distance"] > 1, "compare: the key whose values moved"
    rows = rows_of("compare", left, right, status=1)
    assert {int(row["keys.key"]): row["status"] for row in rows} == {k: entry["status"] for k, entry in got.items()}
    for columns in (80, 140):
        text = run("compare", left, right, status=1, COLUMNS=str(columns)).out
        assert max(map(len, text.splitlines())) <= columns
        assert all(f"key={k} " in text or f"key={k}\n" in text for k in status if status[k] != "same" or k == 7)
    same_keys = document("compare", left, left, status=0)["entries"]
    assert {entry["status"] for entry in same_keys} == {"same"} and len(same_keys) == 10, "compare by key with itself"
    whole = record(folder, "ungrouped", [x], *more, reduce="moments,count")
    got = document("compare", left, whole, status=1)["entries"]
    assert sorted(entry["status"] for entry in got) == ["missing in A"] + ["missing in B"] * 10
    # Keys within keys.
    torch.save([key % 3], folder / "threes.pt")
    nested = record(
        folder, "nested", [x], *more, "--with", f"key={folder / 'keys.pt'}", "--with", f"three={folder / 'threes.pt'}",
        reduce="by(three:4, by(key, moments, count))",
    )  # fmt: skip
    got = document("show", nested)["entries"]
    assert [(entry["keys"]["three"], entry["keys"]["key"]) for entry in got] == sorted(
        {(int(k) % 3, int(k)) for k in key}
    )
    assert all(entry["statistics"]["rows"] == 40 for entry in got)
