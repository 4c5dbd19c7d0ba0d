"""Traces of Python's models, compared with what the models compute."""

import contextlib
import gc
import pickle
import threading
import weakref

import built  # noqa: F401
import pytest
import torch
import torchtap
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torchtap.views import _model

IMAGES = torch.arange(2 * 3 * 64.0).reshape(2, 3, 8, 8).sin()


def small():
    torch.manual_seed(0)
    layers = {
        "conv": nn.Conv2d(3, 4, 3),
        "relu": nn.ReLU(True),
        "drop": nn.Dropout(0.5),
        "flat": nn.Flatten(),
        "head": nn.Linear(144, 5),
    }
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


class Branches(nn.Module):
    """Takes a dict and a keyword, calls a layer twice, branches on a value, works in place, and returns what it got."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, batch, *, scale=1.0, bias=None):
        x = self.layer(batch["x"]) * scale
        if x.sum().item() > -1e9:
            x = x.add_(bias)
        y = self.layer(self.norm(x))
        y[:, 0] = 0
        noise = torch.rand_like(y)
        return {"out": F.relu(y) + noise, "given": batch["x"]}


GIVEN, BIAS = {"x": torch.arange(8.0).reshape(2, 4)}, torch.ones(4)


def hooks_of(model):
    return [
        hook for one in model.modules() for hook in (*one._forward_hooks.values(), *one._forward_pre_hooks.values())
    ]


def test_every_operation_is_there_with_its_tensor():
    model = small()
    history = torchtap.trace(model, IMAGES)
    assert history.labels == [
        "input_1_0",
        "conv2d_1_1",
        "relu_1_2",
        "dropout_1_3",
        "flatten_1_4",
        "linear_1_5",
        "output_1_6",
    ]
    conv = model.conv(IMAGES)
    assert torch.equal(history["conv"].tensor, conv) and (conv < 0).any()  # though relu wrote over it
    assert torch.equal(history["relu_1"].tensor, F.relu(conv))
    assert history.parents("relu") == [history["conv2d_1"]] and history.children("conv")[0].label == "relu_1_2"
    assert [one.path for one in history["head"].parameters] == ["head.weight", "head.bias"]
    assert history["relu"].in_place and history["drop"].random and history["flat"].view
    assert history[0].name == "input" and history[-1].name == "output.0" and history[-1].kind == "output"
    assert history["conv"].modules[0].path == "conv" and history["conv"].shape == (2, 4, 6, 6)
    assert history["conv"].dtype is torch.float32 and history["conv"].device == torch.device("cpu")
    assert "conv" in history and "nothing" not in history and len(history.find("*_1_*")) == 7
    assert [one.path for one in history.modules] == [
        "",
        "conv",
        "relu",
        "drop",
        "flat",
        "head",
    ] and history.model == "Sequential"
    assert history.operations == 5 and history.saved == 7 and not history.unreached_modules and history.error == ""
    assert not hooks_of(model) and "6 tensors" not in repr(history)


def test_arguments_results_and_control_flow():
    model = Branches()
    torch.manual_seed(1)
    plain = model({"x": GIVEN["x"].clone()}, scale=2.0, bias=BIAS)
    torch.manual_seed(1)
    history = torchtap.trace(model, GIVEN, scale=2.0, bias=BIAS)
    assert [one.name for one in history.inputs] == ["batch.x", "bias"]
    assert [one.name for one in history.outputs] == ["output.out", "output.given"]
    assert torch.equal(history.outputs[0].tensor, plain["out"]) and torch.equal(history.outputs[1].tensor, GIVEN["x"])
    assert history["layer:1"].pass_number == 1 and history["layer:2"].passes == 2
    assert any(one.read_by_program for one in history)
    assert history.validate() and history.validate().random == 1


class Numbers(nn.Module):
    """Python hands the numbers of its code to operators as tensors."""

    def forward(self, x):
        y = x * 2.5  # of int64 this is float32
        for _ in range(3):
            y = torch.sin(y + 1)
        return 3 / (torch.sin(y + 2) + True)


@pytest.mark.parametrize("compile", [lambda model: model, torch.jit.script], ids=["python", "torchscript"])
@pytest.mark.parametrize("x", [torch.arange(4), torch.arange(4.0)], ids=["int64", "float32"])
def test_numbers_of_the_code_are_arguments(compile, x):
    history = torchtap.trace(compile(Numbers()), x)
    names = ["mul_1", *3 * ["add_1", "sin_1"], "add_2", "sin_2", "add_3", "reciprocal_1", "mul_2"]
    assert [one.layer_label.rpartition("_")[0] for one in history if one.kind == "operation"] == names
    assert [history[one].arguments[1].text for one in ("mul_1", "add_1:2", "add_2", "mul_2")] == ["2.5", "1", "2", "3"]
    assert {one.kind for one in history} == {"input", "operation", "output"}
    found = history.validate()
    assert found and "Not confirmed" not in str(found), found


@pytest.mark.parametrize("grad", [True, False])
def test_bits_are_those_of_a_model_without(grad):
    for train in (True, False):
        model = small().train(train)
        results = []
        for tracer in (None, torchtap.Tracer(model), torchtap.Tracer(model, save="none")):
            torch.manual_seed(2)
            model.zero_grad()
            with torch.set_grad_enabled(grad):
                if tracer is None:
                    y = model(IMAGES)
                else:
                    with tracer:
                        y = model(IMAGES)
                if grad:
                    y.square().sum().backward()
            results.append([y.detach(), *(one.grad for one in model.parameters() if grad), torch.get_rng_state()])
        assert all(torch.equal(one, other) for many in results[1:] for one, other in zip(results[0], many))


class Outputs(dict):
    """As the outputs of transformers: PyTorch's pytree knows the class, and none of its keys."""


