"""Tests torchtap show, merge, convert and completion against torch, NumPy and bash."""

import json
import os
import re
import shutil
import struct
import zipfile

import numpy
import pytest
import torch
from harness import SOURCE, TORCHTAP, call, document, given, in_terminal, recording, run


@pytest.fixture(scope="module", autouse=True)
def parts(folder):
    call(given("parts"), folder)


def same(a, b):
    if isinstance(b, torch.Tensor):
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and torch.allclose(a.double(), b.double(), rtol=1e-6, atol=1e-7, equal_nan=True)
        )
    if isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in b)
    if isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a is None and b is None


def test_merge(folder):
    for way in ["mean", "named", "series", "window", "over", "kept", "slots", "kept_slots", "by", "dense", "joint"]:
        one = folder / way
        run("merge", one / "1", one / "2", "--save", one / "12")
        run("merge", one / "none", one / "12", one / "3", "--save", one / "all")  # a merged recording merges again
        run("merge", one / "1", one / "2", one / "3", "--save", one / "at-once")
        for merged in ("all", "at-once"):
            for (got, value), (want, expected) in zip(recording(one / merged), recording(one / "whole")):
                assert same(value, expected), "merge"
                for field in "path type kind samples reduction holds keys dtype shape number".split():
                    assert got[field] == want[field], "merge"
    # The samples of the parts, in the order given.
    kept = folder / "kept"
    run("merge", kept / "3", kept / "1", "--save", kept / "31")
    for (_, got), (_, last), (_, first) in zip(*(recording(kept / part) for part in ("31", "3", "1"))):
        assert len(got) == 4 and all(map(torch.equal, got, last + first)), "merge: the order of samples"

    for way in ("callable", "map"):
        errors = run("merge", folder / way / "1", folder / way / "2", "--save", folder / way / "all", status=2).err
        assert 'entry 0 ("")' in errors and "state" in errors, "merge"
        assert not (folder / way / "all").exists(), "merge"
    errors = run("merge", folder / "mean/1", folder / "window/1", "--save", folder / "x", status=2).err
    assert "reduction" in errors and "Mean(over=[0])" in errors and "Window" in errors, "merge: other reductions"
    manifest = folder / "other/manifest.json"
    shutil.copytree(folder / "mean/1", manifest.parent)
    edited = json.loads(manifest.read_text().replace('"path": "1"', '"path": "9"'))
    del edited["crc32"]
    manifest.write_text(json.dumps(edited))
    errors = run("merge", folder / "mean/1", manifest.parent, "--save", folder / "x", status=2).err
    assert "entry 2" in errors and '"1"' in errors and '"9"' in errors, "merge: other modules"
    # Every second sample of parts of odd length differs from every second sample of the whole.
    notes = run("merge", folder / "mean/1", folder / "mean/../mean/1", "--save", folder / "doubled").err
    assert "was given twice" in notes, "merge: overlapping globs"
    errors = run("merge", folder / "mean/1", folder / "mean/2", "--save", folder / "mean/12", status=2).err
    assert "overwrite" in errors, "merge: a recording that is there"
    run("merge", folder / "mean/1", folder / "mean/2", "--save", folder / "mean/12", "--overwrite")
    # The modules of all parts, and parts in the order of their numbers.
    run("merge", folder / "mean/1", manifest.parent, "--save", folder / "stages", "--all-modules")
    assert [entry["path"] for entry, _ in recording(folder / "stages")] == ["", "0", "1", "2", "9"]
    for number, part in ((2, "1"), (10, "3")):
        shutil.copytree(kept / part, folder / f"rank{number}")
    run("merge", folder / "rank10", folder / "rank2", "--by-number", "--save", folder / "by-number")
    for (_, got), (_, first), (_, last) in zip(
        *(recording(part) for part in (folder / "by-number", kept / "1", kept / "3"))
    ):
        assert len(got) == 4 and all(map(torch.equal, got, first + last)), "merge: parts by number"
    state = folder / "mean/damaged"
    shutil.copytree(folder / "mean/2", state)
    data = bytearray((state / "0.pt").read_bytes())
    header = next(
        info.header_offset
        for info in zipfile.ZipFile(state / "0.pt").infolist()
        if info.filename.endswith("torchtap/0/bytes")
    )
    data[header + 30 + sum(struct.unpack("<HH", data[header + 26 : header + 30]))] ^= 1  # after name and padding
    (state / "0.pt").write_bytes(data)
    run("merge", folder / "mean/1", state, "--save", folder / "x", status=2)
    # Recordings made before states were saved.
    old = SOURCE / "tests/storage/format_1"
    errors = run("merge", old, old, "--save", folder / "x", status=2).err
    assert "layer1.conv" in errors, "merge: without states"


