#!/usr/bin/env python3
"""torchtap diff: torchvision's ResNet-18 in Python against itself with one weight changed, and small folders in every
way in which two can differ.

usage: diff.py TORCHTAP SOURCE"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision

torchtap, source = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
sys.path.insert(0, str(source / "python"))
from torchtap.record import record_folder  # noqa: E402

failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def diff(a, b, *arguments, status):
    """Returns the JSON document; also checks that the table agrees with it."""
    results = [
        subprocess.run([str(torchtap), "diff", str(a), str(b), *arguments, *more], capture_output=True, text=True)
        for more in (["--json"], [])
    ]
    for done in results:
        check(
            done.returncode == status,
            f"diff {a} {b}: exit status {done.returncode} instead of {status}\n{done.stdout}\n{done.stderr}",
        )
    if status == 2:
        return results[1].stderr
    document = json.loads(results[0].stdout)
    check(document["agree"] == (status == 0), f"diff --json: {document}")
    if document["first"] is not None:
        check(f"is {document['first'] or '(root)'}:" in results[1].stdout, f"diff: {results[1].stdout}")
    document["by_path"] = {entry["path"]: entry for entry in document["entries"]}
    return document


def folder_of(path, tensors):
    path.mkdir()
    for i, value in enumerate(tensors.values()):
        torch.save(value, path / f"{i}.pt")
    json.dump(list(tensors), open(path / "names.json", "w"))
    return path


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)

    # ResNet-18, random weights.
    torch.manual_seed(0)
    model = torchvision.models.resnet18().eval()
    images = [torch.randn(2, 3, 64, 64) for _ in range(2)]

    def record(name):
        with torch.no_grad(), record_folder(model, folder / name):
            outputs = [model(batch) for batch in images]
        return outputs

    outputs = record("original")
    record("again")
    document = diff(folder / "original", folder / "again", "--rtol", "0", "--atol", "0", status=0)
    names = {name for name, _ in model.named_modules()}
    check(set(document["by_path"]) == names, f"every module of ResNet-18: {names ^ set(document['by_path'])}")
    check(
        all(
            entry["status"] == "equal" and entry["cosine"] == 1 or abs(entry["cosine"] - 1) < 1e-12
            for entry in document["entries"]
        ),
        "equal ones",
    )
    got = torch.load(folder / "original" / f"{json.load(open(folder / 'original/names.json')).index('')}.pt")
    check(all(map(torch.equal, got, outputs)), "what was recorded is what came out")

    broken = "layer3.0.conv2"
    with torch.no_grad():
        model.get_submodule(broken).weight[5, 7, 1, 1] += 0.1
    record("broken")
    document = diff(folder / "original", folder / "broken", status=1)
    check(document["first"] == broken, f"the layer that was broken: {document['first']}")
    untouched = [
        entry["status"] for entry in document["entries"] if entry["path"].startswith(("conv1", "layer1", "layer2"))
    ]
    check(set(untouched) == {"equal"}, f"nothing differs before: {untouched}")
    entry = document["by_path"][broken]
    a, b = (
        [torch.load(folder / name / f"{json.load(open(folder / name / 'names.json')).index(broken)}.pt")]
        for name in ("original", "broken")
    )
    a, b = (torch.cat([t.flatten().double() for t in side[0]]) for side in (a, b))
    check(abs(entry["max_abs"] - float((a - b).abs().max())) < 1e-12, f"max abs {entry['max_abs']}")
    check(
        abs(entry["max_rel"] - float(((a - b).abs() / b.abs()).max())) < 1e-9 * entry["max_rel"],
        f"max rel {entry['max_rel']}",
    )
    check(abs(entry["cosine"] - float(torch.dot(a, b) / a.norm() / b.norm())) < 1e-9, f"cosine {entry['cosine']}")
    check(diff(folder / "original", folder / "broken", "--atol", str(1e6), status=0)["first"] is None, "tolerances")

    # In walk order: names the module itself, not its parents.
    order = list(json.load(open(folder / "original/names.json")))
    walk = [name for name, _ in model.named_modules()]
    for name in ("original", "broken"):
        order = list(json.load(open(folder / name / "names.json")))
        folder_of(
            folder / (name + "-walk"), {path: torch.load(folder / name / f"{order.index(path)}.pt") for path in walk}
        )
    for one in ("original", "original-walk"):
        for other in ("broken", "broken-walk"):
            document = diff(folder / one, folder / other, status=1)
            check(document["first"] == broken, f"the layer that was broken, {one} and {other}: {document['first']}")

    # All kinds of differences.
    inf, nan = float("inf"), float("nan")
    base = {"a": [torch.ones(3)], "b": [torch.tensor([1.0, nan, inf]), torch.zeros(2)], "c": torch.ones(2)}
    plain = folder_of(folder / "plain", base)
    document = diff(plain, folder_of(folder / "same", base), "--rtol", "0", "--atol", "0", status=0)
    check(
        [entry["status"] for entry in document["entries"]] == ["equal"] * 3,
        f"NaN and infinities that are the same: {document}",
    )
    ways = {
        "missing in B": {"b": base["b"], "c": base["c"]},
        "missing in A": {**base, "d": torch.ones(1)},
        "shapes differ": {**base, "a": [torch.ones(4)]},
        "samples differ in number": {**base, "b": base["b"][:1]},
        "not the same results": {**base, "c": {"mean": torch.ones(2)}},
        "no samples in B": {**base, "b": []},
        "only one is a tensor": {**base, "a": [None]},
        "different": {**base, "b": [torch.tensor([1.0, 0.0, inf]), torch.zeros(2)]},
    }
    for what, other in ways.items():
        document = diff(plain, folder_of(folder / what, other), status=1)
        found = [entry["status"] for entry in document["entries"] if entry["status"] not in ("equal", "close")]
        check(found == [what], f"{what}: {found}")
    # Modules that ran on neither side, of which one side does not know.
    for one, other in ((base, {**base, "d": []}), ({**base, "d": []}, base), ({**base, "d": []}, {**base, "d": []})):
        a, b = (folder_of(folder / f"idle{len(list(folder.glob('idle*')))}", tensors) for tensors in (one, other))
        document = diff(a, b, status=0)
        check(document["by_path"]["d"]["status"] == "not run", f"a module that did not run: {document}")
        text = subprocess.run([str(torchtap), "diff", a, b], capture_output=True, text=True).stdout
        text = " ".join(text.split())  # sentences are wrapped at the width of the terminal
        check(
            "All 3 modules agree" in text and "1 module ran on neither side." in text,
            f"a module that did not run: {text}",
        )
    check(
        diff(plain, folder_of(folder / "idle-a", {**base, "b": []}), status=1)["by_path"]["b"]["status"]
        == "no samples in B",
        "ran on one side",
    )

    # Many small samples are compared together; the numbers are as of one by one.
    torch.manual_seed(2)
    many = [torch.randn(3 if i % 1000 else 2) for i in range(5000)]
    moved = [sample + 1e-7 * i for i, sample in enumerate(many)]
    moved[4321] = moved[4321] + 5
    pair = folder_of(folder / "many", {"m": many}), folder_of(folder / "moved", {"m": moved})
    entry = diff(*pair, "--rtol", "0", "--atol", "1e-2", status=1)["by_path"]["m"]
    a, b = (torch.cat(samples).double() for samples in (many, moved))
    check(
        entry["detail"] == "sample 4321" and abs(entry["max_abs"] - float((a - b).abs().max())) < 1e-12,
        f"many samples: {entry}",
    )
    check(abs(entry["cosine"] - float(torch.dot(a, b) / a.norm() / b.norm())) < 1e-9, f"many samples: {entry}")
    entry = diff(*pair, "--rtol", "0", "--atol", "6", status=0)["by_path"]["m"]
    check(
        entry["status"] == "close"
        and abs(entry["max_rel"] - float(((a - b).abs() / b.abs()).max())) < 1e-9 * entry["max_rel"],
        f"many samples: {entry}",
    )
    check(
        diff(pair[0], pair[0], "--rtol", "0", "--atol", "0", status=0)["by_path"]["m"]["status"] == "equal",
        "many equal samples",
    )
    for value in (torch.tensor([1.0, nan, -inf]), torch.tensor([nan, nan, inf]), torch.tensor([1.0, nan, 3e38])):
        other = folder_of(folder / f"b{value.tolist()}", {**base, "b": [value, torch.zeros(2)]})
        document = diff(plain, other, "--rtol", "1", status=1)
        check(document["by_path"]["b"]["max_abs"] == "Infinity" or value[2] == 3e38, f"{value}: {document}")
        diff(other, plain, "--rtol", "1", status=1)
    near = folder_of(folder / "near", {**base, "a": [torch.ones(3, dtype=torch.float64) + 1e-6]})
    document = diff(plain, near, status=0)
    check(
        document["by_path"]["a"]["status"] == "close" and abs(document["by_path"]["a"]["max_abs"] - 1e-6) < 1e-12,
        f"close: {document}",
    )
    diff(plain, near, "--rtol", "0", "--atol", "0", status=1)
    diff(plain, source / "tests/storage/schema_1", status=1)
    diff(plain / "0.pt", near / "2.pt", status=1)
    diff(plain / "2.pt", near / "2.pt", "--rtol", "0", "--atol", "0", status=0)
    check("nosuch" in diff(plain, folder / "nosuch", status=2), "no such folder")
    (folder / "plain/1.pt").write_bytes(b"PK")
    check("1.pt" in diff(plain, near, status=2), "a damaged file")
    json.dump({"a": 1}, open(folder / "plain/names.json", "w"))
    check("names.json" in diff(plain, near, status=2), "damaged names")

print("FAILED" if failures else "diff names the layer where a difference first shows")
sys.exit(1 if failures else 0)
