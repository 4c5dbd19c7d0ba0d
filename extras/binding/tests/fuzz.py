"""Random models, recorders, threads, exceptions, copies and collections against PyTorch's own hooks: the same samples, outputs and
gradients, no crash, and no growth. A few rounds are in the suite; `fuzz.py ROUNDS SEED` runs as many as asked for."""

import copy
import gc
import os
import pickle
import random
import sys
import threading
import weakref

import torch
from torch import nn


class Stop(Exception):
    pass


class Moody(nn.Module):
    """Throws when it is told to, or is interrupted."""

    error = None

    def forward(self, x):
        if self.error is not None:
            raise self.error()
        return x + 1


class Holder(nn.Module):
    """Takes keyword arguments, and returns containers, None and what it was given."""

    def __init__(self, inner, how):
        super().__init__()
        self.inner, self.how = inner, how

    def forward(self, x):
        y = self.inner(x)
        return {"dict": {"y": y, "x": x}, "tuple": (y, None, y), "list": [x, (y,)], "tensor": y}[self.how]


class Around(nn.Module):
    """Gives a Holder's containers back as one tensor."""

    def __init__(self, holder):
        super().__init__()
        self.holder = holder

    def forward(self, x):
        y = self.holder(x=x)
        return (
            y["y"]
            if isinstance(y, dict)
            else y
            if isinstance(y, torch.Tensor)
            else y[-1][0]
            if isinstance(y, list)
            else y[0]
        )


WIDTH = 4


def model_of(rng, depth=0, shared=None):
    shared = [] if shared is None else shared
    kind = rng.choice(["linear", "relu", "inplace", "identity", "norm", "moody", "shared", "block", "around", "gelu"])
    if kind == "block" or depth == 0:
        made = nn.Sequential(*(model_of(rng, depth + 1, shared) for _ in range(rng.randint(1, 3 if depth else 4))))
    elif kind == "around" and depth < 3:
        made = Around(Holder(model_of(rng, depth + 1, shared), rng.choice(["dict", "tuple", "list", "tensor"])))
    elif kind == "shared" and shared:
        return rng.choice(shared)
    else:
        made = {
            "relu": nn.ReLU,
            "inplace": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)),
            "identity": nn.Identity,
            "norm": lambda: nn.LayerNorm(WIDTH),
            "moody": Moody,
            "gelu": nn.GELU,
        }.get(kind, lambda: nn.Linear(WIDTH, WIDTH))()
    shared.append(made)
    return made


