"""Tests torchtap check: what rules find in recordings of any statistics, of samples and in files; its exit status."""

import re

import pytest
import torch
from harness import document, run


def found(*arguments, status=1):
    """The findings as {(path, tensor): [rules]}."""
    told = document("check", *arguments, status=status)
    all = {}
    for finding in told["findings"]:
        all.setdefault((finding["path"], finding["tensor"]), []).append(finding["rule"])
    return all


class Sick(torch.nn.Module):
    """Each module has inputs between 0 and 1 to itself."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.second = torch.nn.Conv2d(3, 8, 3)
        self.large = torch.nn.Conv2d(3, 8, 3)
        self.fourth = torch.nn.Conv2d(3, 8, 3)
        self.dead = torch.nn.ReLU()
        self.high = torch.nn.Sigmoid()
        self.low = torch.nn.Hardsigmoid()
        self.tanh = torch.nn.Tanh()
        self.zero = torch.nn.Identity()
        self.never = torch.nn.Linear(2, 2)
        self.attention = torch.nn.MultiheadAttention(4, 2)
        with torch.no_grad():
            self.large.weight.mul_(3000)

    def forward(self, x):
        y = self.dead(x - 0.995) + self.high(x + 12) + self.low(x * 0.05 - 2.98) + self.tanh(x * 1000 + 1)
        y = y + self.zero(x * 0)
        z = self.first(x) + self.second(x) + self.large(x) + self.fourth(y)
        return z, z / (z - z)


class Scale(torch.nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, x):
        return x * self.factor


class Deep(torch.nn.Module):
    """The gradients of the outputs of its modules are 1e-8, 1, 1e4 and 1."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = Scale(1.0), Scale(1e-8), Scale(1e-4), Scale(1e4)

    def forward(self, x):
        return self.d(self.c(self.b(self.a(x))))


def record(folder, name, *arguments, model="model.pt"):
    place = folder / name
    run("record", folder / model, "--input", folder / "inputs.pt", "--batches", "--save", place, *arguments)
    return place


@pytest.fixture(scope="module", autouse=True)
def model(folder):
    torch.manual_seed(0)
    torch.jit.script(Sick().eval()).save(str(folder / "model.pt"))
    torch.save([[torch.rand(4, 3, 16, 16)] for _ in range(3)], folder / "inputs.pt")


@pytest.fixture(scope="module")
def recorded(folder):
    """All statistics of which a rule makes use."""
    return record(folder, "all", "--reduce", "moments,count,log_histogram,min,max")


def test_recordings(folder, recorded):
    """What each kind of recording tells."""
    output = {
        ("large", "output"): ["scale_outlier"],
        ("dead", "output"): ["dead_relu"],
        ("high", "output"): ["saturated"],
        ("low", "output"): ["saturated"],
        ("tanh", "output"): ["saturated"],
        ("zero", "output"): ["all_zero"],
        ("never", "output"): ["never_ran"],
    }

    for name, arguments, rules, lacks in (
        (recorded, None, ("dead_relu", "saturated", "scale_outlier"), ()),
        ("moments", ("--reduce", "moments"), ("scale_outlier",), ()),
        ("count", ("--reduce", "count"), ("dead_relu",), ()),
        ("norm", ("--reduce", "norm"), ("scale_outlier",), ()),
        ("extrema", ("--reduce", "min,max"), ("scale_outlier",), ()),
        # Without sums, nothing tells that what lies between 0.9375 and 1 is near 1.
        ("log", ("--reduce", "log_histogram"), ("dead_relu", "saturated"), ("high",)),
        # Bins of equal width, of 1 / 64.
        ("even", ("--reduce", "histogram:128:-1:1,count"), ("dead_relu", "saturated"), ()),
        (
            "channels",
            ("--reduce", "moments,log_histogram", "--over", "0,2,3"),
            ("dead_relu", "saturated", "scale_outlier"),
            (),
        ),
        ("blocks", ("--reduce", "blocks"), ("dead_relu", "saturated", "scale_outlier"), ()),
        ("samples", (), ("dead_relu", "saturated", "scale_outlier"), ()),
    ):
        got = found(name if arguments is None else record(folder, name, *arguments))
        want = {
            place: of
            for place, of in output.items()
            if of[0] in (*rules, "all_zero", "never_ran") and place[0] not in lacks
        }
        assert got == want
    # All tensors of a module: the second output has NaN, and is told from the first.
    for name, arguments in (("tensors", ("--reduce", "moments,count")), ("kept", ())):
        place = record(folder, name, "--all-tensors", *arguments)
        told = document("check", place, status=1)
        bad = [one for one in told["findings"] if one["rule"] == "nonfinite"]
        assert [(one["path"], one["slot"]) for one in bad] == [("", 1)] and bad[0]["value"] == bad[0]["value"] > 0
        assert "output[1]" in run("check", place, status=1).out
    # The same marks in show.
    shown = {
        (entry["path"], "output"): entry["marks"] for entry in document("show", recorded)["entries"] if entry["marks"]
    }
    assert shown == found(recorded), "show and check"


