#!/usr/bin/env python3
"""Trains a small residual network on Fashion-MNIST a few times and writes what the page is shown: real graphs, real
columns, real scalars, in the form of the explorer's protocol.

usage: tests/make_runs.py FOLDER [--steps 480] [--every 4]

Writes FOLDER/RUN/{run,graph,series,scalars,health}.json and columns.bin for the runs `r0` (lr=0.1), `r1` (the same,
a tenth of the learning rate) and `r2` (a learning rate that grows until there are NaNs).
"""

import argparse
import gzip
import json
import pathlib
import struct
import time

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
KINDS = ["input", "output", "grad_input", "grad_output"]


def idx(name):
    raw = gzip.open(DATA / name).read()
    dims = raw[3]
    shape = struct.unpack(f">{dims}I", raw[4 : 4 + 4 * dims])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + skip)


class ResNet(nn.Module):
    """ResNet-18's stages, with narrow layers, for images of 28 x 28."""

    def __init__(self, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(2)
        stages = [width, width, 2 * width, 4 * width, 8 * width]
        for i in range(1, 5):
            blocks = [BasicBlock(stages[i - 1], stages[i], 1 if i == 1 else 2), BasicBlock(stages[i], stages[i])]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, 10)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Flow(TorchDispatchMode):
    """Where tensors come from: sources(output) = union of sources(inputs), in each running module call."""

    def __init__(self, tracer):
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        read, made = [], []
        for x in torch.utils._pytree.tree_flatten((args, kwargs))[0]:
            if isinstance(x, torch.Tensor):
                read.append(x)
        for x in torch.utils._pytree.tree_flatten(out)[0]:
            if isinstance(x, torch.Tensor):
                made.append(x)
        for frame in self.tracer.frames:
            known = self.tracer.sources[frame]
            union = set().union(*[known.get(id(x), set()) for x in read]) if read else set()
            for x in made:
                self.tracer.keep.append(x)
                known[id(x)] = set(union) | (known.get(id(x), set()) if any(x is r for r in read) else set())
        return out


def tensors(values):
    return [v for v in torch.utils._pytree.tree_flatten(values)[0] if isinstance(v, torch.Tensor)]


def about(x):
    return {"dtype": str(x.dtype).replace("torch.", ""), "shape": list(x.shape)}


class Tracer:
    """Module calls and the edges between them, of one forward."""

    def __init__(self, model):
        self.names = {m: n for n, m in model.named_modules()}
        self.calls, self.edges, self.frames, self.sources, self.keep, self.count = [], [], [], {}, [], {}

    def enter(self, module, args):
        path = self.names[module]
        call = {
            "id": len(self.calls),
            "parent": self.frames[-1] if self.frames else None,
            "path": path,
            "call": self.count.get(path, 0),
            "type": type(module).__name__,
            "name": path.split(".")[-1] if path else "resnet",
            "inputs": [about(x) for x in tensors(args)],
        }
        self.count[path] = call["call"] + 1
        self.calls.append(call)
        outer = self.frames[-1] if self.frames else None
        inner = {}
        for k, x in enumerate(tensors(args)):
            if outer is not None:
                self.connect(outer, self.sources[outer].get(id(x), set()), (call["id"], k))
            inner[id(x)] = {(call["id"], k)}
            self.keep.append(x)
        self.sources[call["id"]] = inner
        self.frames.append(call["id"])
        return call

    def leave(self, call, out):
        frame = self.frames.pop()
        call["outputs"] = [about(x) for x in tensors(out)]
        for k, x in enumerate(tensors(out)):
            self.connect(frame, self.sources[frame].get(id(x), set()), (frame, k))
            if self.frames:
                self.sources[self.frames[-1]][id(x)] = {(frame, k)}
            self.keep.append(x)

    def connect(self, frame, sources, to):
        for call, port in sorted(sources):
            self.edges.append(
                {
                    "caller": frame,
                    "from": {"call": call, "port": port},
                    "to": {"call": to[0], "port": to[1]},
                    "kind": "data",
                }
            )


def column(x):
    """Statistics and bins of one tensor, as the protocol has them."""
    x = x.detach().reshape(-1).to(torch.float32).contiguous().numpy()
    finite = np.isfinite(x)
    good = x[finite].astype(np.float64)
    zero = x == 0
    slots = (x[finite & ~zero].view(np.uint32) >> 20).astype(np.int64)
    bins, counts = np.unique(slots, return_counts=True)
    return {
        "count": x.size,
        "nan": int(np.isnan(x).sum()),
        "posinf": int((x == np.inf).sum()),
        "neginf": int((x == -np.inf).sum()),
        "zeros": int(zero.sum()),
        "min": good.min() if good.size else np.nan,
        "max": good.max() if good.size else np.nan,
        "sum": good.sum(),
        "sq": (good * good).sum(),
        "bins": bins,
        "counts": counts,
    }


