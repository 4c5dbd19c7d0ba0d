"""Reads what tests/usage/main.cpp wrote, with plain torch."""

import torch
from harness import entries


def load(name):
    return torch.load(name, weights_only=True)


def test_mean():
    weights = load("weights.pt")
    assert [tuple(w.shape) for w in weights] == [(100, 784), (100,), (50, 100), (50,), (10, 50), (10,)]
    mean = load("analysis/0.pt")
    assert type(mean) is torch.Tensor and mean.shape == (1, 100)
    assert mean.min() >= 0 and mean.max() > 0  # it comes out of a ReLU
    # A Linear's mean output is the Linear of its mean input: child 3 is fed by child 2.
    expected = torch.nn.functional.linear(mean, weights[2], weights[3])
    torch.testing.assert_close(load("analysis/1.pt"), expected, rtol=1e-4, atol=1e-5)


def test_samples():
    assert [entry["path"] for entry in entries("peaks")] == ["0", "1", "2", "3", "4"]
    assert [entry["samples"] for entry in entries("peaks")] == [1000] * 5
    torch.testing.assert_close(load("peaks/1.pt"), load("peaks/0.pt").relu(), rtol=0, atol=0)


def test_gradients():
    gradients = load("gradients/1.pt")
    assert type(gradients) is list and len(gradients) == 1000 and gradients[0].shape == (1, 10)
    assert all(torch.equal(gradient, torch.ones(1, 10)) for gradient in gradients)  # of a sum
    assert entries("gradients")[0]["path"] == "2"
