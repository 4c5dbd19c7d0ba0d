"""Views of Python's models that last: the page, the monitor and the stream."""

import gc
import html
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import urllib.request
import weakref

import built
import pytest
import torch
import torchtap
from harness import SOURCE
from torch import nn

IMAGES = torch.arange(4 * 3 * 64.0).reshape(4, 3, 8, 8).sin()
VIEWS = {
    "explorer": lambda model: torchtap.explore(model, every=1),
    "monitor": lambda model: torchtap.monitor(model, cost=1.0, gradients=True),
    "stream": lambda model: torchtap.publish(f"watching-{os.getpid()}", model),
}
BUILT = [one for one in VIEWS if one in torchtap._C.views]


def needs(component):
    return pytest.mark.skipif(component not in torchtap._C.views, reason=f"built without {component}")


def small():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5)
    )


def hooks_of(model):
    return [
        hook for one in model.modules() for hook in (*one._forward_hooks.values(), *one._forward_pre_hooks.values())
    ]


def trained(view=None):
    """Outputs, gradients and state after some steps, with and without accumulation, under autocast, too."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    opened = None if view is None else VIEWS[view](model)
    seen = []
    for step in range(6):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step > 3):
            loss = model(IMAGES).float().square().mean()
        loss.backward()
        seen += [loss.detach(), *(one.grad.clone() for one in model.parameters())]
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    if opened is not None:
        opened.close()
        assert opened.closed and not hooks_of(model)
    return [*seen, *model.state_dict().values(), torch.get_rng_state()]


@pytest.mark.parametrize("view", BUILT)
def test_training_keeps_its_bits(view):
    plain, watched = trained(), trained(view)
    assert len(plain) == len(watched) and all(torch.equal(one, other) for one, other in zip(plain, watched))


@pytest.mark.parametrize("view", BUILT)
def test_a_view_ends_with_its_block_and_with_its_object(view):
    model = small()
    with VIEWS[view](model) as opened:
        model(IMAGES)
        assert hooks_of(model) and not opened.notes
    assert opened.closed and not hooks_of(model) and "closed" in repr(opened)
    opened.close()
    opened = VIEWS[view](model)
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        pickle.dumps(opened)
    del opened
    gc.collect()
    assert not hooks_of(model)
    model.view = VIEWS[view](model)  # each refers to the other
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("view", BUILT)
def test_a_closed_view_says_so(view, tmp_path):
    model = small()
    one = VIEWS[view](model)
    model(IMAGES)
    one.close()
    one.close()
    assert one.closed and "closed" in repr(one)
    asked = {
        "explorer": [
            lambda: one.attach(model),
            lambda: one.step(1),
            lambda: one.steps,
            lambda: one.scalar("loss", 1.0),
            lambda: one.save(tmp_path / "page.html"),
            lambda: one.errors,
        ],
        "monitor": [
            lambda: one.on_alarm(print),
            lambda: one.alarms,
            lambda: one.metrics(),
            lambda: one.capture(),
            lambda: one.flush(),
        ],
        "stream": [
            lambda: one.attach(model),
            lambda: one.send("x", IMAGES),
            lambda: one.annotate("x"),
            lambda: one.socket,
            lambda: one.readers,
            lambda: one.sent,
        ],
    }
    for ask in asked[view]:
        with pytest.raises(RuntimeError, match="was closed"):
            ask()
    assert not [*tmp_path.iterdir()]
    model(IMAGES)


@pytest.mark.parametrize("view", BUILT)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_exceptions_are_passed_on(view, error):
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.fails = nn.Linear(2, 2), True

        def forward(self, x):
            y = self.inner(x)
            if self.fails:
                raise error("mine")
            return y

    model = Fails()
    with VIEWS[view](model):
        with pytest.raises(error, match="mine"):
            model(torch.ones(1, 2))
        model.fails = False
        model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(error), VIEWS[view](model):
        raise error


@pytest.mark.parametrize("view", BUILT)
def test_threads_run_the_model(view):
    model, failed = small().eval(), []

    def run():
        try:
            for _ in range(10):
                with torch.no_grad():
                    model(IMAGES)
        except Exception as error:
            failed.append(error)

    with VIEWS[view](model):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert not failed


@pytest.mark.parametrize("view", BUILT)
def test_python_ends_with_a_view_open(view):
    code = f"""
import os, torch, torchtap, watching
torch.set_num_threads(1)  # those of PyTorch do not survive a fork
model = watching.small()
opened = watching.VIEWS[{view!r}](model)
model(watching.IMAGES).sum().backward()
if os.fork() == 0:
    model(watching.IMAGES)
    os._exit(0)