class Pair:
    def __init__(self, *both):
        self.both = both


def test_outputs_of_any_class_have_names():
    pytree.register_pytree_node(
        Outputs, lambda it: (list(it.values()), list(it)), lambda values, keys: Outputs(zip(keys, values))
    )
    pytree.register_pytree_node(Pair, lambda it: (list(it.both), None), lambda values, _: Pair(*values))

    class Model(torch.nn.Module):
        def forward(self, x):
            return Outputs(hidden=x + 1, both=Pair(x * 2, x * 3))

    history, names = torchtap.trace(Model(), torch.ones(2)), ["output.hidden", "output.both.0", "output.both.1"]
    assert [one.name for one in history if one.label.startswith("output")] == names
    assert history.validate()


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(context, inputs, output):
        pass

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def test_what_torch_func_transforms_is_seen_and_not_kept():
    # Masks of transformers are made so: a function of Python's autograd inside of vmap is a higher-order operator.
    class Model(torch.nn.Module):
        def forward(self, x):
            rows = torch.vmap(lambda row: Doubled.apply(row).cos())(x)
            slopes = torch.vmap(torch.func.grad(lambda row: row.sin().sum()))(x)
            return rows + slopes

    x, model = torch.arange(6.0).reshape(2, 3), Model()
    for view in torchtap.trace, torchtap.report, torchtap.summary:
        assert view(model, x) is not None
    history = torchtap.trace(model, x)
    assert torch.equal(history["output_1"].tensor, model(x)) and torch.equal(model(x), (x * 2).cos() + x.cos())
    assert {"cos", "sin"} <= {one.type for one in history} and not history["sin_1"].saved
    found = history.validate()
    assert found and any(label.startswith("sin_1") for label in found.undetermined)


def test_what_is_kept_is_chosen():
    model = small()

    def saved(history):
        return [one.label for one in history if one.saved]

    assert saved(torchtap.trace(model, IMAGES, save="none")) == []
    assert saved(torchtap.trace(model, IMAGES, save=["conv", "linear_1"])) == ["conv2d_1_1", "linear_1_5"]
    assert saved(torchtap.trace(model, IMAGES, save=lambda one: one.module == "relu")) == ["relu_1_2"]
    half = torchtap.trace(model, IMAGES, save=["conv"], dtype=torch.float16, transform=lambda x: x.mean(0))
    assert half["conv"].tensor.dtype is torch.float16 and half["conv"].tensor.shape == (4, 6, 6)
    assert torchtap.trace(model, IMAGES, memory_budget=3000, drop=True).dropped > 0
    gradients = torchtap.trace(model, IMAGES, gradients=True)
    gradients.outputs[0].tensor  # noqa: B018
    tracer = torchtap.Tracer(model, gradients=True)
    with tracer:
        loss = model(IMAGES).sum()
    loss.backward()
    assert tracer.history["conv"].gradient.shape == (2, 4, 6, 6) and tracer.history["relu"].gradient is not None


def test_a_trace_is_saved_and_read(tmp_path):
    history = torchtap.trace(small(), IMAGES)
    history.save(tmp_path / "a" / "t")
    read = torchtap.load_trace(tmp_path / "a" / "t")
    assert str(read) == str(history) and torch.equal(read["relu"].tensor, history["relu"].tensor)
    with pytest.raises(ValueError, match="overwrite=True"):
        history.save(tmp_path / "a" / "t")
    history.save(tmp_path / "a" / "t", overwrite=True)
    assert torch.equal(torchtap.load(tmp_path / "a" / "t")["relu_1_2"].value, history["relu"].tensor)
    history.draw(
        tmp_path / "net.dot", rolled=True, depth=1, style=lambda node, attributes: {**attributes, "fillcolor": "red"}
    )
    assert (tmp_path / "net.dot").read_text() == history.dot(
        rolled=True, depth=1, style=lambda node, attributes: {**attributes, "fillcolor": "red"}
    )
    assert "fillcolor=red" in history.dot(style=lambda node, attributes: {"fillcolor": "red"}).replace('"', "")
    assert history.csv().count("\n") == 8 and history.json().startswith("[") and "<pre>" in history._repr_html_()
    try:
        assert history.pandas().loc["relu_1_2"] is not None
    except ImportError as error:
        assert "csv()" in str(error)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_exceptions_are_passed_on_and_the_history_has_what_came_before(error):
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            self.inner(x)
            raise error("mine")

    model = Fails()
    with pytest.raises(error, match="mine"):
        torchtap.trace(model, torch.ones(1, 2))
    tracer = torchtap.Tracer(model)
    with pytest.raises(error), tracer:
        model(torch.ones(1, 2))
    assert "mine" in tracer.history.error and "inner" in tracer.history and not hooks_of(model)
    with pytest.raises(ZeroDivisionError):
        torchtap.trace(small(), IMAGES, save=lambda one: 1 / 0)