def flat(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from flat(one)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from flat(one)
    elif value is None:
        yield None


class Adds:
    """A reduction that is a class of Python's, and changes what it got."""

    def __init__(self):
        self.total, self.last = torch.zeros(()), None

    def update(self, sample):
        self.total, self.last = self.total + sample.sum(), sample.mul_(2)

    def results(self):
        return {"total": self.total, "last": self.last}


class Plain:
    """What PyTorch's own hooks see of the first tensor of each call, or of parameters."""

    def __init__(self, model, kind):
        self.lock, self.seen = threading.Lock(), {path: [] for path, _ in model.named_modules()}
        self.handles = []
        if kind == "BackwardParameter":
            self.seen = {path: [] for path, _ in model.named_parameters()}
            for path, one in model.named_parameters():
                self.handles.append(one.register_hook(lambda grad, path=path: self.note(path, grad)))
            return
        for path, module in model.named_modules():
            if kind == "ForwardPre":
                handle = module.register_forward_pre_hook(
                    lambda m, args, kwargs, path=path: self.note(path, (args, kwargs)), with_kwargs=True
                )
            elif kind == "ForwardInput":
                handle = module.register_forward_hook(
                    lambda m, args, kwargs, out, path=path: self.note(path, (args, kwargs)), with_kwargs=True
                )
            elif kind == "ForwardOutput":
                handle = module.register_forward_hook(lambda m, args, out, path=path: self.note(path, out))
            else:
                handle = module.register_forward_hook(lambda m, args, out, path=path: self.watch(path, out))
            self.handles.append(handle)

    def note(self, path, value):
        first = next((one for one in flat(value)), None)
        if first is not None:
            with self.lock:
                self.seen[path].append(first.detach().clone())

    def watch(self, path, out):
        first = next((one for one in flat(out)), None)
        if first is not None and first.requires_grad:
            first.register_hook(lambda grad: self.note(path, grad))

    def remove(self):
        for handle in self.handles:
            handle.remove()


def step(model, x, error=None, moody=None):
    """The output and all gradients, or the error."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    if moody is not None:
        moody.error = error
    try:
        y = model(x * 1)  # an output that is a leaf is left out
        y.square().sum().backward()
    except (Stop, KeyboardInterrupt) as thrown:
        return [type(thrown).__name__]
    finally:
        if moody is not None:
            moody.error = None
    return [y.detach(), x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]


def same(a, b):
    return len(a) == len(b) and all(
        torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other for one, other in zip(a, b)
    )


def sorted_bits(tensors):
    """For samples whose order threads decide."""
    return sorted(one.contiguous().numpy().tobytes() for one in tensors)


def copied(rng, model):
    how = rng.choice(["deepcopy", "copy", "pickle"])
    if how == "pickle":
        return pickle.loads(pickle.dumps(model))
    return copy.deepcopy(model) if how == "deepcopy" else copy.copy(model)


def hooks_of(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


class Round:
    """`seed` makes the same one again."""

    def __init__(self, torchtap, seed):
        self.torchtap, self.rng = torchtap, random.Random(seed)
        torch.manual_seed(seed)
        self.model = model_of(self.rng)
        self.moody = next((m for m in self.model.modules() if isinstance(m, Moody)), None)
        self.log = []

    def check(self, right, *what):
        assert right, (self.log, *what, self.model)

    def steps(self):
        """Inputs, each with an error that its forward is to end with."""
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            error = rng.choice([None, None, Stop, KeyboardInterrupt]) if self.moody is not None else None
            yield torch.randn(rng.choice([1, 3]), WIDTH), error

    def run(self):
        rng, model = self.rng, self.model
        steps = list(self.steps())
        bare = [step(model, x, error, self.moody) for x, error in steps]
        kind = rng.choice(
            [
                "ForwardPre",
                "ForwardInput",
                "ForwardOutput",
                "BackwardOutput",
                "BackwardOutput",
                "BackwardInput",
                "BackwardParameter",
            ]
        )
        if kind == "BackwardParameter" and not list(model.parameters()):
            kind = "BackwardOutput"
        threads = rng.random() < 0.25 and kind.startswith("Forward")
        self.log = [kind, "threads" if threads else "", [error and error.__name__ for _, error in steps]]
        plain = Plain(model, kind) if kind != "BackwardInput" else None
        box, wanted = [], {"on": True}
        options = self.options(box, wanted)
        recorder = self.recorder = getattr(self.torchtap, kind)(**options).attach(model)
        box.append(weakref.ref(recorder))
        others = [
            getattr(self.torchtap, rng.choice(["ForwardPre", "ForwardOutput"]))(reduction=self.torchtap.Count()).attach(
                model
            )
            for _ in range(rng.randint(0, 2))
        ]
        if threads:
            self.in_threads(steps)
        else:
            got = [step(model, x, error, self.moody) for x, error in steps]
            close = kind == "BackwardInput"  # sums in another order
            for one, other in zip(bare, got):
                right = same(one, other) if not close else len(one) == len(other)
                self.check(right, "results differ")
        if plain is not None and not options.keys() - {"condition"}:
            self.compare(recorder, plain, threads)
        if plain is not None:
            plain.remove()
        if rng.random() < 0.4:
            self.copies(recorder, steps)
        if rng.random() < 0.3 and others:
            others.pop()
            gc.collect()
        del recorder
        self.end(others, steps, bare)

    def options(self, box, wanted):
        """Options of a recorder whose callables refer to it, or to objects that do."""
        rng, torchtap = self.rng, self.torchtap
        choice = rng.choice(
            ["keep", "keep", "condition", "sum", "moments", "callable", "transform", "quantiles", "object"]
        )
        self.log.append(choice)
        if choice == "condition":
            return {"condition": lambda: bool(box) and wanted["on"] and box[0]() is not None}
        if choice == "transform":
            return {"transform": lambda t: t.detach() * 2 if not box or box[0]() is None else t * box[0]().samples(0)}
        return {
            "sum": {"reduction": torchtap.Sum(over_all=True)},
            "moments": {"reduction": torchtap.Moments(over=[0])},
            "callable": {"reduction": torchtap.any_shape(lambda a, b: a.sum() + b.sum())},
            "quantiles": {"reduction": torchtap.Quantiles(over_all=True)},
            "object": {"reduction": Adds()},
        }.get(choice, {})

    def in_threads(self, steps):
        errors = []

        def work(x):
            try:
                with torch.no_grad():
                    self.model(x)
            except Exception as error:
                errors.append(error)

        workers = [threading.Thread(target=work, args=(x,)) for x, _ in steps for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.check(not errors, errors)

    def compare(self, recorder, plain, threads):
        for one in recorder.subrecorders:
            samples, expected = one.value or [], plain.seen[one.path]
            for alias in one.aliases:
                expected = expected or plain.seen.get(alias, [])
            self.check(len(samples) == len(expected), one.path, one.type, len(samples), len(expected), one.note)
            if threads:
                self.check(sorted_bits(samples) == sorted_bits(expected), one.path, one.type)
            else:
                self.check(all(torch.equal(a, b) for a, b in zip(samples, expected)), one.path, one.type)

    def copies(self, recorder, steps):
        before = list(recorder.iter_samples())
        twin = copied(self.rng, self.model)
        if isinstance(twin, nn.Module) and twin._modules is not self.model._modules:  # a shallow copy shares modules
            shared = {id(m) for m in self.model.modules()}
            if not any(id(m) in shared for m in twin.modules()):
                for x, _ in steps:
                    twin(x)
                self.check(list(recorder.iter_samples()) == before, "a copy was recorded")

    def end(self, others, steps, bare):
        recorder = self.__dict__.pop("recorder")
        how = self.rng.choice(["detach", "delete", "remove"])
        self.log.append(how)
        if how == "detach":
            recorder.detach()
        elif how == "remove":
            while len(recorder):
                recorder.remove(0)
        for one in others:
            one.detach()
        gone = weakref.ref(recorder)
        del recorder
        others.clear()
        gc.collect()
        self.check(gone() is None, "the recorder is not collected")
        self.check(hooks_of(self.model) == 0, "hooks are left")
        self.check(not any(one._backward_hooks for one in self.model.parameters()), "hooks of parameters are left")
        self.check(same(step(self.model, steps[0][0]), step(self.model, steps[0][0])), "results differ afterwards")
        if steps[0][1] is None:
            self.check(same(step(self.model, steps[0][0]), bare[0]), "results are others afterwards")


def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def state():
    """Megabytes of the process, and objects that Python's collector knows."""
    gc.collect()
    return memory(), len(gc.get_objects())


def fuzz(torchtap, rounds, seed):
    """Returns by how much the process grew after the first rounds: in megabytes, and in objects."""
    torch.set_num_threads(1)
    first = None
    for number in range(rounds):
        try:
            Round(torchtap, seed * 1_000_003 + number).run()
        except BaseException:
            print(f"round {number} of seed {seed}", file=sys.stderr)
            raise
        if number in (5, 50, 500):
            # Rounds collect several times what they left, and need not look at all of PyTorch's objects, which come with the first.
            gc.collect()
            gc.freeze()
        if number == min(500, rounds // 4):
            first = state()
        if number % 500 == 499:
            print(f"{number + 1} rounds of seed {seed}, {memory():.0f} MB", file=sys.stderr, flush=True)
    grown = tuple(now - then for now, then in zip(state(), first or state()))
    gc.unfreeze()
    return grown


def test_a_few_rounds():
    import built

    _, objects = fuzz(built.torchtap, 60, 1)
    assert objects < 60


if __name__ == "__main__":
    import built

    megabytes, objects = fuzz(built.torchtap, int(sys.argv[1]), int(sys.argv[2]))
    print(f"{sys.argv[1]} rounds, grown by {megabytes:.1f} MB and {objects} objects")
    sys.exit(megabytes > 20 or objects > 100)
