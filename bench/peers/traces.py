#!/usr/bin/env python3
"""Compares what torchtap.trace and TorchLens log of the same forward, call by call and tensor by tensor.

usage: traces.py [-v] [TESTS]      in an environment with torchtap and its view trace, torchlens and torchvision; for TESTS also pytest

The models are those of TorchLens' package (`torchlens.visualization.lenses.audit.corpus`), torchvision's MobileNets and, with TESTS, the
folder `tests` of a clone of TorchLens, those of its `test_toy_models.py`, with their inputs. Both tools run a model from the same random
numbers. TorchLens logs calls of Python's functions, torchtap the operators that PyTorch dispatches. So names are brought to one form, and a
call may be several operators: an index in Python is views, an assignment to one is views and a copy. What neither inputs, outputs,
parameters nor buffers are connected with is left out, as TorchLens does.

A model agrees in operations if each call of TorchLens' log is found in torchtap's, in the same order, and all else that torchtap has is part
of such a call; in tensors if what each call returned has the same bits in both.
Prints a row for each model that does not agree, with what differs first, then the counts; with `-v`, a row for each model.
"""

import copy
import inspect
import os
import sys
import warnings

import torch
import torchlens
import torchtap
from torchlens.options import CaptureOptions

# What Python calls otherwise than the operator.
NAMES = {"truediv": "div", "T": "numpy_T", "invert": "bitwise_not", "floordiv": "floor_divide", "mod": "remainder"}
NAMES |= {"type": "to", "from_numpy": "lift_fresh", "concat": "cat"}
# A call that is several operators, the last of which made what it returns.
SEVERAL = {
    "new": {"empty", "to", "lift_fresh"},
    "getitem": {"select", "slice", "unsqueeze", "index", "alias", "lift_fresh", "to"},
    "setitem": {"select", "slice", "unsqueeze", "view", "expand", "lift_fresh", "to", "copy", "fill", "index_put"},
}


def call_name(call):
    name = call.func_name
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        if name[0] in "ri" and name[1:] in ("add", "mul", "sub", "truediv", "pow", "matmul"):
            name = name[1:]
    return NAMES.get(name, name).rstrip("_")


def operator_name(node):
    name = node.function.partition("::")[2].partition(".")[0]
    return NAMES.get(name, name).strip("_")


def same_bits(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (one.detach().resolve_conj().resolve_neg().contiguous().reshape(-1) for one in (a, b))
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def connected(history):
    """The operations that inputs, outputs, parameters or buffers are connected with, in any direction."""
    found = {one.position: one for one in history if one.kind in ("input", "output") or one.parameters}
    front = list(found.values())
    while front:
        one = front.pop()
        for other in (*one.parents, *one.children):
            if other.position not in found:
                found[other.position] = other
                front.append(other)
    return [found[one] for one in sorted(found) if found[one].kind == "operation"]


def compared(model, args, kwargs):
    """What differs in operations and in tensors, and how many calls TorchLens logged."""
    again = copy.deepcopy(model)  # as a forward in training writes to buffers
    torch.manual_seed(0)
    lens = torchlens.trace(
        model, list(args), kwargs or None, capture=CaptureOptions(layers_to_save="all", random_seed=0)
    )
    torch.manual_seed(0)
    history = torchtap.trace(again, *args, **kwargs)
    # An "identity" is a module that returned what it got, which is no operation.
    calls = [
        one for one in lens.ops if not (one.is_input or one.is_output or one.is_buffer or one.func_name == "identity")
    ]
    nodes = connected(history)
    operations, tensors, left, at = [], [], [], 0
    for call in calls:
        name = call_name(call)
        parts = SEVERAL.get(name, {name})
        begin = at
        while begin < len(nodes) and operator_name(nodes[begin]) not in parts:
            begin += 1
        if begin == len(nodes):
            operations.append(f"torchtap has no {call.label} ({call.func_name})")
            continue
        left += nodes[at:begin]
        at = begin + 1
        while name in SEVERAL and at < len(nodes) and operator_name(nodes[at]) in parts:
            if name == "getitem" and nodes[at - 1] not in nodes[at].parents:
                break
            at += 1
            if operator_name(nodes[at - 1]) in ("copy", "fill", "index_put"):
                break
        mine = nodes[at - 1]
        if name != "setitem" and not same_bits(call.out, mine.tensor):  # an assignment returns nothing
            tensors.append(f"{call.label} ({call.func_name}) is not {mine.label}")
    left += nodes[at:]
    operations += [f"TorchLens has no {one.label} ({one.function})" for one in left]
    if not (found := history.validate()):
        operations.append(f"not valid: {found}")
    return operations, tensors, len(calls)


class Calls:
    """Stands in for the functions of TorchLens that its tests call: compares the model of each test once."""

    def __init__(self):
        self.rows, self.test = {}, ""

    def pytest_runtest_setup(self, item):
        self.test = item.name

    def __call__(self, model, input_args=None, input_kwargs=None, *_, **__):
        args = input_args if isinstance(input_args, (list, tuple)) else [] if input_args is None else [input_args]
        if isinstance(args, tuple) and len(inspect.signature(model.forward).parameters) == 1 < len(args):
            args = [args]
        if self.test not in self.rows:
            self.rows[self.test] = row(model, tuple(args), input_kwargs or {})
        return True


def row(model, args, kwargs):
    try:
        return compared(model, args, kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def of_package():
    from torchlens.visualization.lenses.audit.corpus import CORPUS

    return {one.name: row(model, (x,), {}) for one in CORPUS for model, x in [one.build()]}


def mobilenets():
    from torchvision import models

    made = {}
    for name in ("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"):
        for training in (False, True):
            torch.manual_seed(0)
            model = getattr(models, name)().train(training)
            made[name + ", training" * training] = row(model, (torch.randn(2, 3, 96, 96),), {})
    return made


def of_tests(folder):
    import pytest

    calls = Calls()
    for name in ("log_forward_pass", "validate_forward_pass", "show_model_graph", "get_model_metadata"):
        setattr(torchlens, name, calls)
    sys.path.insert(0, folder)
    pytest.main(
        [os.path.join(folder, "test_toy_models.py"), "-q", "--tb=no", "--no-header", "-W", "ignore"], plugins=[calls]
    )
    return calls.rows


def main(arguments):
    says_all = "-v" in arguments
    tests = [one for one in arguments if one != "-v"]
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    groups = {"TorchLens' package": of_package(), "torchvision": mobilenets()}
    if tests:
        groups["TorchLens' tests"] = of_tests(os.path.abspath(tests[0]))
    print("| models | run in both | calls | agree in operations | in tensors |\n|---|---|---|---|---|")
    for group, rows in groups.items():
        ran = [one for one in rows.values() if not isinstance(one, str)]
        counts = [len(ran), sum(one[2] for one in ran), *(sum(not one[i] for one in ran) for i in (0, 1))]
        print(f"| {group}, {len(rows)} | " + " | ".join(map(str, counts)) + " |")
    for rows in groups.values():
        for name, one in rows.items():
            if isinstance(one, str):
                print(f"{name}: {one}")
            elif one[0] or one[1] or says_all:
                print(f"{name}: {one[2]} calls; " + "; ".join([*one[0][:3], *one[1][:3]]))


if __name__ == "__main__":
    main(sys.argv[1:])
