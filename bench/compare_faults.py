#!/usr/bin/env python3
"""Measures how often `torchtap compare` is right: faults put into models of torchvision, equal models, and models of other names.

usage: compare_faults.py --torchtap COMMAND [--python FOLDER] [--seed N] [--faults N] [--models NAME …] [--size N] [--shuffle]
"""

import argparse
import collections
import contextlib
import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

MODELS = (
    "resnet18 mobilenet_v3_small squeezenet1_1 regnet_y_400mf efficientnet_b0 shufflenet_v2_x1_0 mnasnet0_5 vgg11_bn "
)
MODELS = (MODELS + "densenet121 vit_b_16").split()
NORMS, LAYERS = (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm), (nn.Conv2d, nn.Linear)
ONE = r"one of \d+ values differs"
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.GELU, nn.Sigmoid, nn.Hardsigmoid)


def make(name, size, seed):
    """A model whose weights are not trivial: scales, biases, statistics of data."""
    torch.manual_seed(seed)
    arguments = {"image_size": size // 16 * 16} if name.startswith("vit") else {}
    model = getattr(torchvision.models, name)(weights=None, **arguments)
    for m in model.modules():
        if isinstance(m, NORMS):
            m.weight.data.add_(0.2 * torch.randn_like(m.weight))
            m.bias.data.add_(0.2 * torch.randn_like(m.bias))
        elif isinstance(m, LAYERS) and m.bias is not None:
            m.bias.data.add_(0.05 * torch.randn_like(m.bias))
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    momenta = [m.momentum for m in norms]
    for m in norms:
        m.momentum = None  # the average of all batches
    if norms:
        model.train()(torch.rand(8, 3, size, size))
    for m, momentum in zip(norms, momenta):
        m.momentum = momentum
    return model.eval()


class Model:
    """A model, one batch for it, and what its modules get and give for it."""

    def __init__(self, name, size, seed):
        self.name, self.model = name, make(name, size, seed)
        side = size // 16 * 16 if name.startswith("vit") else size
        self.x = torch.rand(2, 3, side, side)
        self.inputs, self.outputs, handles = {}, {}, []
        for path, m in self.model.named_modules():
            handles.append(m.register_forward_hook(lambda m, i, o, path=path: self.keep(path, i, o)))
        self.model(self.x)
        for handle in handles:
            handle.remove()

    def keep(self, path, i, o):
        if (
            path not in self.outputs
            and i
            and all(isinstance(t, torch.Tensor) for t in (i[0], o))
            and bool((o != 0).any())
        ):
            self.inputs[path], self.outputs[path] = i[0].clone(), o.clone()

    def draw(self, rng, *kinds, also=lambda m: True):
        """One of the modules of these kinds that gave something other than zeros."""
        found = [p for p, m in self.model.named_modules() if p in self.outputs and isinstance(m, kinds) and also(m)]
        return rng.choice(found) if found else None


# Faults. Each takes a Model and random numbers, and gives (what has to be named, a function that puts it into a copy of the
# model and gives its input, the cause as a regular expression or None), or None if the model has no place for it.

FAULTS = {}


def fault(name):
    def register(function):
        FAULTS[name] = function
        return function

    return register


def assign(path, **values):
    def act(model, x):
        for name, value in values.items():
            setattr(model.get_submodule(path), name, value)
        return x

    return act


def wrap(path, function):
    """The output changed by the module's own forward, so that hooks see it."""

    def act(model, x):
        m = model.get_submodule(path)
        forward = m.forward
        m.forward = lambda *inputs: function(forward(*inputs))
        return x

    return act


def code(path, function):
    """The module's forward is function(module, input)."""

    def act(model, x):
        m = model.get_submodule(path)
        m.forward = lambda i: function(m, i)
        return x

    return act


def weight(path, name, function):
    def act(model, x):
        parameter = getattr(model.get_submodule(path), name)
        parameter.data = function(parameter.data.clone()).contiguous()
        return x

    return act


@fault("eps")
def _(m, rng):
    if p := m.draw(rng, *NORMS):
        own = m.model.get_submodule(p).eps
        other = rng.choice([e for e in (1e-3, 1e-4, 1e-5, 1e-6) if e != own and max(e, own) >= 1e-5])
        return p, assign(p, eps=other), rf"eps is {other:.0e} in B".replace("e-0", "e-")


@fault("batch norm in train mode")
def _(m, rng):
    if p := m.draw(rng, nn.BatchNorm2d):
        return p, assign(p, training=True), "train mode"


@fault("dropout in train mode")
def _(m, rng):
    if p := m.draw(rng, nn.Dropout, also=lambda d: d.p > 0):
        return p, assign(p, training=True), "train mode"


@fault("bias left out by the code")
def _(m, rng):
    if p := m.draw(rng, nn.Conv2d, nn.Linear, nn.BatchNorm2d, also=lambda b: b.bias is not None):
        bias = m.model.get_submodule(p).bias
        return (
            p,
            wrap(p, lambda y: y - bias.view([-1] + [1] * (y.dim() - 2) if y.dim() == 4 else [-1])),
            "leaves out bias",
        )


@fault("transposed weight")
def _(m, rng):
    if p := m.draw(rng, nn.Conv2d, also=lambda c: c.kernel_size[0] > 1):
        return p + ".weight", weight(p, "weight", lambda w: w.transpose(2, 3)), "transpose|permute"


@fault("weight used transposed")
def _(m, rng):
    if p := m.draw(rng, nn.Conv2d, also=lambda c: c.kernel_size[0] > 1):
        return p, code(p, lambda c, i: c._conv_forward(i, c.weight.transpose(2, 3), c.bias)), r"transpose\(2, 3\)"


@fault("convolution for correlation")
def _(m, rng):
    if p := m.draw(rng, nn.Conv2d, also=lambda c: c.kernel_size[0] > 1):
        return p, code(p, lambda c, i: c._conv_forward(i, c.weight.flip(2, 3), c.bias)), r"flip\(2, 3\)"


@fault("padding mode")
def _(m, rng):
    if p := m.draw(rng, nn.Conv2d, also=lambda c: c.padding[0] > 0):
        if min(m.inputs[p].shape[2:]) > m.model.get_submodule(p).padding[0]:
            mode = rng.choice(["reflect", "replicate", "circular"])
            return p, assign(p, padding_mode=mode), f"padding_mode is {mode}"


@fault("asymmetric padding")
def _(m, rng):
    if p := m.draw(rng, nn.Conv2d, also=lambda c: c.padding[0] > 0 and c.stride[0] == 2):
        n = m.model.get_submodule(p).padding[0]
        ends = (n - 1, n, n - 1, n) if m.inputs[p].shape[-1] % 2 == 0 else (n - 1, n + 1, n - 1, n + 1)
        return (
            p,
            code(p, lambda c, i: F.conv2d(F.pad(i, ends), c.weight, c.bias, c.stride, 0, c.dilation, c.groups)),
            "padding is",
        )


@fault("pooling")
def _(m, rng):
    if p := m.draw(rng, nn.MaxPool2d, nn.AvgPool2d, also=lambda q: q.kernel_size != q.stride or q.padding):
        k, s = m.model.get_submodule(p).kernel_size, m.model.get_submodule(p).stride
        n = m.model.get_submodule(p).padding
        if n and rng.random() < 0.5:
            return p, code(p, lambda q, i: F.max_pool2d(F.pad(i, (0, 2 * n - 1) * 2), k, s)), "padding is"
        return p, code(p, lambda q, i: F.avg_pool2d(i, k, s, n, q.ceil_mode)), "takes the average"
    if p := m.draw(rng, nn.AdaptiveAvgPool2d, also=lambda q: q.output_size in (1, (1, 1))):
        return p, code(p, lambda q, i: F.adaptive_max_pool2d(i, 1)), "takes the maximum"


@fault("output rounded")
def _(m, rng):
    if p := m.draw(rng, *LAYERS, *ACTIVATIONS):
        dtype = rng.choice([torch.bfloat16, torch.float16])
        return p, wrap(p, lambda y: y.to(dtype).float()), f"rounds output to {str(dtype)[6:]}"


@fault("weight rounded")
def _(m, rng):
    if p := m.draw(rng, *LAYERS):
        return p + ".weight", weight(p, "weight", lambda w: w.bfloat16().float()), "bfloat16"


@fault("weight used rounded")
def _(m, rng):
    if p := m.draw(rng, nn.Conv2d):
        return (
            p,
            code(p, lambda c, i: c._conv_forward(i, c.weight.bfloat16().float(), c.bias)),
            "rounds weights to bfloat16",
        )


def flipped(tensor, bit, at):
    bits = tensor.contiguous().view(-1).view(torch.int32)
    bits[at] ^= 1 << bit
    return bits.view(torch.float32).view(tensor.shape)


@fault("one bit of a weight")
def _(m, rng):
    if p := m.draw(rng, *LAYERS):
        bit, at = rng.randrange(0, 27), rng.randrange(m.model.get_submodule(p).weight.numel())
        return p + ".weight", weight(p, "weight", lambda w: flipped(w, bit, at)), ONE


@fault("one value doubled")
def _(m, rng):
    if p := m.draw(rng, *LAYERS):
        at = m.outputs[p].abs().flatten().topk(max(1, m.outputs[p].numel() // 2)).indices
        at = at[rng.randrange(len(at))]
        return p, wrap(p, lambda y: y.flatten().index_fill(0, at, 2 * y.flatten()[at].item()).view(y.shape)), ONE


@fault("channels in another order")
def _(m, rng):
    if p := m.draw(rng, *LAYERS):
        n = m.outputs[p].shape[1 if m.outputs[p].dim() == 4 else -1]
        how = rng.choice(["rolled", "exchanged", "shuffled"])
        order = list(range(n))
        if how == "exchanged":
            i, j = rng.sample(order, 2)
            order[i], order[j] = j, i
        elif how == "shuffled":
            rng.shuffle(order)
        else:
            order = order[-1:] + order[:-1]
        index = torch.tensor(order)
        dim = 1 if m.outputs[p].dim() == 4 else m.outputs[p].dim() - 1
        return (
            p,
            wrap(p, lambda y: y.index_select(dim, index)),
            {"rolled": "roll|exchanged", "exchanged": "exchanged"}.get(how, "order"),
        )


@fault("weight in another order")
def _(m, rng):
    if p := m.draw(rng, *LAYERS):
        return p + ".weight", weight(p, "weight", lambda w: w.roll(1, 0)), "order"


@fault("scaled")
def _(m, rng):
    if p := m.draw(rng, *LAYERS, *ACTIVATIONS):
        by = rng.choice([1.0001, 1.001, 0.99, 2.0])
        return p, wrap(p, lambda y: y * by), rf"^B = {by:g} A$"


@fault("shifted")
def _(m, rng):
    if p := m.draw(rng, *LAYERS):
        by = rng.choice([0.001, -0.01, 1.0])
        return p, wrap(p, lambda y: y + by), r"^B = A [-+] "


@fault("another activation")
def _(m, rng):
    if p := m.draw(rng, *ACTIVATIONS):
        own = m.model.get_submodule(p)
        others = {
            "relu6": F.relu6,
            "gelu": F.gelu,
            "silu": F.silu,
            "hardswish": F.hardswish,
            "leaky_relu": F.leaky_relu,
        }
        if isinstance(own, (nn.Sigmoid, nn.Hardsigmoid)):
            others = {"sigmoid": torch.sigmoid, "hardsigmoid": F.hardsigmoid, "tanh": torch.tanh}
        exact = own(m.inputs[p].clone())
        others = [(n, f) for n, f in others.items() if (f(m.inputs[p]) - exact).norm() > 1e-4 * exact.norm()]
        name, function = rng.choice(others)
        said = "relu6?|hardtanh" if name == "relu6" else name
        return p, code(p, lambda a, i: function(i)), f"(activation is ({said})|approximate is)"


@fault("the other gelu")
def _(m, rng):
    if p := m.draw(rng, nn.GELU):
        return p, assign(p, approximate="tanh"), "approximate is tanh in B"


@fault("residual left out")
def _(m, rng):
    tv = torchvision.models
    kinds = {
        tv.resnet.BasicBlock: lambda b, i: b.relu(b.bn2(b.conv2(b.relu(b.bn1(b.conv1(i)))))),
        tv.regnet.ResBottleneckBlock: lambda b, i: b.activation(b.f(i)),
        tv.vision_transformer.EncoderBlock: lambda b, i: b.mlp(
            b.ln_2(b.dropout(b.self_attention(*[b.ln_1(i)] * 3)[0]) + i)
        ),
        tv.mobilenetv3.InvertedResidual: lambda b, i: b.block(i),
        tv.efficientnet.MBConv: lambda b, i: b.block(i),
        tv.mnasnet._InvertedResidual: lambda b, i: b.layers(i),
    }
    if p := m.draw(rng, *kinds, also=lambda b: getattr(b, "use_res_connect", getattr(b, "apply_residual", True))):
        return (
            p,
            code(p, kinds[type(m.model.get_submodule(p))]),
            "addition is left out|leaves out the residual|(use_res_connect|apply_residual) is False",
        )


@fault("between modules")
def _(m, rng):
    """The code of a container hands something else to one of its modules."""
    if p := m.draw(rng, nn.Sequential, also=lambda s: len(s) > 1):
        stages = list(m.model.get_submodule(p))
        changes = [(lambda t: t * 1.01, "1.01 A"), (lambda t: t.flip(-1), "order|flip"), (lambda t: t + 0.01, "A [+] ")]
        at, (by, cause) = rng.randrange(1, len(stages)), rng.choice(changes)

        def forward(s, i):
            for k, stage in enumerate(s):
                i = stage(by(i) if k == at else i)
            return i

        return p, code(p, forward), cause


@fault("position embedding off by one")
def _(m, rng):
    if hasattr(m.model, "encoder"):
        return "encoder.pos_embedding", weight("encoder", "pos_embedding", lambda w: w.roll(1, 1)), "order|roll"


def scaled_queries(b, *arguments, **keywords):
    c = copy.copy(b)
    size, factor = b.embed_dim, b.head_dim**0.5
    c._parameters = dict(b._parameters)
    for name in ("in_proj_weight", "in_proj_bias"):
        p = c._parameters[name]
        c._parameters[name] = nn.Parameter(torch.cat([p[:size] * factor, p[size:]]), requires_grad=False)
    return nn.MultiheadAttention.forward(c, *arguments, **keywords)


@fault("attention without scale")
def _(m, rng):
    found = [p for p, a in m.model.named_modules() if isinstance(a, nn.MultiheadAttention)]
    if found:
        p = rng.choice(found)

        def act(model, x):
            a = model.get_submodule(p)
            a.forward = lambda *i, **k: scaled_queries(a, *i, **k)
            return x

        return p, act, "scale of attention is forgotten"


def image(name, function, cause):
    @fault("input " + name)
    def _(m, rng):
        return "(input)", lambda model, x: function(x), cause


mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
image("BGR", lambda x: x.flip(1), r"flip\(1\) \(RGB and BGR\)")
image("2 x - 1", lambda x: 2 * x - 1, r"^B = 2 A - 1$")
image("of 0 … 255", lambda x: 255 * x, "255")
image("normalised", lambda x: (x - mean) / deviation, "ImageNet's mean and std")
image("NHWC", lambda x: x.permute(0, 2, 3, 1).reshape(x.shape), r"permute\(0, 2, 3, 1\)")
image("mirrored", lambda x: x.flip(3), r"flip\(3\)")
image(
    "resized",
    lambda x: F.interpolate(F.interpolate(x, scale_factor=0.9, mode="bilinear"), x.shape[-2:], mode="bilinear"),
    None,
)


# Runs, and what is said of them.


@contextlib.contextmanager
def kernels(mkldnn=True, threads=1):
    torch.set_num_threads(threads)
    try:
        with torch.backends.mkldnn.flags(enabled=mkldnn):
            yield
    finally:
        torch.set_num_threads(1)


def converted(model, x, how):
    """A model and its input in another dtype or memory format."""
    if how == "channels_last":
        return model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    dtype = {"float64": torch.float64, "bfloat16": torch.bfloat16}.get(how)
    return (model.to(dtype), x.to(dtype)) if dtype else (model, x)


EQUAL = ["same", "2 threads", "no oneDNN", "channels_last", "float64", "bfloat16"]


def environment(how):
    return kernels(mkldnn=how != "no oneDNN", threads=2 if how == "2 threads" else 1)


class Comparison:
    """`torchtap compare` of two programs that are models here, with its second pass."""

    def __init__(self, torchtap, folder):
        self.torchtap, self.folder = torchtap, pathlib.Path(folder)
        self.seconds = collections.Counter()

    def record(self, model, x, name, how="same", **options):
        start, file = time.process_time(), str(self.folder / name)
        with environment(how), Recorder(file, **options):
            model(x)
        self.seconds["recording"] += time.process_time() - start
        return file

    def verdict(self, a, b):
        start = time.perf_counter()
        done = subprocess.run([self.torchtap, "compare", a, b, "--json"], capture_output=True, text=True)
        self.seconds["comparing"] += time.perf_counter() - start
        if done.returncode not in (0, 1):
            raise RuntimeError(f"torchtap compare: exit status {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def answer(self, verdict, a, x, b, x_b, how):
        """What is named after a second pass, as `torchtap compare --run` has it, and the cause."""
        tried = self.second_pass(verdict["suspects"], a, x, b, x_b, how) if verdict["suspects"] else {}
        calls = iter(tried.get("suspects", []))
        for s in verdict["suspects"]:
            cause = verdict["first"]["cause"] if s is verdict["suspects"][0] else None
            if s["kind"] == "weight":
                return s["path"], cause
            if s["kind"] == "input":
                return "(input)", (tried["input"] or {}).get("cause") or cause
            call = next(calls)
            if (
                call["proved"] is not False
            ):  # the cause of the code around is what fingerprints say of what it handed on
                return s["path"], (s["kind"] == "between" and cause) or call["cause"] or cause
        return None, None

    def second_pass(self, suspects, a, x, b, x_b, how):
        start = time.process_time()
        tried = [s for s in suspects if s["kind"] != "weight"]
        values = {(s["path_b"], s["call_b"]) for s in tried}
        request = {"others": self.record(b, x_b, "b.values", how, values=values), "suspects": [], "input": None}
        for s in tried:
            call = dict(path=s["path"], sample=s["call"], other_path=s["path_b"], other_sample=s["call_b"])
            if s["kind"] == "input":
                request["input"] = call
            else:
                request["suspects"].append(call)
        trial = Trial(request)
        with Recorder(trial=trial):
            a(x)
        self.seconds["second pass"] += time.process_time() - start
        return trial.answer


def draw(models, count, rng):
    """Faults by kind in turns, each in a model that has a place for it."""
    kinds = list(FAULTS)
    while count:
        rng.shuffle(kinds)
        for kind in kinds:
            for model in rng.sample(models, len(models)):
                if count and (made := FAULTS[kind](model, rng)):
                    yield kind, model, *made
                    count -= 1
                    break


def same(cause, wanted):
    return bool(re.search(wanted, cause or ""))


def faults(models, chosen, compare):
    table, wrong = collections.defaultdict(collections.Counter), []
    for number, (kind, m, where, act, wanted) in enumerate(chosen):
        for how in ("same", "no oneDNN"):
            b = copy.deepcopy(m.model)
            x = act(b, m.x.clone())
            first = compare.verdict(m.prints, compare.record(b, x, "b.prints", how))
            named, cause = compare.answer(first, m.model, m.x, b, x, how)
            bits = first["first_bits"]
            if named is None and how == "same" and where in (bits, f"{bits}.weight"):
                named = where  # it is below rounding, but the first different bits are in it
            table[kind, how]["all"] += 1
            table[kind, how]["right"] += named == where
            if named != where:
                wrong.append(f"{m.name}, {how}: {kind} in {where}: said {named}, {cause}")
            elif wanted:
                table[kind, how]["rule"] += 1
                table[kind, how]["cause"] += same(cause, wanted)
                table[kind, how]["misled"] += bool(cause) and not same(cause, wanted)
                if not same(cause, wanted):
                    wrong.append(f"{m.name}, {how}: {kind} in {where}: cause {cause}")
            elif cause:
                table[kind, how]["more"] += 1
                wrong.append(f"{m.name}, {how}: {kind} in {where}: there is no rule, but cause {cause}")
        print(f"\r{number + 1} faults", end="", file=sys.stderr, flush=True)
    print("| fault | kernels | right | of | cause right | of | cause wrong |\n|---|---|---|---|---|---|---|")
    for how in ("same", "no oneDNN"):
        total = collections.Counter()
        for (kind, at), counts in sorted(table.items()):
            if at == how:
                total += counts
                print(row(kind, how, counts))
        print(row("**all**", how, total))
    return wrong


def row(kind, how, c):
    return f"| {kind} | {how} | {c['right']} | {c['all']} | {c['cause']} | {c['rule']} | {c['misled'] + c['more']} |"


def equal(models, compare):
    wrong, suspects, runs = [], 0, 0
    for m in models:
        for how in EQUAL:
            b, x = converted(copy.deepcopy(m.model), m.x, how)
            first = compare.verdict(m.prints, compare.record(b, x, "b.prints", how))
            named, cause = compare.answer(first, m.model, m.x, b, x, how)
            runs += 1
            suspects += len(first["suspects"])
            if named is not None:
                wrong.append(f"{m.name}, {how}: equal, but said {named}, {cause}")
    print(f"equal models: {runs} runs, {suspects} suspects, {len(wrong)} verdicts after the second pass")
    return wrong


def renamed(source, target, rng):
    """Writes the run of a program that has its own names, 30 % other types, and functions instead of half of the activations.
    Returns its path of each path."""
    records = list(frames.read(source))
    calls = {}
    for r in records:
        if r.kind == frames.OUTPUT:
            calls.setdefault(r.path, r.type)
    names, types, gone = {"": ""}, {}, set()
    for path, kind in calls.items():
        if kind in ("Dropout", *(a.__name__ for a in ACTIVATIONS)) and rng.random() < 0.5:
            gone.add(path)
        types[path] = "Other" + kind if rng.random() < 0.3 else kind
    parts = {}

    def new(path):
        """Each part of a path has another name, the same for all that lie in it."""
        if path not in names:
            head, _, tail = path.rpartition(".")
            part = parts.setdefault((head, tail), f"m{rng.randrange(10**9)}")
            names[path] = ".".join(filter(None, (new(head), part)))
        return names[path]

    with open(target, "wb") as file:
        for r in records:
            weight = r.kind in (frames.PARAMETER, frames.BUFFER)
            if r.path not in gone:
                path = new(r.path) if r.kind != frames.HEADER else ""
                fields = {k: getattr(r, k) for k in ("slot", "sample", "call", "thread", "sequence", "text", "result")}
                kind = r.type if weight or r.kind == frames.HEADER else types[r.path]
                file.write(frames.frame(r.kind, r.data, r.dtype, r.sizes, path=path, type=kind, **fields))
    return {path: name for path, name in names.items() if path in calls and path not in gone}


def pairing(models, compare, rng, chosen):
    """Equal models with other kernels, and models with faults."""
    right = could = wrong = 0
    misses = []
    runs = [(m, "equal", None) for m in models]
    runs += [(m, f"{kind} in {where}", act) for kind, m, where, act, _ in chosen if not kind.startswith("input")]
    for m, what, act in runs:
        b = copy.deepcopy(m.model)
        x = act(b, m.x.clone()) if act else m.x
        file = compare.record(b, x, "b.prints", "no oneDNN")
        names = renamed(file, compare.folder / "c.prints", rng)
        found = compare.verdict(m.prints, str(compare.folder / "c.prints"))["pairs"]
        good = sum(names.get(p["path"]) == p["path_b"] and p["call"] == p["call_b"] for p in found)
        bad = len(found) - good
        calls = sum(1 for p in compare.verdict(m.prints, file)["pairs"] if p["path"] in names)
        right, could, wrong = right + good, could + calls, wrong + bad
        if good < calls:
            misses.append(f"{m.name}, {what}: {good} of {calls} calls paired right, {bad} wrong")
    print(f"shuffled names: {right} of {could} calls paired right ({100 * right / could:.1f} %), {wrong} pairs wrong")
    return misses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torchtap", required=True, help="the command")
    parser.add_argument(
        "--python", default=str(pathlib.Path(__file__).parents[1] / "python"), help="where torchtap_compare is"
    )
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="NAME", help="of torchvision")
    parser.add_argument("--faults", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="of weights, images and faults")
    parser.add_argument("--size", type=int, default=96, help="width and height of the images")
    parser.add_argument("--shuffle", action="store_true", help="measure the pairing of models whose names differ")
    chosen = parser.parse_args()
    sys.path.insert(0, chosen.python)
    global Recorder, Trial, frames
    from torchtap_compare import frames
    from torchtap_compare.recording import Recorder
    from torchtap_compare.trial import Trial

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    rng, start = random.Random(chosen.seed), time.time()
    with tempfile.TemporaryDirectory() as folder:
        compare = Comparison(chosen.torchtap, folder)
        models = [Model(name, chosen.size, chosen.seed) for name in chosen.models]
        for m in models:
            m.prints = compare.record(m.model, m.x, m.name + ".prints")
        found = list(draw(models, chosen.faults, rng))
        misses = (
            pairing(models, compare, rng, found[::10])
            if chosen.shuffle
            else [*equal(models, compare), *faults(models, found, compare)]
        )
    print("\n".join(misses))
    used = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in compare.seconds.items())
    print(f"seed {chosen.seed}, torch {torch.__version__}, {time.time() - start:.0f} s: {used}")


if __name__ == "__main__":
    main()
