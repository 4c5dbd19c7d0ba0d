"""Records the output of every module of a PyTorch model for `torchtap diff`, `show` and `convert`.

    with record_folder(model, "original"):
        model(images)

Writes `names.json`, the paths of the modules that ran, and for the i-th of them `i.pt`, a list with the first tensor of
each call's result, as in torchtap's recorders. `calls.json` has the i of each call in order of return.
"""

import contextlib
import json
import os

import torch


def first_tensor(value):
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((tensor for tensor in map(first_tensor, values) if tensor is not None), None)


@contextlib.contextmanager
def record_folder(model, folder):
    os.makedirs(folder)
    outputs, calls = {}, []

    def hook(name):
        def keep(module, inputs, output):
            outputs.setdefault(name, []).append(first_tensor(output))
            calls.append(list(outputs).index(name))

        return keep

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for i, tensors in enumerate(outputs.values()):
        torch.save(tensors, os.path.join(folder, f"{i}.pt"))
    for name, content in (("names", list(outputs)), ("calls", calls)):
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump(content, file)