def test_progress(folder):
    """Progress draws a bar on a terminal, nothing in a pipe, and leaves a clean line."""
    command = ("merge", folder / "mean/1", folder / "mean/2", "--overwrite", "--save", folder / "shown")
    piped = run(*command)
    assert piped.out.count("\n") == 1 and piped.err == "", "no progress in a pipe"
    drawn, said = in_terminal(TORCHTAP, *command).rsplit("\r\x1b[K", 1)
    assert "4/4" in drawn and "\n" not in drawn and said == piped.out.replace("\n", "\r\n")


def test_show(folder):
    table = run("show", folder / "kept/whole").out
    lines = table.splitlines()
    assert lines[0].split() == ["index", "path", "type", "kind", "samples", "reduction", "dtype", "shape", "bytes"]
    assert len(lines) == 5 and "(root)" in lines[1] and "Linear" in lines[2] and "ForwardOutput" in lines[2], "show"
    told = document("show", folder / "kept/whole")
    for got, (want, _) in zip(told["entries"], recording(folder / "kept/whole")):
        for field in ("index", "path", "aliases", "type", "kind", "samples", "reduction", "dtype", "shape", "bytes"):
            assert got[field] == want[field], "show --json"

    special = folder / "special.pt"
    values = torch.tensor([1.0, float("nan"), float("inf"), -2.0, 4.0, float("-inf")])
    torch.save([values, torch.ones(2, 2)], special)
    stats = document("show", special, "--stats")["stats"]
    finite = torch.tensor([1.0, -2.0, 4.0, 1, 1, 1, 1], dtype=torch.float64)
    want = {
        "mean": finite.mean(),
        "std": finite.std(),
        "min": finite.min(),
        "max": finite.max(),
        "nan": 1,
        "inf": 2,
        "elements": 10,
    }
    for key, value in want.items():
        assert abs(stats[0][key] - float(value)) < 1e-12, "show --stats"
    for stat in document("show", folder / "kept/whole", "--stats")["stats"]:
        all_values = torch.cat([t.flatten() for t in recording(folder / "kept/whole")[stat["index"]][1]]).double()
        assert abs(stat["mean"] - float(all_values.mean())) < 1e-6
        assert abs(stat["std"] - float(all_values.std())) < 1e-6

    value = recording(folder / "named/whole")[1][1]
    got = document("show", folder / "named/whole", "--entry", "0", "--result", "moments.variance")
    assert torch.equal(torch.tensor(got["values"], dtype=torch.float64), value["moments.variance"])
    got = document("show", folder / "named/whole", "--entry", "#3", "--result", "top_k.indices")
    assert got["path"] == "2" and got["values"] == recording(folder / "named/whole")[3][1]["top_k.indices"].tolist()
    got = document("show", special, "--entry", "special", "--sample", "0")
    assert got["values"] == [1.0, "NaN", "Infinity", -2.0, 4.0, "-Infinity"], "show --sample"
    text = run("show", special, "--entry", "special", "--sample", "1").out
    assert "float32" in text and "2x2" in text, "show --sample"
    text = run("show", folder / "named/whole", "--entry", "0").out
    assert "moments.std" in text and "top_k.indices" in text, "show --entry lists the results"
    errors = run("show", folder / "named/whole", "--entry", "0", "--result", "moment", status=2).err
    assert "moments.variance" in errors, "show --result lists the results"
    for way in ("mean", "named", "series", "window", "over", "slots", "callable", "map"):
        entries = document("show", folder / way / "whole")["entries"]
        assert len(entries) == 4 and all(entry["statistics"] for entry in entries)
        assert [entry["path"] for entry in entries] == ["", "0", "1", "2"]
        assert ("slot" in entries[0]) == (way == "slots")
    entries = document("show", folder / "named/none")["entries"]
    assert len(entries) == 4 and not any(entry["statistics"] or entry["marks"] for entry in entries)
    run("show", folder / "named/none")
    for wrong in (
        ["--entry", "nosuch"],
        ["--entry", "#17"],
        ["--entry", "0", "--result", "nosuch"],
        ["--entry", "0", "--result", "sum.value", "--sample", "0"],
    ):
        run("show", folder / "named/whole", *wrong, status=2)
    run("show", folder / "nosuch", status=2)

    # Histograms of values, and of the counts of a reduction.
    got = document("show", folder / "kept/whole", "--entry", "1", "--histogram")["histograms"][0]
    all_values = torch.cat([t.flatten() for t in recording(folder / "kept/whole")[2][1]]).numpy().astype("f8")
    counts, edges = numpy.histogram(all_values, 40)
    assert got["counts"] == counts.tolist() and numpy.allclose(got["edges"], edges), "show --histogram"
    for result in ("histogram", "histogram_2"):
        got = document("show", folder / "named/whole", "--entry", "2", "--histogram", "--result", result)["histograms"][
            0
        ]
        value = recording(folder / "named/whole")[3][1]
        assert got["counts"] == value[result + ".counts"].sum(0).tolist()
        assert got["edges"] == value[result + ".edges"].tolist()
    torch.save(torch.arange(8.0), special)
    plain = run("show", special, "--histogram", LC_ALL="C").out
    blocks = run("show", special, "--histogram", LC_ALL="C.UTF-8").out
    assert "#" in plain and plain.isascii() and "█" in blocks and "#" not in blocks


def safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    assert (8 + size) % 8 == 0, "safetensors: alignment"
    header = json.loads(data[8 : 8 + size])
    metadata, body, end, tensors = header.pop("__metadata__"), data[8 + size :], 0, {}
    dtypes = {
        "F32": torch.float32,
        "F64": torch.float64,
        "I64": torch.int64,
        "BF16": torch.bfloat16,
        "BOOL": torch.bool,
        "F16": torch.float16,
    }
    for name, part in header.items():
        start, stop = part["data_offsets"]
        assert start == end, "safetensors"
        end = stop
        raw = bytearray(body[start:stop])
        tensors[name] = (
            torch.frombuffer(raw, dtype=dtypes[part["dtype"]]) if raw else torch.empty(0, dtype=dtypes[part["dtype"]])
        ).reshape(part["shape"])
    assert end == len(body) and all(isinstance(value, str) for value in metadata.values()), "safetensors: the end"
    return metadata, tensors


def test_convert(folder):
    for way in ("named", "kept", "slots"):
        run("convert", folder / way / "whole", "--to", "npy", "--save", folder / way / "npy")
        run("convert", folder / way / "whole", "--to", "safetensors", "--save", folder / way / "x.safetensors")
        run("convert", folder / way / "whole", "--to", "csv", "--save", folder / way / "csv/")
        metadata, tensors = safetensors(folder / way / "x.safetensors")
        assert [entry["path"] for entry in json.loads(metadata["entries"])] == ["", "0", "1", "2"], "safetensors"
        want = {}
        for entry, value in recording(folder / way / "whole"):
            path = entry["path"] or "root"
            if isinstance(value, list):
                want.update({f"{path}/{i}": tensor for i, tensor in enumerate(value)})
            for key, item in value.items() if isinstance(value, dict) else ():
                if isinstance(item, dict):
                    want.update({f"{path}/{key}.{name}": tensor for name, tensor in item.items()})
                else:
                    want[f"{path}/{key}"] = item
        assert set(tensors) == set(want)
        for name, tensor in want.items():
            assert name in tensors
            assert tensors[name].dtype == tensor.dtype
            assert torch.equal(tensors[name].nan_to_num(9), tensor.nan_to_num(9))
            array = numpy.load(folder / way / "npy" / (name + ".npy"))
            assert array.dtype == tensor.numpy().dtype and numpy.array_equal(array, tensor.numpy(), equal_nan=True)
            file = folder / way / "csv" / (name + ".csv")
            if tensor.dim() <= 2:
                array = numpy.loadtxt(file, delimiter=",", ndmin=tensor.dim(), dtype=tensor.numpy().dtype)
                assert numpy.array_equal(array, tensor.numpy(), equal_nan=True)
        index = json.load(open(folder / way / "npy/index.json"))
        assert len(index) == len(want) and all((folder / way / "npy" / item["file"]).exists() for item in index)

    # Stacked samples of one shape, all dtypes, names that would lead out of the folder, unsupported dtypes.
    odd = folder / "odd"
    odd.mkdir()
    values = {
        "stacked": [torch.full((2, 3), float(i)) for i in range(4)],
        "bf16": torch.arange(4).to(torch.bfloat16) / 3,
        "flags": torch.tensor([True, False]),
        "cube": torch.arange(24, dtype=torch.float64).view(2, 3, 4),
        "empty": torch.zeros(0, 3),
        "..up": torch.tensor(2.5, dtype=torch.float16),
        "dict": {"../../up": torch.ones(1)},
    }
    for name, value in values.items():
        torch.save(value, odd / f"{name}.pt")
    notes = run("convert", odd, "--to", "npy", "--save", folder / "odd-npy").err
    assert "bfloat16" in notes and "bf16" in notes, "npy: bfloat16 is said"
    run("convert", odd, "--to", "csv", "--save", folder / "odd-csv")
    run("convert", odd, "--to", "safetensors", "--save", folder / "odd.safetensors")
    _, tensors = safetensors(folder / "odd.safetensors")
    assert torch.equal(tensors["stacked"], torch.stack(values["stacked"]))
    assert torch.equal(tensors["bf16"], values["bf16"])
    assert tensors["empty"].shape == (0, 3)
    assert numpy.array_equal(numpy.load(folder / "odd-npy/bf16.npy"), values["bf16"].float().numpy())
    assert numpy.load(folder / "odd-npy/empty.npy").shape == (0, 3), "npy: an empty tensor"
    files = {str(path.relative_to(folder / "odd-npy")) for path in (folder / "odd-npy").rglob("*.npy")}
    assert len(files) == 7 and not list(folder.rglob("*up.npy"))[2:], "npy: names stay inside"
    rows = numpy.loadtxt(folder / "odd-csv/cube.csv", delimiter=",", skiprows=1)
    assert rows.shape == (24, 4) and all(values["cube"][int(a), int(b), int(c)] == value for a, b, c, value in rows)
    assert open(folder / "odd-csv/cube.csv").readline() == "dim0,dim1,dim2,value\n", "csv: headings"
    torch.save(torch.tensor([1 + 2j]), folder / "complex.pt")
    errors = run(
        "convert", folder / "complex.pt", "--to", "safetensors", "--save", folder / "c.safetensors", status=2
    ).err
    assert "complex64" in errors and not (folder / "c.safetensors").exists(), "safetensors: complex"
    run("convert", folder / "complex.pt", "--to", "csv", "--save", folder / "complex-csv")
    assert complex((folder / "complex-csv/complex.csv").read_text().strip()) == 1 + 2j, "csv: complex"
    run("convert", odd, "--to", "npy", "--save", folder / "odd-npy", status=2)
    run("convert", odd, "--to", "hdf5", "--save", folder / "x", status=2)
    assert not [name for name in os.listdir(folder) if "torchtap-new" in name], "convert leaves nothing behind"


