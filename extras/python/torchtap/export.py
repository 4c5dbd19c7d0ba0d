"""Taps for models that AOTInductor compiles, from which torchtap::exported records in C++.

    import torch, torchtap.export as tt

    with tt.tapped(model, names=["layer*"], types=["Conv2d"]):
        exported = torch.export.export(model, args, strict=False)
    tt.compile(exported, package_path="m.pt2")

Needs PyTorch 2.6 or newer and libtorchtap_taps.so. That library is searched for beside this file, in the folders of
the installation around it, and by the dynamic linker; the variable TORCHTAP_TAPS_LIBRARY names another one.
"""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import fnmatch
import glob
import json
import os
import pathlib
import typing

import torch

if not hasattr(torch, "export"):
    raise ImportError(f"torchtap.export needs PyTorch 2.6 or newer; this is {torch.__version__}.")
from torch.utils import _pytree as pytree  # noqa: E402
from torchtap._private import Private  # noqa: E402

if typing.TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch.export import ExportedProgram
    from torch.fx import Graph, Node

    Model = typing.TypeVar("Model", bound=torch.nn.Module)
    Patterns: typing.TypeAlias = str | Iterable[str]
    Aliases: typing.TypeAlias = list[str]

__all__ = ["tapped", "tap", "compile", "taps"]

_FORMAT = 1
_BREAKS = set(';|,"\\\n')  # what the text at a tap is divided by, or would break generated code


def _find_library() -> str:
    if named := os.environ.get("TORCHTAP_TAPS_LIBRARY"):
        return named
    here = pathlib.Path(__file__).resolve().parent
    for folder in (
        here,
        here / "lib",
        *(prefix / lib for prefix in here.parents[:4] for lib in ("lib", "lib64", "lib/*-linux-gnu")),
    ):
        if found := sorted(glob.glob(f"{folder}/libtorchtap_taps.so*")):
            return found[0]
    return "libtorchtap_taps.so"


def _load() -> None:
    if not hasattr(torch._inductor, "aoti_compile_and_package"):
        raise ImportError(
            f"torchtap.export needs PyTorch 2.6 or newer, which makes AOTInductor packages; this is "
            f"{torch.__version__}."
        )
    library = _find_library()
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)  # packages refer to its symbols
        torch.ops.load_library(library)  # type: ignore[no-untyped-call,unused-ignore]
    except OSError as error:
        raise ImportError(
            f"torchtap.export cannot load its operators: {error}. Install torchtap::exported, or set "
            "TORCHTAP_TAPS_LIBRARY to the path of libtorchtap_taps.so."
        ) from error
    # Without an effect the compiler would remove a call that returns nothing.
    effects = Private(
        "torch._higher_order_ops.effects._EffectType", "torch._higher_order_ops.effects._register_effectful_op"
    )
    if effects.missing:
        raise ImportError(f"torchtap.export: {effects.lack('without which the compiler would remove taps')}")
    effect, register_effectful_op = effects.found
    for name in ("tap", "tap_"):
        torch.library.register_fake(f"torchtap::{name}")(lambda xs, path, kind: None)
    register_effectful_op(torch.ops.torchtap.tap.default, effect.ORDERED)


import torch._inductor  # noqa: E402  (a subpackage that `import torch` may leave out)

_load()
_READ = torch.ops.torchtap.tap.default
_WRITE = torch.ops.torchtap.tap_.default