def varint(n):
    out = bytearray()
    n = int(n)
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def pack(series):
    out = [struct.pack("<IIII", 0x434C5054, 1, 3, len(series))]
    for s in series:
        out.append(struct.pack("<IQI", s["id"], len(s["columns"]), len(s["columns"])))
        for step, last, c in s["columns"]:
            out.append(
                struct.pack(
                    "<qq9d",
                    step,
                    last,
                    c["count"],
                    c["nan"],
                    c["posinf"],
                    c["neginf"],
                    c["zeros"],
                    c["min"],
                    c["max"],
                    c["sum"],
                    c["sq"],
                )
            )
            out.append(struct.pack("<I", len(c["bins"])))
            before = 0
            for b, n in zip(c["bins"], c["counts"]):
                out.append(varint(b - before) + varint(n))
                before = b
    return b"".join(out)


def number(v):
    v = float(v)
    return v if np.isfinite(v) else "NaN" if np.isnan(v) else "Infinity" if v > 0 else "-Infinity"


def last_of(step, c):
    good = max(1, c["count"] - c["nan"] - c["posinf"] - c["neginf"])
    mean = c["sum"] / good
    return {
        "step": step,
        **{k: c[k] for k in ["count", "nan", "posinf", "neginf", "zeros"]},
        "min": number(c["min"]),
        "max": number(c["max"]),
        "mean": number(mean),
        "std": number(max(0.0, c["sq"] / good - mean * mean) ** 0.5),
        "norm": number(c["sq"] ** 0.5),
    }


class Watch:
    """Hooks on every module of a model; `log` decides for each forward whether columns are made of it."""

    def __init__(self, model):
        self.model, self.series, self.by, self.log, self.tracer, self.step = model, [], {}, False, None, 0
        self.attributes = {}
        self.order = []
        for module in model.modules():
            inner = module.forward
            module.forward = lambda *a, _m=module, _f=inner, **k: self.call(_m, _f, a, k)

    def call(self, module, forward, args, kwargs):
        if self.tracer is not None:
            call = self.tracer.enter(module, args)
            self.attributes[call["path"]] = "" if list(module.children()) else module.extra_repr()
            out = forward(*args, **kwargs)
            self.tracer.leave(call, out)
            return out
        number_of = self.running = self.running + 1
        if not self.log:
            return forward(*args, **kwargs)
        self.see(number_of, "input", tensors(args))
        out = forward(*args, **kwargs)
        self.see(number_of, "output", tensors(out))
        return out

    def see(self, call, what, values):
        for k, x in enumerate(values):
            self.add(call, what, k, "", x)
            if x.requires_grad:
                x.register_hook(lambda g, k=k: self.add(call, "grad_" + what, k, "", g))

    def add(self, call, what, index, name, x):
        key = (call, what, index)
        if key not in self.by:
            self.by[key] = {
                "id": len(self.series),
                "call": call,
                "what": what,
                "index": index,
                "name": name,
                "columns": [],
            }
            self.series.append(self.by[key])
        columns = self.by[key]["columns"]
        if not columns or columns[-1][0] != self.step:
            columns.append((self.step, self.step, column(x)))

    def graph(self, mode, batch):
        self.tracer = Tracer(self.model)
        self.model.train(mode == "train")
        with Flow(self.tracer), torch.no_grad():
            self.model(batch)
        tracer, self.tracer = self.tracer, None
        return tracer


def health_of(watch, calls, steps):
    first = None
    marks = []
    last = {}
    for s in watch.series:
        bad = next((step for step, _, c in s["columns"] if c["nan"] or c["posinf"] or c["neginf"]), None)
        s["first_nan"] = next((step for step, _, c in s["columns"] if c["nan"]), None)
        s["first_inf"] = next((step for step, _, c in s["columns"] if c["posinf"] or c["neginf"]), None)
        if s["what"] == "output" and bad is not None:
            kind = "nan" if s["first_nan"] is not None and s["first_nan"] <= bad else "inf"
            marks.append(
                {"call": s["call"], "kind": "nonfinite", "value": 1.0, "since": bad, "sentence": "NaN among the values"}
            )
            fed = [t for t in watch.series if t["call"] == s["call"] and t["what"] == "input"]
            clean = not any(
                c["nan"] or c["posinf"] or c["neginf"] for t in fed for at, _, c in t["columns"] if at <= bad
            )
            leaf = not any(c["parent"] == s["call"] for c in calls)
            rank = (bad, not (clean and leaf), s["call"])
            if first is None or rank < first[0]:
                first = (
                    rank,
                    {"step": bad, "what": kind, "call": s["call"], "series": s["id"], "producer": bool(clean and leaf)},
                )
        if s["columns"]:
            last[(s["call"], s["what"], s["index"])] = s["columns"][-1][2]
    for (call, what, _), c in last.items():
        leaf = calls[call]["type"] if call < len(calls) else ""
        if what == "output" and leaf == "ReLU" and c["count"] and c["zeros"] / c["count"] > 0.9:
            share = c["zeros"] / c["count"]
            says = f"{100 * share:.3g} % of the values are zero"
            marks.append({"call": call, "kind": "dead_relu", "value": share, "since": steps, "sentence": says})
    return {"first_bad": first and first[1], "marks": marks}


