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
from functools import partial

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

MODELS = """resnet18 mobilenet_v3_small squeezenet1_1 regnet_y_400mf efficientnet_b0 shufflenet_v2_x1_0 mnasnet0_5
            vgg11_bn densenet121 vit_b_16""".split()
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
        elif isinstance(m, LAYERS):
            if not m.weight.any():
                m.weight.data.normal_(0, 0.02)
            if m.bias is not None:
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
    """A model, one batch for it, and the first input and output of each of its modules."""

    def __init__(self, name, size, seed):
        self.name, self.model = name, make(name, size, seed)
        side = size // 16 * 16 if name.startswith("vit") else size
        self.x, self.seen = torch.rand(2, 3, side, side), {}
        hooks = [m.register_forward_hook(partial(self.keep, path)) for path, m in self.model.named_modules()]
        self.model(self.x)
        for hook in hooks:
            hook.remove()

    def keep(self, path, module, i, o):
        o = o[0] if isinstance(o, tuple) else o
        if path not in self.seen and bool((o != 0).any()):
            self.seen[path] = i[0].clone() if i and isinstance(i[0], torch.Tensor) else None, o.clone()


FAULTS = {}  # by name: of a Model and random numbers what has to be named, what changes a copy of the model, the cause


def fault(name, *kinds, also=lambda m: True, suffix=""):
    """Registers a function of a module, random numbers and the module's input and output. It gives the cause as a regular
    expression, and a function that puts the fault into the module of a copy. `suffix` is behind the path that has to be named."""

    def register(function):
        def put(m, rng):
            found = [p for p, one in m.model.named_modules() if isinstance(one, kinds) and p in m.seen and also(one)]
            if not found:
                return None
            path = rng.choice(found)
            made = function(m.model.get_submodule(path), rng, *m.seen[path])
            return made and (path + suffix, lambda model: made[1](model.get_submodule(path)), made[0], None)

        FAULTS[name] = put

    return register


def attributes(**values):
    return lambda module: [setattr(module, name, value) for name, value in values.items()]


def forward(function):
    """The module's forward is function(module, input)."""
    return lambda module: setattr(module, "forward", partial(function, module))


def output(function):
    """The module's own forward changes its output, so that hooks see it."""
    return lambda module: setattr(module, "forward", lambda *i, own=module.forward: function(own(*i)))


def weight(function, name="weight"):
    return lambda module: setattr(
        getattr(module, name), "data", function(getattr(module, name).data.clone()).contiguous()
    )


def convolved(change):
    return forward(lambda c, i: c._conv_forward(i, change(c.weight), c.bias))


def has_window(module):
    return module.kernel_size[0] > 1


def has_border(module):
    return module.padding[0] > 0


fault("transposed weight", nn.Conv2d, also=has_window, suffix=".weight")(
    lambda *_: ("transpose|permute", weight(lambda w: w.transpose(2, 3)))
)
fault("weight in another order", *LAYERS, suffix=".weight")(lambda *_: ("order", weight(lambda w: w.roll(1, 0))))
fault("weight rounded", *LAYERS, suffix=".weight")(lambda *_: ("bfloat16", weight(lambda w: w.bfloat16().float())))
fault("weight used transposed", nn.Conv2d, also=has_window)(
    lambda *_: (r"transpose\(2, 3\)", convolved(lambda w: w.transpose(2, 3)))
)
fault("convolution for correlation", nn.Conv2d, also=has_window)(
    lambda *_: (r"flip\(2, 3\)", convolved(lambda w: w.flip(2, 3)))
)
fault("weight used rounded", nn.Conv2d)(
    lambda *_: ("rounds weights to bfloat16", convolved(lambda w: w.bfloat16().float()))
)
fault("batch norm in train mode", nn.BatchNorm2d)(lambda *_: ("train mode", attributes(training=True)))
fault("dropout in train mode", nn.Dropout, also=lambda d: d.p > 0)(lambda *_: ("train mode", attributes(training=True)))
fault("the other gelu", nn.GELU)(lambda *_: ("approximate is tanh in B", attributes(approximate="tanh")))


