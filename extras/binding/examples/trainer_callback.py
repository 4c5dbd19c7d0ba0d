"""A callback for the Trainer of Hugging Face's transformers: statistics of what modules give, beside each checkpoint.

Trainer(model, arguments, train_dataset=data, callbacks=[Statistics("*.mlp", every=50)])
"""

import os

import torchtap
from transformers import TrainerCallback


class Statistics(TrainerCallback):
    def __init__(self, selector=None, *, every=1, **which):
        self.selector, self.which, self.every = selector, which, every
        self.now = False  # is this step recorded?

    def on_train_begin(self, args, state, control, model=None, **_):
        self.recorder = torchtap.ForwardOutput(
            reduction=torchtap.Moments(),
            condition=lambda: self.now,
            on_error=lambda path, error: print(f"{path}: {error}"),
        )
        self.recorder.attach(model, self.selector, **self.which)

    def on_step_begin(self, args, state, control, **_):
        self.now = state.global_step % self.every == 0

    def on_step_end(self, args, state, control, **_):
        self.now = False  # not in evaluation

    def on_save(self, args, state, control, **_):
        if args.world_size > 1:
            self.recorder.merge_ranks()
        if state.is_world_process_zero:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}", "activations")
            self.recorder.save(folder, mkdir=True, overwrite=True)
        self.recorder.reset()

    def on_train_end(self, args, state, control, **_):
        self.recorder.detach()
