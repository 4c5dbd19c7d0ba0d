"""Says why a module gives another output in the other run, or a model another input: tries one change after another.

A rule yields changes: a text, and a function that computes what the changed module gives for the other's inputs in float64. A change
is the cause if this is the other's output to rounding, and without the change far from it.
"""

import copy
import itertools
import math
import time
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

SECONDS = 30  # which the search of a cause may take
ENDED = "the search for a cause ended after {} s"
LARGE = 1 << 20  # numbers of a tensor; every pass over them takes time
UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
EPS = [1e-1, 1e-2, 1e-3, 1e-4, 2e-5, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 0.0]
CHOICES = {  # values of attributes; what is true or false needs none
    "padding_mode": ["zeros", "reflect", "replicate", "circular"],
    "approximate": ["none", "tanh"],
    "negative_slope": [0.01, 0.1, 0.2, 0.3, 1 / 3, 1 / 5.5, 0.0],
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
    "hardsigmoid of Keras": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    **{
        name: getattr(F, name) for name in "silu hardswish hardsigmoid elu selu mish softplus softsign hardtanh".split()
    },
    **{f"leaky_relu of slope {s:.3g}": partial(F.leaky_relu, negative_slope=s) for s in CHOICES["negative_slope"][:6]},
}
ALL_ACTIVATIONS = {"the identity": lambda x: x, **ACTIVATIONS}
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


def wide_inputs(tensors):
    return [wide(t) if t.is_floating_point() or t.is_complex() else t for t in tensors]


def first_tensor(value):
    """The first tensor among outputs, however they are nested."""
    if isinstance(value, torch.Tensor):
        return value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((t for t in map(first_tensor, items) if t is not None), None)


def distance(a, b):
    """‖a - b‖ / ‖a‖; infinite if shapes differ, or NaN and infinities or their places."""
    if a is None or a.shape != b.shape or not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return math.inf
    if not torch.isfinite(a).all():
        kinds = [torch.nan_to_num(t[~torch.isfinite(t)], 0.0, 1.0, -1.0) for t in (a, b)]
        if not torch.equal(*kinds):
            return math.inf
        a, b = (torch.nan_to_num(t, 0.0, 0.0, 0.0) for t in (a, b))
    largest = max((t.abs().max().item() for t in (a, b) if t.numel()), default=0.0)
    if not 1e-140 < largest < 1e140 and largest > 0:  # squares overflow or vanish
        a, b = a / largest, b / largest
    off, norm = (a - b).norm().item(), a.norm().item()
    return off / norm if norm > 0 else math.inf if off > 0 else 0.0


class Case:
    """What a rule sees: the own tensor `base`, the other's `y`, and the names of both sides."""

    def __init__(self, base, y, dtypes, own, other):
        self.base, self.y, self.a, self.b = base, y, own, other
        self.unit = max((UNIT[dtype] for dtype in dtypes if dtype in UNIT), default=2.0**-24)
        self.unchanged, self.allowed, self.until = distance(base, y), 16 * self.unit, time.monotonic() + SECONDS
        self.ended, self.some = False, ()
        if y.numel() > LARGE:
            self.norm, random = y.norm().item(), torch.Generator().manual_seed(1)
            picks = torch.randint(y.numel(), (4096,), generator=random)
            for size in reversed(y.shape):
                self.some, picks = (picks % size, *self.some), picks.div(size, rounding_mode="floor")

    def says(self, what, other, own):
        return f"{what} is {show(other)} in {self.b}, {show(own)} in {self.a}"

    def error(self, change):
        """How far the change is from the other's tensor; infinite if it explains nothing or cannot be computed."""
        if time.monotonic() > self.until:
            self.ended = True
            return math.inf
        try:
            changed = wide(change())
            error = math.inf if self.is_far(changed) else distance(changed, self.y)
        except Exception:  # a change that the module cannot run is not the cause
            return math.inf
        return error if error <= self.allowed and 8 * error < self.unchanged else math.inf

    def is_far(self, changed):
        """Whether some numbers of a large tensor are farther from the other's than all of them may be together, which spares the
        passes over the others; a place that was picked twice counts twice, hence the 2."""
        if not self.some or changed.shape != self.y.shape:
            return False
        return (changed[self.some] - self.y[self.some]).norm().item() > 2 * self.allowed * self.norm

    def likeness(self, changed):
        """How near some numbers are to a multiple of the other's, and an offset: 0 to 1."""
        some = torch.stack([changed[self.some], self.y[self.some]])
        return torch.nan_to_num(torch.corrcoef(some))[0, 1].abs().item()

    def cause(self, rules):
        """(text, error) of the first rule that explains: its first change that is about as good as its best."""
        for rule in rules:
            found = [(text, self.error(change)) for text, change in rule(self)]
            least = min((error for _, error in found), default=math.inf)
            if least < math.inf:
                return next((text, error) for text, error in found if error <= 2 * least)
        return None


