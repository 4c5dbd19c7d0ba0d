"""Comparisons of two live models, whose differences are known."""

import copy
import pickle
import threading

import built  # noqa: F401
import pytest
import torch
import torchtap
from torch import nn

X = torch.arange(24.0).reshape(3, 8).sin()


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 4))


def hooks_of(model):
    return [
        hook for one in model.modules() for hook in (*one._forward_hooks.values(), *one._forward_pre_hooks.values())
    ]


def test_copies_agree():
    model = small()
    verdict = torchtap.compare(model, copy.deepcopy(model), X)
    assert verdict and verdict.agrees and verdict.first is None and verdict.gaps == [] and verdict.largest_error == 0
    assert verdict.compared == 12 and len(verdict.rows) == 6 and all(row.same_bits for row in verdict.rows)
    assert "Nothing differs by more than rounding: 12 tensors of 6 calls and 6 weights were compared" in str(verdict)
    assert repr(verdict) == "torchtap.Verdict(agrees)" and "<pre>" in verdict._repr_html_()


def test_the_first_module_that_computes_something_else_is_found():
    model, other = small(), small()
    other[3].eps = 0.1
    verdict = torchtap.compare(model, other, X, names=("ours", "ported"))
    assert (
        not verdict
        and verdict.first.kind == "module"
        and verdict.first.path == "3"
        and verdict.first.type == "LayerNorm"
    )
    assert verdict.first.error > verdict.first.allowed and [row.path for row in verdict.rows if row.differs] == ["3"]
    assert "The first difference is 3, call 0: its input agrees" in str(verdict) and str(verdict).startswith(
        "A ours: Sequential"
    )
    assert len(verdict.text(all=True).splitlines()) > len(str(verdict).splitlines())


def test_weights_that_differ_are_said_with_their_cause():
    model, other = small(), small()
    with torch.no_grad():
        other[4].weight.mul_(2)
    verdict = torchtap.compare(model, other, X)
    assert (
        verdict.first.kind == "weight"
        and verdict.first.path == "4.weight"
        and verdict.cause == "B = 2 A"
        and verdict.proved
    )
    assert [row.path for row in verdict.weights if not row.agrees] == ["4.weight"]


def test_precisions_compiled_and_renamed_models():
    model = small().eval()
    rounded = torchtap.compare(model, copy.deepcopy(model).bfloat16(), X)
    assert rounded and rounded.largest_error > 0 and rounded.dtypes == ["(root) returns float32 in A, bfloat16 in B"]
    assert not torchtap.compare(model, copy.deepcopy(model).bfloat16(), X, bits=True)
    compiled = torch.compile(copy.deepcopy(model), backend="eager")
    verdict = torchtap.compare(model, compiled, X)
    assert verdict and verdict.only_a == ["0", "1", "2", "3", "4"] and verdict.compared == 2

    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = model[0], nn.Sequential(*model[1:])

        def forward(self, x):
            return self.second(self.first(x))

    assert torchtap.compare(model, Renamed(), X)
    verdict = torchtap.compare(model, Renamed(), X, map=["0=first"])
    assert verdict and "0=first" in verdict.map


def test_models_and_inputs_are_as_they_were():
    class Changes(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x, *, twice=False):
            return self.norm(x.add_(1)) * (2 if twice else 1)

    model = Changes()
    x, state, random = X.clone(), copy.deepcopy(model.state_dict()), torch.get_rng_state()
    assert torchtap.compare(model, copy.deepcopy(model), x, twice=True)
    assert torch.equal(x, X) and all(torch.equal(one, state[name]) for name, one in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state()) and not hooks_of(model) and model.training
    assert torchtap.compare(small(), small(), X)  # the same random numbers for both


def test_what_other_threads_run_is_not_compared():
    model, other, stop = small(), nn.Sequential(nn.Linear(2, 2)), threading.Event()

    def run():
        while not stop.is_set():
            other(torch.ones(1, 2))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(5):
            assert torchtap.compare(model, copy.deepcopy(model), X).compared == 12
    finally:
        stop.set()
        thread.join()


def test_exceptions_are_passed_on():
    class Fails(nn.Module):
        def forward(self, x):
            raise ZeroDivisionError("mine")

    call = nn.Module.__call__
    with pytest.raises(ZeroDivisionError, match="mine"):
        torchtap.compare(small(), Fails(), X)
    assert nn.Module.__call__ is call


def test_errors_name_the_call():
    model = small()
    wrong = [
        (lambda: torchtap.compare(model, 3, X), TypeError, "torchtap.compare: expected a torch.nn.Module, got int"),
        (lambda: torchtap.compare(model, model, X, map="0=1"), TypeError, "map is a list"),
        (
            lambda: torchtap.compare(model, model, X, map=["a=b"], names=("ours", "b")),
            ValueError,
            "ours has no module a that ran",
        ),
        (lambda: torchtap.compare(model, model, X, tolerance=(1,)), ValueError, "two numbers"),
        (lambda: torchtap.compare(model, model, X).nothing, AttributeError, "there are: agrees"),
        (lambda: pickle.dumps(torchtap.compare(model, model, X)), TypeError, "cannot be pickled"),
    ]
    for call, kind, message in wrong:
        with pytest.raises(kind, match=message):
            call()
