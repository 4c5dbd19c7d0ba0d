"""Says why a module gives another output in the other run, or a model another input: tries one change after another.

A rule yields changes: a text, and a function that computes what the changed module gives for the other's inputs in float64. A change
is the cause if this is the other's output to rounding, and far from it without the change.
"""

import copy
import itertools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
HALVES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
EPS = [1e-1, 1e-2, 1e-3, 1e-4, 2e-5, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 0.0]
CHOICES = {  # values of attributes; attributes that are true or false need none
    "padding_mode": ["zeros", "reflect", "replicate", "circular"],
    "approximate": ["none", "tanh"],
    "negative_slope": [0.01, 0.1, 0.2, 0.3, 1 / 3, 0.0, 1 / 5.5],
    "alpha": [1.0, 0.1, 0.2, 0.3],
    "beta": [1.0, 2.0, 10.0],
    "dim": [-1, 0, 1, 2, 3],
    "num_groups": [1, 2, 4, 8, 16, 32, 64],
    "dilation": [1, 2, (1, 1), (2, 2)],
}
ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "gelu (erf)": F.gelu,
    "gelu (tanh)": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu (x sigmoid(1.702 x))": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "sigmoid": torch.sigmoid,
    "hardsigmoid": F.hardsigmoid,
    "hardsigmoid of Keras": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "tanh": torch.tanh,
    "elu": F.elu,
    "selu": F.selu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "logsigmoid": F.logsigmoid,
    "hardtanh": F.hardtanh,
    **{
        f"leaky_relu of slope {slope:.3g}": partial(F.leaky_relu, negative_slope=slope)
        for slope in CHOICES["negative_slope"][:5]
    },
}
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, red first


def show(value):
    """1e-3 rather than 0.001."""
    if not isinstance(value, float) or not 0 < abs(value) < 0.01:
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    digits, exponent = f"{value:.5e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def wide(tensor):
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.detach().to(torch.float64)


def first_tensor(value):
    """The first tensor among outputs, however they are nested."""
    if isinstance(value, torch.Tensor):
        return value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((t for t in map(first_tensor, items) if t is not None), None)


def distance(a, b):
    """‖a - b‖ / ‖a‖; infinite if shapes or places of what is not finite differ."""
    if a is None or a.shape != b.shape or not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return math.inf
    a, b = (torch.nan_to_num(t, 0.0, 0.0, 0.0) for t in (a, b))
    off, norm = (a - b).norm().item(), a.norm().item()
    return off / norm if norm > 0 else math.inf if off > 0 else 0.0


class Case:
    """What a rule sees: `base`, what the own module makes of the other's inputs `x`, and `y`, what the other one made of them."""

    def __init__(self, base, y, dtypes, own, other):
        self.base, self.y, self.a, self.b = base, y, own, other
        self.unit = max((UNIT[dtype] for dtype in dtypes if dtype in UNIT), default=2.0**-24)
        self.unchanged, self.allowed = distance(base, y), 16 * self.unit

    def error(self, change):
        """How far the change is from the other's output; infinite if it explains nothing or cannot be computed."""
        try:
            error = distance(wide(change()), self.y)
        except Exception:  # a change that the module cannot run is not the cause
            return math.inf
        return error if error <= self.allowed and 8 * error < self.unchanged else math.inf

    def cause(self, rules):
        """(text, error) of the first rule that explains: its first change that is about as good as its best."""
        for rule in rules:
            found = [(text, self.error(change)) for text, change in rule(self)]
            least = min((error for _, error in found), default=math.inf)
            if least < math.inf:
                return next((text, error) for text, error in found if error <= 2 * least)
        return None


