#!/usr/bin/env python3
"""Tests torchtap show, merge, convert and completion against torch, NumPy and bash.

usage: commands.py TORCHTAP PARTS SOURCE"""

import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy
import torch

torchtap, parts, source = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, status=0, **environment):
    """Returns stdout and stderr."""
    done = subprocess.run(
        [torchtap, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    check(
        done.returncode == status,
        f"{' '.join(map(str, arguments))}: exit status {done.returncode} instead of {status}\n{done.stderr}",
    )
    return done.stdout, done.stderr


def recording(folder):
    """[(entry of the manifest, value)]"""
    return [
        (entry, torch.load(str(folder / entry["file"]), weights_only=True) if entry["file"] else None)
        for entry in json.load(open(folder / "manifest.json"))["entries"]
    ]


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


def check_merge(folder):
    for way in ["mean", "named", "series", "window", "over", "kept", "slots", "kept_slots", "by", "dense", "joint"]:
        one = folder / way
        run("merge", one / "1", one / "2", "--save", one / "12")
        run("merge", one / "none", one / "12", one / "3", "--save", one / "all")  # a merged recording merges again
        run("merge", one / "1", one / "2", one / "3", "--save", one / "at-once")
        for merged in ("all", "at-once"):
            for (got, value), (want, expected) in zip(recording(one / merged), recording(one / "whole")):
                check(same(value, expected), f"merge: {way} {got['path']}: {value} instead of {expected}")
                for field in (
                    "path",
                    "type",
                    "kind",
                    "samples",
                    "reduction",
                    "holds",
                    "keys",
                    "dtype",
                    "shape",
                    "number",
                ):
                    check(
                        got[field] == want[field],
                        f"merge: {way} {got['path']}: {field} {got[field]} instead of {want[field]}",
                    )
    # The samples of the parts, in the order given.
    kept = folder / "kept"
    run("merge", kept / "3", kept / "1", "--save", kept / "31")
    for (_, got), (_, last), (_, first) in zip(*(recording(kept / part) for part in ("31", "3", "1"))):
        check(len(got) == 4 and all(map(torch.equal, got, last + first)), "merge: the order of samples")

    for way in ("callable", "map"):
        _, errors = run("merge", folder / way / "1", folder / way / "2", "--save", folder / way / "all", status=2)
        check('entry 0 ("")' in errors and "state" in errors, f"merge: {way} is refused: {errors}")
        check(not (folder / way / "all").exists(), f"merge: {way} leaves nothing behind")
    _, errors = run("merge", folder / "mean/1", folder / "window/1", "--save", folder / "x", status=2)
    check(
        "reduction" in errors and "Mean(over=[0])" in errors and "Window" in errors,
        f"merge: other reductions: {errors}",
    )
    manifest = folder / "other/manifest.json"
    subprocess.run(["cp", "-r", folder / "mean/1", manifest.parent], check=True)
    manifest.write_text(manifest.read_text().replace('"path": "1"', '"path": "9"'))
    _, errors = run("merge", folder / "mean/1", manifest.parent, "--save", folder / "x", status=2)
    check("entry 2" in errors and '"1"' in errors and '"9"' in errors, f"merge: other modules: {errors}")
    # Every second sample of parts of odd length differs from every second sample of the whole.
    _, errors = run("merge", folder / "mean/1", folder / "mean/2", "--save", folder / "mean/12", status=2)
    check("overwrite" in errors, f"merge: a recording that is there: {errors}")
    run("merge", folder / "mean/1", folder / "mean/2", "--save", folder / "mean/12", "--overwrite")
    # The modules of all parts, and parts in the order of their numbers.
    run("merge", folder / "mean/1", manifest.parent, "--save", folder / "stages", "--all-modules")
    check(
        [entry["path"] for entry, _ in recording(folder / "stages")] == ["", "0", "1", "2", "9"],
        "merge: the modules of all parts",
    )
    for number, part in ((2, "1"), (10, "3")):
        subprocess.run(["cp", "-r", kept / part, folder / f"rank{number}"], check=True)
    run("merge", folder / "rank10", folder / "rank2", "--by-number", "--save", folder / "by-number")
    for (_, got), (_, first), (_, last) in zip(
        *(recording(part) for part in (folder / "by-number", kept / "1", kept / "3"))
    ):
        check(len(got) == 4 and all(map(torch.equal, got, first + last)), "merge: parts by number")
    state = folder / "mean/damaged"
    subprocess.run(["cp", "-r", folder / "mean/2", state], check=True)
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
    old = pathlib.Path(source) / "tests/storage/format_1"
    _, errors = run("merge", old, old, "--save", folder / "x", status=2)
    check("layer1.conv" in errors, f"merge: without states: {errors}")


def check_progress(folder):
    """Progress draws a bar on a terminal, nothing in a pipe, and leaves a clean line."""
    command = [
        torchtap,
        "merge",
        str(folder / "mean/1"),
        str(folder / "mean/2"),
        "--overwrite",
        "--save",
        str(folder / "shown"),
    ]
    piped = subprocess.run(command, capture_output=True)
    check(
        piped.returncode == 0 and piped.stdout.count(b"\n") == 1 and piped.stderr == b"",
        f"no progress in a pipe: {piped.stderr}",
    )
    ours, theirs = pty.openpty()
    done = subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    drawn = os.read(ours, 1 << 16)
    os.close(ours)
    check(
        done.returncode == 0 and b"4/4" in drawn and drawn.endswith(b"\r\x1b[K") and b"\n" not in drawn,
        f"progress on a terminal: {drawn}",
    )


def check_show(folder):
    table, _ = run("show", folder / "kept/whole")
    lines = table.splitlines()
    check(
        lines[0].split() == ["index", "path", "type", "kind", "samples", "reduction", "dtype", "shape", "bytes"],
        f"show: {lines[0]}",
    )
    check(
        len(lines) == 5 and "(root)" in lines[1] and "Linear" in lines[2] and "ForwardOutput" in lines[2],
        f"show: {table}",
    )
    document = json.loads(run("show", folder / "kept/whole", "--json")[0])
    for got, (want, _) in zip(document["entries"], recording(folder / "kept/whole")):
        for field in ("index", "path", "aliases", "type", "kind", "samples", "reduction", "dtype", "shape", "bytes"):
            check(got[field] == want[field], f"show --json: {field}")

    special = folder / "special.pt"
    values = torch.tensor([1.0, float("nan"), float("inf"), -2.0, 4.0, float("-inf")])
    torch.save([values, torch.ones(2, 2)], special)
    stats = json.loads(run("show", special, "--stats", "--json")[0])["stats"]
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
        check(abs(stats[0][key] - float(value)) < 1e-12, f"show --stats: {key} {stats[0][key]} instead of {value}")
    for stat in json.loads(run("show", folder / "kept/whole", "--stats", "--json")[0])["stats"]:
        all_values = torch.cat([t.flatten() for t in recording(folder / "kept/whole")[stat["index"]][1]]).double()
        check(
            abs(stat["mean"] - float(all_values.mean())) < 1e-6 and abs(stat["std"] - float(all_values.std())) < 1e-6,
            f"show --stats of {stat['path']}: {stat}",
        )

    value = recording(folder / "named/whole")[1][1]
    got = json.loads(run("show", folder / "named/whole", "--entry", "0", "--result", "moments.variance", "--json")[0])
    check(
        torch.equal(torch.tensor(got["values"], dtype=torch.float64), value["moments.variance"]), "show --entry: values"
    )
    got = json.loads(run("show", folder / "named/whole", "--entry", "#3", "--result", "top_k.indices", "--json")[0])
    check(
        got["path"] == "2" and got["values"] == recording(folder / "named/whole")[3][1]["top_k.indices"].tolist(),
        "show --entry: an index",
    )
    got = json.loads(run("show", special, "--entry", "special", "--sample", "0", "--json")[0])
    check(got["values"] == [1.0, "NaN", "Infinity", -2.0, 4.0, "-Infinity"], f"show --sample: {got}")
    text, _ = run("show", special, "--entry", "special", "--sample", "1")
    check("float32" in text and "2x2" in text, f"show --sample: {text}")
    text, _ = run("show", folder / "named/whole", "--entry", "0")
    check("moments.std" in text and "top_k.indices" in text, f"show --entry lists the results: {text}")
    _, errors = run("show", folder / "named/whole", "--entry", "0", "--result", "moment", status=2)
    check("moments.variance" in errors, f"show --result lists the results: {errors}")
    for way in ("mean", "named", "series", "window", "over", "slots", "callable", "map"):
        entries = json.loads(run("show", folder / way / "whole", "--json")[0])["entries"]
        check(
            len(entries) == 4 and all(entry["statistics"] for entry in entries), f"show: statistics of {way}: {entries}"
        )
        check(
            [entry["path"] for entry in entries] == ["", "0", "1", "2"] and ("slot" in entries[0]) == (way == "slots"),
            f"show: slots of {way}",
        )
    entries = json.loads(run("show", folder / "named/none", "--json")[0])["entries"]
    check(
        len(entries) == 4 and not any(entry["statistics"] or entry["marks"] for entry in entries),
        f"show: without samples: {entries}",
    )
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
    got = json.loads(run("show", folder / "kept/whole", "--entry", "1", "--histogram", "--json")[0])["histograms"][0]
    all_values = torch.cat([t.flatten() for t in recording(folder / "kept/whole")[2][1]]).numpy().astype("f8")
    counts, edges = numpy.histogram(all_values, 40)
    check(
        got["counts"] == counts.tolist() and numpy.allclose(got["edges"], edges),
        f"show --histogram: {got['counts']} instead of {counts.tolist()}",
    )
    for result in ("histogram", "histogram_2"):
        got = json.loads(
            run("show", folder / "named/whole", "--entry", "2", "--histogram", "--result", result, "--json")[0]
        )["histograms"][0]
        value = recording(folder / "named/whole")[3][1]
        check(
            got["counts"] == value[result + ".counts"].sum(0).tolist()
            and got["edges"] == value[result + ".edges"].tolist(),
            f"show --histogram: {result}",
        )
    torch.save(torch.arange(8.0), special)
    plain, _ = run("show", special, "--histogram", LC_ALL="C")
    blocks, _ = run("show", special, "--histogram", LC_ALL="C.UTF-8")
    check(
        "#" in plain and plain.isascii() and "█" in blocks and "#" not in blocks,
        f"show --histogram: bars\n{plain}\n{blocks}",
    )


def safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    check((8 + size) % 8 == 0, "safetensors: alignment")
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
        check(start == end, f"safetensors: {name} begins at {start} instead of {end}")
        end = stop
        raw = bytearray(body[start:stop])
        tensors[name] = (
            torch.frombuffer(raw, dtype=dtypes[part["dtype"]]) if raw else torch.empty(0, dtype=dtypes[part["dtype"]])
        ).reshape(part["shape"])
    check(end == len(body) and all(isinstance(value, str) for value in metadata.values()), "safetensors: the end")
    return metadata, tensors


def check_convert(folder):
    for way in ("named", "kept", "slots"):
        run("convert", folder / way / "whole", "--to", "npy", "--save", folder / way / "npy")
        run("convert", folder / way / "whole", "--to", "safetensors", "--save", folder / way / "x.safetensors")
        run("convert", folder / way / "whole", "--to", "csv", "--save", folder / way / "csv/")
        metadata, tensors = safetensors(folder / way / "x.safetensors")
        check(
            [entry["path"] for entry in json.loads(metadata["entries"])] == ["", "0", "1", "2"],
            f"safetensors: {metadata}",
        )
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
        check(set(tensors) == set(want), f"convert {way}: {sorted(set(tensors) ^ set(want))}")
        for name, tensor in want.items():
            check(
                name in tensors
                and tensors[name].dtype == tensor.dtype
                and torch.equal(tensors[name].nan_to_num(9), tensor.nan_to_num(9)),
                f"safetensors: {name}",
            )
            array = numpy.load(folder / way / "npy" / (name + ".npy"))
            check(
                array.dtype == tensor.numpy().dtype and numpy.array_equal(array, tensor.numpy(), equal_nan=True),
                f"npy: {name}",
            )
            file = folder / way / "csv" / (name + ".csv")
            if tensor.dim() <= 2:
                array = numpy.loadtxt(file, delimiter=",", ndmin=tensor.dim(), dtype=tensor.numpy().dtype)
                check(
                    numpy.array_equal(array, tensor.numpy(), equal_nan=True),
                    f"csv: {name}: {array} instead of {tensor}",
                )
        index = json.load(open(folder / way / "npy/index.json"))
        check(
            len(index) == len(want) and all((folder / way / "npy" / item["file"]).exists() for item in index),
            f"npy: {index}",
        )

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
    _, notes = run("convert", odd, "--to", "npy", "--save", folder / "odd-npy")
    check("bfloat16" in notes and "bf16" in notes, f"npy: bfloat16 is said: {notes}")
    run("convert", odd, "--to", "csv", "--save", folder / "odd-csv")
    run("convert", odd, "--to", "safetensors", "--save", folder / "odd.safetensors")
    _, tensors = safetensors(folder / "odd.safetensors")
    check(
        torch.equal(tensors["stacked"], torch.stack(values["stacked"]))
        and torch.equal(tensors["bf16"], values["bf16"])
        and tensors["empty"].shape == (0, 3),
        "safetensors: odd ones",
    )
    check(
        numpy.array_equal(numpy.load(folder / "odd-npy/bf16.npy"), values["bf16"].float().numpy()),
        "npy: bfloat16 as float32",
    )
    check(numpy.load(folder / "odd-npy/empty.npy").shape == (0, 3), "npy: an empty tensor")
    files = {str(path.relative_to(folder / "odd-npy")) for path in (folder / "odd-npy").rglob("*.npy")}
    check(len(files) == 7 and not list(folder.rglob("*up.npy"))[2:], f"npy: names stay inside: {files}")
    rows = numpy.loadtxt(folder / "odd-csv/cube.csv", delimiter=",", skiprows=1)
    check(
        rows.shape == (24, 4) and all(values["cube"][int(a), int(b), int(c)] == value for a, b, c, value in rows),
        "csv: three dimensions",
    )
    check(open(folder / "odd-csv/cube.csv").readline() == "dim0,dim1,dim2,value\n", "csv: headings")
    torch.save(torch.tensor([1 + 2j]), folder / "complex.pt")
    _, errors = run(
        "convert", folder / "complex.pt", "--to", "safetensors", "--save", folder / "c.safetensors", status=2
    )
    check("complex64" in errors and not (folder / "c.safetensors").exists(), f"safetensors: complex: {errors}")
    run("convert", folder / "complex.pt", "--to", "csv", "--save", folder / "complex-csv")
    check(complex((folder / "complex-csv/complex.csv").read_text().strip()) == 1 + 2j, "csv: complex")
    run("convert", odd, "--to", "npy", "--save", folder / "odd-npy", status=2)
    run("convert", odd, "--to", "hdf5", "--save", folder / "x", status=2)
    check(not [name for name in os.listdir(folder) if "torchtap-new" in name], "convert leaves nothing behind")


def check_compare(folder):
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
    document = json.loads(run("compare", folder / "kept/whole", python, "--json", status=1)[0])
    check(
        document["first"] == "0" and document["entries"][0]["detail"] == "sample 2",
        f"compare of C++ and Python: {document}",
    )


def check_completion(folder):
    script, _ = run("completion", "bash")
    (folder / "completion").write_text(script)

    def completed(line, here=folder):
        """Returns the completions that bash offers for the last word of this line."""
        words = line.split(" ")
        program = (
            f"source {folder}/completion; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; "
            '_torchtap 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, cwd=here)
        check(done.returncode == 0 and done.stderr == "", f"completion of {line}: {done.stderr}")
        return done.stdout.split()

    commands = completed("torchtap ")
    check({"show", "compare", "merge", "convert", "preload", "completion"} <= set(commands), f"completion: {commands}")
    check(
        completed("torchtap sh") == ["show"] and completed("torchtap --ver") == ["--version"],
        "completion of a subcommand",
    )
    check(completed("torchtap show --st") == ["--stats"], "completion of an option")
    # Every option in the help is completed.
    for command in commands:
        if command.startswith("-"):
            continue
        text, _ = run(command, "--help")
        check("Examples:" in text, f"{command} --help has examples")
        options = {
            word.strip(",").split("[")[0]
            for line in text.splitlines()
            if line.startswith("  -")
            for word in line.split("  ")[1].split(" ")[0].split(",")
        }
        missing = {word for word in options if word.startswith("--")} - set(completed(f"torchtap {command} --"))
        check(not missing, f"completion of {command}: without {missing}")
    check(completed("torchtap convert --to ") == ["npy", "safetensors", "csv", "tensorboard"], "completion of choices")
    check(
        completed("torchtap trace --direction ") == ["bottom-up", "top-down", "left-right"],
        f"completion of choices: {completed('torchtap trace --direction ')}",
    )

    words = re.findall(r'^_torchtap_choices\[.*\]="(.*)"$', script, re.M)
    odd = [line for line in words if not re.fullmatch(r"[\w.+ -]*", line)]
    check(len(words) >= 8 and not odd, f"choices are words for every shell: {odd}")
    check(
        completed("torchtap convert --to s") == ["safetensors"] and completed("torchtap convert --to = c") == ["csv"],
        "completion of a choice",
    )
    check(completed("torchtap record --reduce mom") == ["moments"], "completion of a reduction")
    check("grad-output" in completed("torchtap preload --what "), "completion of choices of preload")
    check(completed("torchtap completion ") == ["bash", "zsh", "fish"], "completion of a positional choice")
    here = folder / "files"
    (here / "a folder").mkdir(parents=True)
    (here / "maps").mkdir()
    check(
        completed("torchtap show ma", here) == ["maps"] and completed("torchtap merge x --save m", here) == ["maps"],
        "completion of files",
    )
    check("bash" in completed("torchtap preload --save x -- bas"), "completion of another program")
    run("completion", "csh", status=2)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    subprocess.run([parts, str(folder)], check=True)
    check_merge(folder)
    check_progress(folder)
    check_show(folder)
    check_convert(folder)
    check_compare(folder)
    check_completion(folder)

print("FAILED" if failures else "show, merge, convert and completion do what torch, NumPy and bash do")
sys.exit(1 if failures else 0)