def test_compare(folder):
    """Compares recordings of C++ with recordings of Python."""
    python = folder / "python"
    python.mkdir()
    entries = {entry["path"] or "root": value for entry, value in recording(folder / "kept/whole")}
    for path, value in entries.items():
        torch.save(value, python / f"{path}.pt")
    for a, b in ((folder / "kept/whole", python), (python, folder / "kept/whole")):
        run("compare", a, b, "--rtol", 0, "--atol", 0)
    run("compare", folder / "kept/whole", folder / "mean/whole", status=1)
    entries["0"][2][0, 0] += 1
    torch.save(entries["0"], python / "0.pt")
    told = document("compare", folder / "kept/whole", python, status=1)
    assert told["first"] == "0" and told["entries"][0]["detail"] == "sample 2", "compare of C++ and Python"


def test_completion(folder):
    script = run("completion", "bash").out
    (folder / "completion").write_text(script)

    def completed(line, here=folder):
        """Returns the completions that bash offers for the last word of this line."""
        words = line.split(" ")
        program = (
            f"source {folder}/completion; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; "
            '_torchtap 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = call("bash", "--norc", "-c", program, cwd=here)
        assert done.err == ""
        return done.out.split()

    commands = completed("torchtap ")
    assert {"show", "compare", "merge", "convert", "preload", "completion"} <= set(commands), "completion"
    assert completed("torchtap sh") == ["show"] and completed("torchtap --ver") == ["--version"]
    assert completed("torchtap show --st") == ["--stats"], "completion of an option"
    # Every option in the help is completed.
    for command in commands:
        if command.startswith("-"):
            continue
        text = run(command, "--help").out
        assert "Examples:" in text
        options = {
            word.strip(",").split("[")[0]
            for line in text.splitlines()
            if line.startswith("  -")
            for word in line.split("  ")[1].split(" ")[0].split(",")
        }
        missing = {word for word in options if word.startswith("--")} - set(completed(f"torchtap {command} --"))
        assert not missing
    assert completed("torchtap convert --to ") == ["npy", "safetensors", "csv", "tensorboard", "parquet"], (
        "completion of choices"
    )
    assert completed("torchtap trace --direction ") == ["bottom-up", "top-down", "left-right"], "completion of choices"

    words = re.findall(r'^_torchtap_choices\[.*\]="(.*)"$', script, re.M)
    odd = [line for line in words if not re.fullmatch(r"[\w.+ -]*", line)]
    assert len(words) >= 8 and not odd, "choices are words for every shell"
    assert completed("torchtap convert --to s") == ["safetensors"] and completed("torchtap convert --to = c") == ["csv"]
    assert completed("torchtap record --reduce mom") == ["moments"], "completion of a reduction"
    assert "grad-output" in completed("torchtap preload --what "), "completion of choices of preload"
    assert completed("torchtap completion ") == ["bash", "zsh", "fish"], "completion of a positional choice"
    here = folder / "files"
    (here / "a folder").mkdir(parents=True)
    (here / "maps").mkdir()
    assert completed("torchtap show ma", here) == ["maps"] and completed("torchtap merge x --save m", here) == ["maps"]
    assert "bash" in completed("torchtap preload --save x -- bas"), "completion of another program"
    run("completion", "csh", status=2)