class ModuleCase(Case):
    def __init__(self, module, x, y, dtypes, call, own, other, own_x, own_y):
        self.module, self.call = module, call
        self.x = [wide(t) if t.is_floating_point() or t.is_complex() else t for t in x]
        super().__init__(self.run(module), wide(y), dtypes, own, other)
        self.own_x, self.own_y = own_x, wide(own_y)
        self.leaf = not any(True for _ in module.children())
        rounding = distance(self.run(module, [wide(t) if t.is_floating_point() else t for t in own_x]), self.own_y)
        self.allowed = max(self.allowed, min(4 * rounding, 4 * self.allowed))

    def run(self, module, x=None):
        kept = [(b, b.clone()) for b in module.buffers()] if module.training else []  # training changes them
        result = wide(first_tensor(self.call(module, [t.clone() for t in (self.x if x is None else x)])))
        for buffer, before in kept:
            buffer.copy_(before)
        return result

    def changed(self, inputs=None, **attributes):
        """The output of a copy with other attributes or parameters, which shares everything else."""
        copied = object.__new__(type(self.module))
        copied.__dict__ = {
            k: copy.copy(v) if isinstance(v, (dict, list)) else v for k, v in self.module.__dict__.items()
        }
        for name, value in attributes.items():
            setattr(copied, name, nn.Parameter(value, requires_grad=False) if name in copied._parameters else value)
        return self.run(copied, inputs)

    def parameters(self):
        return {name: p for name, p in self.module._parameters.items() if p is not None}


# Rules about attributes of the module.


def eps(c):
    for name in ("eps", "epsilon", "variance_epsilon"):
        if not isinstance(own := getattr(c.module, name, None), float):
            continue
        errors = {value: c.error(partial(c.changed, **{name: value})) for value in EPS if value != own}
        least = min(errors.values())
        near = [value for value, error in errors.items() if error <= 2 * least and error < math.inf]
        if near:
            text = show(near[0]) if len(near) == 1 else f"{show(near[-1])} to {show(near[0])}"
            best = min(errors, key=errors.get)
            yield f"{name} is {text} in {c.b}, {show(own)} in {c.a}", partial(c.changed, **{name: best})


def attributes(c):
    for name, own in list(vars(c.module).items()):
        flag = isinstance(own, bool) or (own is None and name in ("align_corners", "antialias"))
        values = [not own] if flag else CHOICES.get(name, [])
        if isinstance(own, tuple) and len(set(own)) > 1:
            values = [*values, own[::-1]]
        for value in values if name not in ("training", "inplace", "transposed") and name[0] != "_" else ():
            if value != own:
                extra = {}
                if name == "padding" and hasattr(c.module, "_reversed_padding_repeated_twice"):
                    extra["_reversed_padding_repeated_twice"] = [p for p in own for _ in range(2)]
                change = partial(c.changed, **{name: value}, **extra)
                yield f"{name} is {show(value)} in {c.b}, {show(own)} in {c.a}", change


def training(c):
    mode, words = not c.module.training, ["eval", "train"]
    said = f"{c.b} is in {words[mode]} mode, {c.a} in {words[not mode]} mode"
    yield said, lambda: c.run(copy.deepcopy(c.module).train(mode))


def dropout(c):
    """Zeros and one factor elsewhere: the share of zeros says which."""
    if not isinstance(c.module, nn.modules.dropout._DropoutNd) or len(c.x) != 1 or c.x[0].shape != c.y.shape:
        return
    x, here, there = c.x[0], c.own_y != 0, c.y != 0
    kept = x.masked_select(there & (x != 0))
    if kept.numel() < 32 or there.all():
        return
    share = ((~there) & (x != 0)).sum().item() / (x != 0).sum().item()
    p = c.module.p
    if abs(share - p) > 4 * math.sqrt(p * (1 - p) / x.numel()) + 1e-9 and p > 0:
        words = f"{c.b} drops {share:.2g} of all elements, p is {show(p)} in {c.a}"
        yield words, lambda: torch.where(there, x / (1 - p), 0.0)
    elif here.shape == there.shape and c.module.training:
        yield (
            f"{c.b} drops other elements than {c.a}: seed both, or use eval mode",
            lambda: torch.where(there, x / (1 - p), 0.0),
        )
    else:
        yield f"{c.b} is in train mode, {c.a} in eval mode", lambda: torch.where(there, x / (1 - p), 0.0)


# Rules about weights that the code uses in another way; the weights themselves are compared elsewhere.