class Saturated(torch.nn.Module):
    """Sigmoid and tanh as they saturate in practice, ReLUs of which channels are dead, and an empty branch."""

    def __init__(self):
        super().__init__()
        self.far, self.wide, self.narrow, self.healthy = (torch.nn.Sigmoid() for _ in range(4))
        self.both = torch.nn.Tanh()
        self.channels, self.alive = torch.nn.ReLU(), torch.nn.ReLU()
        self.empty = torch.nn.Identity()

    def forward(self, x):
        y = self.far(x + 7).sum() + self.wide(x * 40).sum() + self.narrow(x * 0.15 + 4.4).sum()
        y = y + self.healthy(x * 0.3 + 4.2).sum() + self.both(x * 20).sum()
        some = x[:, :10].abs()
        some[:, 4:] = 0
        y = y + self.channels(some).sum() + self.alive(x[:, :10]).sum()
        return y + self.empty(x[:0]).sum()


def test_thresholds(folder):
    """What lies above 0.985 is found, or said not to be known; an empty tensor is no NaN."""
    torch.jit.script(Saturated().eval()).save(str(folder / "saturated.pt"))
    torch.save([[torch.randn(200, 50)] for _ in range(2)], folder / "normal.pt")
    for name, arguments, unknown in (
        ("exact", (), ()),
        ("bins", ("--reduce", "moments,count,log_histogram,min,max"), ("narrow", "channels")),
        ("moments", ("--reduce", "moments"), None),
    ):
        place = folder / f"of {name}" / "saturated"
        place.parent.mkdir()
        inputs = ("--input", folder / "normal.pt", "--batches")
        run("record", folder / "saturated.pt", *inputs, "--save", place, *arguments)
        told = document("check", place, status=1)  # "wide" has another scale, too
        got = {one["path"] for one in told["findings"]}
        assert not any(one["rule"] == "nonfinite" for one in told["findings"])
        if unknown is None:
            continue
        assert got | set(unknown) == {"far", "wide", "narrow", "both", "channels"}
        for path in unknown:
            assert any(f'"{path}"' in note for note in told["notes"])


def test_inputs_and_gradients(folder):
    got = found(record(folder, "inputs", "--what", "pre", "--reduce", "moments,count"))
    assert got == {("zero", "input"): ["all_zero"]}, "inputs"
    torch.jit.script(Deep().eval()).save(str(folder / "deep.pt"))
    got = found(record(folder, "gradients", "--what", "grad-output", "--reduce", "moments", model="deep.pt"))
    want = {"a": "vanishing_gradient", "b": "exploding_gradient", "c": "exploding_gradient", "d": "vanishing_gradient"}
    assert got == {(path, "gradient"): [rule] for path, rule in want.items()}, "gradients"


class Expert(torch.nn.Module):
    """One part never gets a row."""

    def __init__(self):
        super().__init__()
        self.used, self.idle = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.used(x)
        return y + self.idle(x[:0]).sum()


