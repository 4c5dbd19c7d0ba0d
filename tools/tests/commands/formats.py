"""Tests torchtap formats: of samples, of recordings of formats and of histograms, and of files; scales; its errors."""

import pytest
import torch
from harness import document, rows_of, run

CASTS = {"bf16": torch.bfloat16, "f16": torch.float16}
NORMAL = {"bf16": 2.0**-126, "f16": 2.0**-14}
USUAL = ["e4m3", "e5m2", "bf16", "f16", "int8", "mxfp8", "nvfp4"]


class Net(torch.nn.Module):
    """The outputs of its modules are of different sizes."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(40, 50)
        self.tiny = torch.nn.Linear(50, 60)
        self.huge = torch.nn.Linear(60, 10)
        with torch.no_grad():
            self.tiny.weight.mul_(1e-6)
            self.tiny.bias.mul_(1e-6)
            self.huge.weight.mul_(1e12)

    def forward(self, x):
        return self.huge(self.tiny(self.first(x)))


@pytest.fixture(scope="module", autouse=True)
def recordings(folder):
    torch.manual_seed(0)
    torch.jit.script(Net().eval()).save(str(folder / "model.pt"))
    torch.save([[torch.randn(30, 40)] for _ in range(3)], folder / "inputs.pt")
    for name, reduction in (
        ("samples", []),
        ("formats", ["--reduce", "formats"]),
        ("channels", ["--reduce", "formats:e4m3:f16", "--over", "0"]),
        ("histogram", ["--reduce", "log_histogram"]),
        ("series", ["--reduce", "moments,formats:e4m3:mxfp4"]),
        ("moments", ["--reduce", "moments"]),
    ):
        run(
            "record",
            folder / "model.pt",
            "--input",
            folder / "inputs.pt",
            "--batches",
            *reduction,
            "--save",
            folder / name,
        )


def told(*arguments):
    """What the command says, by path and format."""
    return {(row["path"], row["format"]): row for row in document("formats", *arguments)["formats"]}


def test_samples(folder):
    """Exactly what PyTorch's casts do, where it has them; the same of a recording of formats."""
    of_samples, of_formats = told(folder / "samples"), told(folder / "formats")
    assert {path for path, _ in of_samples} == {"", "first", "tiny", "huge"}
    assert list(dict.fromkeys(name for _, name in of_samples)) == USUAL
    for key, row in of_samples.items():
        assert {**row, "result": "", "scale": None} == {**of_formats[key], "result": ""}
    for index, path in enumerate(("first", "tiny", "huge")):
        place = next(one for one in document("show", folder / "samples")["entries"] if one["path"] == path)
        x = torch.cat(torch.load(folder / "samples" / place["file"]))
        for name, dtype in CASTS.items():
            row, rounded = of_samples[path, name], x.to(dtype).double()
            error = (x.double() - rounded).square().sum()
            assert row["underflow"] == ((rounded == 0) & (x != 0)).double().mean()
            assert row["subnormal"] == ((rounded != 0) & (rounded.abs() < NORMAL[name])).double().mean()
            assert row["overflow"] == rounded.isinf().double().mean()
            if row["overflow"] == 0:
                assert row["sqnr"] == pytest.approx(
                    (10 * torch.log10(x.double().square().sum() / error)).item(), rel=1e-6
                )
    assert of_samples["tiny", "e4m3"]["underflow"] == 1
    assert of_samples["huge", "f16"]["overflow"] > 0.5


def test_histograms(folder):
    """Shares are off by no more than is said, ratios by little."""
    exact, estimated = told(folder / "samples"), told(folder / "histogram")
    assert {name for _, name in estimated} == {"e4m3", "e5m2", "bf16", "f16", "int8"}
    for key, row in estimated.items():
        for share in ("underflow", "subnormal", "overflow"):
            assert abs(row[share] - exact[key][share]) <= row["bound"] + 1e-12
        assert row["scale"] == 1
        if exact[key]["underflow"] < 0.9:
            assert row["sqnr"] == pytest.approx(exact[key]["sqnr"], abs=0.5)


def test_scales(folder):
    """With the scale of the largest value nothing overflows; that of the least error is no worse."""
    for recording in ("samples", "histogram"):
        plain, amax, mse = (
            told(folder / recording, "--to", "e4m3,int8", "--scale", how) for how in ("1", "amax", "mse")
        )
        for key, row in amax.items():
            assert row["overflow"] == 0 and 0 < row["scale"] != 1
            assert row["sqnr"] > plain[key]["sqnr"]
            assert mse[key]["sqnr"] > row["sqnr"] - 0.2
            assert mse[key]["scale"] <= row["scale"]


def test_other_recordings(folder):
    """Results of a series, of channels, of a file of tensors."""
    series, whole = told(folder / "series"), told(folder / "formats")
    assert {name for _, name in series} == {"e4m3", "mxfp4"}
    assert series["first", "e4m3"]["result"] == "formats"
    assert series["first", "e4m3"]["sqnr"] == whole["first", "e4m3"]["sqnr"]
    channels = told(folder / "channels")
    assert channels["first", "f16"]["underflow"] == pytest.approx(whole["first", "f16"]["underflow"])
    torch.save({"a": torch.full((3, 4), 0.3), "b": torch.zeros(5)}, folder / "weights.pt")
    weights = told(folder / "weights.pt", "--to", "mxfp8")
    assert weights["a", "mxfp8"]["sqnr"] == pytest.approx(20 * torch.log10(torch.tensor(0.3 / 0.0125)).item(), abs=1e-4)
    assert weights["b", "mxfp8"]["underflow"] == 0


def test_tables(folder):
    table = run("formats", folder / "samples", "--to", "e4m3,f16").out
    assert table.splitlines()[0].split() == ["module", "e4m3", "f16", "lost"]
    (tiny,) = (line for line in table.splitlines() if line.startswith("tiny"))
    assert "e4m3 100 %" in tiny
    assert "estimated" not in table
    assert "shares are off by at most" in run("formats", folder / "histogram").out
    rows = rows_of("formats", folder / "samples", "--to", "f16")
    assert [row["format"] for row in rows] == ["f16"] * 4
    assert (
        float(rows[0]["underflow"])
        == told(folder / "samples")[rows[0]["path"].replace("(root)", ""), "f16"]["underflow"]
    )


def test_the_rule(folder):
    """format_range is off, and holds where e4m3 would lose values."""
    assert run("check", folder / "histogram", status=None).out.count("format_range") == 0
    rules = folder / "rules.txt"
    rules.write_text("format_range = on\n")
    found = document("check", folder / "histogram", "--rules", rules, status=1)["findings"]
    assert {row["path"] for row in found if row["rule"] == "format_range"} == {"tiny", "huge", ""}


def test_errors(folder):
    for arguments, text in (
        (("samples", "--to", "fp8"), '"fp8" is no format; there are e4m3, e5m2'),
        (("moments",), "neither samples nor histograms"),
        (("histogram", "--to", "nvfp4"), "histograms know no blocks"),
        (("formats", "--scale", "amax"), "omit --scale"),
        (("samples", "--scale", "2"), "--scale"),
    ):
        assert text in run("formats", folder / arguments[0], *arguments[1:], status=2).err
