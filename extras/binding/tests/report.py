"""Summaries and reports of Python's models, compared with PyTorch's own counts and with models without them."""

import copy
import gc
import io
import json
import math
import pickle
import subprocess
import sys
import threading
import weakref

import built
import pytest
import torch
import torchtap
from torch import nn


class Everything(nn.Module):
    """Takes a dict and kwargs, returns a dict and None; has shared modules and parameters, lazy ones, unused ones, and one of
    TorchScript."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.again = self.norm
        self.items = nn.ModuleList([nn.LazyLinear(8)])
        self.unused = nn.Linear(3, 3)
        self.lstm = nn.LSTM(8, 8, 2, batch_first=True)
        self.batch = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.5)
        self.script = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, batch, *, scale=1.0):
        x = self.norm(self.embedding(batch["ids"])) * scale
        y, _ = self.attention(x, x, value=x, need_weights=False)
        y, _ = self.lstm(self.again(self.items[0](y)))
        return {"out": self.out(self.drop(self.batch(self.script(y)))), "none": None}


IDS = {"ids": torch.arange(10).reshape(2, 5)}


def everything():
    torch.manual_seed(0)
    model = Everything()
    model(IDS)
    return model


def small():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4 * 36, 5)
    )


IMAGES = torch.arange(2 * 3 * 64.0).reshape(2, 3, 8, 8).sin()


def hooks_of(model):
    plain = [one for one in model.modules() if not isinstance(one, torch.jit.ScriptModule)]
    return [hook for one in plain for hook in (*one._forward_hooks.values(), *one._forward_pre_hooks.values())]


def step(model, x, report=None, grad=True):
    """Outputs, gradients and buffers of one step, from the same random numbers."""
    torch.manual_seed(1)
    model.zero_grad()
    if report is None:
        y = model(x)
        if grad:
            y.square().sum().backward()
    else:
        with report.record() as repeat:
            y = model(x)
            if grad:
                repeat.phase("backward")
                y.square().sum().backward()
    return [
        y.detach().clone(),
        *(one.grad.clone() for one in model.parameters() if one.grad is not None),
        *model.buffers(),
    ]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(one, other) for one, other in zip(a, b))


def test_a_summary_shows_what_there_is():
    model = Everything()
    summary = torchtap.summary(model, IDS, scale=2.0)
    text = str(summary)
    assert "└─ 0 Linear" in text and summary["items.0"].type == "Linear"  # which was lazy
    assert "never_ran: unused" in text and "the same module: norm = again" in text
    assert "out.weight is embedding.weight" in text and '"script"' in text
    assert "used without a call (an operation read their parameters): attention.out_proj" in text
    assert " ns" not in text and "repeat" not in text and "LibTorch" not in text
    assert summary.rows[0].num_parameters == sum(one.numel() for one in model.parameters())
    assert summary["again"] is summary["norm"] and summary["norm"].forward.inclusive.calls == 2
    assert summary["embedding"].input_shapes == [[2, 5]] and summary.rows[0].output_shapes == [[2, 5, 20]]
    assert summary["lstm"].forward.work.macs == 2 * 10 * 4 * 8 * (8 + 8)
    assert model.training and not hooks_of(model)


def test_a_summary_is_of_the_size_that_is_asked_for():
    model = small()
    of_size, of_data = torchtap.summary(model, input_size=(2, 3, 8, 8)), torchtap.summary(model, IMAGES)
    columns = ["input", "output", "params", "MACs"]
    assert of_size.text(columns=columns).split("forward")[0] == of_data.text(columns=columns).split("forward")[0]
    assert of_size["0"].output_shapes == [[2, 4, 6, 6]] and of_size["0"].forward.work.macs == 2 * 4 * 36 * 27
    two = torchtap.summary(nn.Bilinear(3, 4, 5), input_size=[(2, 3), (2, 4)])
    assert two.rows[0].input_shapes == [[2, 3], [2, 4]]
    words = torchtap.summary(nn.Embedding(3, 4), input_size=(2,), dtypes=[torch.long])
    assert words.rows[0].output_shapes == [[2, 4]]
    nothing = torchtap.summary(model)
    assert nothing.repeats == 0 and nothing.rows[0].num_parameters == of_size.rows[0].num_parameters
    assert "never_ran" not in str(nothing)
    assert [row.path for row in of_size] == ["", *"012345"]
    assert "1" not in of_size.text(depth=0).split("parameters:")[0].split("(root)")[1].split("\n", 1)[1]
    assert "learnable" in of_size.text(columns=["learnable"]).split("\n")[2]


def test_a_model_without_data_runs_if_it_takes_none():
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self):
            return self.inner(torch.ones(1, 2))

    assert torchtap.summary(Alone())["inner"].output_shapes == [[1, 2]]


def test_bits_are_those_of_a_model_without():
    for make, x in (
        (small, IMAGES),
        (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.ones(2, 3, 8)),
    ):
        plain = make()
        model = copy.deepcopy(plain)
        report = torchtap.Report(model)
        for _ in range(2):
            assert same(step(plain, x), step(model, x, report))
        assert not hooks_of(model) and report.repeats == 2


def test_one_call_leaves_a_model_as_it_was():
    model = everything()
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    images = small()
    gradients, random = [one.grad for one in model.parameters()], torch.get_rng_state()
    x = IMAGES.clone().requires_grad_()
    x.grad = torch.ones_like(x)
    kept = x.grad
    report = torchtap.report(model, IDS, backward=True, repeats=2)
    torchtap.summary(model, IDS, mode="train")
    torchtap.report(images, x, backward=True)
    torchtap.summary(images, input_size=(2, 3, 8, 8))
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(one.grad is gradient and gradient.eq(1).all() for one, gradient in zip(model.parameters(), gradients))
    assert x.grad is kept and kept.eq(1).all()
    assert torch.equal(random, torch.get_rng_state()) and model.training and not hooks_of(model)
    assert report.rows[0].gradient_bytes > 0 and report.rows[0].backward.work.macs > 0


def test_a_report_has_times_work_and_memory():
    report = torchtap.report(small(), IMAGES, backward=True, repeats=3, warmup=1)
    root, conv = report.rows[:2]
    assert report.repeats == 3 and report.warmup == 1 and report.seconds > 0
    assert conv.forward.inclusive.calls == 3 and conv.backward.inclusive.calls == 3
    assert conv.forward.work.macs == 2 * 4 * 36 * 27 and conv.backward.work.macs == conv.forward.work.macs
    assert root.forward.self.median_seconds < root.forward.inclusive.median_seconds
    assert root.forward.memory.peak_bytes > 0 and conv.grad_out_shapes == [[2, 4, 6, 6]]
    assert conv.gradient_norm > 0 and root.gradient_norm is None
    loss = torchtap.report(small(), IMAGES, loss=lambda output: output.square().mean())
    assert loss["0"].backward.inclusive.calls == 1
    own = torchtap.report(
        nn.Sequential(nn.ReLU()), IMAGES, formulas={"aten::relu": lambda arguments, results: results[0].numel()}
    )
    assert own["0"].forward.work.macs == IMAGES.numel()
    wrong = torchtap.report(
        nn.Sequential(nn.ReLU()), IMAGES, formulas={"aten::relu": lambda arguments, results: "many"}
    )
    assert any("returned str; it has to return a whole number" in note for note in wrong.notes)


def test_steps_of_a_loop_are_measured():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    report = torchtap.Report(model)
    with report.record() as repeat:
        for _ in range(3):
            loss = model(IMAGES).square().mean()
            repeat.phase("backward")
            loss.backward()
            repeat.phase("other")
            optimizer.step()
            optimizer.zero_grad()
            repeat.next()
    assert report["0"].forward.inclusive.calls == 3 and report["0"].gradient_norm > 0


def test_the_first_nan_is_named():
    class Divides(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(x * 0) / 0 - self.inner(x) / 0

    report = torchtap.report(Divides(), torch.ones(1, 2))
    assert "aten::div" in report.first_non_finite and report.findings[0].function == "aten::div"
    assert report.first_non_finite in str(report).replace("\n  ", " ")
    with pytest.raises(RuntimeError, match=r'^torchtap.report: aten::div .* non_finite="note" goes on') as raised:
        torchtap.report(Divides(), torch.ones(1, 2), non_finite="raise")
    assert "::OnNonFinite" not in str(raised.value)


def test_files_and_notebooks(tmp_path):
    report = torchtap.report(everything(), IDS)
    report.json(tmp_path / "r.json")
    report.csv(tmp_path / "r.csv")
    report.html(tmp_path / "r.html")
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads(report.json())
    assert torchtap.load_report(tmp_path / "r.json").json() == report.json()
    assert len((tmp_path / "r.csv").read_text().splitlines()) == len(report) + 1
    assert "<html" in (tmp_path / "r.html").read_text() and 'iframe srcdoc="' in report._repr_html_()
    for kept in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert str(kept) == str(report) and kept["lstm"] == report["lstm"]
        with pytest.raises(RuntimeError, match="make a torchtap.Report"), kept.record():
            pass
    summary = torchtap.summary(everything(), IDS, depth=1)
    assert str(pickle.loads(pickle.dumps(summary))) == str(summary)
    assert repr(report).startswith("torchtap.Report(Everything, ")
    try:
        frame = report.pandas()
    except ImportError as error:
        assert "csv()" in str(error)
    else:
        assert frame.loc["lstm", "forward.work.macs"] == report["lstm"].forward.work.macs


def test_compiled_and_scripted_models():
    compiled = torch.compile(small(), backend="eager")
    compiled(IMAGES)
    summary = torchtap.summary(compiled, IMAGES)
    assert "not as torch.compile compiled it" in summary.notes[0] and summary["0"].forward.work.macs
    report = torchtap.report(compiled, IMAGES, backward=True)
    assert report["0"].backward.inclusive.calls == 1
    scripted = torchtap.summary(torch.jit.script(small()), IMAGES)
    assert scripted["0"].forward.work.macs == summary["0"].forward.work.macs


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_exceptions_are_passed_on_and_the_next_call_is_measured(error):
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = nn.Linear(2, 2), 0

        def forward(self, x):
            y = self.inner(x)
            self.calls += 1
            if self.calls == 1:
                raise error("mine")
            return self.inner(y)

    model = Fails()
    report = torchtap.Report(model)
    with pytest.raises(error, match="mine"), report.record():
        model(torch.ones(1, 2))
    with report.record():
        model(torch.ones(1, 2))
    assert report["inner"].forward.inclusive.calls == 3 and not hooks_of(model)
    assert any("1 call ended by an exception" in note for note in report.notes)
    with pytest.raises(error):
        model.calls = 0
        torchtap.summary(model, torch.ones(1, 2))
    assert not hooks_of(model)


def test_threads_that_use_one_report():
    model = small()
    report, answers = torchtap.Report(model), []

    def use():
        for _ in range(20):
            try:
                with report.record():
                    model(IMAGES)
                answers.append("measured")
            except ValueError as error:
                answers.append(str(error))
            try:
                len(report)
            except ValueError as error:
                assert "a repeat runs" in str(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert set(answers) <= {
        "measured",
        "torchtap.report: a recording of this report is open; let it end before the next begins.",
    }
    assert report.repeats == answers.count("measured") > 0 and not hooks_of(model)


def test_nothing_of_a_model_stays():
    model = everything()
    alive = weakref.ref(model), weakref.ref(model.lstm)
    report, summary = torchtap.report(model, IDS, backward=True), torchtap.summary(model, IDS)
    open_report = torchtap.Report(model)
    with open_report.record():
        model(IDS)
    del model
    gc.collect()
    assert all(one() is None for one in alive)
    assert str(report) and str(summary) and open_report.rows


def test_errors_name_the_call():
    model = small()
    wrong = [
        (
            lambda: torchtap.summary(nn.Linear),
            TypeError,
            r"torchtap.summary: expected a torch.nn.Module, got the class Linear",
        ),
        (lambda: torchtap.report(3), TypeError, r"torchtap.report: expected a torch.nn.Module, got int"),
        (lambda: torchtap.summary(model, IMAGES, mode="fast"), ValueError, r"torchtap.summary: mode is 'fast'"),
        (lambda: torchtap.summary(model, IMAGES, input_size=(1,)), ValueError, r"give one of them"),
        (
            lambda: torchtap.summary(model, input_size=[(1,), (2,)], dtypes=[torch.int]),
            ValueError,
            r"2 sizes and 1 dtypes",
        ),
        (
            lambda: str(torchtap.summary(model, columns=["sizes"])),
            ValueError,
            r'torchtap.report: there is no column "sizes"; there',
        ),
        (lambda: torchtap.report(model, IMAGES, repeats=0), ValueError, r"repeats is 0"),
        (lambda: torchtap.report(model, IMAGES, non_finite="no"), ValueError, r'non_finite is "no"'),
        (lambda: torchtap.report(model, IMAGES, formulas={"relu": len}), ValueError, r"torchtap.report: "),
        (lambda: torchtap.summary(model)["head"], KeyError, r"no module 'head'"),
        (lambda: torchtap.summary(model).rows[0].speed, AttributeError, r"no 'speed' here; there are: name"),
    ]
    for call, kind, message in wrong:
        with pytest.raises(kind, match=message) as raised:
            call()
        assert "::" not in str(raised.value).replace("aten::", "").replace("mylib::", "")
    with torch.no_grad(), pytest.raises(ValueError, match="nothing that the model returned has a gradient"):
        torchtap.report(model, IMAGES, backward=True)


def test_a_view_that_was_not_built_says_how(monkeypatch):
    monkeypatch.setattr(torchtap._C, "views", ("stream",))
    with pytest.raises(AttributeError, match=r'needs the component report.*COMPONENTS="python;stream;report"'):
        torchtap.summary  # noqa: B018
    assert "summary" not in dir(torchtap) and not hasattr(torchtap, "report")


def test_the_interpreter_ends_in_a_recording():
    code = """
