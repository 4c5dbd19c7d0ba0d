"""Two ranks of DistributedDataParallel on one machine: what recorders and views see of them, and what not."""

import subprocess
import sys

import built  # noqa: F401
import pytest
import torchtap

BEGIN = """
import sys
import torch
import torch.distributed as dist
import built, torchtap
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2] + "/store", rank=rank, world_size=2)

def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

torch.manual_seed(rank)
x = torch.randn(5, 4)
ddp, local = torch.nn.parallel.DistributedDataParallel(net()), net()

def step(model):
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), *(one.grad.clone() for one in model.parameters())]

def same(ones, others):
    return len(ones) == len(others) and all(map(torch.equal, ones, others))

bare, own = step(ddp), step(local)
assert same(bare[:1], own[:1]) and not same(bare[1:], own[1:])
"""

RECORDERS = """
kinds = "ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput", "BackwardOutput", "BackwardParameter"
recorders = {kind: getattr(torchtap, kind)().attach(ddp) for kind in kinds}
accumulated = torchtap.BackwardParameter(accumulated=True).attach(ddp, "module.2")
assert same(step(ddp), bare)
assert torch.equal(recorders["ForwardOutput"]["module.2"][0], own[0])
names = [name for name, _ in local.named_parameters()]
assert [one.path for one in recorders["BackwardParameter"].subrecorders] == ["module." + name for name in names]
for name, gradient in zip(names, own[1:]):  # before the ranks are averaged
    assert torch.equal(recorders["BackwardParameter"]["module." + name][0], gradient)
assert torch.equal(accumulated["module.2.weight"][0], own[3])
for one in (*recorders.values(), accumulated):
    one.detach()

from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

mesh = dist.init_device_mesh("cpu", (2,))
sharded = net()
fully_shard(sharded, mesh=mesh)
shards = torchtap.BackwardParameter(accumulated=True).attach(sharded)
sharded(x).square().sum().backward()
for name, whole in zip(names, bare[1:]):  # of what the ranks averaged
    parts = [*whole.chunk(2), whole[:0]]
    assert type(shards[name][0]) is torch.Tensor
    torch.testing.assert_close(shards[name][0], parts[rank])
columns = parallelize_module(torch.nn.Linear(4, 6), mesh, ColwiseParallel())
local_columns = torchtap.BackwardParameter().attach(columns)
columns(torch.ones(2, 4)).sum().backward()
assert torch.equal(local_columns["weight"][0], columns.weight.grad.to_local())
assert local_columns["weight"][0].shape == (3, 4)

class Both:
    total = 0

    def update(self, sample):
        self.total = self.total + sample.sum()

    def merge(self, other):
        self.total = self.total + other.total

    def results(self):
        return self.total

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]

both = torchtap.ForwardOutput(reduction=Both()).attach(ddp, "module.2")
step(ddp)
parts = [torch.zeros(()) for _ in range(2)]
dist.all_gather(parts, own[0].sum())
if hasattr(torchtap._C, "merge_ranks"):
    both.merge_ranks()
    assert both.samples() == 2 and torch.equal(both[0], parts[0] + parts[1])
"""

REPORT = """
report = torchtap.report(ddp, x, backward=True, repeats=2)
assert any("one rank's part" in note for note in report.notes), report.notes
assert report["module.0"].forward.work.macs == 5 * 4 * 8 and report["module.2"].backward.inclusive.calls == 2
steps = torchtap.Report(ddp)
with steps.record() as repeat:
    y = ddp(x)
    repeat.phase("backward")
    ddp.zero_grad()
    y.square().sum().backward()
assert same([y.detach(), *(one.grad for one in ddp.parameters())], bare)
assert torchtap.summary(ddp, x).rows[0].num_parameters == 67
"""

TRACE = """
history = torchtap.trace(ddp, x)
assert history.validate()
assert torch.equal(history["linear_2"].tensor, own[0]) and history["module.2"].tensor is not None
with torchtap.Tracer(ddp) as tracer:
    assert same(step(ddp), bare)
"""

MONITOR = """
with torchtap.monitor(ddp, learn=sys.argv[2] + f"/learned{rank}", cost=1.0):
    for _ in range(100):
        assert same(step(ddp), bare)
watch = torchtap.monitor(ddp, reference=sys.argv[2] + f"/learned{rank}", cost=1.0)
assert same(step(ddp), bare)
watch.close()
"""

PARTS = {"recorders": RECORDERS, "report": REPORT, "trace": TRACE, "monitor": MONITOR}


@pytest.mark.parametrize("part", PARTS)
def test_ranks(part, tmp_path):
    if part != "recorders" and part not in torchtap._C.views:
        pytest.skip(f"built without {part}")
    code = BEGIN + PARTS[part] + "\ndist.barrier()\ndist.destroy_process_group()\n"
    ranks = [subprocess.Popen([sys.executable, "-c", code, str(rank), str(tmp_path)]) for rank in range(2)]
    try:
        assert [rank.wait(300) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()  # which waits for the other one
