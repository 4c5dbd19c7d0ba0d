"""What recorders of torchtap add to a call in Python, beside PyTorch's own hooks; and folding, beside PyTorch's operations.

usage: recorders.py    in an environment with torchtap (extras/binding/README.md)"""

import time

import torch
import torchtap


class Pass(torch.nn.Module):
    def forward(self, x):
        return x


def with_sum(module):
    sums = {}

    def add(module, args, output):
        sums["of"] = sums["of"] + output if sums else output.clone()

    module.register_forward_hook(add)


def with_recorder(kind, **options):
    # Below a model, as modules are; its own forwards are counted by a hook of theirs.
    return lambda module: kind(**options).attach(torch.nn.Sequential(module), "0")


def four(**rows):
    return torchtap.Series(*(one(**rows) for one in (torchtap.Moments, torchtap.Min, torchtap.Max, torchtap.Count)))


CALLS = {
    "no hook": lambda module: None,
    "an empty hook": lambda module: module.register_forward_hook(lambda module, args, output: None),
    "an empty hook before forward": lambda module: module.register_forward_pre_hook(
        lambda module, args, kwargs: None, with_kwargs=True
    ),
    "a hook with `sum += output`": with_sum,
    "`ForwardOutput`, a condition that says no": with_recorder(torchtap.ForwardOutput, condition=lambda: False),
    "`ForwardOutput(reduction=Sum())`": with_recorder(torchtap.ForwardOutput, reduction=torchtap.Sum(over=[0])),
    "`ForwardOutput(reduction=Moments())`": with_recorder(torchtap.ForwardOutput, reduction=torchtap.Moments(over=[0])),
    "`ForwardPre(reduction=Sum())`": with_recorder(torchtap.ForwardPre, reduction=torchtap.Sum(over=[0])),
    "`ForwardPre(reduction=Moments())`": with_recorder(torchtap.ForwardPre, reduction=torchtap.Moments(over=[0])),
    "a `Series` of `Moments`, `Min`, `Max`, `Count`": with_recorder(torchtap.ForwardOutput, reduction=four(over=[0])),
}


def written_by_hand(x, dims):
    return (x.sum(dims), torch.var_mean(x, dims), x.amin(dims), x.amax(dims), x.isnan().sum(), (x == 0).sum())


def fastest(function, rounds, calls):
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, (time.process_time() - begin) / calls)
    return best


def main():
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    x = torch.randn(1, 100)
    modules = {name: Pass() for name in CALLS}
    kept = [attach(modules[name]) for name, attach in CALLS.items()]
    takes = dict.fromkeys(CALLS, float("inf"))
    for _ in range(10):  # in turns
        for name, module in modules.items():
            takes[name] = min(takes[name], fastest(lambda module=module: module(x), 1, 20000))
    print("| `[1, 100]` | a call takes | longer by | of an empty hook |\n|---|---|---|---|")
    bare = takes["no hook"]
    for name, seconds in takes.items():
        times = (seconds - bare) / (takes["an empty hook"] - bare)
        print(f"| {name} | {1e9 * seconds:.0f} ns | {1e9 * (seconds - bare):.0f} ns | {times:.2f} × |")
    print("\n| `[32, 64, 56, 56]`: moments, extrema, counts | torchtap | PyTorch's operations | |\n|---|---|---|---|")
    x = torch.randn(32, 64, 56, 56)
    for name, dims in (("of each channel", [0, 2, 3]), ("of all elements", [0, 1, 2, 3])):
        series = four(over=dims)
        ours, theirs = (fastest(f, 7, 1) for f in (lambda s=series: s.update(x), lambda d=dims: written_by_hand(x, d)))
        print(f"| {name} | {1e3 * ours:.2f} ms | {1e3 * theirs:.1f} ms | {theirs / ours:.0f} × |")
    del kept


if __name__ == "__main__":
    main()