def train(name, run, folder, lr, growth, steps, every, images, labels, started):
    torch.manual_seed(0)
    model = ResNet()
    watch = Watch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    tracers = {mode: watch.graph(mode, images[:64]) for mode in ["eval", "train"]}
    model = model.train()
    calls = tracers["train"].calls
    call_of = {}
    for c in calls:
        call_of.setdefault(c["path"], c["id"])
    scalars = {"loss": [], "accuracy": [], "time per step": []}
    for step in range(steps):
        at = time.perf_counter()
        picked = torch.randint(len(images), (64,), generator=generator)
        watch.step, watch.log, watch.running = step, step % every == 0, -1
        optimizer.zero_grad()
        out = model(images[picked])
        loss = nn.functional.cross_entropy(out, labels[picked])
        loss.backward()
        if watch.log:
            for path, module in model.named_modules():
                for k, (parameter, value) in enumerate(module.named_parameters(recurse=False)):
                    watch.add(call_of[path], "parameter", k, parameter, value)
                    watch.add(call_of[path], "parameter_grad", k, parameter, value.grad)
        for group in optimizer.param_groups:
            group["lr"] = lr * growth**step
        optimizer.step()
        scalars["loss"].append([step, number(loss.item())])
        scalars["accuracy"].append([step, (out.argmax(1) == labels[picked]).float().mean().item()])
        scalars["time per step"].append([step, time.perf_counter() - at])
    write(folder / run, name, run, model, watch, tracers, scalars, steps, started)
    print(name, "loss", scalars["loss"][-1][1], "series", len(watch.series))


def write(folder, name, run, model, watch, tracers, scalars, steps, started):
    folder.mkdir(parents=True, exist_ok=True)
    modules = dict(model.named_modules())
    ids = {(s["call"], s["what"], s["index"]): s["id"] for s in watch.series}
    graphs = {}
    for mode, tracer in tracers.items():
        for c in tracer.calls:
            c["seen"] = steps
            c["attributes"] = watch.attributes[c["path"]]
            c["parameters"] = [
                {
                    "name": n,
                    **about(p),
                    "learnable": p.requires_grad,
                    "series": ids.get((c["id"], "parameter", k), -1) if mode == "train" else -1,
                }
                for k, (n, p) in enumerate(modules[c["path"]].named_parameters(recurse=False))
            ]
            ports = {
                "input": c["inputs"],
                "output": c["outputs"],
                "grad_input": c["inputs"],
                "grad_output": c["outputs"],
            }
            c["series"] = {
                what: [ids.get((c["id"], what, k), -1) if mode == "train" else -1 for k in range(len(ports[what]))]
                for what in KINDS
            }
        graphs[mode] = {
            "version": 1,
            "mode": mode,
            "forwards": steps,
            "calls": tracer.calls,
            "edges": [{**e, "seen": steps} for e in tracer.edges],
        }
    health = health_of(watch, graphs["train"]["calls"], steps)
    index = [
        {
            "id": s["id"],
            "call": s["call"],
            "what": s["what"],
            "index": s["index"],
            "name": s["name"],
            "columns": 256,
            "stride": 4,
            "last": last_of(s["columns"][-1][0], s["columns"][-1][2]),
            "first_nan": s["first_nan"],
            "first_inf": s["first_inf"],
        }
        for s in watch.series
    ]
    about_run = {
        "id": run,
        "name": name,
        "program": "fashion_mnist",
        "state": "finished",
        "first_step": 0,
        "step": steps - 1,
        "started": started,
        "modes": ["train", "eval"],
        "control": False,
    }
    for file, what in [
        ("run", about_run),
        ("graph", graphs),
        ("series", index),
        ("scalars", scalars),
        ("health", health),
    ]:
        (folder / f"{file}.json").write_text(json.dumps(what))
    (folder / "columns.bin").write_bytes(pack(watch.series))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--every", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images = torch.tensor(idx("train-images-idx3-ubyte.gz"), dtype=torch.float32)[:, None] / 255
    images = (images - 0.286) / 0.353
    labels = torch.tensor(idx("train-labels-idx1-ubyte.gz"), dtype=torch.int64)
    runs = [("r0", "lr=0.1", 0.1, 1.0), ("r1", "lr=0.01", 0.01, 1.0), ("r2", "lr grows by 10 % a step", 0.1, 1.1)]
    for run, name, lr, growth in runs:
        train(name, run, arguments.folder, lr, growth, arguments.steps, arguments.every, images, labels, 1763850000.0)


if __name__ == "__main__":
    main()
