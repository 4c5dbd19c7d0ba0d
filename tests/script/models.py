"""Writes the models of the TorchScript tests, and the tensors that Python's own hooks see.

For each model NAME: NAME.script.pt and, where it can be traced, NAME.trace.pt; NAME.arguments.pt, a module whose
attribute `arguments` is the tuple of inputs; and NAME.expected.pt, a dict from "KIND PATH#CALL#SLOT" to a tensor. KIND
is pre (inputs), out (outputs), gout (gradient with respect to an output) or gin (to an input, through this module).

usage: models.py DIRECTORY
"""

import pathlib
import sys
import warnings
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
import torchvision
from torch import Tensor, nn

warnings.filterwarnings("ignore")


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(tokens)))


class Tagger(nn.Module):
    """Loops and conditionals that depend on data."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.cell = nn.LSTMCell(8, 12)
        self.refine = nn.ModuleList([nn.Linear(12, 12), nn.Linear(12, 12)])
        self.rare = nn.Linear(12, 12)
        self.context = nn.LSTM(12, 6, bidirectional=True)
        self.tag = nn.Linear(12, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embed(tokens)
        h = torch.zeros(tokens.size(1), 12)
        c = torch.zeros(tokens.size(1), 12)
        states: List[Tensor] = []
        for t in range(tokens.size(0)):
            h, c = self.cell(embedded[t], (h, c))
            out = h
            if bool(h.sum() > 0):
                out = self.rare(out)
            else:
                for layer in self.refine:
                    out = torch.tanh(layer(out))
            steps = 0
            while steps < 2 and bool(out.abs().max() > 0.2):
                out = self.rare(out) * 0.5
                steps += 1
            states.append(out)
        hidden, _ = self.context(torch.stack(states))
        return self.tag(hidden)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, stride=2)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2)

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        low = torch.relu(self.conv1(x))
        return {"low": low, "high": torch.relu(self.conv2(low))}


class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.regress = nn.Linear(8, 4)
        self.classify = nn.Linear(8, 3)

    def forward(self, maps: Dict[str, Tensor], sizes: List[Tuple[int, int]]) -> List[Dict[str, Tensor]]:
        features = maps["high"].mean(dim=[2, 3])
        boxes = self.regress(features)
        scores = self.classify(features).softmax(-1)
        found: List[Dict[str, Tensor]] = []
        for i, size in enumerate(sizes):
            keep = scores[i] > 0.2
            found.append({"boxes": boxes[i] * size[0], "scores": scores[i][keep], "labels": keep.nonzero()})
        return found


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.heads = nn.ModuleDict({"boxes": Boxes()})

    def forward(self, images: List[Tensor]) -> List[Dict[str, Tensor]]:
        sizes = [(int(image.size(1)), int(image.size(2))) for image in images]
        maps = self.backbone(torch.stack(images))
        return self.heads["boxes"](maps, sizes)


class Parts(NamedTuple):
    total: Tensor
    mask: Optional[Tensor]
    rest: List[Tensor]


class Join(nn.Module):
    def forward(self, x: Tensor, mask: Optional[Tensor], rest: List[Tensor]) -> Parts:
        total = x
        for other in rest:
            total = total + other
        if mask is not None:
            total = total * mask
        return Parts(total, mask, rest)


class Pair(nn.Module):
    """Calls one module twice, which tracing turns into forward and forward1."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.inner(x * 2)


