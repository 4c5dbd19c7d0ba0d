"""Python's side of bench/peers/run: the data of both sides, the tasks of the libraries, the table.

usage: peers.py data FOLDER | tasks FOLDER | table FILE"""

import collections
import ctypes
import gc
import importlib.metadata
import json
import os
import sys
import time

import torch

TYPES = (torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.nn.Linear)


def models():
    import torchvision

    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    return {"resnet18": torchvision.models.resnet18(weights=None).eval(), "mlp": torch.nn.Sequential(*layers).eval()}


def hooked(model):
    return [(name, module) for name, module in model.named_modules() if isinstance(module, TYPES)]


def inputs_of(model, x):
    """Copies of the inputs of all layers: what the results are compared with."""
    seen = []
    handles = [m.register_forward_pre_hook(lambda m, args: seen.append(args[0].clone())) for _, m in hooked(model)]
    model(x)
    for handle in handles:
        handle.remove()
    return seen


class Data(torch.nn.Module):
    inputs_resnet18: list[torch.Tensor]
    inputs_mlp: list[torch.Tensor]

    def forward(self, x):
        return x


def make_data(folder):
    """Models, their inputs, and tables of the channels' means of a layer: a reference and two windows."""
    data, of = Data(), models()
    torch.manual_seed(1)
    data.x_resnet18, data.x_mlp = torch.randn(8, 3, 64, 64), torch.randn(1, 64)
    for name, model in of.items():
        setattr(data, "inputs_" + name, inputs_of(model, getattr(data, "x_" + name)))
        torch.jit.script(model).save(f"{folder}/{name}.pt")
    resnet = of["resnet18"]
    stem = torch.nn.Sequential(resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool, resnet.layer1)
    for name, rows, scale in (("reference", 1024, 1.0), ("same", 256, 1.0), ("changed", 256, 1.3)):
        images = torch.randn(rows, 3, 64, 64) * (0.5 + torch.rand(rows, 1, 1, 1)) * scale
        setattr(data, name, torch.cat([stem(batch).mean((2, 3)) for batch in images.split(32)]))
    torch.jit.script(data).save(f"{folder}/data.pt")


# A task makes (step, clear, says): `step` runs a forward with it and returns what it keeps, `clear` drops the rest, `says`
# tells of the results after so many steps.
def nothing(*_):
    return ""


def right(is_right):
    return "right" if is_right else "WRONG"


def sums_are_right(sums, inputs, steps):
    return right(all(torch.allclose(s, i * steps, 1e-3, 1e-3) for s, i in zip(sums, inputs, strict=True)))


def are_equal(kept, inputs):
    return right(all(torch.equal(k, i) for k, i in zip(kept, inputs, strict=True)))


def torchfunc_sum(model, inputs):
    from torchfunc.hooks.recorders import ForwardPre

    recorder = ForwardPre(reduction=lambda x, y: x + y).modules(model, types=TYPES)
    return model, nothing, lambda steps: sums_are_right(recorder.data, inputs, steps)


def torchfunc_kept(model, inputs):
    from torchfunc.hooks.recorders import ForwardPre

    recorder = ForwardPre().modules(model, types=TYPES)
    return model, recorder.data.clear, lambda steps: are_equal([kept[0] for kept in recorder.data], inputs)


def hooks_sum(model, inputs):
    sums = {}

    def add(module, args):
        if module in sums:
            sums[module].add_(args[0])
        else:
            sums[module] = args[0].clone()

    for _, module in hooked(model):
        module.register_forward_pre_hook(add)
    return model, nothing, lambda steps: sums_are_right(sums.values(), inputs, steps)


def hooks_moments(model, inputs):
    state = {}

    def fold(module, args):
        x = args[0]
        (var, mean), (low, high), n = torch.var_mean(x, correction=0), torch.aminmax(x), x.numel()
        if module in state:
            count, old, squares, least, most = state[module]
            delta, all_of = mean - old, count + n
            mean = old + delta * (n / all_of)
            squares = squares + var * n + delta * delta * (count * n / all_of)
            state[module] = all_of, mean, squares, torch.minimum(least, low), torch.maximum(most, high)
        else:
            state[module] = n, mean, var * n, low, high

    for _, module in hooked(model):
        module.register_forward_pre_hook(fold)
    return (
        model,
        nothing,
        lambda steps: right(
            all(abs(s[1] - i.mean()) < 1e-4 and s[4] == i.max() for s, i in zip(state.values(), inputs, strict=True))
        ),
    )


def hooks_kept(model, inputs):
    kept = []
    for _, module in hooked(model):
        module.register_forward_pre_hook(lambda module, args: kept.append(args[0].clone()))
    return model, kept.clear, lambda steps: are_equal(kept, inputs)