def dropped(c):
    for name, p in (
        c.module.named_parameters() if isinstance(c.module, nn.MultiheadAttention) else c.parameters().items()
    ):
        if "bias" in name and "." not in name:
            yield f"{c.b} leaves out {name}", partial(c.changed, **{name: torch.zeros_like(p)})
        if name == "weight" and hasattr(c.module, "eps"):
            yield f"{c.b} leaves out {name}", partial(c.changed, weight=torch.ones_like(p))
            yield f"{c.b} multiplies by 1 + weight, {c.a} by weight", partial(c.changed, weight=1 + p)
    if hasattr(c.module, "eps") and {"weight", "bias"} <= c.parameters().keys():
        p = c.parameters()
        both = {"weight": torch.ones_like(p["weight"]), "bias": torch.zeros_like(p["bias"])}
        yield f"{c.b} leaves out weight and bias", partial(c.changed, **both)


def turned(c):
    for name, p in c.parameters().items():
        for i, j in itertools.combinations(range(p.dim()), 2):
            if p.shape[i] == p.shape[j] > 1:
                yield f"{c.b} uses {name}.transpose({i}, {j})", partial(c.changed, **{name: p.transpose(i, j)})
        spatial = [d for d in range(2, p.dim()) if p.shape[d] > 1]
        for count in range(len(spatial), 0, -1):
            for dims in itertools.combinations(spatial, count):
                said = " (convolution instead of correlation)" if count == len(spatial) else ""
                yield (
                    f"{c.b} uses {name}.flip{dims}{said}".replace(",)", ")"),
                    partial(c.changed, **{name: p.flip(dims)}),
                )