import built, torch, torchtap
model = torch.nn.Linear(2, 2)
report = torchtap.Report(model)
recording = report.record()
recording.__enter__()
model(torch.ones(1, 2))
print("ends")
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {built.PATH!r}\n{code}"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout == "ends\n", done.stderr


def test_numbers_that_are_none_are_read():
    with torch.no_grad():
        model = nn.Sequential(nn.Linear(2, 2))
        model[0].weight.fill_(math.inf)
    report = torchtap.report(model, torch.ones(1, 2), backward=True)
    assert math.isfinite(report.rows[0].forward.inclusive.median_seconds) and io.StringIO(report.csv()).read()


def test_a_model_that_another_thread_looks_at_is_refused():
    model, entered, go_on = nn.Sequential(nn.Linear(2, 2), nn.Dropout()), threading.Event(), threading.Event()
    held = model[0].register_forward_hook(lambda *_: (entered.set(), go_on.wait(60)) and None)
    thread = threading.Thread(target=torchtap.summary, args=(model, torch.ones(1, 2)))
    thread.start()
    assert entered.wait(60)
    with pytest.raises(RuntimeError, match="another thread is at a view of this model"):
        torchtap.summary(nn.Sequential(model), torch.ones(1, 2))
    go_on.set()
    thread.join()
    held.remove()
    assert all(one.training for one in model.modules())
    torchtap.summary(model, torch.ones(1, 2))
    assert all(one.training for one in model.modules())