def torchtap_recorder(model, **options):
    import torchtap

    return torchtap.ForwardPre(**options).attach(model, types=TYPES)


def torchtap_sum(model, inputs):
    import torchtap

    recorder = torchtap_recorder(model, reduction=torchtap.Sum())
    return model, nothing, lambda steps: sums_are_right(recorder.data, inputs, steps)


def torchtap_moments(model, inputs):
    import torchtap

    every = torchtap.Series(*(one(over_all=True) for one in (torchtap.Moments, torchtap.Min, torchtap.Max)))
    recorder = torchtap_recorder(model, reduction=every)

    def says(steps):
        found = zip(recorder, inputs, strict=True)
        return right(all(abs(s["moments.mean"] - i.mean()) < 1e-4 and s["max.value"] == i.max() for s, i in found))

    return model, nothing, says


def torchtap_kept(model, inputs, alias=False):
    recorder = torchtap_recorder(model, alias=alias)
    return model, recorder.reset, lambda steps: are_equal([kept[0] for kept in recorder], inputs)


def nnsight_sum(model, inputs):
    import nnsight

    traced, sums = nnsight.NNsight(model), []
    envoys = [traced.get(name) for name, _ in hooked(model)]

    def step(x):
        with traced.trace(x):
            for i, envoy in enumerate(envoys):
                if i < len(sums):
                    sums[i].add_(envoy.input)
                else:
                    sums.append(envoy.input.clone())

    return step, nothing, lambda steps: sums_are_right(sums, inputs, steps)


def nnsight_kept(model, inputs):
    import nnsight

    traced, kept = nnsight.NNsight(model), []
    envoys = [traced.get(name) for name, _ in hooked(model)]

    def step(x):
        with traced.trace(x):
            for envoy in envoys:
                kept.append(envoy.input.save())

    return step, kept.clear, lambda steps: are_equal(kept, inputs)


def torchlens_trace(model, inputs, **options):
    import torchlens
    from torchlens.options import CaptureOptions

    made = {}

    def step(x):
        log = torchlens.trace(model, x, capture=CaptureOptions(**options))
        made["says"] = f"{len(log.ops)} operations"
        return log

    return step, nothing, lambda steps: made["says"]


def torchlens_record(model, inputs):
    import torchlens

    made = {}

    def step(x):
        made["log"] = torchlens.record(model, x, default_op=True)
        return made["log"]

    return step, made.clear, lambda steps: f"{len(made['log'].records)} records"


def torchinfo_report(model, inputs):
    import torchinfo

    made = {}

    def step(x):
        made["of"] = torchinfo.summary(model, input_data=x, verbose=0, depth=9)
        return str(made["of"])

    return step, nothing, lambda steps: f"{made['of'].total_mult_adds} MACs"


def torchtap_trace(model, inputs, save):
    import torchtap

    made = {}

    def step(x):
        made["of"] = torchtap.trace(model, x, save=save)
        return made["of"]

    return step, made.clear, lambda steps: f"{made['of'].operations} operations"


def torchtap_report(model, inputs, view):
    import torchtap

    made = {}

    def step(x):
        made["of"] = getattr(torchtap, view)(model, x)
        return str(made["of"])

    return step, nothing, lambda steps: f"{made['of'].rows[0].forward.work.macs} MACs"


def no_task(model, inputs):
    return model, nothing, nothing


TASKS = {
    ("torch", "none"): no_task,
    ("torchfunc", "sum"): torchfunc_sum,
    ("torchtap in Python", "sum"): torchtap_sum,
    ("torchtap in Python", "moments"): torchtap_moments,
    ("torchtap in Python", "kept"): torchtap_kept,
    ("torchtap in Python", "kept alias"): lambda m, i: torchtap_kept(m, i, alias=True),
    ("torch", "sum"): hooks_sum,
    ("nnsight", "sum"): nnsight_sum,
    ("torch", "moments"): hooks_moments,
    ("torchfunc", "kept alias"): torchfunc_kept,
    ("torch", "kept"): hooks_kept,
    ("nnsight", "kept alias"): nnsight_kept,
    ("torchlens", "trace"): lambda m, i: torchlens_trace(m, i, layers_to_save="none"),
    ("torchlens", "trace all"): lambda m, i: torchlens_trace(m, i, layers_to_save="all"),
    ("torchlens", "trace all, record"): torchlens_record,
    ("torchtap in Python", "trace"): lambda m, i: torchtap_trace(m, i, "none"),
    ("torchtap in Python", "trace all"): lambda m, i: torchtap_trace(m, i, "all"),
    ("torchinfo", "report"): torchinfo_report,
    ("torchtap in Python", "report"): lambda m, i: torchtap_report(m, i, "report"),
    ("torchtap in Python", "summary"): lambda m, i: torchtap_report(m, i, "summary"),
    ("evidently", "drift"): None,
}
SMALL = ("none", "sum", "moments", "kept", "kept alias")  # of the MLP, too