class ModuleCase(Case):
    """`base` is what the own `module` makes of the other's inputs `x`, and `y` what the other one made of them."""

    def __init__(self, module, x, y, dtypes, call, own, other, own_x, own_y):
        self.module, self.call, self.x, self.own_y = module, call, wide_inputs(x), wide(own_y)
        super().__init__(self.run(module), wide(y), dtypes, own, other)
        self.leaf = not any(True for _ in module.children())
        self.weights = {name: p for name, p in module._parameters.items() if p is not None}
        self.alone = self.leaf and len(x) == 1 and not self.weights
        rounding = distance(self.run(module, wide_inputs(own_x)), self.own_y)
        self.allowed = max(self.allowed, min(4 * rounding, 4 * self.allowed))

    def run(self, module, x=None):
        kept = [(b, b.clone()) for b in module.buffers()] if module.training else []  # training changes them
        result = wide(first_tensor(self.call(module, [t.clone() for t in (self.x if x is None else x)])))
        for buffer, before in kept:
            buffer.copy_(before)
        return result

    def changed(self, x=None, **attributes):
        """The output of a copy with other attributes or weights, which shares everything else."""
        copied = object.__new__(type(self.module))
        for name, value in vars(self.module).items():
            vars(copied)[name] = copy.copy(value) if isinstance(value, (dict, list)) else value
        for name, value in attributes.items():
            setattr(copied, name, nn.Parameter(value, requires_grad=False) if name in self.weights else value)
        return self.run(copied, x)

    def change(self, x=None, **attributes):
        return partial(self.changed, x, **attributes)


# Rules about attributes of the module.


def eps(c):
    for name in ("eps", "epsilon", "variance_epsilon"):
        if isinstance(own := getattr(c.module, name, None), float):
            errors = {value: c.error(c.change(**{name: value})) for value in EPS if value != own}
            near = [v for v, error in errors.items() if error < math.inf and error <= 2 * min(errors.values())]
            if near:
                text = show(near[0]) if len(near) == 1 else f"{show(near[-1])} to {show(near[0])}"
                yield c.says(name, text, own), c.change(**{name: min(errors, key=errors.get)})


def attributes(c):
    for name, own in list(vars(c.module).items()):
        values = list(CHOICES.get(name, []))
        if isinstance(own, bool) or (own is None and name in ("align_corners", "antialias")):
            values.append(not own)
        if isinstance(own, tuple) and len(set(own)) > 1:
            values.append(own[::-1])
        for value in values if name not in ("training", "inplace", "transposed") and name[0] != "_" else ():
            extra = {}
            if name == "padding" and hasattr(c.module, "_reversed_padding_repeated_twice"):
                extra["_reversed_padding_repeated_twice"] = [p for p in own for _ in range(2)]
            if value != own:
                yield c.says(name, value, own), c.change(**{name: value}, **extra)


def training(c):
    mode, words = not c.module.training, ["eval", "train"]
    said = f"{c.b} is in {words[mode]} mode, {c.a} in {words[not mode]} mode"
    yield said, lambda: c.run(copy.deepcopy(c.module).train(mode))