def test_modules_that_cannot_be_seen_are_said():
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Sequential(nn.Linear(4, 4))))
    tracer = torchtap.Tracer(model)
    ones = torch.ones(1, 4)
    with tracer:
        model(ones)
    assert (
        '"1"' in tracer.notes[0]
        and tracer.notes[0] in str(tracer.history)
        and tracer.history.unreached_modules == ["1"]
    )
    assert [one.type for one in tracer.history if one.kind == "operation"] == ["linear", "linear"]
    scripted = torchtap.trace(torch.jit.script(small()), IMAGES)
    assert "relu" in scripted and scripted.validate()
    compiled = torch.compile(small(), backend="eager")
    compiled(IMAGES)
    assert torchtap.trace(compiled, IMAGES).operations == 5


def test_compiled_code_is_compiled_again_when_several_threads_have_traced():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    def runs_compiled():
        torch._dynamo.reset()
        compiled.clear()
        torch.compile(small(), backend=backend)(IMAGES)
        return bool(compiled)

    assert runs_compiled()
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(_model.as_written())
    second.enter_context(_model.as_written())
    first.close()  # in the order in which threads may end
    assert not runs_compiled()
    second.close()
    assert runs_compiled()


def test_several_threads_trace_at_once():
    models, histories = [small() for _ in range(4)], [None] * 4

    def run(place):
        for _ in range(5):
            histories[place] = torchtap.trace(models[place], IMAGES)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(one.labels == histories[0].labels and one.validate() for one in histories)


def test_a_callback_may_ask_and_is_refused_where_it_would_wait():
    model, tracers = small(), []

    def ask(candidate):
        assert str(candidate.tensor) and candidate.tensor.add(1) is not None
        with pytest.raises(RuntimeError, match="block of `with`"):
            tracers[0].history  # noqa: B018
        return True

    tracers.append(torchtap.Tracer(model, save=ask))
    with tracers[0]:
        model(IMAGES)
    assert tracers[0].history.saved == 6
    with pytest.raises(RuntimeError, match="make another one"), tracers[0]:
        pass


def test_nothing_of_a_model_stays():
    model = small()
    alive = weakref.ref(model)
    history = torchtap.trace(model, IMAGES)
    unused = torchtap.Tracer(model)
    del model, unused
    gc.collect()
    assert alive() is None and history["head"].tensor.shape == (2, 5)
    with pytest.raises(TypeError):
        pickle.dumps(history)


def test_errors_name_the_call():
    model = small()
    history = torchtap.trace(model, IMAGES)
    wrong = [
        (
            lambda: torchtap.trace(nn.Linear, IMAGES),
            TypeError,
            "torchtap.trace: expected a torch.nn.Module, got the class Linear",
        ),
        (lambda: torchtap.trace(model, IMAGES, save="some"), ValueError, 'torchtap.trace: save is "some"'),
        (lambda: torchtap.trace(model, IMAGES, save=3), TypeError, "got int"),
        (
            lambda: torchtap.trace(model, IMAGES, save=["nothing"]),
            IndexError,
            'torchtap.trace: "nothing" finds nothing',
        ),
        (lambda: torchtap.trace(model, IMAGES, level="all"), ValueError, 'level is "all"'),
        (
            lambda: torchtap.trace(model, IMAGES, memory_budget=1),
            RuntimeError,
            "raise memory_budget, or give it drop=True",
        ),
        (lambda: history["nothing"], IndexError, 'torchtap.trace: "nothing" finds nothing; the nearest are'),
        (lambda: history[99], IndexError, "the history has 7 nodes"),
        (lambda: history[1.5], TypeError, "expected a label, the path of a module, or a place, got float"),
        (lambda: history.draw("net.txt"), ValueError, "should end in .svg"),
        (lambda: history.draw("net.dot", direction="up"), ValueError, 'direction is "up"'),
        (lambda: torchtap.trace(model, IMAGES, save="none").validate(), ValueError, 'save="all"'),
        (lambda: torchtap.load_trace("nowhere"), ValueError, "no such file"),
        (lambda: torchtap.trace(model, IMAGES, save="none")[0].tensor, ValueError, "not kept|save"),
    ]
    for call, kind, message in wrong:
        with pytest.raises(kind, match=message) as raised:
            call()
        assert "::" not in str(raised.value).replace("aten::", ""), raised.value
    assert not hooks_of(model)