def megabytes(what):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1e3 for line in status if line.startswith(what + ":"))


def measure(who, task, of, folder):
    """Rounds of a bare forward and of the task in turns, for some seconds; the growth of memory at the peak of the first."""
    data = torch.jit.load(f"{folder}/data.pt")
    x, inputs = getattr(data, "x_" + of), getattr(data, "inputs_" + of)
    bare, make = models()[of], TASKS[who, task]
    step, clear, says = make(models()["mlp"], [])  # what is made once in a process
    for _ in range(3):
        step(data.x_mlp)
        clear()
    memory = 0
    if of != "mlp":  # of eight times as many images, so that the process itself counts for little
        many = x.repeat(8, 1, 1, 1)
        step, clear, says = make(models()[of], [])
        for _ in range(2):
            bare(many)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # or what is free in the heap hides what the task takes
        before = megabytes("VmRSS")
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
        kept = step(many)
        memory = megabytes("VmHWM") - before
        del kept
        clear()
    step, clear, says = make(models()[of], inputs)
    step(x)
    clear()
    step(x)
    said = says(2)
    clear()
    calls, without, taken = 500 if of == "mlp" else 1, [], []
    now, begin = time.process_time, time.process_time()
    while len(taken) < 5 or now() - begin < float(os.environ.get("SECONDS_EACH", 2)):
        start = now()
        for _ in range(calls):
            bare(x)
        without.append((now() - start) / calls)
        start = now()
        for _ in range(calls):
            kept = step(x)
        taken.append((now() - start) / calls)
        del kept
        clear()
    return {"bare": 1e3 * min(without), "takes": 1e3 * min(taken), "memory": memory, "says": said}


def evidently_drift(folder):
    import pandas
    from evidently import Report
    from evidently.presets import DataDriftPreset

    data = torch.jit.load(f"{folder}/data.pt")
    of = {
        name: pandas.DataFrame(getattr(data, name).numpy(), columns=[f"channel {i}" for i in range(64)])
        for name in ("reference", "same", "changed")
    }
    taken, says = [], {}
    for window in 2 * ("same", "changed"):
        start = time.process_time()
        result = Report([DataDriftPreset()]).run(of[window], of["reference"])
        taken.append(time.process_time() - start)
        says[window] = int(result.dict()["metrics"][0]["value"]["count"])
    method = result.dict()["metrics"][1]["config"]["method"]
    said = " ".join(f"{window}: {count} of 64" for window, count in says.items()) + f" ({method})"
    return {"bare": 0, "takes": 1e3 * min(taken), "memory": 0, "says": said}


def table(file):
    """Minima over the runs; a ratio is of the minima in one process, and the range says how far runs differ."""
    runs = collections.defaultdict(list)
    with open(file) as lines:
        for line in map(json.loads, lines):
            runs[line["model"], line["task"], line["who"]].append(line)
    print("| model | task | library | bare | takes | × bare | memory | |\n|---|---|---|---|---|---|---|---|")
    for (model, task, who), of in sorted(runs.items()):
        if "error" in of[0]:
            print(f"| {model} | {task} | {who} | | | | | {of[0]['error']} |")
            continue
        bare, takes = (min(run[key] for run in of) for key in ("bare", "takes"))
        ratios = sorted(run["takes"] / run["bare"] for run in of if run["bare"])
        ratio = f"{ratios[0]:.3f}–{ratios[-1]:.3f}" if ratios else ""
        memory = min(run["memory"] for run in of)
        print(
            f"| {model} | {task} | {who} | {bare:.4g} ms | {takes:.4g} ms | {ratio} | {memory:.1f} MB | {of[0]['says']} |"
        )
    names = ("torch", "torchvision", "torchfunc", "torchlens", "torchinfo", "nnsight", "evidently")
    print(
        "\nPython " + sys.version.split()[0] + ", " + ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names)
    )


def main(arguments):
    if arguments[0] == "table":
        return table(arguments[1])
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if arguments[0] == "data":
        return make_data(arguments[1])
    # A process for each, which does not import torch again.
    for who, task in TASKS:
        for of in ("table",) if task == "drift" else ("resnet18", "mlp") if task in SMALL else ("resnet18",):
            if child := os.fork():
                os.waitpid(child, 0)
                continue
            line = {"who": who, "task": task, "model": of}
            try:
                line |= evidently_drift(arguments[1]) if task == "drift" else measure(who, task, of, arguments[1])
            except Exception as error:  # a library that does not work with this torch is a row of the table
                line["error"] = f"{type(error).__name__}: {str(error)[:200]}"
            print(json.dumps(line), flush=True)
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