def _qualified(module: torch.nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _nearest(word: str, words: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, words, 5, 0.4) or list(words)[:12]
    return ", ".join(repr(one) for one in near)


def _as_list(name: str, patterns: Patterns | None) -> list[str] | None:
    if patterns is None:
        return None
    if isinstance(patterns, str):
        patterns = [patterns]
    patterns = list(patterns)
    if not patterns or not all(isinstance(one, str) for one in patterns):
        raise ValueError(
            f"torchtap.export: {name} has to be a list of patterns, or None for everything; got {patterns!r}."
        )
    return patterns


def _select(modules: Mapping[str, tuple[Aliases, str]], names: Patterns | None, types: Patterns | None) -> list[str]:
    """Of {path: (aliases, type)} the paths that patterns select. Every pattern has to match something."""
    names, types = _as_list("names", names), _as_list("types", types)
    short = {path: qualified.rsplit(".", 1)[-1] for path, (_, qualified) in modules.items()}

    def match(patterns: list[str] | None, candidates: Sequence[str]) -> bool:
        return patterns is None or any(fnmatch.fnmatchcase(one, p) for p in patterns for one in candidates)

    for what, patterns, all_of_them in (
        ("name", names, [one for path, (aliases, _) in modules.items() for one in (path, *aliases)]),
        ("type", types, [*dict.fromkeys(short.values()), *dict.fromkeys(q for _, q in modules.values())]),
    ):
        for pattern in patterns or ():
            if not any(fnmatch.fnmatchcase(one, pattern) for one in all_of_them):
                raise ValueError(
                    f"torchtap.export: no module has the {what} {pattern!r}; the nearest are "
                    f"{_nearest(pattern, all_of_them)}."
                )
    chosen = [
        path
        for path, (aliases, qualified) in modules.items()
        if match(names, (path, *aliases)) and match(types, (short[path], qualified))
    ]
    if not chosen:
        raise ValueError(
            f"torchtap.export: names={names!r} and types={types!r} together select none of the {len(modules)} modules."
        )
    return chosen


def _kind(when: str, slots: str, qualified: str, leaf: bool, aliases: Aliases) -> str:
    """The text at a tap: it tells which slots have a tensor, and what a package has to say of the module."""
    return ";".join((when, slots, qualified, "leaf" if leaf else "", ",".join(aliases)))


def _clean(text: str) -> str:
    return "".join("?" if one in _BREAKS else one for one in text)


def _slots(values: object) -> tuple[list[torch.Tensor], str]:
    """The flattened tensors, and a letter for each: T, or - for a None in the place of one."""
    found = [one for one in pytree.tree_leaves(values) if one is None or isinstance(one, torch.Tensor)]
    return [one for one in found if one is not None], "".join("-" if one is None else "T" for one in found)


def _replaced(values: object, path: str, kind: str) -> typing.Any:
    """`values` with copies of its tensors, which hooks may write to."""
    leaves, spec = pytree.tree_flatten(values)
    copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in leaves]
    _WRITE([one for one in copies if isinstance(one, torch.Tensor)], path, kind)
    return pytree.tree_unflatten(copies, spec)


def _named_modules(model: torch.nn.Module) -> dict[str, tuple[Aliases, torch.nn.Module]]:
    """{path: (aliases, module)} of all modules but the root, whose inputs and outputs need no tap."""
    found: dict[str, tuple[Aliases, torch.nn.Module]] = {}
    paths: dict[int, str] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if module is model:
            continue
        if id(module) in paths:
            found[paths[id(module)]][0].append(path)
        else:
            paths[id(module)] = path
            found[path] = ([], module)
    return found