def parts(c):
    """Queries, keys and values, or the gates of recurrent layers, in another order or interleaved by heads."""
    blocked = {name: p for name, p in c.parameters().items() if p.dim() <= 2}
    for count, words in ((3, "thirds"), (4, "quarters"), (2, "halves")):
        if all(p.dim() < 2 for p in blocked.values()) or any(p.shape[0] % count for p in blocked.values()):
            continue
        for order in itertools.permutations(range(count)):
            change = {name: torch.cat([p.chunk(count)[k] for k in order]) for name, p in blocked.items()}
            if list(order) != sorted(order):
                yield f"{c.b} takes the {words} of its weights in the order {order}", partial(c.changed, **change)
        for width in (16, 32, 64, 80, 96, 128) if count == 3 else ():
            shapes = {n: (p.shape[0] // 3 // width, 3, width, *p.shape[1:]) for n, p in blocked.items()}
            if all(p.shape[0] % (3 * width) == 0 and p.shape[0] > 3 * width for p in blocked.values()):
                for there, back in ((True, False), (False, True)):
                    change = {}
                    for n, p in blocked.items():
                        shape = shapes[n] if there else (3, shapes[n][0], *shapes[n][2:])
                        change[n] = p.reshape(shape).transpose(0, 1).reshape(p.shape)
                    said = "by heads" if back else "in thirds"
                    yield (
                        f"queries, keys and values lie {said} in {c.b}'s weights (heads of {width})",
                        partial(c.changed, **change),
                    )


def attention_scale(c):
    if isinstance(c.module, nn.MultiheadAttention) and "in_proj_weight" in c.parameters():
        size = c.module.embed_dim
        for factor, said in ((c.module.head_dim**0.5, "forgotten"), (c.module.head_dim**-0.5, "applied twice")):
            change = {}
            for name, p in c.parameters().items():
                if name.startswith("in_proj"):
                    change[name] = torch.cat([p[:size] * factor, p[size:]])
            yield f"the scale of attention is {said} in {c.b}", partial(c.changed, **change)
    if isinstance(scale := getattr(c.module, "scale", None), float) and scale > 0:
        for value in (1.0, scale**2, scale**0.5, 1 / scale):
            yield f"scale is {show(value)} in {c.b}, {show(scale)} in {c.a}", partial(c.changed, scale=value)


# Rules about borders and windows.


def padding(c):
    """Unequal padding of the two ends, such as TensorFlow's."""
    m = c.module
    if (
        not hasattr(m, "kernel_size")
        or not hasattr(m, "padding")
        or getattr(m, "transposed", False)
        or isinstance(m, nn.Fold)
    ):
        return
    count = c.x[0].dim() - 2

    def each(value):
        return list(value) if isinstance(value, tuple) else [value] * count

    k, s, d = each(m.kernel_size), each(m.stride or m.kernel_size), each(getattr(m, "dilation", 1))
    wanted = [
        (o - 1) * s[i] + d[i] * (k[i] - 1) + 1 - n for i, (n, o) in enumerate(zip(c.x[0].shape[2:], c.y.shape[2:]))
    ]
    totals = [[max(0, w) for w in wanted]] + (
        [[2 * p for p in each(m.padding)]] if not isinstance(m.padding, str) else []
    )
    splits = {(tuple(f(t) for t in total), tuple(t - f(t) for t in total)) for total in totals for f in PARTS}
    for before, after in sorted(splits):
        for fill in (0.0, -math.inf) if "Max" in type(m).__name__ else (0.0,):
            ends = [v for pair in list(zip(before, after))[::-1] for v in pair]
            own = {"padding": (0,) * count if isinstance(m.padding, tuple) else 0}
            if hasattr(m, "padding_mode"):
                own["padding_mode"] = "zeros"
            filled = F.pad(c.x[0], ends, value=fill)
            said = f"padding is {before} before and {after} after in {c.b}, {m.padding} in {c.a}"
            yield said, lambda filled=filled, own=own: c.changed([filled, *c.x[1:]], **own)


PARTS = [lambda t: t // 2, lambda t: t - t // 2, lambda t: 0, lambda t: t]


def pooling(c):
    m = c.module
    name = type(m).__name__
    for kind, words in (("Max", "maximum"), ("Avg", "average")):
        swapped = {"Max": name.replace("Avg", "Max"), "Avg": name.replace("Max", "Avg")}[kind]
        if swapped == name or not hasattr(nn, swapped):
            continue
        if hasattr(m, "output_size"):
            other = getattr(nn, swapped)(m.output_size)
        else:
            other = getattr(nn, swapped)(m.kernel_size, m.stride, m.padding, ceil_mode=m.ceil_mode)
        yield f"{c.b} takes the {words}, {c.a} does not", partial(c.run, other)


def resized(x, size):
    for mode in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"):
        smooth = mode in ("linear", "bilinear", "bicubic", "trilinear")
        for corners in (False, True) if smooth else (None,):
            for antialias in (False, True) if mode in ("bilinear", "bicubic") else (False,):
                said = mode + (", align_corners" if corners else "") + (", antialias" if antialias else "")
                how = {"mode": mode, "align_corners": corners, "antialias": antialias}
                yield said, partial(F.interpolate, x, size, **how)


def interpolation(c):
    if isinstance(c.module, nn.Upsample) and len(c.x) == 1:
        for said, change in resized(c.x[0], tuple(c.y.shape[2:])):
            own = c.module.mode + (", align_corners" if c.module.align_corners else "")
            yield f"interpolation is {said} in {c.b}, {own} in {c.a}", change


# Rules about what is computed.


def activation(c):
    """Another function of the input, if the module is a function of each element alone."""
    if c.leaf and len(c.x) == 1 and not c.parameters() and c.x[0].shape == c.y.shape:
        for name, function in {"the identity": lambda x: x, **ACTIVATIONS}.items():
            yield f"the activation is {name} in {c.b}, {c.module} in {c.a}", partial(function, c.x[0])
        x, less = c.x[0], c.x[0] < 0
        if less.sum() >= 8:
            slope = ((c.y * x)[less].sum() / (x * x)[less].sum()).item()
            said = f"the activation is leaky_relu of slope {show(slope)} in {c.b}, {c.module} in {c.a}"
            yield said, lambda: torch.where(less, slope * x, x)


def activation_after(c):
    for name, function in ACTIVATIONS.items():
        yield f"{c.b}'s output has gone through {name} as well", partial(function, c.base)


def normalisation(c):
    """Variants of normalisation over the last dimensions."""
    if not isinstance(c.module, nn.LayerNorm):
        return
    m, x, dims = c.module, c.x[0], tuple(range(-len(c.module.normalized_shape), 0))
    w, b = (1 if m.weight is None else m.weight), (0 if m.bias is None else m.bias)
    free, square = x - x.mean(dims, keepdim=True), x.square().mean(dims, keepdim=True)
    yield f"{c.b} does not subtract the mean (RMSNorm)", lambda: x / (square + m.eps).sqrt() * w + b
    variance = free.var(dims, unbiased=True, keepdim=True)
    yield f"{c.b} takes the unbiased variance", lambda: free / (variance + m.eps).sqrt() * w + b
    plain = free.square().mean(dims, keepdim=True).sqrt()
    yield f"{c.b} adds eps to the standard deviation, {c.a} to the variance", lambda: free / (plain + m.eps) * w + b


def shifted_index(c):
    if len(c.x) == 1 and not c.x[0].is_floating_point() and c.x[0].dtype != torch.bool:
        for by in (1, -1):
            yield f"{c.b} looks up index {by:+d} (off by one)", lambda by=by: c.run(c.module, [c.x[0] + by])


def input_order(c):
    """Modules that only read their input in another order, such as Flatten."""
    if c.leaf and len(c.x) == 1 and not c.parameters() and c.x[0].dim() <= 5:
        for dims in itertools.permutations(range(c.x[0].dim())):
            if list(dims) != sorted(dims) and dims[0] == 0:
                said = f"{c.b} reads its input in the order of permute{dims}"
                yield said, lambda dims=dims: c.run(c.module, [c.x[0].permute(dims)]).reshape(c.y.shape)


def residual(c):
    if len(c.x) >= 1 and c.x[0].shape == c.base.shape and not c.leaf:
        yield f"{c.b} adds its input once more (a residual)", lambda: c.base + c.x[0]
        yield f"{c.b} leaves out the residual: it is f(x) - x", lambda: c.base - c.x[0]


class Replaced(TorchDispatchMode):
    """Runs `replace(name, number of the operation, its arguments)` in place of operations, where it returns a tensor."""

    def __init__(self, replace):
        super().__init__()
        self.replace, self.count = replace, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, self.count = str(function).split(".")[1], self.count + 1
        result = self.replace(name, self.count, args)
        if result is None:
            return function(*args, **(kwargs or {}))
        return args[0].copy_(result) if name.endswith("_") and name[-2] != "_" else result


def replacements(name, args):
    """What other code could have done instead of an operation."""
    name, tensors = name.rstrip("_"), [a for a in args[:2] if isinstance(a, torch.Tensor)]
    if name in ("add", "sub") and len(tensors) == 2 and tensors[0].dim() == tensors[1].dim() > 0:
        yield "an addition is left out (a residual)", lambda a: a[0] if a[0].shape == a[1].shape else None
        yield "an addition is left out (the first operand)", lambda a: a[1] if a[0].shape == a[1].shape else None
    elif name in ("mul", "div") and tensors and tensors[0].dim() > 0:
        yield f"a {'multiplication' if name == 'mul' else 'division'} (a scale) is left out", lambda a: a[0]
    elif name in (
        "relu",
        "gelu",
        "silu",
        "hardswish",
        "sigmoid",
        "hardsigmoid",
        "tanh",
        "elu",
        "leaky_relu",
        "hardtanh",
        "mish",
    ):
        for other, function in {"the identity": lambda x: x, **ACTIVATIONS}.items():
            yield f"{name} is {other}", lambda a, function=function: function(a[0])


def operations(c):
    """One operation of the code of a module with others inside left out or exchanged."""
    seen = []
    with Replaced(lambda name, number, args: seen.append((name, number, args))):
        c.run(c.module)
    several = (
        [(n, number, text, new) for n, number, args in seen for text, new in replacements(n, args)]
        if not c.leaf
        else []
    )
    for _, number, text, new in several[:200]:

        def change(number=number, new=new):
            with Replaced(lambda name, k, args: new(args) if k == number else None):
                return c.run(c.module)

        yield f"in {c.b}'s {type(c.module).__name__} {text}", change


# Rules about precision.


def rounding(c):
    """The other's values rounded to half precision: output, weights, inputs, or all, as by autocast."""
    for dtype, name in HALVES.items():
        if UNIT[dtype] <= c.unit:
            continue
        weights = {n: p.to(dtype).double() for n, p in c.parameters().items()} if isinstance(c, ModuleCase) else {}
        inputs = (
            [t.to(dtype).double() if t.is_floating_point() else t for t in c.x] if isinstance(c, ModuleCase) else []
        )
        for what in itertools.product((False, True), repeat=3):  # output, weights, inputs
            if not any(what) or (what[1] and not weights) or (what[2] and not inputs):
                continue

            def change(what=what, dtype=dtype, weights=weights, inputs=inputs):
                moved = (
                    c.changed(inputs if what[2] else None, **(weights if what[1] else {})) if any(what[1:]) else c.base
                )
                return snapped(c, moved, dtype) if what[0] else moved

            words = [word for word, on in zip(("output", "weights", "inputs"), what) if on]
            yield f"{c.b} rounds {' and '.join(words)} to {name}", change
    if isinstance(c, ModuleCase) and c.parameters():
        for half, how in ((0x1000, ""), (0, ", truncated")):
            weights = {n: tf32(p, half) if p.dim() > 1 else p for n, p in c.parameters().items()}
            inputs = [tf32(t, half) if t.is_floating_point() else t for t in c.x]
            yield f"{c.b} multiplies in TF32{how}", lambda inputs=inputs, weights=weights: c.changed(inputs, **weights)


def tf32(tensor, half):
    bits = tensor.float().contiguous().view(torch.int32)
    return ((bits + half) & ~0x1FFF).view(torch.float32).double()


def snapped(c, exact, dtype):
    """`exact` rounded, where either neighbour is right if a rounding error of the other's precision decides between them."""
    slack = 16 * c.unit * exact.abs().clamp_min(exact.square().mean().sqrt())
    near = ((exact - slack).to(dtype).double() == c.y) | ((exact + slack).to(dtype).double() == c.y)
    return torch.where(near, c.y, exact.to(dtype).double())


# Rules about the values themselves, of outputs and inputs alike.


def place(c, d):
    return f"dim {d}" + (" (channels)" if d == 1 and c.base.dim() > 2 else "")


def order(c):
    """Flips, rolls and shifts by one along a dimension, permutations of dimensions and of rows."""
    base, y, a, b = c.base, c.y, c.a, c.b
    for d in range(base.dim()) if base.shape == y.shape else ():
        for by in (1, -1):
            yield f"{b} = {a}.roll({by}, {d}) (off by one)", partial(base.roll, by, d)
            yield (
                f"{b} is {a} shifted by {by:+d} along {place(c, d)}, filled with zeros (off by one)",
                partial(shifted, base, by, d),
            )
        said = " (RGB and BGR)" if d in (1, base.dim() - 1) and base.shape[d] == 3 and base.dim() > 2 else ""
        yield f"{b} = {a}.flip({d}){said}", partial(base.flip, d)
    for dims in itertools.permutations(range(base.dim())) if base.dim() <= 5 else ():
        if list(dims) != sorted(dims) and base.numel() == y.numel():
            moved = base.permute(dims)
            if moved.shape == y.shape:
                yield f"{b} = {a}.permute{dims}", partial(torch.clone, moved)
            elif base.shape == y.shape:
                yield f"{b} = {a}.permute{dims}, read as if it were not", lambda moved=moved: moved.reshape(y.shape)


def shifted(tensor, by, d):
    moved = tensor.roll(by, d)
    moved.narrow(d, 0 if by > 0 else tensor.shape[d] - 1, 1).zero_()
    return moved


def rows(c):
    """The rows along a dimension in another order, found by their values."""
    base, y = c.base, c.y
    for d in range(base.dim()) if base.shape == y.shape else ():
        count = base.shape[d]
        if not 2 <= count <= 4096 or base.numel() < 4 * count:
            continue
        index = matched(base.movedim(d, 0).reshape(count, -1), y.movedim(d, 0).reshape(count, -1))
        moved, turn = (index != torch.arange(count)).nonzero().flatten().tolist(), (torch.arange(count) - index) % count
        by = turn.mode().values.item()
        if moved:
            said = f"{c.b} is {c.a} with {place(c, d)}"
            yield f"{said} rolled by {by if by <= count // 2 else by - count}", partial(base.roll, by, d)
            order = f"in another order: {len(moved)} of {count} differ, {c.b}[{moved[0]}] = {c.a}[{index[moved[0]]}]"
            if len(moved) == 2:
                order = f"{moved[0]} and {moved[1]} exchanged"
            yield f"{said} {order}", partial(base.index_select, d, index)


def matched(a, b):
    """For each row of b the nearest of a, by random projections."""
    generator = torch.Generator().manual_seed(1)
    columns = torch.randperm(a.shape[1], generator=generator)[:1024]
    project = torch.randn(len(columns), 32, generator=generator, dtype=torch.float64)
    far = torch.cdist(torch.nan_to_num(b[:, columns]) @ project, torch.nan_to_num(a[:, columns]) @ project)
    least, index = far.min(1)
    stays = far.diagonal() <= least * 1.000001 + 1e-6 * far.mean()
    return torch.where(stays, torch.arange(len(index)), index)


def affine(c):
    """B = αA + β, with as few of both as do."""
    base, y, a, b = c.base, c.y, c.a, c.b
    if base.shape != y.shape or base.numel() < 8 or not torch.isfinite(base).all() or not torch.isfinite(y).all():
        return
    if not y.any():
        yield f"{b} is all zeros", lambda: y
        return
    flat, slack = base.flatten(), c.allowed / 8 * y.square().mean().sqrt().item()
    shift = tidy((y - base).mean().item(), slack)
    yield f"{b} = {a} {sign(shift)}", lambda: base + shift
    factor = (flat @ y.flatten() / flat.square().sum()).item()
    factor = tidy(factor, c.allowed / 8 * abs(factor))
    yield f"{b} = {show(factor)} {a}{named(factor)}", lambda: base * factor
    free = flat - flat.mean()
    slope = (free @ y.flatten() / free.square().sum()).item()
    slope = tidy(slope, c.allowed / 8 * abs(slope))
    offset = tidy((y.mean() - slope * base.mean()).item(), slack)
    if abs(slope) > 1e-12:
        yield f"{b} = {show(slope)} {a} {sign(offset)}{named(slope)}", lambda: slope * base + offset


def tidy(value, slack):
    """The shortest number within the slack."""
    short = (float(f"{value:.{digits}g}") for digits in range(1, 8))
    return next((v for v in short if abs(v - value) <= slack), value)


def sign(value):
    return f"{'-' if value < 0 else '+'} {show(abs(value))}"


def named(factor):
    for known, words in ((1 / 255, " (÷ 255)"), (255, " (× 255)")):
        if abs(factor / known - 1) < 1e-5:
            return words
    return ""


def lines(a, b, d):
    """Slope and offset of b against a for each place along dimension d, by least squares."""
    a, b = (t.movedim(d, 0).reshape(t.shape[d], -1) for t in (a, b))
    free = a - a.mean(1, keepdim=True)
    spread = free.square().sum(1)
    slope = torch.where(spread > 0, (free * b).sum(1) / spread.clamp_min(1e-300), torch.ones_like(spread))
    return slope, b.mean(1) - slope * a.mean(1)


def by_channel(c):
    base, y = c.base, c.y
    for d in (1, base.dim() - 1) if base.shape == y.shape and base.dim() > 1 else ():
        if base.numel() >= 16 * base.shape[d]:
            slope, offset = lines(base, y, d)
            shape = [-1 if k == d else 1 for k in range(base.dim())]
            change = partial(lambda s, o: base * s + o, slope.reshape(shape), offset.reshape(shape))
            said = (
                statistics(slope, offset, c)
                or f"{c.b} = {c.a} scaled and shifted along {place(c, d)}{listed(slope, offset)}"
            )
            yield said, change


def listed(slope, offset):
    if len(slope) > 4:
        return ""
    return ": factors " + ", ".join(f"{v:.6g}" for v in slope) + ", offsets " + ", ".join(f"{v:.6g}" for v in offset)


def statistics(slope, offset, c):
    """Names ImageNet's mean and standard deviation, in images of 0 … 1 or of 0 … 255."""
    if len(slope) != 3:
        return None
    for top, turn in itertools.product((1, 255), (1, -1)):
        mean, deviation = (torch.tensor(v[::turn], dtype=torch.float64) * top for v in (MEAN, DEVIATION))
        said = f"ImageNet's{' of 0 … 255' if top > 1 else ''}{', in the order BGR' if turn < 0 else ''}"
        for forward in (True, False):
            for scaled in (True, False):
                s = deviation if scaled else torch.ones(3, dtype=torch.float64)
                want = (1 / s, -mean / s) if forward else (s, mean)
                if torch.allclose(slope, want[0], rtol=1e-3) and torch.allclose(
                    offset, want[1], rtol=1e-2, atol=1e-3 * top
                ):
                    near, far = (c.a, c.b) if forward else (c.b, c.a)
                    whole = f"({near} - mean) / std" if scaled else f"{near} - mean"
                    return f"{far} = {whole} with {'mean and standard deviation' if scaled else 'mean'} of {said}"
    return None


OUTPUT_RULES = [
    eps,
    attributes,
    training,
    dropout,
    activation,
    rounding,
    parts,
    order,
    rows,
    dropped,
    turned,
    padding,
    pooling,
]
OUTPUT_RULES += [interpolation, attention_scale, normalisation, shifted_index, input_order, residual, operations]
OUTPUT_RULES += [activation_after, affine, by_channel]


def find(module, own_inputs, own_output, other_inputs, other_output, f, own="A", other="B", call=None):
    """Why `other_output` is not what `f`, the own module in float64, gives for `other_inputs`: (text, error), or None.

    `call(module, tensors)` calls a module whose arguments are not tensors alone."""
    call = call or (lambda called, tensors: called(*tensors))
    dtypes = [own_output.dtype, other_output.dtype]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            case = ModuleCase(f, other_inputs, other_output, dtypes, call, own, other, own_inputs, own_output)
        except Exception:  # a module that cannot be run again in float64
            return None
        return case.cause(OUTPUT_RULES)


def quantized(c):
    for top in (255.0,):
        for function, words in ((torch.round, "round"), (torch.floor, "floor")):
            yield f"{c.b} = {words}({top:.0f} {c.a}) / {top:.0f} (8 bits)", lambda f=function, t=top: f(c.base * t) / t
            yield f"{c.b} = {words}({c.a}) (8 bits)", lambda f=function: f(c.base)


def other_size(c):
    if c.base.dim() == c.y.dim() == 4 and c.base.shape[:2] == c.y.shape[:2] and c.base.shape != c.y.shape:
        for said, change in resized(c.base, tuple(c.y.shape[2:])):
            yield f"{c.b} is {c.a} resized: {said}", change


INPUT_RULES = [order, rows, rounding, quantized, affine, by_channel, other_size]


def find_input(own, other, own_name="A", other_name="B"):
    """How the other's input is made of the own one: (text, error), or None. Orders of elements are tried with scales, too."""
    with torch.no_grad():
        a, b = wide(own), wide(other)
        case = Case(a, b, [own.dtype, other.dtype], own_name, other_name)
        if found := case.cause(INPUT_RULES):
            return found
        for text, change in order(case):
            moved = Case(change(), b, [own.dtype, other.dtype], text.partition(" = ")[2] or text, other_name)
            if (" = " in text) and (found := moved.cause([affine, by_channel])):
                return found
    return None