def dropout(c):
    """Zeros, and elsewhere one factor; the share of zeros says which cause."""
    if not isinstance(c.module, nn.modules.dropout._DropoutNd) or not c.alone or c.x[0].shape != c.y.shape:
        return
    x, p, there = c.x[0], c.module.p, c.x[0] != 0
    share, count = (c.y[there] == 0).double().mean().item(), int(there.sum())
    if count < 32 or not 0 < share < 1:
        return
    said = f"{c.b} is in train mode, {c.a} in eval mode"
    if abs(share - p) > 4 * math.sqrt(p * (1 - p) / count):
        said = f"{c.b} drops {share:.2g} of all elements, p is {show(p)} in {c.a}"
    elif c.module.training:
        said = f"{c.b} drops other elements than {c.a}: seed both, or use eval mode"
    yield said, lambda: torch.where(c.y != 0, x / (1 - p), 0.0)


# Rules about weights that the code uses in another way; the weights themselves are compared elsewhere.


def dropped(c):
    norm = hasattr(c.module, "eps")
    for name, p in c.weights.items():
        if "bias" in name:
            yield f"{c.b} leaves out {name}", c.change(**{name: torch.zeros_like(p)})
        elif name == "weight" and norm:
            yield f"{c.b} leaves out weight", c.change(weight=torch.ones_like(p))
            yield f"{c.b} multiplies by 1 + weight, {c.a} by weight", c.change(weight=1 + p)
    if norm and {"weight", "bias"} <= c.weights.keys():
        plain = c.change(weight=torch.ones_like(c.weights["weight"]), bias=torch.zeros_like(c.weights["bias"]))
        yield f"{c.b} leaves out weight and bias", plain


def turned(c):
    for name, p in c.weights.items():
        for i, j in itertools.combinations(range(p.dim()), 2):
            if p.shape[i] == p.shape[j] > 1:
                yield f"{c.b} uses {name}.transpose({i}, {j})", c.change(**{name: p.transpose(i, j)})
        spatial = [d for d in range(2, p.dim()) if p.shape[d] > 1]
        for dims in (d for n in range(len(spatial), 0, -1) for d in itertools.combinations(spatial, n)):
            said = f"{c.b} uses {name}.flip({', '.join(map(str, dims))})"
            said += " (convolution instead of correlation)" if len(dims) == len(spatial) else ""
            yield said, c.change(**{name: p.flip(dims)})