@contextlib.contextmanager
def tapped(
    model: Model,
    names: Patterns | None = None,
    types: Patterns | None = None,
    *,
    inputs: bool = False,
    outputs: bool = True,
    replace: bool = False,
) -> Iterator[Model]:
    """Taps modules of `model` while it is exported inside of this context:

        with tapped(model, names=["layer*"], types=["Conv2d"]):
            exported = torch.export.export(model, args, strict=False)

    names, types   globs on paths, and on short or whole names of types; a module has to match both. None is all.
    inputs         tap what goes into a module, for ForwardPre and ForwardInput
    outputs        tap what comes out, for ForwardOutput
    replace        let hooks replace these tensors; costs a copy of each

    The model as a whole needs no tap. A call that passes no tensor has none. The model itself is left as it was.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"torchtap.export.tapped: expected a torch.nn.Module, got {type(model).__name__}; for a program "
            "that was exported already use torchtap.export.tap."
        )
    if not inputs and not outputs:
        raise ValueError("torchtap.export.tapped: inputs and outputs are both False, so nothing would be tapped.")
    found = _named_modules(model)
    if not found:
        raise ValueError("torchtap.export.tapped: the model has no submodules; its own inputs and outputs need no tap.")
    handles = []

    def watch(path: str, module: torch.nn.Module, aliases: Aliases) -> None:
        about = (_clean(_qualified(module)), next(module.children(), None) is None, [_clean(one) for one in aliases])

        def before(_: torch.nn.Module, args: tuple[typing.Any, ...], kwargs: dict[str, typing.Any]) -> typing.Any:
            tensors, slots = _slots((args, kwargs))
            if not tensors:
                return None
            kind = _kind("input", slots, *about)
            if replace:
                return _replaced((args, kwargs), path, kind)
            _READ(tensors, path, kind)
            return None

        def after(
            _: torch.nn.Module, args: tuple[typing.Any, ...], kwargs: dict[str, typing.Any], output: typing.Any
        ) -> typing.Any:
            tensors, slots = _slots(output)
            # Hooks that run after a forward see its inputs as they are then.
            entered, entered_slots = _slots((args, kwargs)) if inputs else ([], "")
            if not tensors:
                return None
            if replace:
                if inputs:
                    output = _replaced_beside(
                        entered, output, path, _kind("output", f"{entered_slots}|{slots}", *about)
                    )
                    return output
                return _replaced(output, path, _kind("output", slots, *about))
            slots = f"{entered_slots}|{slots}" if inputs else slots
            _READ([*entered, *tensors], path, _kind("output", slots, *about))
            return None

        if inputs:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        if outputs:
            handles.append(module.register_forward_hook(after, with_kwargs=True))

    try:
        for path in _select(
            {path: (aliases, _qualified(module)) for path, (aliases, module) in found.items()}, names, types
        ):
            if isinstance(found[path][1], torch.jit.ScriptModule):
                raise TypeError(
                    f"torchtap.export.tapped: {path!r} is a TorchScript module, which torch.export does not "
                    "look into; export the original one."
                )
            if _BREAKS & set(path):
                raise ValueError(
                    f"torchtap.export.tapped: the path {path!r} has one of the letters "
                    f"{' '.join(sorted(_BREAKS - {chr(10)}))}, which a tap cannot hold."
                )
            watch(path, found[path][1], found[path][0])
        yield model
    finally:
        for handle in handles:
            handle.remove()


def _replaced_beside(entered: Iterable[torch.Tensor], output: object, path: str, kind: str) -> typing.Any:
    """As `_replaced`, with the inputs of the call in front, of which hooks get copies."""
    leaves, spec = pytree.tree_flatten(output)
    copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in leaves]
    _WRITE([*(one.clone() for one in entered), *(one for one in copies if isinstance(one, torch.Tensor))], path, kind)
    return pytree.tree_unflatten(copies, spec)


def _check_program(call: str, program: object) -> None:
    if not isinstance(program, torch.export.ExportedProgram):
        raise TypeError(
            f"torchtap.export.{call}: expected what torch.export.export returns, got {type(program).__name__}."
        )


def _stack(node: Node) -> list[tuple[str, str, str]]:
    """[(key, path, type)] of the modules that a node was called in, outermost first."""
    result = []
    for key, (path, qualified) in (node.meta.get("nn_module_stack") or {}).items():
        if not isinstance(path, str) or path.startswith("_empty_nn"):  # of sizes of dynamic dimensions
            return []
        if path.startswith("L['self']"):  # strict mode
            path = path[len("L['self']") :].lstrip(".")
        elif path.startswith("L["):
            raise ValueError(
                "torchtap.export.tap: the program was exported with strict=True from a model whose forward "
                f"does not call its first parameter self, so paths of its modules are lost ({path}); export "
                "it with strict=False."
            )
        if not isinstance(qualified, str):
            qualified = f"{qualified.__module__}.{qualified.__qualname__}"
        result.append((key, path.partition("@")[0], qualified))
    return result


def _calls(graph: Graph) -> list[tuple[str, str, list[Node]]]:
    """[(path, type, nodes)] of each call of each module: runs of nodes with the same entry in their stacks."""
    running: dict[str, tuple[str, str, list[Node]]] = {}
    ended: list[tuple[str, str, list[Node]]] = []
    for node in graph.nodes:
        stack = _stack(node) if node.op == "call_function" else []
        if not stack:
            continue
        keys = {key for key, _, _ in stack}
        for key in [key for key in running if key not in keys]:
            ended.append(running.pop(key))
        for key, path, qualified in stack:
            if path:
                running.setdefault(key, (path, qualified, []))[2].append(node)
    return ended + list(running.values())


def tap(program: ExportedProgram, names: Patterns | None = None, types: Patterns | None = None) -> ExportedProgram:
    """Taps the outputs of modules in a program that was exported already, or that torch.export.load read.

    Less is seen than with `tapped`: modules whose forward adds no node (Identity) are not there, and the outputs of a
    call are those of its tensors that are used outside of it, in the order in which they are computed. To be called last,
    right before `compile`. Returns the program.
    """
    _check_program("tap", program)
    graph = program.graph
    order = {node: number for number, node in enumerate(graph.nodes)}
    calls = _calls(graph)
    modules: dict[str, tuple[Aliases, str]] = {path: ([], qualified) for path, qualified, _ in calls}
    if not modules:
        raise ValueError(
            "torchtap.export.tap: the program does not say which modules its operations belong to "
            "(nn_module_stack); it was exported without, or decomposed. Tap it before."
        )
    chosen = set(_select(modules, names, types))
    paths = set(modules)
    placed = []
    for path, qualified, nodes in calls:
        if path not in chosen:
            continue
        inside = set(nodes)
        outs = [
            node
            for node in nodes
            if isinstance(node.meta.get("val"), torch.Tensor) and any(user not in inside for user in node.users)
        ]
        if outs:
            leaf = not any(other.startswith(path + ".") for other in paths)
            placed.append(
                (
                    max(nodes, key=order.__getitem__),
                    outs,
                    path,
                    _kind("output", "T" * len(outs), _clean(qualified), leaf, []),
                )
            )
    # Where several calls end at one node, the innermost is tapped first.
    for last, outs, path, kind in sorted(placed, key=lambda one: one[2].count(".")):
        with graph.inserting_after(last):
            node = graph.call_function(_READ, (outs, path, kind))
        node.meta["val"] = None
        for key in ("nn_module_stack", "stack_trace"):
            if key in last.meta:
                node.meta[key] = last.meta[key]
    program.graph_module.recompile()
    return program


def _tap_nodes(program: ExportedProgram) -> list[Node]:
    return [node for node in program.graph.nodes if node.op == "call_function" and node.target in (_READ, _WRITE)]


def taps(program: ExportedProgram) -> list[dict[str, typing.Any]]:
    """The modules that are tapped in an exported program: what `compile` writes into the package, as a list of dicts."""
    _check_program("taps", program)
    found: dict[str, dict[str, typing.Any]] = {}
    for node in _tap_nodes(program):
        _, path, kind = typing.cast("tuple[typing.Any, str, str]", node.args)
        when, slots, qualified, leaf, aliases = (kind.split(";") + [""] * 4)[:5]
        one = found.setdefault(
            path,
            {
                "path": path,
                "aliases": [alias for alias in aliases.split(",") if alias],
                "type": qualified.rsplit(".", 1)[-1],
                "qualified_type": qualified,
                "leaf": bool(leaf),
                "calls": 0,
                "inputs": False,
                "outputs": False,
                "replaceable": node.target is _WRITE,
                "_by": {},
            },
        )
        one["_by"][when] = one["_by"].get(when, 0) + 1
        one["inputs"] |= when == "input"
        one["outputs"] |= when == "output"
    for one in found.values():
        one["calls"] = max(one.pop("_by").values())
    # A module before those inside of it, and otherwise as they are called first.
    first: dict[str, int] = {}
    for number, path in enumerate(found):
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            first.setdefault(".".join(parts[:end]), number)
    return sorted(
        found.values(),
        key=lambda one: [first[".".join(one["path"].split(".")[:end])] for end in range(1, one["path"].count(".") + 2)],
    )


def _inputs(program: ExportedProgram) -> tuple[list[dict[str, typing.Any]], list[str]]:
    """The names, dtypes and shapes of the inputs, and their devices; ([], []) if one of them is no tensor, which a package
    lays out in its own way."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs, devices = [], []
    for name in program.graph_signature.user_inputs:
        value = values.get(name) if isinstance(name, str) else None
        if not isinstance(value, torch.Tensor):
            return [], []
        devices.append(value.device.type)
        inputs.append(
            {
                "name": name,
                "dtype": str(value.dtype).replace("torch.", ""),
                "shape": [str(int(size)) if isinstance(size, int) else str(size) for size in value.shape],
            }
        )
    return inputs, devices