os.wait()
print("ends")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import sys; sys.path[:0] = {built.PATH!r}\n{code}"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout == "ends\n", done.stderr


@needs("explorer")
def test_the_page_shows_a_run_and_is_saved(tmp_path):
    model = small()
    with torchtap.explore(model, every=1, save=tmp_path / "run") as page:
        for _ in range(5):
            loss = model(IMAGES).square().mean()
            loss.backward()
            page.scalar("loss", loss)
        assert page.steps == 4 and page.errors == []
        answer = urllib.request.urlopen(page.url.split("#")[0])
        assert answer.status == 200 and f'<iframe src="{page.url}"' in page._repr_html_()
        # Or a browser would not show the frame.
        assert "frame-ancestors http://localhost:*" in answer.headers["Content-Security-Policy"]
        saved = page.save(f"{tmp_path}/page/")
        text = open(saved).read()
        assert saved.endswith("explorer.html") and "Conv2d" in text and "BatchNorm2d" in text
    assert list((tmp_path / "run").iterdir())
    assert page.url not in page._repr_html_() and f'<iframe srcdoc="{html.escape(text)}"' in page._repr_html_()
    with torchtap.explore(model) as page:
        pass
    assert page._repr_html_().startswith("<p>This page was closed.")
    wrong = [
        (lambda: torchtap.explore(model, record=["x"]), ValueError, 'nothing is called "x"'),
        (lambda: torchtap.explore(model, "head"), ValueError, 'there is no module "head"'),
        (lambda: torchtap.explore(nn.Linear), TypeError, "torchtap.explore: expected a torch.nn.Module, got the class"),
        (lambda: torchtap.explore(model, port=-1), ValueError, "torchtap.explorer: expected 0 to 65535"),
    ]
    for call, kind, message in wrong:
        with pytest.raises(kind, match=message):
            call()
        assert not hooks_of(model)


@needs("monitor")
def test_drift_is_told_with_its_inputs(tmp_path):
    model, told = small().eval(), []
    with torch.no_grad():
        with torchtap.monitor(model, learn=tmp_path / "learned", cost=1.0):
            for _ in range(300):
                model(torch.randn(16, 3, 8, 8))
        with torchtap.monitor(model, reference=tmp_path / "learned", save=tmp_path / "incidents", cost=1.0) as watch:
            watch.on_alarm(told.append)
            for _ in range(32):
                model(torch.randn(16, 3, 8, 8))
            watch.flush()
            assert watch.alarms == []
            for _ in range(32):
                model(3 * torch.randn(16, 3, 8, 8) + 1)
            watch.flush()
            alarm = next(one for one in watch.alarms if one.path == "")
            assert (
                alarm.rule == "drift"
                and alarm.raised
                and os.path.isdir(alarm.incident)
                and str(alarm).startswith("drift")
            )
            assert json.loads(alarm.json())["rule"] == "drift" and "torchtap_forwards_total" in watch.metrics()
            assert os.path.isdir(watch.capture("asked"))
    assert told and told[0].rule == "drift"
    with pytest.raises(RuntimeError, match="torchtap.monitor: it was closed"):
        watch.alarms  # noqa: B018
    with pytest.raises(ValueError, match="no such file"):
        torchtap.monitor(model, reference=tmp_path / "nothing")


@needs("stream")
def test_other_processes_read_what_is_published():
    pytest.importorskip("numpy")
    model, name = small().eval(), f"published-{os.getpid()}"
    read = f"""
import sys
sys.path.insert(0, {str(SOURCE / "extras/python")!r})
from torchtap.stream import Reader
reader = Reader({name!r})
print("joined", flush=True)
for frame in reader:
    print(frame.path, frame.kind, frame.tensor.shape, float(frame.tensor.sum()), flush=True)
    break
"""
    with torchtap.publish(name, model, "0") as publisher:
        reader = subprocess.Popen([sys.executable, "-c", read], stdout=subprocess.PIPE, text=True)
        assert reader.stdout.readline() == "joined\n"
        until = time.monotonic() + 60
        while not publisher.readers and time.monotonic() < until:
            time.sleep(0.01)
        publisher.annotate("epoch 1")
        with torch.no_grad():
            model(IMAGES)
            expected = model[0](IMAGES)
        line = reader.stdout.readline().split()
        assert line[:2] == ["0", "ForwardOutput"] and float(line[-1]) == pytest.approx(expected.sum().item(), rel=1e-3)
        assert publisher.sent >= 1
        reader.wait(60)
    with pytest.raises(ValueError, match="no name of a stream"):
        torchtap.publish("a b")
    with pytest.raises(ValueError, match="no recorder called"):
        torchtap.publish(name, model, kinds=["Outputs"])
    assert not hooks_of(model)