def parts(c):
    """Queries, keys and values, or the gates of recurrent layers, in another order or interleaved by heads."""
    most = max((p.dim() for p in c.weights.values()), default=0)
    for count, words in ((3, "thirds"), (4, "quarters"), (2, "halves")) if most == 2 else ():
        rows = {p.shape[0] // count if p.shape[0] % count == 0 else 0 for p in c.weights.values()}
        for order in itertools.permutations(range(count)) if all(rows) else ():
            moved = {name: torch.cat([p.chunk(count)[k] for k in order]) for name, p in c.weights.items()}
            if list(order) != sorted(order):
                yield f"{c.b} takes the {words} of its weights in the order {order}", c.change(**moved)
        for width in (16, 32, 64, 80, 96, 128) if count == 3 and all(rows) else ():
            if all(row % width == 0 and row > width for row in rows):
                for said, at in (("by heads", 0), ("in thirds", 1)):
                    moved = {}
                    for name, p in c.weights.items():
                        shape = [p.shape[0] // 3 // width, width, *p.shape[1:]]
                        shape.insert(1 - at, 3)
                        moved[name] = p.reshape(shape).transpose(0, 1).reshape(p.shape)
                    said = f"queries, keys and values lie {said} in the weights of {c.b} (heads of {width})"
                    yield said, c.change(**moved)


def attention_scale(c):
    if isinstance(c.module, nn.MultiheadAttention) and "in_proj_weight" in c.weights:
        size = c.module.embed_dim
        for factor, said in ((c.module.head_dim**0.5, "forgotten"), (c.module.head_dim**-0.5, "applied twice")):
            names = [name for name in c.weights if name.startswith("in_proj")]
            scaled = {n: torch.cat([c.weights[n][:size] * factor, c.weights[n][size:]]) for n in names}
            yield f"the scale of attention is {said} in {c.b}", c.change(**scaled)
    if isinstance(scale := getattr(c.module, "scale", None), float) and scale > 0:
        for value in (1.0, scale**2, scale**0.5, 1 / scale):
            yield c.says("scale", value, scale), c.change(scale=value)


# Rules about borders and windows.


def padding(c):
    """Unequal padding of the two ends, such as TensorFlow's."""
    m, count = c.module, c.base.dim() - 2
    if not hasattr(m, "kernel_size") or not hasattr(m, "padding") or getattr(m, "transposed", False) or count < 1:
        return
    each = lambda value: list(value) if isinstance(value, tuple) else [value] * count  # noqa: E731
    k, s, d = each(m.kernel_size), each(m.stride or m.kernel_size), each(getattr(m, "dilation", 1))
    sizes = zip(c.x[0].shape[2:], c.y.shape[2:], k, s, d)
    totals = [[max(0, (o - 1) * s + d * (k - 1) + 1 - n) for n, o, k, s, d in sizes]]
    totals += [[2 * p for p in each(m.padding)]] if not isinstance(m.padding, str) else []
    splits = dict.fromkeys((tuple(map(at, total)), tuple(total)) for total in totals for at in PARTS)
    own = {"padding": tuple([0] * count) if isinstance(m.padding, tuple) else 0}
    own.update({"padding_mode": "zeros"} if hasattr(m, "padding_mode") else {})
    for (before, total), fill in itertools.product(splits, (0.0, -math.inf)):
        after = tuple(t - b for t, b in zip(total, before))
        ends = [v for pair in list(zip(before, after))[::-1] for v in pair]
        said = c.says("padding", f"{before} before and {after} after", m.padding)
        yield said, lambda ends=ends, fill=fill: c.changed([F.pad(c.x[0], ends, value=fill), *c.x[1:]], **own)


PARTS = [lambda t: t // 2, lambda t: t - t // 2, lambda t: 0, lambda t: t]


def pooling(c):
    m, name = c.module, type(c.module).__name__
    for old, new, words in (("Max", "Avg", "average"), ("Avg", "Max", "maximum")):
        if old in name and hasattr(nn, name.replace(old, new)):
            size = (m.output_size,) if hasattr(m, "output_size") else (m.kernel_size, m.stride, m.padding)
            yield f"{c.b} takes the {words}, {c.a} does not", partial(c.run, getattr(nn, name.replace(old, new))(*size))


def resized(x, size):
    for mode in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"):
        smooth, picture = mode.endswith(("linear", "bicubic")), mode in ("bilinear", "bicubic")
        for corners, antialias in itertools.product((False, True) if smooth else (None,), (False, True)[: 1 + picture]):
            said = mode + (", align_corners" if corners else "") + (", antialias" if antialias else "")
            yield said, partial(F.interpolate, x, size, None, mode, corners, antialias=antialias)


def interpolation(c):
    if isinstance(c.module, nn.Upsample):
        for said, change in resized(c.x[0], tuple(c.y.shape[2:])):
            own = c.module.mode + (", align_corners" if c.module.align_corners else "")
            yield c.says("interpolation", said, own), change


# Rules about what is computed.


def activation(c):
    """Another function of the input, if the module is a function of each element alone."""
    if (c.alone or isinstance(c.module, nn.PReLU)) and c.x[0].shape == c.y.shape:
        x, said = c.x[0], partial(c.says, "the activation", own=str(c.module))
        for name, function in ALL_ACTIVATIONS.items():
            yield said(name), partial(function, x)
        if (x < 0).sum() >= 8:
            slope = ((c.y * x)[x < 0].sum() / (x * x)[x < 0].sum()).item()
            yield said(f"leaky_relu of slope {show(slope)}"), lambda: torch.where(x < 0, slope * x, x)


def activation_after(c):
    last = {
        f"{name}({d})": partial(getattr(torch, name), dim=d) for name in ("softmax", "log_softmax") for d in (1, -1)
    }
    for name, function in {**ACTIVATIONS, **last, "log": torch.log, "exp": torch.exp}.items():
        yield f"{c.b}'s output has gone through {name} as well", partial(function, c.base)


def normalisation(c):
    """Other statistics than those of LayerNorm."""
    if not isinstance(c.module, nn.LayerNorm):
        return
    m, x, dims = c.module, c.x[0], tuple(range(-len(c.module.normalized_shape), 0))
    w, b = (1 if m.weight is None else m.weight), (0 if m.bias is None else m.bias)
    free, square = x - x.mean(dims, keepdim=True), x.square().mean(dims, keepdim=True)
    variance = partial(x.var, dims, keepdim=True)
    yield f"{c.b} does not subtract the mean (RMSNorm)", lambda: x / (square + m.eps).sqrt() * w + b
    yield f"{c.b} takes the unbiased variance", lambda: free / (variance(unbiased=True) + m.eps).sqrt() * w + b
    said = f"{c.b} adds eps to the standard deviation, {c.a} to the variance"
    yield said, lambda: free / (variance(unbiased=False).sqrt() + m.eps) * w + b


def shifted_index(c):
    for by in (1, -1) if len(c.x) == 1 and not c.x[0].is_floating_point() and c.x[0].dtype != torch.bool else ():
        yield f"{c.b} looks up index {by:+d} (off by one)", partial(c.run, c.module, [c.x[0] + by])


def input_order(c):
    """Modules that only read their input in another order, such as Flatten."""
    for dims in itertools.permutations(range(c.x[0].dim())) if c.alone and c.x[0].dim() <= 5 else ():
        if list(dims) != sorted(dims) and dims[0] == 0:
            said = f"{c.b} reads its input in the order of permute{dims}"
            yield said, lambda dims=dims: c.run(c.module, [c.x[0].permute(dims)]).reshape(c.y.shape)


def residual(c):
    if not c.leaf and c.x and c.x[0].shape == c.base.shape:
        yield f"{c.b} adds its input once more (a residual)", lambda: c.base + c.x[0]
        yield f"{c.b} leaves out the residual: it is f(x) - x", lambda: c.base - c.x[0]


class Replaced(TorchDispatchMode):
    """Runs `replace(name, number, arguments)` in place of an operation, unless it returns None."""

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
    name, tensors = name.rstrip("_"), [a for a in args[:2] if isinstance(a, torch.Tensor) and a.dim() > 0]
    if name in ("add", "sub") and len(tensors) == 2:
        for at, words in enumerate(("a residual", "its first operand")):
            same = lambda a, at=at: a[at] if a[0].shape == a[1].shape else None  # noqa: E731
            yield f"an addition is left out ({words})", same
    elif name in ("mul", "div") and tensors:
        yield f"a {'multiplication' if name == 'mul' else 'division'} (a scale) is left out", lambda a: a[0]
    elif name in ACTIVATIONS or name in ("gelu", "leaky_relu"):
        for other, function in ALL_ACTIVATIONS.items():
            yield f"{name} is {other}", lambda a, function=function: function(a[0])


def operations(c):
    """One operation of the code of a module with others inside left out or exchanged."""
    seen = []
    with Replaced(lambda name, number, args: seen.extend((number, *r) for r in replacements(name, args))):
        c.run(c.module)

    def change(at, new):
        with Replaced(lambda name, number, args: new(args) if number == at else None):
            return c.run(c.module)

    for number, text, new in seen[:200] if not c.leaf else ():
        yield f"in the {type(c.module).__name__} of {c.b} {text}", partial(change, number, new)


# Rules about precision.


def rounding(c):
    for name, dtype in HALVES.items():
        if UNIT[dtype] > c.unit:
            yield f"{c.b} rounds output to {name}", partial(snapped, c, c.base, dtype)


def precision(c):
    """Weights, inputs, or all rounded, as by autocast or TF32."""
    roundings = {"TF32": (2**-11, tf32), "TF32, truncated": (2**-11, partial(tf32, half=0))}
    roundings.update((n, (UNIT[d], lambda t, d=d: t.to(d).double())) for n, d in HALVES.items())
    for name, (unit, to) in roundings.items():
        if unit <= c.unit or not unit / 100 < c.unchanged < 100 * unit:
            continue
        weights = {n: to(p) for n, p in c.weights.items()}
        matrices = {n: p for n, p in weights.items() if p.dim() > 1}
        inputs = [to(t) if t.is_floating_point() else t for t in c.x]
        both = [("weights and inputs", inputs, matrices), ("weights and inputs", inputs, weights)]
        alone = [("weights", None, matrices), ("weights", None, weights), ("inputs", inputs, {})]
        for what, x, changed in both + alone if name in HALVES else both[:1]:
            moved = c.change(x, **changed)
            yield f"{c.b} rounds {what} to {name}", moved
            if name in HALVES:
                yield f"{c.b} rounds {what} and output to {name}", lambda m=moved, n=name: snapped(c, m(), HALVES[n])


def autocast(c):
    """The operations that PyTorch's autocast rounds, which modules of several do inside."""
    unit = UNIT[torch.bfloat16]
    if unit > c.unit and unit / 100 < c.unchanged < 100 * unit:

        def change():
            x = [t.float() if t.is_floating_point() else t for t in c.x]
            with torch.autocast("cpu", torch.bfloat16):
                return first_tensor(c.call(copy.deepcopy(c.module).float(), x))

        yield f"{c.b} computes in bfloat16 inside, as by autocast", change


def tf32(tensor, half=0x1000):
    bits = tensor.float().contiguous().view(torch.int32)
    return ((bits + half) & ~0x1FFF).view(torch.float32).double()


def snapped(c, exact, dtype):
    """`exact` rounded, where either neighbour is right if a rounding error of the other's precision decides."""
    slack = 16 * c.unit * exact.abs().clamp_min(exact.square().mean().sqrt())
    near = ((exact - slack).to(dtype).double() == c.y) | ((exact + slack).to(dtype).double() == c.y)
    return torch.where(near, c.y, exact.to(dtype).double())


# Rules about the values themselves, of outputs and inputs alike.


def place(c, d):
    return f"dim {d}" + (" (channels)" if d == 1 and c.base.dim() > 2 else "")


def order(c):
    """Flips, rolls and shifts by one along a dimension, permutations of dimensions."""
    base, y, a, b = c.base, c.y, c.a, c.b
    for d in range(base.dim()) if base.shape == y.shape else ():
        for by in (1, -1):
            yield f"{b} = {a}.roll({by}, {d}) (off by one)", partial(base.roll, by, d)
            said = f"{b} is {a} shifted by {by:+d} along {place(c, d)}, filled with zeros (off by one)"
            yield said, partial(shifted, base, by, d)
        said = " (RGB and BGR)" if d in (1, base.dim() - 1) and base.shape[d] == 3 and base.dim() > 2 else ""
        yield f"{b} = {a}.flip({d}){said}", partial(base.flip, d)
    for dims in itertools.permutations(range(base.dim())) if base.dim() <= 5 and base.numel() == y.numel() else ():
        moved = base.permute(dims)
        if list(dims) != sorted(dims) and (moved.shape == y.shape or base.shape == y.shape):
            said = "" if moved.shape == y.shape else ", read as if it were not"
            yield f"{b} = {a}.permute{dims}{said}", partial(moved.reshape, y.shape)


def shifted(tensor, by, d):
    moved = tensor.roll(by, d)
    moved.narrow(d, 0 if by > 0 else tensor.shape[d] - 1, 1).zero_()
    return moved


def rows(c):
    """The rows along a dimension in another order, found by their values."""
    base, y = c.base, c.y
    for d in range(base.dim()) if base.shape == y.shape else ():
        count = base.shape[d]
        if not 2 <= count <= 4096 or base.numel() < (1 if c.unit < 2**-20 else 16) * count:
            continue  # in half precision a few numbers are near to others by chance
        index = matched(base.movedim(d, 0).reshape(count, -1), y.movedim(d, 0).reshape(count, -1))
        moved = (index != torch.arange(count)).nonzero().flatten().tolist()
        if moved and len(set(index.tolist())) < count:  # no order: some are there again
            pairs = [f"{c.b}[{k}] = {c.a}[{index[k]}]" for k in moved[:3]]
            words = f"repeats entries of {c.a} along {place(c, d)}: {', '.join(pairs)}"
            more = f" and {len(moved) - 3} others" if len(moved) > 3 else ""
            yield f"{c.b} {words}{more}", partial(base.index_select, d, index)
        elif moved:
            said, by = (
                f"{c.b} is {c.a} with {place(c, d)}",
                ((torch.arange(count) - index) % count).mode().values.item(),
            )
            yield f"{said} rolled by {by if by <= count // 2 else by - count}", partial(base.roll, by, d)
            words = f"{moved[0]} and {moved[1]} exchanged" if len(moved) == 2 else "in another order: "
            if len(moved) > 2:
                words += f"{len(moved)} of {count} differ, {c.b}[{moved[0]}] = {c.a}[{index[moved[0]]}]"
            yield f"{said} {words}", partial(base.index_select, d, index)


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
    if (y == y.reshape(-1)[0]).all():
        yield f"{b} is {show(y.reshape(-1)[0].item())} everywhere", lambda: y
        return
    near, size = c.allowed / 8, y.square().mean().sqrt().item()
    shift = tidy((y - base).mean().item(), near * size)
    yield f"{b} = {a} {sign(shift)}", lambda: base + shift
    factor = ((base * y).sum() / base.square().sum()).item()
    factor = tidy(factor, near * abs(factor))
    yield f"{b} = {show(factor)} {a}{named(factor)}", lambda: base * factor
    free = base - base.mean()
    slope = ((free * y).sum() / free.square().sum()).item()
    slope = tidy(slope, near * abs(slope))
    offset = tidy((y.mean() - slope * base.mean()).item(), near * size)
    if abs(slope) > 1e-12:
        yield f"{b} = {show(slope)} {a} {sign(offset)}{named(slope)}", lambda: slope * base + offset


def tidy(value, slack):
    """The shortest number within the slack."""
    short = (float(f"{value:.{digits}g}") for digits in range(1, 8))
    return next((v for v in short if abs(v - value) <= slack), value)


def sign(value):
    return f"{'-' if value < 0 else '+'} {show(abs(value))}"


def named(factor):
    return next((f" ({s} 255)" for v, s in ((1 / 255, "÷"), (255, "×")) if abs(factor / v - 1) < 1e-5), "")


def by_channel(c):
    """Another factor and offset for each channel, by least squares."""
    for d in sorted({1, c.base.dim() - 1}) if c.base.shape == c.y.shape and c.base.dim() > 1 else ():
        if c.base.numel() >= 16 * c.base.shape[d]:
            a, b = (t.movedim(d, 0).reshape(t.shape[d], -1) for t in (c.base, c.y))
            free = a - a.mean(1, keepdim=True)
            spread = free.square().sum(1)
            slope = torch.where(spread > 0, (free * b).sum(1) / spread.clamp_min(1e-300), 1.0)
            offset = b.mean(1) - slope * a.mean(1)
            said = f"{c.b} = {c.a} scaled and shifted along {place(c, d)}"
            if len(slope) <= 4:
                numbers = [", ".join(f"{v:.6g}" for v in values.tolist()) for values in (slope, offset)]
                said += f": factors {numbers[0]}, offsets {numbers[1]}"
            shape = [-1 if k == d else 1 for k in range(c.base.dim())]
            change = partial(lambda s, o: c.base * s + o, slope.reshape(shape), offset.reshape(shape))
            yield statistics(slope, offset, c) or said, change


def statistics(slope, offset, c):
    """Names ImageNet's mean and standard deviation, in images of 0 … 1 or of 0 … 255."""
    for top, turn, scaled, forward in itertools.product((1, 255), (1, -1), (True, False), (True, False)):
        mean, deviation = (torch.tensor(v[::turn], dtype=torch.float64) * top for v in (MEAN, DEVIATION))
        s = deviation if scaled else torch.ones_like(mean)
        wanted = (1 / s, -mean / s) if forward else (s, mean)
        near = len(slope) == 3 and all(torch.allclose(*p, 1e-3, 1e-3) for p in zip((slope, offset), wanted))
        if near:
            near, far = (c.a, c.b) if forward else (c.b, c.a)
            whole = f"({near} - mean) / std with ImageNet's mean and std" if scaled else f"{near} - ImageNet's mean"
            return f"{far} = {whole}{' times 255' if top > 1 else ''}{', in the order BGR' if turn < 0 else ''}"
    return None


def few(c):
    if c.base.shape == c.y.shape and c.base.dim():
        off = (c.base - c.y).abs() > 64 * c.unit * c.base.square().mean().sqrt()
        count, size = int(off.sum()), off.numel()
        if 1 <= count <= max(1, size // 1000):
            at = tuple(off.nonzero()[0].tolist())
            words = f"{count} of {size} values differ, the first" if count > 1 else f"one of {size} values differs,"
            said = f"{words} at {list(at)}: it is {c.y[at]:.6g} in {c.b}, {c.base[at]:.6g} in {c.a}"
            yield said, lambda: torch.where(off, c.y, c.base)


OUTPUT_RULES = [eps, attributes, training, dropout, activation, rounding, parts, input_order, order, rows, dropped]
OUTPUT_RULES += [
    turned,
    padding,
    pooling,
    interpolation,
    attention_scale,
    normalisation,
    shifted_index,
    precision,
    autocast,
]
OUTPUT_RULES += [residual, operations, activation_after, affine, few, by_channel]


def find(module, own_inputs, own_output, other_inputs, other_output, f, own="A", other="B", call=None, said=None):
    """Why `other_output` is not what `f`, the own module in float64, gives for `other_inputs`: (text, error), or None.

    `call(module, tensors)` calls a module whose arguments are not tensors alone. A search that took too long is said in the list
    `said`."""
    call = call or (lambda called, tensors: called(*tensors))
    dtypes = [own_output.dtype, other_output.dtype]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            case = ModuleCase(f, other_inputs, other_output, dtypes, call, own, other, own_inputs, own_output)
        except Exception:  # a module that cannot be run again in float64
            return None
        large = case.base.numel() > LARGE  # what is quick comes first, where the rest may not be reached
        found = case.cause([few, affine, rounding, *OUTPUT_RULES] if large else OUTPUT_RULES)
        if found is None and case.ended and said is not None:
            said.append(ENDED.format(SECONDS))
        return found


# Rules about inputs alone.


def quantized(c):
    for function, words in ((torch.round, "round"), (torch.floor, "floor")):
        yield f"{c.b} = {words}(255 {c.a}) / 255 (8 bits)", lambda f=function: f(c.base * 255) / 255
        yield f"{c.b} = {words}({c.a}) (8 bits)", lambda f=function: f(c.base)


def other_size(c):
    if c.base.dim() == c.y.dim() == 4 and c.base.shape[:2] == c.y.shape[:2] and c.base.shape != c.y.shape:
        for said, change in resized(c.base, tuple(c.y.shape[2:])):
            yield f"{c.b} is {c.a} resized: {said}", change


def find_input(own, other, own_name="A", other_name="B", said=None):
    """How the other's input is made of the own one: (text, error), or None. Other orders are tried with scales, too.

    A search that took too long is said in the list `said`."""
    a, b, dtypes = wide(own), wide(other), [own.dtype, other.dtype]
    case = Case(a, b, dtypes, own_name, other_name)
    found = case.cause([order, rows, rounding, quantized, affine, few, by_channel, other_size])
    orders = list(order(case)) if found is None else []
    if case.some:  # the likeliest first, as the time may not suffice for all
        orders.sort(key=lambda o: -case.likeness(o[1]()))
    for text, change in orders:
        if time.monotonic() > case.until:
            case.ended = True
            break
        moved, comma, note = text.partition(" = ")[2].partition(" (")
        if not moved:
            continue
        reordered = Case(change(), b, dtypes, moved, other_name)
        reordered.until = case.until  # one limit for all
        if scaled := reordered.cause([affine, by_channel]):
            return scaled[0] + comma + note, scaled[1]
        case.ended |= reordered.ended
    if found is None and case.ended and said is not None:
        said.append(ENDED.format(SECONDS))
    return found