@fault("eps", *NORMS)
def _(norm, rng, i, o):
    eps = rng.choice([e for e in (1e-3, 1e-4, 1e-5, 1e-6) if e != norm.eps and max(e, norm.eps) >= 1e-5])
    return f"eps is {eps:.0e} in B".replace("e-0", "e-"), attributes(eps=eps)


@fault("bias left out by the code", nn.Conv2d, nn.Linear, nn.BatchNorm2d, also=lambda b: b.bias is not None)
def _(m, rng, i, o):
    bias = m.bias.view(-1, 1, 1) if o.dim() == 4 else m.bias
    return "leaves out bias", output(lambda y: y - bias)


@fault("padding mode", nn.Conv2d, also=has_border)
def _(conv, rng, i, o):
    mode = rng.choice(["reflect", "replicate", "circular"])
    return min(i.shape[2:]) > conv.padding[0] and (f"padding_mode is {mode}", attributes(padding_mode=mode))


@fault("asymmetric padding", nn.Conv2d, also=lambda c: has_border(c) and c.stride[0] == 2)
def _(conv, rng, i, o):
    n = conv.padding[0]
    ends = (n - 1, n + i.shape[-1] % 2) * 2
    padded = lambda c, i: F.conv2d(F.pad(i, ends), c.weight, c.bias, c.stride, 0, c.dilation, c.groups)  # noqa: E731
    return "padding is", forward(padded)


@fault("pooling", nn.MaxPool2d, nn.AdaptiveAvgPool2d)
def _(pool, rng, i, o):
    if isinstance(pool, nn.AdaptiveAvgPool2d):
        return max(i.shape[2:]) > 1 and (
            "takes the maximum",
            forward(lambda q, i: F.adaptive_max_pool2d(i, q.output_size)),
        )
    if pool.padding and rng.random() < 0.5:
        ends = (0, 2 * pool.padding - 1) * 2
        return "padding is", forward(lambda q, i: F.max_pool2d(F.pad(i, ends), q.kernel_size, q.stride))
    mean = lambda q, i: F.avg_pool2d(i, q.kernel_size, q.stride, q.padding, q.ceil_mode)  # noqa: E731
    return "takes the average", forward(mean)


@fault("output rounded", *LAYERS, *ACTIVATIONS)
def _(m, rng, i, o):
    dtype = rng.choice([torch.bfloat16, torch.float16])
    return f"rounds output to {str(dtype)[6:]}", output(lambda y: y.to(dtype).float())


@fault("one bit of a weight", *LAYERS, suffix=".weight")
def _(m, rng, i, o):
    bit, at = rng.randrange(0, 27), rng.randrange(m.weight.numel())

    def flipped(w):
        w.contiguous().view(-1).view(torch.int32)[at] ^= 1 << bit
        return w

    return ONE, weight(flipped)