def test_no_values_and_large_values(folder):
    """Where there is no value there is no NaN, and finite values whose squares are infinite are finite."""
    torch.jit.script(Expert().eval()).save(str(folder / "expert.pt"))
    torch.save(torch.randn(8, 4), folder / "rows.pt")
    record = ("record", folder / "expert.pt", "--input", folder / "rows.pt")
    for name, arguments in (("learn", ("--learn",)), ("blocks", ("--save",))):
        place = folder / f"expert {name}"
        run(*record, *(() if name == "learn" else ("--reduce", "blocks")), *arguments, place)
        assert found(place, status=0) == {}
        assert not any(entry["marks"] for entry in document("show", place)["entries"])
    # All of them NaN or infinite: no bins, and still found.
    torch.save(torch.tensor([[float("nan"), float("inf"), 1, 1]] * 8), folder / "bad.pt")
    for bad in ("nan", "inf"):
        torch.save(torch.full((8, 4), float(bad)), folder / f"{bad}s.pt")
        place = folder / f"all {bad}"
        run("record", folder / "expert.pt", "--input", folder / f"{bad}s.pt", "--names", "used", "--what", "pre",
            "--reduce", "blocks", "--save", place)  # fmt: skip
        assert found(place) == {("used", "input"): ["nonfinite"]}

    class Large(torch.nn.Module):
        def forward(self, x):
            return x * 1e308

    torch.jit.script(Large().eval()).save(str(folder / "large.pt"))
    torch.save(torch.tensor([[1.0, -1.0, 1.0, 0.5]], dtype=torch.float64), folder / "ones.pt")
    large = ("record", folder / "large.pt", "--input", folder / "ones.pt", "--reduce")
    for number, reduce in enumerate(("moments,count", "moments,min,max", "blocks", "sum,norm,log_histogram,moments")):
        run(*large, reduce, "--save", folder / f"large{number}")
        assert found(folder / f"large{number}", status=0) == {}, reduce
    torch.save(torch.tensor([1e300 * (1 + 1j), 1e38j], dtype=torch.complex128), folder / "complex.pt")
    assert found(folder / "complex.pt", status=0) == {}
    (stats,) = document("show", folder / "complex.pt", "--stats")["stats"]
    assert stats["inf"] == 0 and abs(stats["max"] / (2**0.5 * 1e300) - 1) < 1e-12


def test_files(folder):
    """Named tensors of a file are judged by themselves."""
    torch.save({"a.weight": torch.ones(3, 3), "a.bias": torch.zeros(3), "b.weight": torch.zeros(3, 3)}, folder / "w.pt")
    assert found(folder / "w.pt") == {("b.weight", "parameter"): ["all_zero"]}, "weights"
    torch.save({"a": torch.ones(3) * 1e6, "b": torch.tensor([1.0, float("nan"), float("inf")])}, folder / "n.pt")
    assert found(folder / "n.pt") == {("b", "parameter"): ["nonfinite"]}
    text = run("check", folder / "n.pt", status=1).out
    assert "1 NaN, 1 infinity of 3 values" in text and "1 finding in 2 modules" in text
    torch.save({"a": torch.ones(3)}, folder / "fine.pt")
    assert run("check", folder / "fine.pt").out == "nothing found in 1 module\n", "nothing found"
    assert found(folder / "fine.pt", status=0) == {}, "nothing found, as JSON"


def test_rules(folder, recorded):
    rules = folder / "rules.txt"
    rules.write_text(
        "[dead  never]\ndead_relu = off\nnever_ran = off\n[*]\nsaturated = off\nscale_outlier.times = 1e9\n"
    )
    got = found(recorded, "--rules", rules)
    assert got == {("zero", "output"): ["all_zero"]}, "rules"
    text = run("check", recorded, "--rules", rules, status=1).out
    assert text.splitlines()[-1].endswith(f"; rules: {rules}")
    rules.write_text(rules.read_text() + "all_zero = off\n")
    assert run("check", recorded, "--rules", rules).err == "", "all rules that hold are off"
    rules.write_text("dead_relu = on\ndead_rleu = off\n")
    for arguments in ((), ("--json",)):
        _, out, error = run("check", recorded, "--rules", rules, *arguments, status=2)
        assert out == "" and f"{rules}:2:1: " in error and '"dead_relu"' in error and error.count("\n") == 1
    run("check", recorded, "--rules", folder, status=2)
    run("check", recorded, "--rules", folder / "none", status=2)
    run("check", folder / "none", status=2)
    run("check", status=2)
    (folder / "noise").write_bytes(b"noise")
    run("check", folder / "noise", status=2)


def test_table(recorded):
    lines = run("check", recorded, status=1).out.splitlines()
    assert re.split(r"  +", lines[0].rstrip()) == ["module", "tensor", "rule", "value", "limit"]
    (dead,) = [line for line in lines if "dead_relu" in line]
    assert re.fullmatch(r"dead +output +dead_relu +(1|0\.99\d*) +0\.99  .* of .* values are zero", dead) is not None
    told = document("check", recorded, status=1)
    assert list(told) == ["path", "reference", "rules", "modules", "agree", "gaps", "findings", "notes"]
    assert told["reference"] is None
    assert told["rules"] is None
    assert told["notes"] == []
    assert lines[-1] == f"{len(told['findings'])} findings in {told['modules']} modules"