class Values(nn.Module):
    """None, optionals, named tuples, several calls, another method."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.blocks = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), Pair(nn.Sequential(nn.Linear(6, 6), nn.Tanh())))
        self.join = Join()

    def forward(self, x: Tensor, state: Tuple[Tensor, Optional[Tensor]], named: Dict[str, Tensor]) -> Parts:
        x = self.first(x) + state[0]
        half = self.join(x, state[1], [named["a"]])
        x = self.blocks(half.total)
        return self.join(x, named["mask"], [named["a"], named["b"]])

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return self.blocks(self.first(x))


class Siamese(nn.Module):
    """For tracing: tensors only."""

    def __init__(self):
        super().__init__()
        self.pair = Pair(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
        self.twin = Pair(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))

    def forward(self, x: Tensor) -> Tensor:
        return self.twin(self.pair(x)) + self.pair(x)


class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(6, 6)
        self.right = nn.Linear(6, 6)
        self.last = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        left = torch.jit.fork(self.left, x)
        right = torch.jit.fork(self.right, x * 2)
        return self.last(torch.jit.wait(left) + torch.jit.wait(right))


def shift(self, given: Tuple[Tensor]) -> Tuple[Tensor]:
    return (given[0] + 1,)


def stretch(self, given: Tuple[Tensor]) -> Tensor:
    return given[0] * 3


def double(self, given: Tuple[Tensor], returned: Tensor) -> Tensor:
    return returned * 2


def add_input(self, given: Tuple[Tensor], returned: Tensor) -> Tensor:
    return returned + given[0]


def look(self, given: Tuple[Tensor], returned: Tensor) -> None:
    assert returned.numel() > 0


def once_more(self, given: Tuple[Tensor], returned: Tensor) -> Tensor:
    return self.fc(returned)


def swap(self, given: Tuple[Tensor, int], returned: Tuple[Tensor, Optional[Tensor]]) -> Tuple[Tensor, Optional[Tensor]]:
    return returned[0] * given[1], returned[0] + 1


class Halves(nn.Module):
    """Takes a number, and returns a tuple."""

    def forward(self, x: Tensor, by: int) -> Tuple[Tensor, Optional[Tensor]]:
        return x / by, None


class Wrapped(nn.Module):
    def __init__(self, *hooks, pre=()):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        for hook in pre:
            self.register_forward_pre_hook(hook)
        for hook in hooks:
            self.register_forward_hook(hook)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.fc(x))


class Hooked(nn.Module):
    """Modules with hooks of which torch.jit.script makes code of their callers."""

    def __init__(self, *hooks, pre=()):
        super().__init__()
        self.before = Wrapped(pre=(shift, stretch))
        self.after = Wrapped(double, add_input, look)
        self.both = Wrapped(add_input, double, pre=(shift,))
        self.silent = Wrapped(look)
        self.again = Wrapped(once_more)
        self.halves = Halves()
        self.halves.register_forward_hook(swap)
        inner = Wrapped(double)
        inner.fc.register_forward_hook(double)
        inner.fc.register_forward_pre_hook(shift)
        self.nested = nn.Sequential(inner, nn.ReLU())
        self.nested.register_forward_hook(double)
        self.list = nn.ModuleList([Wrapped(double), Wrapped(), Wrapped(pre=(shift,))])
        # Of one operation: the guard that turns LibTorch's optimizer off does not reach the thread of a fork.
        self.forked = nn.Linear(6, 6)
        self.forked.register_forward_pre_hook(shift)
        self.forked.register_forward_hook(double)
        for hook in pre:
            self.register_forward_pre_hook(hook)
        for hook in hooks:
            self.register_forward_hook(hook)

    def forward(self, x: Tensor) -> Tensor:
        forked = torch.jit.fork(self.forked, x)
        x = self.after(self.before(x))
        for layer in self.list:
            x = layer(x)
        for i in range(2):
            x = self.both(x) if i == 0 else self.both(self.silent(x))
        half, rest = self.halves(x, 4)
        if rest is not None:
            half = half + rest
        return self.nested(self.again(half)) + torch.jit.wait(forked)


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        pass


class Interfaced(nn.Module):
    layer: Layer

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.forward(x) + 1


class Arguments(nn.Module):
    def __init__(self, arguments):
        super().__init__()
        self.arguments = arguments

    def forward(self):
        return self.arguments


def flat(value):
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from flat(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from flat(part)
    elif value is None:
        yield None


def observed(model, arguments, with_gradients):
    seen = {}
    calls = {}

    def note(kind, name, call, values):
        for slot, value in enumerate(values):
            if value is not None:
                seen[f"{kind} {name}#{call}#{slot}"] = value.detach().clone()

    def pre_hook(name):
        def hook(module, given):
            call = calls[name] = calls.get(name, -1) + 1
            note("pre", name, call, flat(given))
            if not with_gradients:
                return None
            aliases = []
            for slot, value in enumerate(given):
                if isinstance(value, Tensor) and value.requires_grad:
                    value = value.view_as(value)
                    value.register_hook(lambda g, slot=slot, call=call: note("gin", f"{name}#{call}#{slot}", 0, [g]))
                aliases.append(value)
            return tuple(aliases)

        return hook

    def hook(name):
        def hook(module, given, returned):
            call = calls[name]
            note("out", name, call, flat(returned))
            if with_gradients:
                for slot, value in enumerate(flat(returned)):
                    if value is not None and value.requires_grad:
                        value.register_hook(
                            lambda g, slot=slot, call=call: note("gout", f"{name}#{call}#{slot}", 0, [g])
                        )

        return hook

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(pre_hook(name)))
        handles.append(module.register_forward_hook(hook(name)))
    result = model(*arguments)
    if with_gradients:
        sum(part.sum() for part in flat(result) if part is not None and part.requires_grad).backward()
    for handle in handles:
        handle.remove()
    # "gin PATH#CALL#SLOT#0#0" becomes "gin PATH#CALL#SLOT".
    return {key[:-4] if key.startswith("g") else key: value for key, value in seen.items()}


def write(directory, name, model, arguments, trace=False, script=True, gradients=False):
    model = model.eval()
    if script:
        torch.jit.script(model).save(f"{directory}/{name}.script.pt")
    if trace:
        torch.jit.trace(model, arguments, check_trace=False).save(f"{directory}/{name}.trace.pt")
    torch.jit.script(Arguments(arguments)).save(f"{directory}/{name}.arguments.pt")
    seen = observed(model, arguments, False)
    if gradients:
        # Apart: what hooks of gradients pass on is not the tensor that came, and attention multiplies three tensors that are
        # one in another way than three tensors, with other rounding on some processors.
        seen.update({key: value for key, value in observed(model, arguments, True).items() if key.startswith("g")})
    torch.save(seen, f"{directory}/{name}.expected.pt")


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    image = torch.randn(2, 3, 64, 64)
    resnet = torchvision.models.resnet18(weights=None)
    write(directory, "resnet18", resnet, (image,), trace=True)
    torch.jit.freeze(torch.jit.script(resnet)).save(f"{directory}/resnet18.frozen.pt")
    write(directory, "mobilenet", torchvision.models.mobilenet_v3_small(weights=None), (image,), trace=True)
    write(directory, "transformer", Transformer(), (torch.randint(50, (2, 7)),), gradients=True)
    write(directory, "tagger", Tagger(), (torch.randint(30, (6, 3)),), gradients=True)
    write(directory, "detector", Detector(), ([torch.randn(3, 32, 32), torch.randn(3, 32, 32)],))
    x = torch.randn(4, 6)
    write(
        directory,
        "values",
        Values(),
        (x, (torch.randn(4, 6), None), {"a": torch.randn(4, 6), "b": torch.randn(4, 6), "mask": torch.ones(4, 6)}),
    )
    write(directory, "siamese", Siamese(), (x,), trace=True, gradients=True)
    # Older versions write a file that they cannot load if it contains a convolution.
    torch.jit.optimize_for_inference(torch.jit.script(Siamese().eval())).save(f"{directory}/siamese.optimized.pt")
    write(directory, "forked", Forked(), (x,))
    write(directory, "hooked", Hooked(), (x,), gradients=True)
    root = Hooked(double, add_input, pre=(shift,)).eval()
    torch.jit.script(root).save(f"{directory}/hooked_root.script.pt")
    write(directory, "interfaced", Interfaced(), (x,))


if __name__ == "__main__":
    main()
