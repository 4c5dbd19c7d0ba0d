"""Dumping what an MLP of a transformer computes, from Python: a recorder that keeps rows, and hooks with torch.save, beside the
forward alone; with --saelens SAELens's CacheActivationsRunner beside the forward that it runs.

usage: dumping.py FOLDER [--rounds 5] [--forwards 8] [--saelens]

The model is a GPT-2 of the transformers package with random weights: 4 layers of 256 numbers, rows of 1024 floats, batches of 16
texts of 128 tokens. All ways take turns; the median of their ratios to the forward of the same round is printed, by the clock and
by the CPU time of the process with its threads."""

import argparse
import importlib.util
import pathlib
import shutil
import sys
import time

import numpy
import torch

TOKENS, BATCH, LENGTH = 1000, 16, 128


def model_of():
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=256, n_layer=4, n_head=4)
    return transformers.GPT2LMHeadModel(config).eval()


def forwards(model, batches):
    with torch.no_grad():
        for batch in batches:
            model(input_ids=batch)


def torchtap_rows(model, batches, folder):
    import torchtap

    with torchtap.ForwardOutput(rows=(0, 1), beside=("token",), spool=folder / "dump") as recorder:
        recorder.attach(model, "transformer.h.2.mlp.act")
        for batch in batches:
            with torch.no_grad(), torchtap.Context(token=batch):
                model(input_ids=batch)
        recorder.save(folder / "dump")


def hooks(model, batches, folder):
    count = 0

    def save(module, inputs, output):
        nonlocal count
        torch.save(output.detach().cpu(), folder / f"{count}.pt")
        count += 1

    handle = model.transformer.h[2].mlp.act.register_forward_hook(save)
    forwards(model, batches)
    handle.remove()


def saelens(folder, rounds, count):
    """Its runner with a HookedTransformer of the same size, and the forwards of this model alone."""
    import sae_lens.cache_activations_runner as runner
    from datasets import Dataset
    from sae_lens import CacheActivationsRunner, CacheActivationsRunnerConfig
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    torch.manual_seed(0)
    about = dict(n_layers=4, d_model=256, n_ctx=LENGTH, d_head=64, n_heads=4, d_mlp=1024, d_vocab=TOKENS)
    model = HookedTransformer(HookedTransformerConfig(**about, act_fn="gelu_new", device="cpu"))
    runner.load_model = lambda *_, **__: model
    texts = torch.randint(TOKENS, (BATCH * count, LENGTH))
    data, ratios = Dataset.from_dict({"input_ids": texts.tolist()}), []
    for i in range(rounds):
        start = clocks()
        with torch.no_grad():
            for batch in texts.split(BATCH):
                model(batch, stop_at_layer=3)
        alone = clocks() - start
        config = CacheActivationsRunnerConfig(
            dataset_path="none", model_name="none", hook_name="blocks.2.mlp.hook_post", d_in=1024, context_size=LENGTH,
            training_tokens=texts.numel(), model_batch_size=BATCH, buffer_size_gb=0.034, new_cached_activations_path=str(folder / f"{i}"),
            prepend_bos=False, device="cpu", dtype="float32", shuffle=False,
        )  # fmt: skip
        cache = CacheActivationsRunner(config, override_dataset=data)
        start = clocks()
        cache.run()
        ratios.append((clocks() - start) / alone)
    show("SAELens, CacheActivationsRunner", ratios, alone)


def clocks():
    return numpy.array([time.perf_counter(), time.process_time()])


def show(name, ratios, alone):
    clock, cpu = numpy.median(numpy.array(ratios), 0)
    print(
        f"dump | {name} | {clock:.2f} × | {cpu:.2f} × CPU | least {numpy.min(ratios, 0)[0]:.2f} × | forward {alone[0]:.2f} s"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--forwards", type=int, default=8)
    parser.add_argument("--saelens", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.saelens:
        return saelens(arguments.folder, arguments.rounds, arguments.forwards)
    model, ratios = model_of(), {}
    batches = torch.randint(TOKENS, (arguments.forwards, BATCH, LENGTH))
    ways = {"hooks, torch.save": hooks}
    if importlib.util.find_spec("torchtap") and importlib.util.find_spec("torchtap._C"):
        ways["torchtap, rows with a column"] = torchtap_rows
    forwards(model, batches[:2])
    for _ in range(arguments.rounds):
        start = clocks()
        forwards(model, batches)
        alone = clocks() - start
        for name, way in ways.items():
            folder = arguments.folder / "one"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            start = clocks()
            way(model, batches, folder)
            ratios.setdefault(name, []).append((clocks() - start) / alone)
    for name, of in ratios.items():
        show(name, of, alone)


if __name__ == "__main__":
    sys.exit(main())