def _refuse_states(program: ExportedProgram, modules: Iterable[dict[str, typing.Any]]) -> None:
    """On CUDA devices the tap of an LSTM gave other states h_n and c_n than eager mode (PyTorch 2.11; cause unknown)."""
    if not any(tensor.device.type == "cuda" for tensor in program.state_dict.values()):
        return
    for one in modules:
        if one["outputs"] and one["qualified_type"].startswith("torch.nn.modules.rnn."):
            raise NotImplementedError(
                f"torchtap.export.compile: {one['path']!r} is a recurrent module ({one['type']}) on a CUDA device, where its "
                "states may be wrong in a tap; tap other modules, by `names` or `types`, or export the model on the CPU."
            )


def _root_type(program: ExportedProgram) -> str:
    for node in program.graph.nodes:
        for _, path, qualified in _stack(node) if node.op == "call_function" else ():
            if path == "":
                return qualified
    return ""


def compile(
    program: ExportedProgram,
    package_path: str | os.PathLike[str] | None = None,
    inductor_configs: Mapping[str, typing.Any] | None = None,
) -> str:
    """torch._inductor.aoti_compile_and_package for a tapped program: notes in the package what is tapped.

    Returns the path of the package. `inductor_configs` are Inductor's options, as there.
    """
    _check_program("compile", program)
    modules = taps(program)
    if not modules:
        raise ValueError(
            "torchtap.export.compile: nothing is tapped in this program; export it within "
            "torchtap.export.tapped(model), or call torchtap.export.tap(program)."
        )
    if package_path is not None and not str(package_path).endswith(".pt2"):
        raise ValueError(f"torchtap.export.compile: package_path has to end in .pt2, got {str(package_path)!r}.")
    inputs, devices = _inputs(program)
    _refuse_states(program, modules)
    qualified = _root_type(program)
    listing = {
        "format": _FORMAT,
        "type": qualified.rsplit(".", 1)[-1],
        "qualified_type": qualified,
        "modules": modules,
        "inputs": inputs,
        "devices": devices,
    }
    configs = dict(inductor_configs or {})
    metadata = dict(configs.get("aot_inductor.metadata") or {})
    if "torchtap" in metadata:
        raise ValueError(
            'torchtap.export.compile: the metadata in inductor_configs has a key "torchtap", under which '
            "the list of taps is stored; use another one."
        )
    configs["aot_inductor.metadata"] = {**metadata, "torchtap": json.dumps(listing)}
    if hasattr(torch._inductor.config.aot_inductor, "custom_ops_to_c_shims"):
        # Newer versions can call a C function directly, past the dispatcher.
        shims = dict(configs.get("aot_inductor.custom_ops_to_c_shims") or {})
        arguments = (
            "(const AtenTensorHandle* xs, int64_t count, const char* path, const char* kind, AtenTensorHandle* none)"
        )
        shims[_READ] = [f"AOTITorchError aoti_torch_{device}_tap{arguments}" for device in ("cpu", "cuda")]
        configs["aot_inductor.custom_ops_to_c_shims"] = shims
    return torch._inductor.aoti_compile_and_package(
        program, package_path=None if package_path is None else str(package_path), inductor_configs=configs
    )
