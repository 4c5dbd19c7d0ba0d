"""Checks `torchtap replay` with incidents that are written here, by docs/format.md.

usage: replay.py TORCHTAP
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/formats"))
import reader

torchtap = sys.argv[1]


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
    data = tensor.contiguous().numpy().tobytes()
    return reader.xxh64(words + bytes(-len(words) % 32) + data + bytes(-len(data) % 32))


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


# Newer LibTorchs fuse operations of TorchScript, with another rounding than the eager model that the incidents are of.
os.environ["PYTORCH_TENSOREXPR_FALLBACK"] = "2"
os.environ["COLUMNS"] = "200"


def run(arguments, status):
    done = subprocess.run([torchtap, "replay", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def rows(text):
    """The cells of a table."""
    return [[cell for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def check(folder):
    torch.manual_seed(3)
    net = Net()
    with torch.no_grad():
        net.second.fc.weight *= 2
    script = torch.jit.script(net)
    script.save(folder / "net.pt")
    good = [torch.rand(2, 4) * 0.1 for _ in range(3)]
    bad = torch.tensor([[1e4] * 4, [-1e4] * 4])
    assert net.eval()(bad).isnan().any()

    # In the mode and with the random numbers that were recorded, whatever the file's mode is.
    incidents = folder / "incidents"
    trained = incidents / "20260101T000000-0001-nonfinite"
    write_incident(trained, net, [*good, bad], training=True)
    out, err = run([trained, folder / "net.pt"], 0)
    assert err == "", err
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["100", "101", "102", "103"], out
    assert all(line.endswith("yes") for line in out.splitlines()[1:5]), out
    assert "finite" in out.splitlines()[1] and " NaN" in out.splitlines()[4], out
    assert out.splitlines()[5] == "first non-finite: second, aten::log, of finite inputs (producer)", out
    found = json.loads(run([trained, folder / "net.pt", "--json", "--from", 102], 0)[0])
    assert [one["forward"] for one in found["forwards"]] == [102, 103] and found["same"] is True, found
    last = found["forwards"][1]
    assert last["same_bits"] and last["nan"] == last["nan_recorded"] > 0 and last["difference"] == 0, last
    assert last["inputs"] == "[2,4] f32" and last["outputs"] == "[2,3] f32", last
    assert found["first_non_finite"] == {"module": "second", "function": "aten::log", "role": "producer"}, found

    # A forward that did not return has nothing to compare with.
    lost = incidents / "20260101T000001-0002-crash"
    write_incident(lost, net, good, lost=True)
    out, _ = run([lost, folder / "net.pt"], 0)
    assert "did not return" in out.splitlines()[3] and out.splitlines()[3].endswith("-"), out

    # Another model, by a little and by much.
    other = Net()
    other.load_state_dict(net.state_dict())
    with torch.no_grad():
        other.first.bias += 1e-6
    torch.jit.script(other).save(folder / "other.pt")
    evaluated = incidents / "20260101T000002-0003-drift"
    write_incident(evaluated, net, good)
    out, _ = run([evaluated, folder / "other.pt"], 1)
    assert all(line.endswith("  no") for line in out.splitlines()[1:]), out
    assert run([evaluated, folder / "other.pt", "--rtol", "1e-3"], 0)[0].count("no, within 0.001") == 3
    run([evaluated, folder / "other.pt", "--rtol", "1e-12"], 1)
    found = json.loads(run([evaluated, folder / "other.pt", "--json"], 1)[0])
    assert not found["same"] and 0 < found["forwards"][0]["difference"] < 1e-3, found

    # All modules' outputs of the last forward.
    run([evaluated, folder / "net.pt", "--save", folder / "last"], 0)
    saved = reader.read_recording(str(folder / "last"))
    assert set(saved) == {"", "first", "second", "second.fc", "second.drop"}, saved.keys()
    want = net.eval()(good[2]).flatten().tolist()
    assert saved[""][1][0].numbers == want, (saved[""][1], want)
    assert "exists" in run([evaluated, folder / "net.pt", "--save", folder / "last"], 2)[1]

    # A folder of incidents, with a ring that a killed process left.
    ring = pathlib.Path(__file__).resolve().parents[3] / "tests/formats/1/ring"
    (incidents / "ring-1-0").write_bytes(ring.read_bytes())
    out, err = run([incidents], 0)
    assert "of the ring that a killed process left" in err, err
    assert [row[0] for row in rows(out)[1:4]] == [path.name for path in (trained, lost, evaluated)], out
    assert len(out.splitlines()) == 5 and "crash" in out.splitlines()[4] and "written" in out, out
    listed = json.loads(run([incidents, "--json"], 0)[0])["incidents"]
    assert [one["forwards"] for one in listed] == [4, 3, 3, 3] and listed[0]["reason"] == "nonfinite", listed
    assert not (incidents / "ring-1-0").exists()
    (folder / "empty").mkdir()
    assert run([folder / "empty"], 0)[0] == "no incidents\n"

    # What cannot be replayed.
    assert "give the TorchScript file" in run([evaluated], 2)[1]
    assert "is no folder" in run([folder / "none"], 2)[1]
    assert "is no incident" in run([incidents, folder / "net.pt"], 2)[1]
    assert "no forward from 500 on" in run([evaluated, folder / "net.pt", "--from", 500], 2)[1]
    (evaluated / "incident.json").write_text('{"format": 2}')
    assert "written by a newer torchtap" in run([evaluated, folder / "net.pt"], 2)[1]
    assert "cannot be read" in run([incidents], 0)[0]


with tempfile.TemporaryDirectory() as temporary:
    check(pathlib.Path(temporary))
print("torchtap replay does as it says")
