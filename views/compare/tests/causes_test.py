"""Tests the rules that say why two runs differ: each finds what it is for, and is silent about what is nearly that."""

import copy
import io
import math
import re
import sys

import pytest
import torch
import torch.nn.functional as F
from harness import SOURCE
from torch import nn

sys.path.insert(0, str(SOURCE / "extras/python"))
from torchtap_compare import causes, recording, trial

torch.set_grad_enabled(False)
torch.manual_seed(5)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


def filled(module):
    """Weights and statistics that are not trivial; eval mode."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point():
            if "var" in name:
                tensor.data = torch.rand_like(tensor) * 0.2 + 0.01
            elif "mean" in name or "bias" in name or (name.endswith("weight") and tensor.dim() == 1):
                tensor.data += 0.3 * torch.randn_like(tensor)
    return module.eval()


def other(module, **attributes):
    copied = copy.deepcopy(module)
    for name, value in attributes.items():
        setattr(copied, name, nn.Parameter(value, requires_grad=False) if isinstance(value, torch.Tensor) else value)
    return copied


def cause(module, b, *x):
    """The cause that is found if the other program computes b(x), for inputs that differ by rounding."""
    x_b = [t * (1 + 3e-8 * torch.randn_like(t)) if t.is_floating_point() else t for t in x]
    f = copy.deepcopy(module).double()  # before training changes it
    a, y = (causes.first_tensor(g(*[t.clone() for t in i])).clone() for g, i in ((module, x), (b, x_b)))
    found = causes.find(module, list(x), a, x_b, y, f)
    return found[0] if found else None


IMAGES, TOKENS = torch.randn(2, 12, 9, 11), torch.randn(2, 7, 24)
norm, layer = filled(nn.BatchNorm2d(12)), filled(nn.LayerNorm(24))
conv, square = filled(nn.Conv2d(12, 16, 3, padding=1)), filled(nn.Conv2d(12, 12, 3, stride=2, padding=1))
strided = filled(nn.Conv2d(12, 8, 3, stride=(2, 1), padding=(1, 2)))
linear, thirds = filled(nn.Linear(24, 24)), filled(nn.Linear(24, 96))
attention = filled(nn.MultiheadAttention(24, 4, batch_first=True))


def heads(values, count, width):  # [3, heads, width] as [heads, 3, width]
    return values.reshape(3, count, width, *values.shape[1:]).transpose(0, 1).reshape(values.shape)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = filled(nn.Conv2d(12, 12, 3, padding=1))
        self.code = "residual relu"

    def forward(self, x):
        y = self.conv(x)
        if "residual" in self.code:
            y = y + x
        if "scale" in self.code:
            y = y / 3
        return F.gelu(y) if "gelu" in self.code else F.relu(y) if "relu" in self.code else y


block = Block().eval()


def train(module):
    return copy.deepcopy(module).train()


def part(function, at=3):
    """`function` for a few channels only: nearly the whole."""
    return lambda y: torch.cat([function(y)[:, :at], y[:, at:]], 1)


def after(module, function):
    return lambda *x: function(causes.first_tensor(module(*x)))


def dropout(p, spoil=1.0):
    def forward(x):
        kept = torch.rand(x.shape) >= p
        return torch.where(kept, x / (1 - p), 0.0) * (1 + (spoil - 1) * torch.rand(x.shape))

    return forward


def with_rows(module, order):
    p = {n: torch.cat([v.chunk(len(order))[k] for k in order]) for n, v in module._parameters.items()}
    return other(module, **p)


def lstm_gates(order):
    copied = copy.deepcopy(lstm)
    for p in copied.parameters():
        p.data = torch.cat([p.chunk(4)[k] for k in order])
    return copied


lstm = filled(nn.LSTM(24, 8, batch_first=True))
pool, average = nn.MaxPool2d(3, 2, padding=1), nn.AvgPool2d(3, 2, padding=1)
upsample = nn.Upsample(scale_factor=2, mode="bilinear")
LARGE = torch.randn(2, 12, 10, 12)


def resize(how):
    return lambda x: F.interpolate(x, scale_factor=2, **how)


def same_padding(value=0.0, extra=0):
    return lambda x: F.conv2d(F.pad(x, (0, 1, 0, 1), value=value), square.weight, square.bias, 2)[..., extra:]


def scaled_attention(factor):
    b = copy.deepcopy(attention)
    b.in_proj_weight.data[:24] *= factor
    b.in_proj_bias.data[:24] *= factor
    return b


def rms(x, w=1.0):
    return x / (x.square().mean(-1, keepdim=True) + layer.eps).sqrt() * layer.weight * w + layer.bias


# name of the rule, own module, what the other computes, its input, what has to be said, what nearly is that
CASES = [
    ("eps", norm, other(norm, eps=1e-3), IMAGES, "eps is 1e-3 in B, 1e-5 in A", other(norm, eps=3.3e-4)),
    ("eps of LayerNorm", layer, other(layer, eps=1e-12), TOKENS * 0.02, r"eps is 0 to 1e-\d+ in B, 1e-5 in A",
     after(other(layer, eps=1e-12), part(lambda y: y * 1.001))),
    ("eps of GroupNorm", filled(nn.GroupNorm(3, 12)), None, IMAGES * 0.1, "eps is 1e-6 in B", None),
    ("train mode", norm, train(norm), IMAGES, "B is in train mode, A in eval", other(train(norm), momentum=None, eps=1e-2)),
    ("eval mode", train(norm), norm, IMAGES, "B is in eval mode, A in train", after(norm, part(lambda y: y * 1.01))),
    ("bias", conv, lambda x: F.conv2d(x, conv.weight, None, 1, 1), IMAGES, "B leaves out bias",
     lambda x: F.conv2d(x, conv.weight, conv.bias * 0.1, 1, 1)),
    ("bias of linear", linear, lambda x: F.linear(x, linear.weight), TOKENS, "B leaves out bias",
     lambda x: F.linear(x, linear.weight, -linear.bias)),
    ("weight of norm", layer, lambda x: F.layer_norm(x, (24,), None, layer.bias), TOKENS, "B leaves out weight",
     lambda x: F.layer_norm(x, (24,), layer.weight.sqrt().nan_to_num(1), layer.bias)),
    ("1 + weight", layer, lambda x: F.layer_norm(x, (24,), 1 + layer.weight, layer.bias), TOKENS, "by 1 . weight",
     lambda x: F.layer_norm(x, (24,), 1.1 + layer.weight, layer.bias)),
    ("transposed", conv, other(conv, weight=conv.weight.transpose(2, 3)), IMAGES, r"weight\.transpose\(2, 3\)",
     other(conv, weight=part(lambda w: w.transpose(2, 3))(conv.weight))),
    ("transposed linear", linear, other(linear, weight=linear.weight.t()), TOKENS, r"weight\.transpose\(0, 1\)",
     other(linear, weight=linear.weight.t() * 1.01)),
    ("flipped", conv, other(conv, weight=conv.weight.flip(2, 3)), IMAGES, r"flip\(2, 3\) \(convolution",
     other(conv, weight=part(lambda w: w.flip(2, 3))(conv.weight))),
    ("flipped rows", conv, other(conv, weight=conv.weight.flip(2)), IMAGES, r"weight\.flip\(2\)$",
     other(conv, weight=conv.weight.roll(1, 2))),
    ("parts", thirds, with_rows(thirds, (2, 0, 1)), TOKENS, r"thirds .*\(2, 0, 1\)", after(with_rows(thirds, (2, 0, 1)), lambda y: y * y)),
    ("heads", thirds, other(thirds, weight=heads(thirds.weight, 2, 16), bias=heads(thirds.bias, 2, 16)), TOKENS, "heads of 16",
     other(thirds, weight=heads(thirds.weight, 2, 16))),
    ("gates", lstm, lstm_gates((0, 2, 1, 3)), TOKENS, r"quarters .*\(0, 2, 1, 3\)", after(lstm_gates((0, 2, 1, 3)), torch.sin)),
    ("padding mode", conv, other(conv, padding_mode="reflect"), IMAGES, "padding_mode is reflect in B, zeros in A",
     lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), value=0.1), conv.weight, conv.bias)),
    ("padding", square, same_padding(), LARGE, r"padding is \(0, 0\) before and \(1, 1\) after in B", same_padding(0.1)),
    ("pool padding", pool, lambda x: F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=-99), 3, 2), LARGE, r"\(0, 0\) before",
     lambda x: F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=0.7), 3, 2)),
    ("stride", strided, other(strided, stride=(1, 2)), IMAGES, r"stride is \(1, 2\) in B", other(strided, stride=(2, 2))),
    ("padding order", strided, other(strided, padding=(2, 1)), IMAGES, r"padding is \(2, 1\) ", other(strided, padding=(0, 0))),
    ("ceil_mode", pool, other(pool, ceil_mode=True), LARGE, "ceil_mode is True in B, False in A", other(pool, stride=1)),
    ("count_include_pad", average, other(average, count_include_pad=False), IMAGES, "count_include_pad is False",
     lambda x: F.avg_pool2d(x + 0.1, 3, 2, 1, count_include_pad=False)),
    ("average and maximum", pool, average, IMAGES, "takes the average", lambda x: F.lp_pool2d(x, 2, 3, 2)),
    ("align_corners", upsample, resize({"mode": "bilinear", "align_corners": True}), LARGE, "align_corners is True",
     lambda x: resize({"mode": "bilinear", "align_corners": True})(x + 0.1 * x.flip(3))),
    ("interpolation", upsample, resize({"mode": "bicubic"}), LARGE, "bicubic", lambda x: resize({"mode": "bicubic"})(x.sin())),
    ("antialias", nn.Upsample(size=(5, 6), mode="bilinear"), lambda x: F.interpolate(x, (5, 6), mode="bilinear", antialias=True),
     LARGE, "antialias in B", lambda x: F.interpolate(x, (5, 6), mode="bilinear", antialias=True).abs()),
    ("gelu", nn.GELU(), nn.GELU("tanh"), TOKENS, "approximate is tanh in B, none in A", lambda x: x * torch.sigmoid(1.7 * x)),
    ("activation", nn.Hardswish(), nn.SiLU(), TOKENS, "activation is silu", lambda x: x * torch.sigmoid(1.01 * x)),
    ("relu6", nn.ReLU(inplace=True), nn.ReLU6(), TOKENS * 5, "activation is relu6", lambda x: x.clamp(0, 6.5)),
    ("slope", nn.LeakyReLU(), nn.LeakyReLU(0.1), TOKENS, "negative_slope is 0.1 in B, 0.01 in A", lambda x: F.elu(x, 0.1)),
    ("unusual slope", nn.ReLU(), nn.LeakyReLU(0.123), TOKENS, "slope 0.123 ", lambda x: torch.where(x < 0, 0.123 * x.sin(), x)),
    ("activation after", conv, after(conv, F.relu), IMAGES, "gone through relu", after(conv, lambda y: y.clamp_min(-0.01))),
    ("softmax after", linear, after(linear, lambda y: y.softmax(-1)), TOKENS, r"gone through softmax\(-1\) as well",
     after(linear, lambda y: (0.9 * y).softmax(-1))),
    ("log_softmax", nn.Softmax(-1), nn.LogSoftmax(-1), TOKENS, "gone through log as well", lambda x: x.softmax(-1).log2()),
    ("PReLU", nn.PReLU(), nn.ReLU(), TOKENS, "activation is relu in B", lambda x: F.leaky_relu(x, 0.001)),
    ("softmax", nn.Softmax(-1), nn.Softmax(1), TOKENS, "dim is 1 in B, -1 in A", lambda x: (x * 2).softmax(1)),
    ("bfloat16", conv, after(conv, lambda y: y.bfloat16().float()), IMAGES, "rounds output to bfloat16",
     after(conv, part(lambda y: y.bfloat16().float()))),
    ("float16", linear, after(linear, lambda y: y.half().float()), TOKENS, "rounds output to float16",
     after(linear, lambda y: (y + 1e-3).half().float())),
    ("weights in bfloat16", conv, other(conv, weight=conv.weight.bfloat16().float(), bias=conv.bias.bfloat16().float()), IMAGES,
     "rounds weights to bfloat16", other(conv, weight=part(lambda w: w.bfloat16().float())(conv.weight))),
    ("autocast", linear, lambda x: F.linear(*(t.bfloat16().float() for t in (x, linear.weight, linear.bias))).bfloat16().float(),
     TOKENS, "rounds weights and inputs and output to bfloat16",
     lambda x: F.linear(*(t.bfloat16().float() for t in (x, linear.weight * 1.02, linear.bias))).bfloat16().float()),
    ("TF32", conv, lambda x: F.conv2d(causes.tf32(x, 0x1000).float(), causes.tf32(conv.weight, 0x1000).float(), conv.bias, 1, 1), IMAGES,
     "TF32", lambda x: F.conv2d(causes.tf32(x, 0x1000).float(), conv.weight, conv.bias, 1, 1)),
    ("scale", attention, scaled_attention(6**0.5), [TOKENS] * 3, "scale of attention is forgotten", scaled_attention(2.0)),
    ("dropout", nn.Dropout(0.1).eval(), dropout(0.1), TOKENS, "B is in train mode", dropout(0.1, 1.01)),
    ("mask", nn.Dropout(0.3).train(), dropout(0.3), TOKENS, "seed both", dropout(0.6, 1.1)),
    ("share", nn.Dropout(0.3).train(), lambda x: torch.where(torch.rand(x.shape) < 0.6, 0.0, x / 0.7), TOKENS, r"drops 0\.[56]", dropout(0.6)),
    ("roll", conv, after(conv, lambda y: y.roll(1, 1)), IMAGES, r"roll\(1, 1\) \(off by one\)", after(conv, lambda y: y.roll(1, 1).roll(2, 3))),
    ("roll by two", conv, after(conv, lambda y: y.roll(2, 1)), IMAGES, r"rolled by 2", after(conv, part(lambda y: y.roll(2, 1), 14))),
    ("shift", linear, after(linear, lambda y: F.pad(y, (0, 0, 1, 0))[:, :-1]), TOKENS, r"shifted by \+1 along dim 1.*zeros",
     after(linear, lambda y: F.pad(y, (0, 0, 1, 0), value=0.1)[:, :-1])),
    ("flip", conv, after(conv, lambda y: y.flip(3)), IMAGES, r"B = A\.flip\(3\)", after(conv, part(lambda y: y.flip(3)))),
    ("exchanged", conv, after(conv, lambda y: y[:, [0, 5, 2, 3, 4, 1, *range(6, 16)]]), IMAGES, "1 and 5 exchanged",
     after(conv, lambda y: y[:, [0, 5, 2, 3, 4, 5, *range(6, 16)]] * 1.01)),
    ("another order", conv, after(conv, lambda y: y[:, PERMUTED]), IMAGES, "in another order",
     after(conv, lambda y: y[:, PERMUTED] * (1 + 0.01 * torch.rand(16, 1, 1)))),
    ("transposed output", linear, after(linear, lambda y: y.transpose(1, 2)), TOKENS, r"A\.permute\(0, 2, 1\)",
     after(linear, lambda y: y.transpose(1, 2).sin())),
    ("read as", conv, after(conv, lambda y: y.permute(0, 2, 3, 1).reshape(y.shape)), IMAGES, "read as if",
     after(conv, lambda y: y.permute(0, 2, 3, 1).reshape(y.shape).abs())),
    ("flatten", nn.Flatten(), lambda x: x.permute(0, 2, 3, 1).flatten(1), IMAGES, r"permute\(0, 2, 3, 1\)",
     lambda x: x.permute(0, 2, 3, 1).flatten(1) * torch.rand(1188)),
    ("scaled", conv, after(conv, lambda y: 1.0001 * y), IMAGES, r"^B = 1\.0001 A$", after(conv, part(lambda y: 1.0001 * y, 15))),
    ("offset", conv, after(conv, lambda y: y + 0.001), IMAGES, r"^B = A \+ 1e-3$", after(conv, part(lambda y: y + 0.001, 15))),
    ("affine", conv, after(conv, lambda y: 2 * y - 1), IMAGES, r"^B = 2 A - 1$", after(conv, lambda y: 2 * y - 1 + 0.01 * y**2)),
    ("zeros", conv, after(conv, torch.zeros_like), IMAGES, "all zeros", after(conv, part(torch.zeros_like, 15))),
    ("few", conv, after(conv, lambda y: y.flatten().index_fill(0, torch.tensor(777), 5.0).view(y.shape)), IMAGES,
     r"one of 3168 values differs, at \[0, 7, 7, 7\]: it is 5 in B",
     after(conv, lambda y: y.flatten().index_fill(0, torch.arange(9), 5.0).view(y.shape))),
    ("order of 1 x 24", linear, after(linear, lambda y: y[..., SHUFFLED]), TOKENS[:1, :1], "dim 2 in another order",
     after(linear, lambda y: y[..., SHUFFLED] * (1 + 0.01 * torch.rand(24)))),
    ("by channel", conv, after(conv, lambda y: y * GAINS + GAINS.flip(0)), IMAGES, "scaled and shifted along dim 1",
     after(conv, lambda y: y * GAINS + 0.001 * y**2)),
    ("RMSNorm", layer, rms, TOKENS + 1, "RMSNorm", lambda x: rms(x, 1.01)),
    ("unbiased variance", layer, lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() * layer.weight
     + layer.bias, TOKENS, "unbiased", lambda x: layer(x.sin())),
    ("eps of the deviation", filled(nn.LayerNorm(24, eps=1e-2)),
     lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True).sqrt() + 1e-2), TOKENS, None, None),
    ("index", filled(nn.Embedding(50, 8)), None, torch.randint(1, 49, (3, 9)), r"index \+1 \(off by one\)", None),
    ("residual", block, other(block, code="relu"), IMAGES, "addition is left out", after(block, lambda y: y * 0.9 + 0.02 * y**2)),
    ("residual without more", other(block, code="residual"), other(block, code=""), IMAGES, "leaves out the residual|addition",
     after(other(block, code=""), torch.sin)),
    ("residual added", other(block, code=""), other(block, code="residual"), IMAGES, "adds its input once more",
     lambda x: block.conv(x) + 0.9 * x),
    ("scale in code", other(block, code="scale relu"), other(block, code="relu"), IMAGES, "scale.* is left out|B = 3 A",
     after(other(block, code="relu"), lambda y: 0.98 * y + 0.01 * y**2)),
    ("activation in code", block, other(block, code="residual gelu"), IMAGES, r"relu is gelu \(erf\)",
     after(other(block, code="residual"), lambda y: F.softplus(2 * y) / 2)),
]  # fmt: skip
SHUFFLED, PERMUTED, GAINS = torch.randperm(24), torch.randperm(16), torch.rand(16, 1, 1) + 0.5


@pytest.mark.parametrize("name, own, b, x, words, near", CASES, ids=[case[0] for case in CASES])
def test_each_rule_finds_its_cause_and_not_what_is_nearly_that(name, own, b, x, words, near):
    x = x if isinstance(x, list) else [x]
    if name == "eps of GroupNorm":
        b = other(own, eps=1e-6)
    if name == "index":
        b, near = (lambda i, own=own: own(i + 1)), (lambda i, own=own: own(i + 1) * 1.001 + 0.001 * own(i))
    if name == "eps of the deviation":
        b, words = (lambda i, own=own, b=b: b(i) * own.weight + own.bias), "eps to the standard deviation"
    assert re.search(words, str(cause(own, b, *x)))
    if not isinstance(own, nn.Dropout):
        assert cause(own, own, *x) is None

    def spoiled(*x, b=b):  # the change, and another fault of a thousandth
        y = causes.first_tensor(b(*x))
        noise = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        return y + 1e-3 * (y.square().mean().sqrt() + 1) * noise

    assert not re.search(words, str(cause(own, spoiled, *x)))
    if near is not None:
        assert not re.search(words, str(cause(own, near, *x)))


def normalised(x, mean=causes.MEAN, std=causes.DEVIATION):
    return (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


IMAGE = torch.rand(2, 3, 20, 24)
INPUTS = [
    ("BGR", IMAGE, lambda x: x.flip(1), r"^B = A\.flip\(1\) \(RGB and BGR\)$", lambda x: x[:, [1, 0, 2]]),
    ("mirrored", IMAGE, lambda x: x.flip(3), r"^B = A\.flip\(3\)$", lambda x: x.flip(3).roll(1, 3)),
    ("NHWC", IMAGE, lambda x: x.permute(0, 2, 3, 1), r"^B = A\.permute\(0, 2, 3, 1\)$", lambda x: x.permute(0, 2, 3, 1).sqrt()),
    ("NHWC read as NCHW", IMAGE, lambda x: x.permute(0, 2, 3, 1).reshape(x.shape), r"permute\(0, 2, 3, 1\), read as",
     lambda x: x.permute(0, 2, 3, 1).reshape(x.shape).sqrt()),
    ("÷ 255", IMAGE * 255, lambda x: x / 255, r"^B = 3\.92157e-3 A \(÷ 255\)$", lambda x: x / 256),
    ("bytes", (IMAGE * 255).byte(), lambda x: x / 255, "÷ 255", lambda x: x / 255 + x.float() ** 2 / 1e6),
    ("2 x - 1", IMAGE, lambda x: 2 * x - 1, r"^B = 2 A - 1$", lambda x: 2 * x.sqrt() - 1),
    ("ImageNet", IMAGE, normalised, r"^B = \(A - mean\) / std with ImageNet's mean and std$",
     lambda x: normalised(x, std=(0.5, 0.5, 0.5))),
    ("ImageNet, not in B", normalised(IMAGE), lambda x: IMAGE, r"^A = \(B - mean\) / std", lambda x: IMAGE.sqrt()),
    ("BGR and ImageNet", IMAGE, lambda x: normalised(x.flip(1)), r"^B = \(A\.flip\(1\).* - mean\) / std", lambda x: normalised(x[:, [1, 2, 0]]).sqrt()),
    ("HWC bytes", (IMAGE * 255).byte().permute(0, 2, 3, 1), lambda x: x.permute(0, 3, 1, 2) / 255, r"A\.permute\(0, 3, 1, 2\).*÷ 255",
     lambda x: (x.permute(0, 3, 1, 2) / 255).sqrt()),
    ("Caffe", IMAGE, lambda x: normalised(x.flip(1) * 255, [255 * v for v in causes.MEAN[::-1]], (1, 1, 1)), "flip|BGR", lambda x: x.flip(1).sin()),
    ("by channel", IMAGE, lambda x: x * torch.tensor([1, 2, 3]).view(3, 1, 1), "factors 1, 2, 3, offsets", lambda x: x * torch.linspace(1, 2, 24)),
    ("bfloat16", IMAGE, lambda x: x.bfloat16().float(), "rounds output to bfloat16", lambda x: (x * 64).round() / 64),
    ("8 bits", IMAGE, lambda x: (x * 255).round() / 255, r"round\(255 A\) / 255", lambda x: (x * 254).round() / 254),
    ("resized", IMAGE, lambda x: F.interpolate(x, (10, 12), mode="bilinear"), "resized: bilinear$",
     lambda x: F.interpolate(x + 0.1, (10, 12), mode="bilinear")),
    ("order of a batch", torch.randn(5, 3, 8, 8), lambda x: x[[4, 2, 0, 1, 3]], "dim 0 in another order", lambda x: x[[4, 2, 0, 1, 1]] + 0.01 * x),
    ("a row that is there again", torch.randn(4, 8), lambda x: x[[0, 1, 0, 3]], r"^B repeats entries of A along dim 0: B\[2\] = A\[0\]$",
     lambda x: x[[0, 2, 1, 3]]),
    ("one row everywhere", torch.randn(6, 8), lambda x: x[[0] * 6], r"B\[1\] = A\[0\], B\[2\] = A\[0\], B\[3\] = A\[0\] and 2 others$", None),
    ("a constant", torch.randn(4, 8), lambda x: torch.full_like(x, 3), "^B is 3 everywhere$", None),
    ("nothing known", IMAGE, lambda x: torch.rand(x.shape), "^None$", None),
]  # fmt: skip


@pytest.mark.parametrize("name, a, b, words, near", INPUTS, ids=[case[0] for case in INPUTS])
def test_each_rule_finds_what_differs_in_the_input(name, a, b, words, near):
    found = causes.find_input(a, b(a)) or [None]
    assert re.search(words, str(found[0]))
    if near:
        assert not re.search(words, str((causes.find_input(a, near(a)) or [None])[0]))


def test_what_is_not_finite_has_a_place_and_a_sign():
    inf, nan = math.inf, math.nan
    for a, b, expected in (
        ([1, inf], [1, inf], 0), ([1, inf], [1, -inf], inf), ([inf, 1], [1, inf], inf), ([1, nan], [1, nan], 0),
        ([1, nan], [1, inf], inf), ([1e200] * 4, [5e199] * 4, 0.5), ([1e-200] * 4, [2e-200] * 4, 1), ([0, 0], [0, 0], 0),
    ):  # fmt: skip
        a, b = (torch.tensor(v, dtype=torch.float64) for v in (a, b))
        assert causes.distance(a, b) == pytest.approx(expected)


def test_a_search_that_ends_early_is_said():
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(causes, "SECONDS", -1)
        exact = copy.deepcopy(conv).double()
        assert causes.find(conv, [IMAGES], conv(IMAGES), [IMAGES], 2 * conv(IMAGES), exact, said=said) is None
    assert said == ["the search for a cause ended after -1 s"]


def test_some_numbers_stand_for_all_where_they_are_far():
    a = torch.randn(3, 8, 224, 224)
    assert a.numel() > causes.LARGE
    one = a.clone()
    one[1, 2, 3, 4] = 9
    for b, expected in (
        (a.transpose(2, 3).contiguous(), "B = A.permute(0, 1, 3, 2)"),
        (a.roll(1, 1) * (1 + 3e-8 * torch.randn_like(a)), "B = A.roll(1, 1) (off by one)"),
        (2 * a.transpose(2, 3) + 1, "B = 2 A.permute(0, 1, 3, 2) + 1"),
        (one, "one of 1204224 values differs, at [1, 2, 3, 4]"),
    ):
        assert expected in (causes.find_input(a, b) or ("",))[0]
    assert causes.find_input(a, a.sin()) is None


def test_names_of_the_sides():
    x = [IMAGES]
    found = causes.find(
        norm, x, norm(IMAGES), x, other(norm, eps=1e-3)(IMAGES), copy.deepcopy(norm).double(), "ours", "theirs"
    )
    assert found[0] == "eps is 1e-3 in theirs, 1e-5 in ours"
    assert found[1] < 1e-6
    assert causes.find_input(IMAGES, 2 * IMAGES, "ours", "theirs")[0] == "theirs = 2 ours"


def test_a_search_that_ends_in_time_is_said(monkeypatch):
    monkeypatch.setattr(causes, "SECONDS", 0)
    said = []
    assert causes.find_input(IMAGES, 2 * IMAGES.transpose(2, 3), said=said) is None
    assert said == ["the search for a cause ended after 0 s"]


def test_nothing_of_the_program_changes():
    batch = train(nn.Sequential(norm, nn.Dropout(0.5)))
    f = copy.deepcopy(batch).double()
    before, random = copy.deepcopy(f.state_dict()), torch.get_rng_state()
    x = IMAGES.clone()
    causes.find(batch, [x], batch(x), [x], norm(x), f)
    random_after = torch.get_rng_state()
    batch(x)
    assert not torch.equal(random, random_after)  # by the program's own calls only
    causes.find(batch, [x], norm(x), [x], 2 * norm(x), f)
    assert torch.equal(x, IMAGES)
    for name, tensor in f.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_other_types_and_what_cannot_be_run():
    double = copy.deepcopy(norm).double()
    found = causes.find(double, [IMAGES.double()], double(IMAGES.double()), [IMAGES.double()],
                        other(double, eps=1e-4)(IMAGES.double()), double)  # fmt: skip
    assert found[0] == "eps is 1e-4 in B, 1e-5 in A"
    half = copy.deepcopy(conv).bfloat16()
    x = IMAGES.bfloat16()
    found = causes.find(half, [x], half(x), [x], half(x).flip(3), copy.deepcopy(half).double())
    assert found[0] == "B = A.flip(3)"
    assert causes.find(conv, [TOKENS], TOKENS, [TOKENS], TOKENS, copy.deepcopy(conv).double()) is None
    nan = conv(IMAGES)
    nan[0, 0] = float("nan")
    assert causes.find(conv, [IMAGES], conv(IMAGES), [IMAGES], nan, copy.deepcopy(conv).double()) is None


class Rounded(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y.bfloat16().float() if y.dtype == torch.float32 else y


def test_either_side_can_be_the_one_that_is_wrong():
    rounded = Rounded(24, 24)
    rounded.load_state_dict(linear.state_dict())
    for a, b, said in (
        (linear, rounded, "B rounds output"),
        (rounded, linear, "A rounds output"),
        (linear, linear, None),
    ):
        file = io.BytesIO()
        with recording.Recorder(file, values={("", 0)}):
            b(TOKENS)
        call = {"path": "", "sample": 0, "other_path": "", "other_sample": 0}
        request = {"others": io.BytesIO(file.getvalue()), "suspects": [call]}
        asked = trial.Trial(request)
        with recording.Recorder(trial=asked):
            a(TOKENS * (1 + 1e-7))
        answer = asked.answer["suspects"][0]
        assert answer["proved"] == (said is not None)
        assert answer["cause"] == (said and said + " to bfloat16")
