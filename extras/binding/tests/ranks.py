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
KINDS = "ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput", "BackwardOutput", "BackwardParameter"
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
recorders = {kind: getattr(torchtap, kind)().attach(ddp) for kind in KINDS}
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

# One layer is used by no rank, one by a single rank.
UNUSED = """
class Spare(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.some, self.spare = (torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        y = self.first(x)
        return self.some(y) if rank == 0 else y

ddp = torch.nn.parallel.DistributedDataParallel(Spare(), find_unused_parameters=True)

def step(model):
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), *(one.grad.clone() for one in model.parameters() if one.grad is not None)]

bare, calls = step(ddp), 2 * (rank == 0)
assert len(bare) == 5  # the layer of one rank has a gradient on both
"""

UNUSED_RECORDERS = """
recorders = {kind: getattr(torchtap, kind)().attach(ddp) for kind in KINDS}
accumulated = torchtap.BackwardParameter(accumulated=True).attach(ddp)
for _ in range(2):
    assert same(step(ddp), bare)
for kind in KINDS[:5]:
    samples = {one.path: one.samples for one in recorders[kind].subrecorders}
    assert samples["module.first"] == 2 - (kind == "BackwardInput") * 2, samples  # the inputs need no gradient
    assert samples["module.some"] == calls and samples["module.spare"] == 0, (kind, samples)
for recorder in (recorders["BackwardParameter"], accumulated):
    samples = {one.path: one.samples for one in recorder.subrecorders}
    assert samples["module.first.weight"] == 2 and samples["module.spare.weight"] == 0, samples
    assert samples["module.some.bias"] == calls, samples
"""

UNUSED_REPORT = """
report = torchtap.Report(ddp)
for _ in range(2):
    with report.record() as repeat:
        repeat.phase("forward")
        assert same(step(ddp), bare)
assert report["module.some"].forward.inclusive.calls == calls, report["module.some"].forward
assert report["module.first"].forward.inclusive.calls == 2
spare = report["module.spare"].get("forward") or {}
assert spare.get("inclusive", {}).get("calls", 0) == 0, spare
assert torchtap.report(ddp, x, backward=True)["module.some"].num_parameters == 20
"""

UNUSED_MONITOR = """
with torchtap.monitor(ddp, cost=1.0, gradients=True, parameters=True) as watch:
    for _ in range(3):
        assert same(step(ddp), bare)
    watch.flush()
    assert "torchtap_forwards_total" in watch.metrics() and not watch.alarms
"""

# What is recorded of compiled code is what eager code gives. DDP's own compiler parts the model at its buckets.
COMPILED = """
import torch._dynamo
compiled = torch.compile(ddp, backend="aot_eager")
bare = step(compiled)
"""

COMPILED_RECORDERS = """
recorders = {kind: getattr(torchtap, kind)().attach(ddp) for kind in KINDS}
for _ in range(2):
    got = step(compiled)
    assert same(got, bare)
data = {kind: one.data for kind, one in recorders.items()}
for one in recorders.values():
    one.detach()
recorders = {kind: getattr(torchtap, kind)().attach(ddp) for kind in KINDS}
for _ in range(2):
    step(ddp)
for kind in KINDS:
    for path, of_compiled, one in zip([one.path for one in recorders[kind].subrecorders], data[kind], recorders[kind].data):
        assert same(of_compiled or [], one or []), (kind, path, len(of_compiled or []), len(one or []))
"""

COMPILED_REPORT = """
report = torchtap.report(compiled, x, backward=True)
assert report["module.0"].forward.work.macs == 5 * 4 * 8 and report["module.2"].backward.inclusive.calls == 1
assert len(report.notes) >= 2 and same(step(compiled), bare)
"""

COMPILED_MONITOR = """
with torchtap.monitor(compiled, cost=1.0, gradients=True) as watch:
    for _ in range(3):
        assert same(step(compiled), bare)
    watch.flush()
    assert any(line.split()[0].startswith("torchtap_forwards_total") and line.split()[-1] == "3" for line in watch.metrics().splitlines()), watch.metrics()
"""

PARTS = {
    "recorders": RECORDERS,
    "report": REPORT,
    "trace": TRACE,
    "monitor": MONITOR,
    "recorders, unused": UNUSED + UNUSED_RECORDERS,
    "report, unused": UNUSED + UNUSED_REPORT,
    "monitor, unused": UNUSED + UNUSED_MONITOR,
    "recorders, compiled": COMPILED + COMPILED_RECORDERS,
    "report, compiled": COMPILED + COMPILED_REPORT,
    "monitor, compiled": COMPILED + COMPILED_MONITOR,
}


@pytest.mark.parametrize("part", PARTS)
def test_ranks(part, tmp_path):
    if (view := part.partition(",")[0]) != "recorders" and view not in torchtap._C.views:
        pytest.skip(f"built without {view}")
    code = BEGIN + PARTS[part] + "\ndist.barrier()\ndist.destroy_process_group()\n"
    ranks = [subprocess.Popen([sys.executable, "-c", code, str(rank), str(tmp_path)]) for rank in range(2)]
    try:
        assert [rank.wait(300) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()  # which waits for the other one
