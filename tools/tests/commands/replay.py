"""Tests torchtap replay with incidents that are written here, by views/monitor/FORMAT.md."""

import json
import struct
import sys

import harness
import pytest
import torch
from harness import SOURCE

sys.path.insert(0, str(SOURCE / "tests/formats"))
import reader


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return torch.log(2 + self.drop(self.fc(x)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = Layer()

    def forward(self, x, scale: float = 1.0):
        return self.second(self.first(x)) * scale


def digest(tensor):
    words = struct.pack(f"<{2 + tensor.dim()}q", 6, tensor.dim(), *tensor.shape)
    return reader.xxh64(words + tensor.contiguous().numpy().tobytes())


def write_incident(folder, model, inputs, training=False, lost=False):
    """An incident of these forwards; with `lost`, the last did not return."""
    (folder / "inputs").mkdir(parents=True)
    model.train(training)
    lines, states = [], []
    for number, x in enumerate(inputs, 100):
        states.append(torch.get_rng_state())
        with torch.no_grad():
            out = model(x)
        finite = out[out.isfinite()].double()
        line = {
            "forward": number,
            "time_ns": 1700000000000000000,
            "thread": 0,
            "training": training,
            "grad": False,
            "inference": False,
            "threads": torch.get_num_threads(),
            "random_state": number - 100,
            "inputs": [{"kept": True, "dtype": "float32", "shape": list(x.shape)}],
            "returned": not (lost and number - 99 == len(inputs)),
            "digest": f"{digest(out):016x}",
            "nan": int(out.isnan().sum()),
            "inf": int(out.isinf().sum()),
            "nanoseconds": 1000,
            "sum": float(finite.sum()),
            "magnitude": float(finite.abs().sum()),
        }
        lines.append(json.dumps(line))
    torch.save({"0": list(inputs)}, folder / "inputs/0.pt")
    torch.save(torch.stack(states), folder / "random_states.pt")
    entry = {
        "index": 0,
        "path": "",
        "aliases": [],
        "type": "Net",
        "kind": "ForwardPre",
        "samples": len(inputs),
        "reduction": "",
        "holds": "dict",
        "number": 1,
        "keys": ["0"],
        "dtype": "float32",
        "shape": list(inputs[0].shape),
        "ragged": False,
        "file": "0.pt",
        "bytes": (folder / "inputs/0.pt").stat().st_size,
    }
    manifest = {"format": 1, "library": "0.1.0", "created": "2026-01-01T00:00:00Z", "count": 1, "entries": [entry]}
    (folder / "inputs/manifest.json").write_text(json.dumps(manifest))
    (folder / "forwards.jsonl").write_text("".join(line + "\n" for line in lines))
    about = {
        "format": 1,
        "reason": "nonfinite",
        "model": "net",
        "type": "Net",
        "created": "2026-01-01T00:00:00Z",
        "torchtap": "0.1.0",
        "training": training,
        "inputs": True,
        "forwards": len(lines),
        "parameters": "",
        "reference": "",
        "alarms": [],
        "of a later version": 1,
    }
    (folder / "incident.json").write_text(json.dumps(about))


def run(*arguments, status=0):
    # Newer LibTorchs fuse operations of TorchScript, with another rounding than the eager model that the incidents are of.
    return harness.run("replay", *arguments, status=status, PYTORCH_TENSOREXPR_FALLBACK="2", COLUMNS="200")


def rows(text):
    """The cells of a table."""
    return [[cell for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


GOOD = [torch.rand(2, 4) * 0.1 for _ in range(3)]
BAD = torch.tensor([[1e4] * 4, [-1e4] * 4])


@pytest.fixture(scope="module")
def net(folder):
    torch.manual_seed(3)
    net = Net()
    with torch.no_grad():
        net.second.fc.weight *= 2
    torch.jit.script(net).save(folder / "net.pt")
    assert net.eval()(BAD).isnan().any()
    return net


@pytest.fixture(scope="module")
def trained(folder, net):
    incident = folder / "incidents/20260101T000000-0001-nonfinite"
    write_incident(incident, net, [*GOOD, BAD], training=True)
    return incident


@pytest.fixture(scope="module")
def lost(folder, net):
    incident = folder / "incidents/20260101T000001-0002-crash"
    write_incident(incident, net, GOOD, lost=True)
    return incident


@pytest.fixture(scope="module")
def evaluated(folder, net):
    incident = folder / "incidents/20260101T000002-0003-drift"
    write_incident(incident, net, GOOD)
    return incident


def test_the_mode_and_the_random_numbers_that_were_recorded(folder, trained):
    """Whatever the file's mode is."""
    _, out, err = run(trained, folder / "net.pt")
    assert err == ""
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["100", "101", "102", "103"]
    assert all(line.endswith("yes") for line in out.splitlines()[1:5])
    assert "finite" in out.splitlines()[1] and " NaN" in out.splitlines()[4]
    assert out.splitlines()[5] == "first non-finite: second, aten::log, of finite inputs (producer)"
    found = json.loads(run(trained, folder / "net.pt", "--json", "--from", 102).out)
    assert [one["forward"] for one in found["forwards"]] == [102, 103] and found["same"] is True
    last = found["forwards"][1]
    assert last["same_bits"] and last["nan"] == last["nan_recorded"] > 0 and last["difference"] == 0
    assert last["inputs"] == "[2,4] f32" and last["outputs"] == "[2,3] f32"
    assert found["first_non_finite"] == {"module": "second", "function": "aten::log", "role": "producer"}


def test_a_forward_that_did_not_return_has_nothing_to_compare_with(folder, lost):
    out = run(lost, folder / "net.pt").out
    assert "did not return" in out.splitlines()[3] and out.splitlines()[3].endswith("-")


def test_another_model_by_a_little_and_by_much(folder, net, evaluated):
    other = Net()
    other.load_state_dict(net.state_dict())
    with torch.no_grad():
        other.first.bias += 1e-6
    torch.jit.script(other).save(folder / "other.pt")
    out = run(evaluated, folder / "other.pt", status=1).out
    assert all(line.endswith("  no") for line in out.splitlines()[1:])
    assert run(evaluated, folder / "other.pt", "--rtol", "1e-3").out.count("no, within 0.001") == 3
    run(evaluated, folder / "other.pt", "--rtol", "1e-12", status=1)
    found = json.loads(run(evaluated, folder / "other.pt", "--json", status=1).out)
    assert not found["same"] and 0 < found["forwards"][0]["difference"] < 1e-3


def test_all_modules_outputs_of_the_last_forward(folder, net, evaluated):
    run(evaluated, folder / "net.pt", "--save", folder / "last")
    saved = reader.read_recording(str(folder / "last"))
    assert set(saved) == {"", "first", "second", "second.fc", "second.drop"}
    want = net.eval()(GOOD[2]).flatten().tolist()
    assert saved[""][1][0].numbers == want
    assert "exists" in run(evaluated, folder / "net.pt", "--save", folder / "last", status=2).err


def test_a_folder_of_incidents_with_a_ring_that_a_killed_process_left(folder, trained, lost, evaluated):
    incidents, ring = folder / "incidents", SOURCE / "tests/formats/1/ring"
    (incidents / "ring-1-0").write_bytes(ring.read_bytes())
    _, out, err = run(incidents)
    assert "of the ring that a killed process left" in err
    assert [row[0] for row in rows(out)[1:4]] == [path.name for path in (trained, lost, evaluated)]
    assert len(out.splitlines()) == 5 and "crash" in out.splitlines()[4] and "written" in out
    listed = json.loads(run(incidents, "--json").out)["incidents"]
    assert [one["forwards"] for one in listed] == [4, 3, 3, 3] and listed[0]["reason"] == "nonfinite"
    assert not (incidents / "ring-1-0").exists()
    (folder / "empty").mkdir()
    assert run(folder / "empty").out == "no incidents\n"


def test_what_cannot_be_replayed(folder, evaluated):
    incidents = folder / "incidents"
    assert "give the TorchScript file" in run(evaluated, status=2).err
    assert "is no folder" in run(folder / "none", status=2).err
    assert "is no incident" in run(incidents, folder / "net.pt", status=2).err
    assert "no forward from 500 on" in run(evaluated, folder / "net.pt", "--from", 500, status=2).err
    (evaluated / "incident.json").write_text('{"format": 2}')
    assert "written by a newer torchtap" in run(evaluated, folder / "net.pt", status=2).err
    assert "cannot be read" in run(incidents).out
