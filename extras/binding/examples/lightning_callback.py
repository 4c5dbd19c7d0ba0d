"""A callback for Lightning: statistics of what modules give and of its gradients, one recording an epoch.

trainer = lightning.Trainer(callbacks=[Statistics("statistics", types=torch.nn.ReLU, every=50)])
"""

import os

import torchtap
from lightning.pytorch.callbacks import Callback


class Statistics(Callback):
    def __init__(self, folder, selector=None, *, every=1, **which):
        self.folder, self.selector, self.which, self.every = folder, selector, which, every
        self.now = False  # is this batch recorded?

    def on_train_start(self, trainer, pl_module):
        options = dict(condition=lambda: self.now, on_error=lambda path, error: print(f"{path}: {error}"))
        self.recorders = {
            "activations": torchtap.ForwardOutput(reduction=torchtap.Moments(), **options),
            "gradients": torchtap.BackwardOutput(reduction=torchtap.Norm(), **options),
        }
        for recorder in self.recorders.values():
            recorder.attach(pl_module, self.selector, **self.which)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.now = batch_idx % self.every == 0

    def on_train_batch_end(self, *_):
        self.now = False  # not in validation

    def on_train_epoch_end(self, trainer, pl_module):
        for name, recorder in self.recorders.items():
            if trainer.world_size > 1:
                recorder.merge_ranks()
            if trainer.is_global_zero:
                recorder.save(os.path.join(self.folder, f"epoch-{trainer.current_epoch}", name), mkdir=True)
            recorder.reset()

    def on_train_end(self, trainer, pl_module):
        for recorder in self.recorders.values():
            recorder.detach()