@fault("one value doubled", *LAYERS)
def _(m, rng, i, o):
    at = rng.choice(o.abs().flatten().topk((o.numel() + 1) // 2).indices.tolist())
    return ONE, output(lambda y: y.flatten().index_fill(0, torch.tensor(at), 2 * y.flatten()[at].item()).view(y.shape))


@fault("channels in another order", *LAYERS)
def _(m, rng, i, o):
    dim = 1 if o.dim() == 4 else o.dim() - 1
    how, order = rng.choice(["rolled", "exchanged", "shuffled"]), list(range(o.shape[dim]))
    if how == "exchanged":
        j, k = rng.sample(order, 2)
        order[j], order[k] = k, j
    elif how == "shuffled":
        rng.shuffle(order)
    else:
        order = order[-1:] + order[:-1]
    said = {"rolled": "roll|exchanged", "exchanged": "exchanged", "shuffled": "order|exchanged"}[how]
    return order != sorted(order) and (said, output(lambda y: y.index_select(dim, torch.tensor(order))))


@fault("scaled", *LAYERS, *ACTIVATIONS)
def _(m, rng, i, o):
    by = rng.choice([1.0001, 1.001, 0.99, 2.0])
    return f"^B = {by:g} A$", output(lambda y: y * by)


@fault("shifted", *LAYERS)
def _(m, rng, i, o):
    by = rng.choice([0.001, -0.01, 1.0])
    return r"^B = A [-+] ", output(lambda y: y + by)


@fault("another activation", *ACTIVATIONS)
def _(own, rng, i, o):
    gates = isinstance(own, (nn.Sigmoid, nn.Hardsigmoid))
    names = ["sigmoid", "hardsigmoid", "tanh"] if gates else ["relu6", "gelu", "silu", "hardswish", "leaky_relu"]
    differ = [n for n in names if (getattr(F, n)(i) - o).norm() > 1e-4 * o.norm()]
    name = rng.choice(differ)
    said = "relu6?|hardtanh" if name == "relu6" else name  # which are the same if no input is large
    return f"activation is ({said})|approximate is", forward(lambda a, i: getattr(F, name)(i))


WITHOUT_RESIDUAL = {
    torchvision.models.resnet.BasicBlock: lambda b, i: b.relu(b.bn2(b.conv2(b.relu(b.bn1(b.conv1(i)))))),
    torchvision.models.regnet.ResBottleneckBlock: lambda b, i: b.activation(b.f(i)),
    torchvision.models.mobilenetv3.InvertedResidual: lambda b, i: b.block(i),
    torchvision.models.efficientnet.MBConv: lambda b, i: b.block(i),
    torchvision.models.mnasnet._InvertedResidual: lambda b, i: b.layers(i),
    torchvision.models.vision_transformer.EncoderBlock: lambda b, i: b.mlp(
        b.ln_2(b.self_attention(*[b.ln_1(i)] * 3)[0] + i)
    ),
}


def has_residual(block):
    return getattr(block, "use_res_connect", getattr(block, "apply_residual", True))


@fault("residual left out", *WITHOUT_RESIDUAL, also=has_residual)
def _(block, rng, i, o):
    said = "addition is left out|leaves out the residual|(use_res_connect|apply_residual) is False"
    return said, forward(WITHOUT_RESIDUAL[type(block)])


@fault("between modules", nn.Sequential, also=lambda s: len(s) > 1)
def _(sequence, rng, i, o):
    """The code of a container hands something else to one of its modules."""
    changes = [(lambda t: t * 1.01, "1.01 A"), (lambda t: t.flip(-1), "order|flip"), (lambda t: t + 0.01, "A [+] ")]
    at, (by, said) = rng.randrange(1, len(sequence)), rng.choice(changes)

    def run(s, i):
        for k, stage in enumerate(s):
            i = stage(by(i) if k == at else i)
        return i

    return said, forward(run)


@fault("position embedding off by one", torchvision.models.vision_transformer.Encoder, suffix=".pos_embedding")
def _(encoder, rng, i, o):
    return "order|roll", weight(lambda w: w.roll(1, 1), "pos_embedding")


@fault("attention without scale", nn.MultiheadAttention)
def _(attention, rng, i, o):
    def run(a, *inputs, **keywords):
        other, size = copy.deepcopy(a), a.embed_dim
        for p in (other.in_proj_weight, other.in_proj_bias):
            p[:size] *= a.head_dim**0.5
        return nn.MultiheadAttention.forward(other, *inputs, **keywords)

    return "scale of attention is forgotten", forward(run)


def image(name, function, cause):
    FAULTS["input " + name] = lambda m, rng: ("(input)", lambda model: None, cause, function)


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
    for number, (kind, m, where, put, wanted, image) in enumerate(chosen):
        for how in ("same", "no oneDNN"):
            b, x = copy.deepcopy(m.model), image(m.x) if image else m.x
            put(b)
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
    runs += [(m, f"{kind} in {where}", put) for kind, m, where, put, _, image in chosen if not image]
    for m, what, put in runs:
        b = copy.deepcopy(m.model)
        if put:
            put(b)
        file = compare.record(b, m.x, "b.prints", "no oneDNN")
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
        "--python", default=str(pathlib.Path(__file__).parents[2] / "extras/python"), help="where torchtap_compare is"
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
