"""torch.cond and other operators that are given functions, which they compile in the midst of a forward: under recorders and views."""

import built
import pytest
import torch
import torchtap
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

X = torch.arange(8.0).reshape(2, 4).cos()
FORWARDS = {
    "cond": lambda m, x: torch.cond(x.sum() > 0, lambda x: m.a(x).relu(), lambda x: m.b(x).sin(), (x,)),
    "while_loop": lambda m, x: while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, m.a(x).tanh()), (torch.zeros((), dtype=torch.int64), x)
    )[1],
    "scan": lambda m, x: scan(lambda c, y: (c + y.sin(), c * y), torch.zeros(4), m.a(x), dim=0)[1],
    "associative_scan": lambda m, x: associative_scan(torch.add, m.a(x), 0, combine_mode="generic"),
    "map": lambda m, x: map_rows(lambda y: m.a(y).sin(), x),
}
INSIDE = {"cond": 1, "while_loop": 3, "map": 2}  # calls of the module `a` in what these are given


class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.name = nn.Linear(4, 4), nn.Linear(4, 4), name

    def forward(self, x):
        return FORWARDS[self.name](self, x)


def step(model, x=X):
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), *(one.grad.clone() for one in model.parameters() if one.grad is not None)]


def same(ones, others):
    return len(ones) == len(others) and all(map(torch.equal, ones, others))


def fresh(name, compiled_before=False):
    """A model, in a process in which nothing was compiled, or something else."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    if compiled_before:
        torch.compile(torch.sin, backend="eager")(X)
    return Model(name)


@pytest.mark.parametrize("kind", built.KINDS)
@pytest.mark.parametrize("how", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", INSIDE)
def test_recorders(name, how, kind):
    model = fresh(name)
    run = model if how == "eager" else torch.compile(model, backend=how)
    bare = step(run)
    model = fresh(name)
    run = model if how == "eager" else torch.compile(model, backend=how)
    recorder = kind().attach(model)
    assert same(step(run), bare)
    assert recorder.samples("") == (kind is not torchtap.BackwardInput) and recorder.samples("a") == 0
    again = kind().attach(model, "a")  # runs in the same code
    assert same(step(run), bare) and again.samples("a") == 0
    recorder.detach()
    for one in (recorder.subrecorder("a"), again.subrecorder("a")):
        assert one.note.startswith("it is called in what torch.cond, scan or an operator like them was given"), one.note
    assert "torch.cond" not in recorder.subrecorder("").note
    if how == "eager" and not kind.__name__.startswith("Backward"):
        model = fresh(name)
        recorder = kind().attach(model, "a")
        with torch.no_grad():
            assert torch.equal(model(X), bare[0])
        assert recorder.samples("a") == INSIDE[name]


@pytest.mark.skipif("trace" not in torchtap._C.views, reason="built without trace")
@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.parametrize("name", FORWARDS)
def test_traces(name, compiled_before):
    bare = step(fresh(name, compiled_before))
    tracer = torchtap.Tracer(model := fresh(name, compiled_before))
    with tracer:
        got = step(model)
    assert same(got, bare)  # torch.cond has no gradient where nothing is compiled
    found = tracer.history.validate()
    assert found and found.confirmed, str(found)
    model = fresh(name, compiled_before)
    with torch.no_grad():
        history = torchtap.trace(model, X)
        assert torch.equal(history.outputs[0].tensor, model(X)) and history.validate()
    assert not any(one.device.type == "meta" for one in tracer.history if one.kind == "operation")


@pytest.mark.skipif("trace" not in torchtap._C.views, reason="built without trace")
def test_a_trace_of_flex_attention():
    def attend(q):
        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + i - j)

    class Attends(nn.Module):
        def forward(self, x):
            return attend(x.reshape(1, 1, 2, 4))

    torch._dynamo.reset()
    history = torchtap.trace(Attends(), X)
    assert torch.equal(history.outputs[0].tensor, Attends()(X))
    found = history.validate()
    assert found and found.confirmed > 30 and "arange_1" in " ".join(found.undetermined), str(found)


@pytest.mark.skipif("report" not in torchtap._C.views, reason="built without report")
@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.parametrize("name", FORWARDS)
def test_reports(name, compiled_before):
    bare = step(fresh(name, compiled_before))
    report = torchtap.Report(model := fresh(name, compiled_before))
    with report.record():
        assert same(step(model), bare)
    assert report.rows[0].forward.inclusive.calls == 1
    assert torchtap.report(fresh(name, compiled_before), X, backward=True).rows[0].forward.work.macs
    assert torchtap.summary(fresh(name, compiled_before), X).rows[0].num_parameters == 40


@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.parametrize("view", [one for one in ("explorer", "monitor", "stream") if one in torchtap._C.views])
@pytest.mark.parametrize("name", FORWARDS)
def test_views_that_last(name, view, compiled_before):
    opens = {
        "explorer": lambda model: torchtap.explore(model, every=1),
        "monitor": lambda model: torchtap.monitor(model, cost=1.0, gradients=True),
        "stream": lambda model: torchtap.publish("operators", model),
    }
    bare = step(fresh(name, compiled_before))
    with opens[view](model := fresh(name, compiled_before)):
        assert same(step(model), bare)
