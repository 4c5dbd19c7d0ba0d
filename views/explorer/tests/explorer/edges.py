"""Writes which data flows between the modules of the TorchScript tests' models, found without torchtap: tensors carry
the set of ports that they were computed from, as a subclass that overrides torch functions, and hooks give a call's
inputs and outputs sets of their own.

usage: edges.py MODELS DIRECTORY     MODELS: where tests/script/models.py wrote its models; DIRECTORY/NAME.edges has a line
                                     for each edge, as edges_of in support.hpp makes it, DIRECTORY/NAME.script.pt and
                                     .trace.pt are further models
"""

import pathlib
import sys
import warnings

import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "tests/script"))
import models  # noqa: E402

warnings.filterwarnings("ignore")
SHAPES_ONLY = ("zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones")


def tensors(value):
    return [one for one in models.flat(value) if one is not None]


class Tagged(torch.Tensor):
    """A tensor with `tags`, the ports that it was computed from."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        name = getattr(function, "__name__", "")
        if name in SHAPES_ONLY:
            return result
        found = set()
        for tensor in tensors([args, list((kwargs or {}).values())]):
            found |= getattr(tensor, "tags", set())
        for tensor in tensors(result):
            if isinstance(tensor, Tagged):
                tensor.tags = found
        in_place = name.endswith("_") and not name.endswith("__") or name in ("__iadd__", "__imul__", "__setitem__")
        if in_place and isinstance(args[0], Tagged):
            args[0].tags = found
        return result


def tagged(value, call):
    """The same with new tensors, which come from the ports of a call."""
    port = -1

    def walk(part):
        nonlocal port
        if isinstance(part, torch.Tensor):
            port += 1
            with torch._C.DisableTorchFunction():
                alias = part.view_as(part).as_subclass(Tagged)
            alias.tags = {(call, port)}
            return alias
        if part is None:
            port += 1
        if isinstance(part, dict):
            return {key: walk(one) for key, one in part.items()}
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return type(part)(*[walk(one) for one in part])
        if isinstance(part, (tuple, list)):
            return type(part)(walk(one) for one in part)
        return part

    return walk(value)


def edges_of(model, arguments):
    edges, running, calls = set(), [], {}

    def name(call, whole):
        path, number = call
        text = "net" if not path else path if whole else path.rsplit(".", 1)[-1]
        return f"{text}#{number}" if number else text

    def flow(caller, value, to, at):
        for port, tensor in enumerate(models.flat(value)):
            for source, out in getattr(tensor, "tags", set()):
                begin = f"In{out}" if source == caller else f"{name(source, False)}.{out}"
                end = f"Out{port}" if to == caller else f"{at}.{port}"
                edges.add(f"{name(caller, True)}: {begin} -> {end}")

    def before(path):
        def hook(module, arguments):
            calls[path] = calls.get(path, -1) + 1
            call = (path, calls[path])
            if running:
                flow(running[-1], arguments, call, name(call, False))
            running.append(call)
            return tagged(arguments, call)

        return hook

    def after(module, arguments, result):
        call = running[-1]
        flow(call, result, call, "")
        running.pop()
        return tagged(result, call)

    for path, module in model.named_modules():
        module.register_forward_pre_hook(before(path))
        module.register_forward_hook(after)
    model(*arguments)
    return edges


class Mixed(torch.nn.Module):
    """Several inputs and outputs by name, parts of tensors, tensors that are written in place."""

    def __init__(self):
        super().__init__()
        self.left = torch.nn.Linear(4, 4)
        self.right = torch.nn.Linear(4, 4)
        self.act = torch.nn.ReLU(inplace=True)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor, y: torch.Tensor):
        both = torch.cat([self.left(x), self.right(y)], 1)
        normed = self.norm(both)
        first, second = normed.chunk(2, dim=1)
        first = self.act(first * 1)
        total = self.left(first)
        total += second
        return {"total": self.act(total), "first": first, "count": torch.ones_like(x) + y.sum()}


class Gates(torch.nn.Module):
    """The cell of a recurrent net, whose gates are parts of one tensor and change in place."""

    def __init__(self):
        super().__init__()
        self.gates = torch.nn.Linear(4, 12)
        self.left = torch.nn.Linear(4, 4)
        self.right = torch.nn.Linear(4, 4)
        self.cell = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor):
        gates = self.gates(x)
        i, f, o = gates[:, 0:4], gates[:, 4:8], gates[:, 8:12]
        i.sigmoid_()
        i.mul_(self.left(x))
        f.tanh_()
        f.add_(self.right(y))
        return {"i": self.cell(i), "f": self.cell(f), "o": self.cell(o), "both": i + f}


def main():
    given, to = map(pathlib.Path, sys.argv[1:])
    to.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    known = {
        "resnet18": torchvision.models.resnet18(weights=None),
        "mobilenet": torchvision.models.mobilenet_v3_small(weights=None),
        "transformer": models.Transformer(),
        "tagger": models.Tagger(),
        "detector": models.Detector(),
        "values": models.Values(),
        "siamese": models.Siamese(),
    }
    for name, model in known.items():
        model.load_state_dict(torch.jit.load(given / f"{name}.script.pt").state_dict())
        arguments = torch.jit.load(given / f"{name}.arguments.pt").arguments
        (to / f"{name}.edges").write_text("\n".join(sorted(edges_of(model.eval(), arguments))))
    new = {
        "shufflenet": (torchvision.models.shufflenet_v2_x0_5(weights=None), (torch.randn(2, 3, 64, 64),)),
        "mixed": (Mixed(), (torch.randn(3, 4), torch.randn(3, 4))),
        "gates": (Gates(), (torch.randn(3, 4), torch.randn(3, 4))),
    }
    for name, (model, arguments) in new.items():
        model.eval()
        torch.jit.script(model).save(str(to / f"{name}.script.pt"))
        torch.jit.trace(model, arguments, check_trace=False, strict=False).save(str(to / f"{name}.trace.pt"))
        torch.jit.script(models.Arguments(arguments)).save(str(to / f"{name}.arguments.pt"))
        (to / f"{name}.edges").write_text("\n".join(sorted(edges_of(model, arguments))))


if __name__ == "__main__":
    main()
