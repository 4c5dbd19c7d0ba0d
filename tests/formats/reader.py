"""Reads torchtap's files by docs/format.md and the FORMAT.md of parts, with Python's standard library alone, and checks
tests/formats/1/.

usage: reader.py FOLDER
"""

import itertools
import json
import os
import struct
import sys
import zlib

DTYPES = {
    "ByteStorage": ("uint8", "B"),
    "CharStorage": ("int8", "b"),
    "ShortStorage": ("int16", "h"),
    "IntStorage": ("int32", "i"),
    "LongStorage": ("int64", "q"),
    "HalfStorage": ("float16", "e"),
    "FloatStorage": ("float32", "f"),
    "DoubleStorage": ("float64", "d"),
    "BoolStorage": ("bool", "?"),
    "BFloat16Storage": ("bfloat16", "H"),
    "ComplexFloatStorage": ("complex64", "ff"),
    "ComplexDoubleStorage": ("complex128", "dd"),
}
BY_NAME = dict(DTYPES.values())
NUMBERS = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bfloat16",
}


class Tensor:
    def __init__(self, dtype, shape, data):
        code = BY_NAME[dtype]
        self.dtype, self.shape = dtype, list(shape)
        numbers = struct.unpack("<" + code * (len(data) // struct.calcsize("<" + code)), data)
        if dtype == "bfloat16":
            numbers = [struct.unpack("<f", struct.pack("<I", number << 16))[0] for number in numbers]
        if len(code) == 2:
            numbers = [complex(*pair) for pair in zip(numbers[::2], numbers[1::2])]
        self.numbers = list(numbers)

    def rows(self):
        size = len(self.numbers) // self.shape[0] if self.shape[0] else 0
        code = BY_NAME[self.dtype]
        for i in range(self.shape[0]):
            part = self.numbers[i * size : (i + 1) * size]
            yield Tensor(self.dtype, self.shape[1:], struct.pack("<" + code * len(part), *part))


def records(path):
    """The records of a zip container by name, their checksums compared."""
    data = open(path, "rb").read()
    end = data.rindex(b"PK\5\6")
    count, size, start = struct.unpack_from("<HII", data, end + 10)
    found, at = {}, start
    for _ in range(count):
        (flags, method, _, crc, _, length, name_size, extra_size, comment_size) = struct.unpack_from(
            "<HHIIIIHHH", data, at + 8
        )
        (offset,) = struct.unpack_from("<I", data, at + 42)
        name = data[at + 46 : at + 46 + name_size].decode()
        assert flags == 0x0800 and method == 0, name
        assert data[offset : offset + 4] == b"PK\3\4", name
        begin = offset + 30 + sum(struct.unpack_from("<HH", data, offset + 26))
        assert begin % 64 == 0, name
        found[name] = data[begin : begin + length]
        assert zlib.crc32(found[name]) == crc, name
        at += 46 + name_size + extra_size + comment_size
    assert at == start + size
    return found


def unpickle(files):
    data, at = files["archive/data.pkl"], 0
    stack, memo, mark = [], {}, object()

    def to_mark():
        place = len(stack) - 1 - stack[::-1].index(mark)
        items = stack[place + 1 :]
        del stack[place:]
        return items

    def rebuild(name, arguments):
        if name == "collections.OrderedDict":
            return {}
        (dtype, key, elements), offset, sizes, strides = arguments[:4]
        if name.endswith("_v3"):
            dtype = arguments[6].rsplit(".")[1]
        item = struct.calcsize("<" + BY_NAME[dtype])
        count = 1
        for extent in sizes:
            count *= extent
        for i, stride in enumerate(strides):  # contiguous
            step = 1
            for extent in sizes[i + 1 :]:
                step *= max(extent, 1)
            assert stride == step
        raw = files["archive/data/" + key]
        return Tensor(dtype, sizes, raw[offset * item : (offset + count) * item])

    while True:
        op, at = data[at : at + 1], at + 1
        if op == b"\x80":
            assert data[at] == 2
            at += 1
        elif op == b".":
            assert len(stack) == 1
            return stack[0]
        elif op == b"(":
            stack.append(mark)
        elif op == b"N":
            stack.append(None)
        elif op == b"\x89":
            stack.append(False)
        elif op == b"]":
            stack.append([])
        elif op == b"}":
            stack.append({})
        elif op == b")":
            stack.append(())
        elif op == b"e":
            items = to_mark()
            stack[-1].extend(items)
        elif op == b"u":
            items = to_mark()
            stack[-1].update(zip(items[::2], items[1::2]))
        elif op == b"t":
            stack.append(tuple(to_mark()))
        elif op == b"X":
            (size,) = struct.unpack_from("<I", data, at)
            stack.append(data[at + 4 : at + 4 + size].decode())
            at += 4 + size
        elif op in (b"K", b"M", b"J"):
            code = {b"K": "<B", b"M": "<H", b"J": "<i"}[op]
            stack.append(struct.unpack_from(code, data, at)[0])
            at += struct.calcsize(code)
        elif op == b"\x8a":
            assert data[at] == 8
            stack.append(struct.unpack_from("<q", data, at + 1)[0])
            at += 9
        elif op == b"c":
            module, name = data[at:].split(b"\n", 2)[:2]
            at += len(module) + len(name) + 2
            stack.append((module + b"." + name).decode())
        elif op == b"q":
            memo[data[at]] = stack[-1]
            at += 1
        elif op == b"h":
            stack.append(memo[data[at]])
            at += 1
        elif op == b"Q":
            kind, storage, key, device, elements = stack.pop()
            assert kind == "storage" and device == "cpu"
            name = storage.rsplit(".")[-1]
            stack.append((DTYPES[name][0] if name in DTYPES else None, key, elements))
        elif op == b"R":
            arguments = stack.pop()
            stack.append(rebuild(stack.pop(), arguments))
        else:
            raise ValueError(f"opcode {op} is not in docs/format.md")


def read_value(path):
    files = records(path)
    assert files["archive/byteorder"] == b"little" and files["archive/version"] == b"3\n"
    assert files["archive/torchtap/format"] == b"1\n"
    return unpickle(files), files


class State:
    """The state of a reduction, field by field."""

    def __init__(self, data):
        assert data[0] == 1
        self.data, self.at = data, 1

    def take(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def list(self, item):
        return [item() for _ in range(self.take("Q"))]

    def integers(self):
        return self.list(lambda: self.take("q"))

    def block(self):
        """A block of `Blocks`."""
        names = "samples rows zeros nan negative_infinity positive_infinity min max sum sum_squares".split()
        block = {name: self.take("q" if i < 6 else "d") for i, name in enumerate(names)}
        numbers, number, shift = [], 0, 0
        for byte in self.list(lambda: self.take("B")):
            number, shift = number | (byte & 127) << shift, shift + 7
            if byte < 128:
                numbers, number, shift = numbers + [number], 0, 0
        slots = itertools.accumulate(numbers[::2])
        block["bins"] = list(zip(slots, numbers[1::2]))
        return block

    def tensor(self):
        dtype, device, index = self.take("i"), self.take("i"), self.take("i")
        sizes = self.integers()
        size = self.take("Q")
        self.at += size
        if dtype == -1:
            assert size == 0
            return None
        assert device == 0 and index == -1
        return Tensor(NUMBERS[dtype], sizes, self.data[self.at - size : self.at])

    def intake(self):
        found = {
            "over": self.integers(),
            "over_all": self.take("?"),
            "policy": self.take("i"),
            "count": self.take("q"),
            "shaped": self.take("?"),
            "kept": self.integers(),
            "dtype": self.take("i"),
            "device": (self.take("i"), self.take("i")),
            "omitted": self.tensor(),
        }
        assert found["policy"] in (0, 1, 2) and found["device"] == (0, -1), found
        return found

    def reduction(self, recipe):
        name, _, inner = recipe.partition("(")
        parts, depth, begin = [], 0, 0
        inner = inner[:-1]
        for i, letter in enumerate(inner):
            depth += (letter == "(") - (letter == ")")
            if letter == "," and depth == 0:
                parts.append(inner[begin:i])
                begin = i + 2
        parts += [inner[begin:]] if inner else []
        version = self.take("I")
        assert version in ((1, 2) if name in ("Moments", "Covariance", "Gram", "callable") else (1,)), (version, recipe)
        tensor, take = self.tensor, self.take
        if name == "Series":
            return [self.reduction(part) for part in parts]
        if name == "Every":
            return {"n": take("q"), "seen": take("q"), "part": self.reduction(parts[0])}
        if name in ("Over", "Map"):
            return {"dims": self.integers() if name == "Over" else None, "part": self.reduction(parts[0])}
        if name == "By":
            state = {"name": self.text(), "n": take("q"), "most": take("q"), "left_out": take("q")}
            state["each"] = self.reduction(parts[0])
            state["groups"] = {take("q"): self.reduction(parts[0]) for _ in range(take("Q"))}
            return state
        if name == "Where":
            return {"name": self.text(), "left_out": take("q"), "part": self.reduction(parts[0])}
        if name == "Joint":
            return {"name": self.text(), "start": take("q"), "part": self.reduction(parts[0])}
        if name == "LinearCKA":
            return {"part": self.reduction("Joint(Covariance)")}
        if name == "Window":
            return {"n": take("q"), "seen": take("q"), "samples": self.list(tensor), "part": self.reduction(parts[0])}
        if name == "callable":
            state = {"count": take("q"), "value": tensor()}
            if version == 2:
                state["known"], state["sizes"] = take("?"), self.list(lambda: take("q"))
            return state
        if name == "Blocks":
            return {"most": take("q"), "each": take("q"), "blocks": self.list(self.block)}
        state = {"intake": self.intake()}
        if name == "CrossCovariance":
            state["name"] = self.text()
        fields = {
            "Sum": "value",
            "Mean": "value",
            "Min": "value",
            "Max": "value",
            "AbsMax": "value",
            "First": "value",
            "Last": "value",
            "Moments": "?unbiased mean m2 m3 m4",
            "Norm": "dp value",
            "Count": "qelements nan inf zeros",
            "EMA": "ddecay value",
            "Histogram": "qbins ?growing dlow dhigh slots min max exponent start",
            "Covariance": "?unbiased taken mean product",
            "Gram": "taken product",
            "CrossCovariance": "?unbiased qstart taken mean squares product gathered",
            "TopK": "qk ?largest values indices",
        }
        for field in fields.get(name, "").split():
            if field[0] in "?dq":
                state[field[1:]] = take(field[0])
            else:
                state[field] = tensor()
        if name == "Moments":
            state["order"] = take("q") if version == 2 else 4
        if name == "LogHistogram":
            state.update(mantissa_bits=take("q"), slots=self.integers(), counts=tensor())
        if name == "Formats":
            state.update(
                names=self.list(self.text),
                scales=self.list(lambda: take("d")),
                counts=tensor(),
                sums=tensor(),
                abs_max=tensor(),
            )
        if version == 2 and name in ("Covariance", "Gram"):
            state["gathered"] = tensor()
        if name == "Quantiles":
            state.update(
                size=take("q"),
                seed=take("Q"),
                at=self.list(lambda: take("d")),
                random=take("Q"),
                levels=self.list(lambda: self.list(tensor)),
                exact=take("?"),
                min=tensor(),
                max=tensor(),
                nan=tensor(),
            )
        if name == "Reservoir":
            state.update(k=take("q"), seed=take("Q"), random=take("Q"), samples=tensor(), indices=self.integers())
        assert len(state) > 1, f"{name} is not in docs/format.md"
        return state


def read_manifest(folder):
    data = open(folder + "/manifest.json", "rb").read()
    manifest = json.loads(data)
    if "crc32" in manifest:
        assert int(manifest["crc32"], 16) == zlib.crc32(data[: data.rindex(b'"crc32": "')])
    return manifest


def read_recording(folder):
    """Each entry and its samples or results; of an unfinished recording what is whole, `.part` files included."""
    manifest = {"entries": []}
    if os.path.exists(folder + "/manifest.json"):
        manifest = read_manifest(folder)
        assert manifest["format"] in (1, 2) and manifest["count"] == len(manifest["entries"])
    entries, opened = manifest["entries"], {}
    if os.path.exists(folder + "/journal.jsonl"):
        for line in open(folder + "/journal.jsonl", "rb").read().splitlines():
            assert int(line[:8], 16) == zlib.crc32(line[9:]) and line[8:9] == b" "
            ((event, said),) = json.loads(line[9:]).items()
            if event == "recording":
                assert said["format"] in (1, 2)
            elif event == "entry":
                assert said["entry"] == len(entries)
                entries.append({**said, "file": "", "shards": []})
            elif event == "open":
                opened[said["name"]] = said
            elif event == "not_recorded":
                entries[said["entry"]]["not_recorded"] = said["not_recorded"]
            elif event == "shard":
                entries[said["entry"]]["shards"].append(said["shard"])
                opened.pop(said["shard"]["file"][:-3])
    found = {}
    for entry in entries:
        key = entry["path"]
        if entry["kind"] in ("Beside", "Place") or entry["kind"].endswith(".calls"):
            key = entry["path"], entry["kind"]  # of a dump
        if entry["file"]:
            path = folder + "/" + entry["file"]
            assert os.path.getsize(path) == entry["bytes"]
            value, files = read_value(path)
            found[key] = (entry, value, files)
            continue
        slots = {}
        for shard in entry.get("shards", []):
            path = folder + "/" + shard["file"]
            assert os.path.getsize(path) == shard["bytes"]
            value, _ = read_value(path)
            assert shard["holds"] == ("list" if isinstance(value, list) else "tensor")
            samples = value if isinstance(value, list) else list(value.rows())
            assert len(samples) == shard["samples"]
            slots.setdefault(shard["slot"], []).extend(samples)
        found[key] = (entry, slots, None)
    for name, said in opened.items():
        slot = found[entries[said["entry"]]["path"]][1].setdefault(said["slot"], [])
        if os.path.exists(folder + "/" + name + ".pt"):  # complete, but not in the journal yet
            slot.extend(read_value(folder + "/" + name + ".pt")[0].rows())
            continue
        data = open(folder + "/" + name + ".part", "rb").read()[128:]
        size = struct.calcsize("<" + BY_NAME[said["dtype"]])
        for extent in said["shape"]:
            size *= extent
        for i in range(len(data) // size):
            if said["stacked"] < 0 or i < said["stacked"]:
                slot.append(Tensor(said["dtype"], said["shape"], data[i * size : (i + 1) * size]))
    return found


def calls_of(found, path, kind):
    """By extras/rows/FORMAT.md: the number of the first row of each call in the files, and its line."""
    entry, slots, _ = found[path, kind + ".calls"]
    assert entry["type"] == "rows 1"
    calls, first = [], 0
    for line in (sample.numbers for sample in slots[-1]):
        if line[2] == -1 and line[4] < 0:  # rows that are missing
            missing = -line[4]
            for call in reversed(calls):
                gone = min(missing, call[1][4])
                call[1][4] -= gone
                missing -= gone
            first += line[4]
            continue
        calls.append((first, line))
        first += line[4]
    rows = found[path if kind not in ("Beside", "Place") else (path, kind)]
    assert first == rows[0]["samples"]
    return [(first, line) for first, line in calls if line[2] != -1]


def read_dump(folder):
    """For each module its rows, as (run, forward, call, place, numbers, {name: numbers beside them})."""
    found = read_recording(folder)
    columns = {}
    for path, kind in (key for key in found if isinstance(key, tuple) and key[1] in ("Beside", "Place")):
        groups = {}
        for first, line in calls_of(found, path, kind):
            groups.setdefault((line[0], line[2]), found[path, kind][1][-1][first : first + line[4]])
        columns[path, kind] = groups
    modules = {}
    for path in (key for key in found if isinstance(key, str)):
        entry, slots, _ = found[path]
        modules[path] = []
        for first, (run, forward, group, call, rows) in calls_of(found, path, entry["kind"]):
            for i in range(rows):
                beside = {
                    key: of[run, group][i].numbers for key, of in columns.items() if i < len(of.get((run, group), ()))
                }
                (place,) = beside.pop(("place", "Place"), [i])
                beside = {name: numbers for (name, _), numbers in beside.items()}
                modules[path].append((run, forward, call, place, slots[-1][first + i].numbers, beside))
    return modules


def read_snapshot(path):
    data = open(path, "rb").read()
    assert data[:8] == b"tapsnap\0"
    version, size, checksum = struct.unpack_from("<IQI", data, 8)
    payload = data[24:]
    assert version in (1, 2) and len(payload) == size
    assert zlib.crc32(payload) == checksum
    state = State(payload)
    kind, records = state.text(), []
    for _ in range(state.take("Q")):
        record = {
            "path": state.text(),
            "samples": state.take("q"),
            "refused": state.take("q"),
            "without_tensors": state.take("q"),
            "slots": [],
        }
        if version >= 2:
            record["left_out"], record["none"], record["why_left_out"] = state.take("q"), state.take("q"), state.text()
            record["dropped"], record["unmatched"] = state.take("q"), state.take("q")
            record["unmatched_samples"] = state.take("q")
        for _ in range(state.take("Q")):
            description = state.text()
            record["slots"].append(state.reduction(description) if description else state.list(state.tensor))
        records.append(record)
    assert state.at == len(payload)
    return kind, records


def read_states(folder):
    """The states of each entry of a recording of reductions."""
    states = {}
    for path, (entry, results, files) in read_recording(folder).items():
        if files is None:
            continue
        count = 0
        while f"archive/torchtap/{count}/recipe" in files:
            recipe = files[f"archive/torchtap/{count}/recipe"].decode()
            state = State(files[f"archive/torchtap/{count}/bytes"])
            states[path] = state.reduction(recipe)
            assert state.at == len(state.data), path
            count += 1
        assert count == (2 if path == "slots" else 1)
    return states


class Columns:
    """The graph of a saved trace: columns by name, lists as lists."""

    def __init__(self, value):
        assert value.pop("format").numbers == [1]
        for name, column in value.items():
            if isinstance(column, Tensor):
                found = column.numbers
            elif len(column) == 2 and all(isinstance(one, Tensor) for one in column):
                numbers, ends = (one.numbers for one in column)
                found = [numbers[begin:end] for begin, end in zip([0, *ends], ends)]
            else:
                assert all(isinstance(one, str) for one in column), name
                found = column
            setattr(self, name, found)
        lengths = {
            len(getattr(self, name))
            for name in (
                "kind layer pass bytes flags result results nanoseconds type function name dtype device source shape parents "
                "parameters modules output_of arguments"
            ).split()
        }
        assert len(lengths) == 1, lengths
        assert len(self.argument_name) == len(self.argument_text) == len(self.argument_nodes) == sum(self.arguments)
        assert len(self.about) == 2 and len(self.totals) == 5


def read_trace(folder):
    """The graph of a saved trace, and the kept tensors by label."""
    manifest = read_manifest(folder)
    *nodes, last = manifest["entries"]
    assert last["kind"] == "TraceGraph" and {node["kind"] for node in nodes} == {"Trace"}
    graph = Columns(read_value(folder + "/" + last["file"])[0])
    assert len(graph.kind) == len(nodes)
    kept = {}
    for node, flags in zip(nodes, graph.flags):
        assert bool(flags & 64) == (node["samples"] == 1)
        if node["file"]:
            kept[node["path"]] = read_value(folder + "/" + node["file"])[0]
    return last["type"], nodes, graph, kept


def read_report(path):
    """The type of the model, what is said of the whole, and the modules by path."""
    ((name, root),) = json.load(open(path, encoding="utf-8")).items()
    assert root["report"]["format"] == 3
    modules = {}

    def visit(module, path):
        assert module["info"]["path"] == path, path
        modules[path] = module["info"]
        for child, inside in module["children"].items():
            visit(inside, f"{path}.{child}" if path else child)

    visit(root, "")
    return name, root["report"], modules


def read_run(path):
    """A run of an explorer: info, series by number, columns by series, graphs by mode, the steps it came to, whether it ended."""
    data = open(path, "rb").read()
    assert data[:8] == b"TAPX\1\0\0\0"
    run = {
        "info": {},
        "series": {},
        "columns": {},
        "scalars": {},
        "updates": {},
        "graphs": {},
        "steps": [],
        "ended": False,
    }
    at = 8
    while at + 12 <= len(data):
        size, checksum, own = struct.unpack_from("<III", data, at)
        assert zlib.crc32(data[at : at + 8]) == own
        payload = data[at + 12 : at + 12 + size]
        if len(payload) < size:
            break  # it was being written
        assert zlib.crc32(payload) == checksum
        at += 12 + size
        letter, body = payload[:1].decode(), payload[1:]

        def text(begin):
            (size,) = struct.unpack_from("<I", body, begin)
            assert begin + 4 + size == len(body)
            return body[begin + 4 :].decode()

        if letter == "I":
            run["info"] = json.loads(body)
            assert run["info"]["format"] == 1 and run["info"]["mantissa_bits"] == 3
        elif letter == "S":
            number, call, what, index, mode = struct.unpack_from("<iiBii", body)
            assert number == len(run["series"])
            run["series"][number] = {"call": call, "what": what, "index": index, "mode": mode, "name": text(17)}
        elif letter == "C":
            (series,) = struct.unpack_from("<i", body)
            run["columns"].setdefault(series, []).append(read_column(body[4:]))
        elif letter == "V":
            step, value = struct.unpack_from("<qd", body)
            run["scalars"].setdefault(text(16), []).append((step, value))
        elif letter == "U":
            series, step, ratio = struct.unpack("<iqd", body)
            run["updates"].setdefault(series, []).append((step, ratio))
        elif letter == "G":
            run["graphs"][body[0]] = json.loads(body[9:])
        elif letter == "T":
            run["steps"].append(struct.unpack("<q", body)[0])
        elif letter == "E":
            run["ended"] = True
    return run


def read_column(data):
    names = "count nan plus_inf minus_inf zeros min max sum squares".split()
    first, last, *numbers, bins = struct.unpack_from("<qq9dI", data)
    column = {"first": first, "last": last, **dict(zip(names, numbers)), "bins": {}}
    at, bin_number = 92, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    for _ in range(bins):
        bin_number += varint()
        column["bins"][bin_number] = varint()
    assert at == len(data)
    return column


def read_frames(path):
    """The frames of a file, one behind the other: header, texts and the bytes of the data."""
    return split_frames(open(path, "rb").read())


def split_frames(data):
    at, frames = 0, []
    while at < len(data):
        version, begin, length = struct.unpack_from("<HHQ", data, at + 4)
        assert data[at : at + 4] == b"TTF1" and version == 1 and begin % 64 == length % 64 == 0
        sequence, _, sample, call, size = struct.unpack_from("<QQQQQ", data, at + 16)
        checksum, slot, *sizes, kind, dtype, dims, flags = struct.unpack_from("<IHHHHHBBBB", data, at + 80)
        texts, place = [], at + 192
        for one in sizes:
            texts.append(data[place : place + one].decode())
            place += one
        values = data[at + begin : at + begin + size]
        assert not flags & 1 or zlib.crc32(values) == checksum
        frames.append(
            {
                "sequence": sequence,
                "sample": sample,
                "call": call,
                "slot": slot,
                "kind": kind,
                "dtype": dtype,
                "texts": texts,
                "shape": struct.unpack_from(f"<{dims}q", data, at + 120),
                "data": None if flags & 2 else values,
            }
        )
        at += length
    return frames


def mix(number):
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        number = (number ^ number >> shift) * factor % 2**64
    return number


def draw(stream, number):
    return mix((stream * 0x9E3779B97F4A7C15 + number + 1) % 2**64)


KEYS = [draw(1, k) >> 32 for k in range(1024)]
NANS = {5: ("H", 0x7C00, 0x7E00), 6: ("I", 0x7F800000, 0x7FC00000), 7: ("Q", 0x7FF << 52, 0x7FF8 << 48)}
NANS.update({8: NANS[5], 9: NANS[6], 10: NANS[7], 15: ("H", 0x7F80, 0x7FC0)})


def digest(dtype, shape, data):
    """The digest in a fingerprint, of the number of a dtype and the bytes of elements."""
    if dtype in NANS:
        code, infinity, nan = NANS[dtype]
        elements = struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
        rest = (1 << 8 * struct.calcsize(code) - 1) - 1  # without the sign
        data = struct.pack(f"<{len(elements)}{code}", *[nan if one & rest > infinity else one for one in elements])
    data += bytes(-len(data) % 4)
    words, halves = struct.unpack(f"<{len(data) // 4}I", data), [0, 0]
    for c in range(-(-len(words) // 1024)):
        block = words[1024 * c : 1024 * c + 1024]
        block += (0,) * (-len(block) % 64)
        a, b = 0, 0x9E3779B97F4A7C15 * (sum(block) % 2**32)
        for j in range(0, len(block), 2):
            product = (block[j] + KEYS[j]) % 2**32 * ((block[j + 1] + KEYS[j + 1]) % 2**32)
            a, b = a + product, b + (len(block) // 16 - j // 16) * product
        halves = [halves[0] + mix((a + draw(3, c)) % 2**64), halves[1] + mix((b + draw(4, c)) % 2**64)]
    number = dtype + 1
    for size in shape:
        number = (number * 0x9E3779B97F4A7C15 + size + 1) % 2**64
    return mix(halves[0] % 2**64 ^ number), mix((halves[1] + number) % 2**64)


def xxh64(data):
    """XXH64 with seed 0."""
    p1, p2, p3, p4, p5 = (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )

    def rotate(word, by):
        return (word << by | word >> 64 - by) % 2**64

    def step(lane, word):
        return rotate((lane + word * p2) % 2**64, 31) * p1 % 2**64

    lanes = [(p1 + p2) % 2**64, p2, 0, -p1 % 2**64]
    whole = len(data) // 32 * 32
    for at in range(0, whole, 32):
        lanes = [step(*pair) for pair in zip(lanes, struct.unpack_from("<4Q", data, at))]
    found = p5
    if whole:
        found = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) % 2**64
        for lane in lanes:
            found = ((found ^ step(0, lane)) * p1 + p4) % 2**64
    found = (found + len(data)) % 2**64
    eights = whole + (len(data) - whole) // 8 * 8
    for at in range(whole, eights, 8):
        found = (rotate(found ^ step(0, *struct.unpack_from("<Q", data, at)), 27) * p1 + p4) % 2**64
    fours = eights + (len(data) - eights) // 4 * 4
    for at in range(eights, fours, 4):
        found = (rotate(found ^ struct.unpack_from("<I", data, at)[0] * p1 % 2**64, 23) * p2 + p3) % 2**64
    for byte in data[fours:]:
        found = rotate(found ^ byte * p5 % 2**64, 11) * p1 % 2**64
    found = (found ^ found >> 33) * p2 % 2**64
    found = (found ^ found >> 29) * p3 % 2**64
    return found ^ found >> 32


def outputs_digest(tensors):
    """The digest of float32 tensors, as incidents have it."""
    data = b""
    for tensor in tensors:
        for part in (struct.pack(f"<{2 + len(tensor.shape)}q", 6, len(tensor.shape), *tensor.shape),
                     struct.pack(f"<{len(tensor.numbers)}f", *tensor.numbers)):  # fmt: skip
            data += part
    return xxh64(data)


def read_ring(path):
    """What the ring says of itself, and its frames, oldest first."""
    data = open(path, "rb").read()
    assert data[:4] == b"TTA1"
    version, capacity = struct.unpack_from("<IQ", data, 4)
    assert version == 1 and len(data) == 8192 + capacity
    head, epochs, begin, offset, of_epoch, at = (
        struct.unpack_from("<Q", data, place)[0] for place in (64, 256, 264, 272, 280, 4104)
    )
    assert (epochs, begin, offset, of_epoch) == (1, 0, 0, capacity)
    about = json.loads(data[4160 : data.index(b"\0", 4160)])
    assert about["format"] == 1
    frames = []
    while at < head:
        place = 8192 + at % capacity
        if data[place : place + 4] == b"TTPD":
            at += capacity - at % capacity
            continue
        (length,) = struct.unpack_from("<Q", data, place + 8)
        frames += split_frames(data[place : place + length])
        at += length
    return about, frames


def read_incident(folder):
    """incident.json, the lines of forwards.jsonl, the inputs by slot, the random states."""
    about = json.load(open(folder + "/incident.json", encoding="utf-8"))
    assert about["format"] == 1
    forwards = [json.loads(line) for line in open(folder + "/forwards.jsonl", encoding="utf-8")]
    assert len(forwards) == about["forwards"]
    entry, inputs, _ = read_recording(folder + "/inputs")[""]
    assert entry["kind"] == "ForwardPre" and entry["samples"] == len(forwards)
    states, _ = read_value(folder + "/random_states.pt")
    return about, forwards, inputs, states


def monitored(folder):
    """x -> 2 x of three forwards, as tests/formats/write/monitor.cpp has it."""
    about, forwards, inputs, states = read_incident(folder + "/incident")
    assert about["reason"] == "nonfinite" and about["model"] == "written" and about["alarms"] == []
    assert [forward["forward"] for forward in forwards] == [90000, 90001, 90002]
    assert [forward["random_state"] for forward in forwards] == [0, 1, 2] and states.shape == [3, 5056]
    assert [forward["training"] for forward in forwards] == [False, False, True]
    assert list(inputs) == ["0", "1", "2"] and inputs["2"] == [None, None, None]
    assert [one["kept"] for one in forwards[0]["inputs"]] == [True, True, False]
    for i, forward in enumerate(forwards):
        x, mask = inputs["0"][i], inputs["1"][i]
        want = [0 + i, 3 + i, 1 + i, 4 + i, 2 + i, 5 + i]
        assert x.shape == [3, 2] and x.numbers[1:] == want[1:] and forward["inputs"][0]["strides"] == [1, 3]
        assert (x.numbers[0] != x.numbers[0]) if i == 1 else x.numbers[0] == i
        assert mask.numbers == [k == i for k in range(4)]
        assert forward["returned"] == (i != 2)
        if forward["returned"]:
            doubled = Tensor("float32", [3, 2], struct.pack("<6f", *[2 * number for number in x.numbers]))
            assert int(forward["digest"], 16) == outputs_digest([doubled])
            assert (forward["nan"], forward["inf"], forward["nanoseconds"]) == (int(i == 1), 0, 1500000)
    said, frames = read_ring(folder + "/ring")
    assert said["model"] == "written" and said["incidents"].endswith("/incidents")
    results = [frame["texts"][3] for frame in frames]
    assert results == ["state", "", "", "", "returned"] * 2 + ["state", "", "", "", "window"], results
    state = frames[0]
    assert state["texts"][2].split()[-2:] == ["inputs", "3"] and len(state["data"]) == 2536
    seed, left, following, seeded = struct.unpack_from("<QiIB", state["data"])
    assert (seed, left, following, seeded) == (1, 1, 0, 1)
    assert frames[1]["kind"] == 0 and frames[1]["texts"][2] == "strides 1 3" and frames[3]["texts"][2] == "undefined"
    assert struct.unpack("<6f", frames[1]["data"]) == tuple(inputs["0"][0].numbers)
    digest_of, nan, inf, nanoseconds, total, magnitude = struct.unpack("<4q2d", frames[4]["data"])
    assert digest_of % 2**64 == int(forwards[0]["digest"], 16) and (nan, inf, nanoseconds) == (0, 0, 1500000)
    assert total == magnitude == 30 == forwards[0]["sum"]
    assert frames[-1]["data"] == b'{"window":0}'


def read_calibration(path):
    """The method, and a dict by (path, kind, slot) of tensors. Numbers are lists with `axis`, and else lists of one."""
    whole = json.load(open(path, encoding="utf-8"))
    assert whole["format"] == 1 and whole["library"]
    tensors = {}
    for one in whole["tensors"]:
        least, largest = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7)}[one["dtype"]]
        for name in ("scale", "zero_point", "low", "high"):
            assert isinstance(one[name], list) == ("axis" in one), one
            one[name] = one[name] if "axis" in one else [one[name]]
            assert len(one[name]) == len(one["scale"])
        for scale in one["scale"]:
            assert scale > 0 and struct.unpack("<f", struct.pack("<f", scale))[0] == scale
        assert all(isinstance(point, int) and least <= point <= largest for point in one["zero_point"])
        assert all(low <= high for low, high in zip(one["low"], one["high"]))
        key = one["path"], one["kind"], one["slot"]
        assert key not in tensors and key[1] in ("input", "output") and key[2] >= 0
        tensors[key] = one
    return whole["method"], tensors


def calibrated(folder):
    """As tests/quantization/calibration_test.cpp reads it."""
    method, tensors = read_calibration(folder + "/int8.json")
    assert method == "mse" and list(tensors) == [("", "input", 0), ("conv", "output", 0), ("lstm", "output", 2)]
    image, conv, lstm = tensors.values()
    assert (image["dtype"], image["scale"], image["high"], "weights" in image) == ("uint8", [1 / 256], [1], False)
    assert (conv["weights"], conv["axis"], conv["type"]) == ("int4", 1, "Conv2d")
    # The outermost integers stand for the ends of the range, widened to include zero, within half a step.
    for channel, (scale, point) in enumerate(zip(conv["scale"], conv["zero_point"])):
        least, largest = (-128 - point) * scale, (127 - point) * scale
        assert abs(least - min(conv["low"][channel], 0)) <= scale / 2 + 1e-9, (least, conv)
        assert abs(largest - conv["high"][channel]) <= scale / 2, (largest, conv)
    assert lstm["weights"] == "int8" and lstm["zero_point"] == [0] and abs(lstm["scale"][0] - 0.0125) < 1e-9


def log_slot(number, bits):
    """Where a LogHistogram counts a number that is not infinite."""
    if number == 0:
        return (512 << bits) + 1
    return struct.unpack("<I", struct.pack("<f", number))[0] >> (23 - bits)


def views(folder):
    """relu(x W' + b) of [[1, 2], [3, -4]], as tests/formats/write/views.cpp has it."""
    before, after = [-0.5, 1, 6, 7.5, 5, -12], [0, 1, 6, 7.5, 5, 0]

    model, nodes, graph, kept = read_trace(folder + "/trace")
    assert model == "Sequential" and graph.about == ["Sequential", ""] and graph.totals[2] == graph.kind.count(1)
    labels = [node["path"] for node in nodes]
    assert graph.kind[0] == 0 and graph.kind[-1] == 3 and nodes[0]["type"] == "input", nodes[0]
    linear, relu = (graph.type.index(name) for name in ("linear", "relu"))
    assert kept[labels[0]].numbers == [1, 2, 3, -4] and kept[labels[linear]].numbers == before
    assert kept[labels[relu]].numbers == after == kept[labels[-1]].numbers and graph.shape[relu] == [2, 3]
    assert graph.parents[relu] == [linear] and graph.parents[0] == [] and graph.dtype[relu] == "float32"
    read = [graph.parameter_path[use] for use in graph.parameters[linear]]
    assert sorted(read) == ["fc.bias", "fc.weight"], read
    assert [graph.call_path[call] for call in graph.output_of[relu]] == ["relu"] and "relu" in nodes[relu]["aliases"]
    assert graph.module_path == ["", "fc", "relu"] and graph.module_parameters == [9, 9, 0]

    name, report, modules = read_report(folder + "/report.json")
    assert name == "Sequential" and list(modules) == ["", "fc", "relu"] and report["repeats"] == 2
    assert modules["fc"]["num_parameters"] == 9 and modules["fc"]["forward"]["work"]["macs"] == 12
    assert modules["fc"]["output_shapes"] == [[2, 3]] and modules["fc"]["forward"]["inclusive"]["calls"] == 2
    assert modules[""]["zero_fraction"] == 2 / 6 and modules[""]["marks"] == ["nonfinite"]
    assert report["findings"][0]["role"] == "producer" and report["findings"][0]["function"].startswith("aten::div")

    run = read_run(folder + "/run/explorer/run.tapx")
    assert run["ended"] and run["info"]["name"] == "written" and run["steps"][-1] == 1
    assert [step for step, _ in run["scalars"]["loss"]] == [0, 1] and run["scalars"]["loss"][0][1] == sum(after)
    weight = next(
        number
        for number, series in run["series"].items()
        if (series["call"], series["what"], series["name"]) == (1, 4, "weight")
    )
    first = run["columns"][weight][0]
    assert (first["count"], first["zeros"], first["min"], first["max"], first["sum"]) == (6, 2, -1, 3, 5), first
    assert sum(first["bins"].values()) == 4 and 2048 + 1016 in first["bins"], first["bins"]
    assert set(run["graphs"]) == {0} and [call["path"] for call in run["graphs"][0]["calls"]] == ["", "fc", "relu"]

    frames = read_frames(folder + "/frames.bin")
    assert [frame["sequence"] for frame in frames] == list(range(1000, 1000 + len(frames))) and len(frames) == 24
    assert frames[3]["texts"] == ["layer3.0.conv", "", "\u00e9poch\u00e8 3", ""] and frames[-1]["data"] is None
    prints = read_frames(folder + "/fingerprints.prints")
    for tensor, print_of in zip(prints[::2], prints[1::2]):
        assert print_of["texts"][3] == "fingerprint" and len(print_of["data"]) == 800, print_of["texts"]
        found = digest(tensor["dtype"], tensor["shape"], tensor["data"])
        assert struct.unpack_from("<QQ", print_of["data"], 72) == found, tensor["texts"]
    assert len(prints) == 20
    assert frames[6]["dtype"] == 6 and len(frames[6]["data"]) == 4 * 1 * 2 * 3 * 1 * 2 * 3, frames[6]["shape"]


def main(folder):
    samples = [[(-1) ** i * (6 * i + k) for k in range(6)] for i in range(5)]
    monitored(folder)
    calibrated(folder)

    value, _ = read_value(folder + "/value.pt")
    assert {name: tensor.numbers for name, tensor in value["dtypes"].items() if name != "Bool"} == {
        name: [0, 1, 2] for name in value["dtypes"] if name != "Bool"
    }
    assert value["dtypes"]["Bool"].numbers == [False, True, True] and len(value["dtypes"]) == 12
    assert value["text"] == "café" and value["none"] is None and value["empty"].shape == [0, 3]
    assert value["number"].numbers == [2.5] and value["number"].shape == []
    assert value["list"][1].numbers == [0, 1, 2, 3] and value["list"][2:] == [None, []]

    kept = read_recording(folder + "/kept")
    assert [tensor.numbers for tensor in kept["kept"][1]] == samples
    assert kept["kept"][0]["aliases"] == ["alias of kept"] and kept["nothing"][0]["samples"] == 0

    assert "crc32" in read_manifest(folder + "/checked")
    assert [tensor.numbers for tensor in read_recording(folder + "/checked")["kept"][1]] == samples

    spooled = read_recording(folder + "/spooled")
    assert [tensor.numbers for tensor in spooled["stacked"][1][-1]] == samples + samples[:1]
    mixed = spooled["mixed"][1][-1]
    assert [tensor and (tensor.dtype, tensor.shape) for tensor in mixed] == [("float32", [2]), None, ("int64", [3, 1])]
    assert spooled["slots"][1][1][0].numbers == [number + 1 for number in samples[0]]

    for path, rows in read_dump(folder + "/dump").items():
        assert len(rows) == {"first": 20, "twice": 40}[path] and len({run for run, *_ in rows}) == 2
        for _, forward, call, place, row, beside in rows:
            (number,) = beside["id"]
            assert number == row[0] + 128 * row[2] and number % 100 == 6 * forward + place
            assert (call < 2 if path == "twice" else call == 0) and row[1] == {"first": 1, "twice": 2 + call}[path]
            text = bytes(beside["name"]).rstrip(b"\0").decode()
            assert len(beside["name"]) == 64 and text == ("größe" if place < 3 else "b")

    unfinished = read_recording(folder + "/unfinished")
    assert [tensor.numbers for tensor in unfinished["cut off"][1][-1]] == samples

    states = read_states(folder + "/reduced")
    assert len(states) == 26
    columns = [[sample[3 * row + column] for sample in samples for row in range(2)] for column in range(3)]
    assert states["Sum"]["value"].numbers == [sum(column) for column in columns]
    assert states["Sum"]["intake"]["count"] == 10 and states["Sum"]["intake"]["over"] == [0]
    assert states["Max"]["value"].numbers == [max(column) for column in columns]
    assert states["nested"][0]["n"] == 2 and states["nested"][0]["seen"] == 5
    assert [tensor.numbers for tensor in states["Window"]["samples"]] == [samples[3], samples[4], samples[2]]
    rows = [tensor.numbers for tensor in states["Reservoir"]["samples"].rows()]
    places = states["Reservoir"]["indices"]
    assert sorted(places) == list(range(10))
    assert all(rows[i] == [column[place] for column in columns] for i, place in enumerate(places))

    added = read_states(folder + "/added")
    assert len(added) == 11
    assert added["Moments, order 2"]["order"] == 2 and added["Moments, order 2"]["m3"] is None
    gathered = added["Covariance, gathered"]["gathered"]
    assert gathered.shape == [10, 3] and gathered.numbers == [one[row] for row in range(10) for one in columns]
    by = added["By"]
    assert by["name"] == "label" and (by["n"], by["most"], by["left_out"]) == (0, 4096, 0)
    halves = [[sum(sample[3 * row + column] for sample in samples) for column in range(3)] for row in range(2)]
    assert {key: part["value"].numbers for key, part in by["groups"].items()} == {0: halves[0], 2: halves[1]}
    assert (added["Where"]["name"], added["Where"]["left_out"]) == ("mask", 5)
    assert added["Where"]["part"]["value"].numbers == halves[0]
    beside = [[*row, row[0] ** 2, row[1] ** 2] for sample in samples for row in (sample[:3], sample[3:])]
    for part in (added["Joint"], added["LinearCKA"]["part"]):
        assert (part["name"], part["start"]) == ("other", 3)
        assert part["part"]["gathered"].numbers == sum(beside, [])
    assert added["CrossCovariance"]["name"] == "other" and added["CrossCovariance"]["start"] == 3
    assert added["CrossCovariance"]["gathered"].numbers == sum(beside, [])
    for name, bits, kept in (("LogHistogram", 2, columns), ("LogHistogram, all", 3, [sum(samples, [])])):
        state = added[name]
        assert state["mantissa_bits"] == bits and state["intake"]["count"] == len(kept[0])
        slots = [[log_slot(number, bits) for number in one] for one in kept]
        assert state["slots"] == sorted(set(sum(slots, [])))
        assert state["counts"].shape == [len(kept), len(state["slots"])]
        assert state["counts"].numbers == [one.count(slot) for one in slots for slot in state["slots"]]

    blocks = added["Blocks"]
    assert (blocks["most"], blocks["each"], len(blocks["blocks"])) == (4, 2, 3)
    for i, block in enumerate(blocks["blocks"]):
        numbers = sum(samples[2 * i : 2 * i + 2], [])
        assert (block["samples"], block["rows"]) == (len(numbers) // 6, len(numbers) // 3)
        assert (block["min"], block["max"], block["sum"]) == (min(numbers), max(numbers), sum(numbers))
        assert block["zeros"] == numbers.count(0)
        slots = [log_slot(number, 3) for number in numbers if number != 0]
        assert block["bins"] == [(slot, slots.count(slot)) for slot in sorted(set(slots))]

    state = added["Formats"]
    assert (state["names"], state["scales"]) == (["int8", "nvfp4"], [2, 1])
    assert state["abs_max"].numbers == [max(map(abs, one)) for one in columns]
    assert state["counts"].shape == [3, 9] and state["sums"].shape == [3, 3, 22]
    digits = [number % 2**32 for number in state["sums"].numbers]  # they are unsigned
    sums = [sum(digit << 32 * k for k, digit in enumerate(digits[i : i + 22])) for i in range(0, len(digits), 22)]
    for column, one in enumerate(columns):
        assert state["counts"].numbers[9 * column] == one.count(0)
        rounded = [2 * round(number / 2) for number in one]  # of two neighbours the even one
        assert sums[3 * column] == sum(number**2 for number in one) * 2**352
        assert sums[3 * column + 1] == sum((a - b) ** 2 for a, b in zip(one, rounded)) * 2**352

    kind, records = read_snapshot(folder + "/kept.snapshot")
    assert kind == "ForwardInput" and len(records) == 1 and records[0]["samples"] == 5
    assert [tensor.numbers for tensor in records[0]["slots"][0]] == samples
    kind, records = read_snapshot(folder + "/reduced.snapshot")
    moments, mapped, folded = records[0]["slots"][0]
    assert mapped["part"]["value"].numbers == [max(abs(sample[k]) for sample in samples) for k in range(6)]
    assert folded["value"].numbers == [min(sample[k] for sample in samples) for k in range(6)]
    kind, records = read_snapshot(folder + "/counted.snapshot")
    assert records[0]["samples"] == 5 and records[0]["left_out"] == 1 and "[7]" in records[0]["why_left_out"]
    names = "refused without_tensors left_out none why_left_out dropped unmatched unmatched_samples".split()
    missing = dict(zip(names, [1, 2, 3, 4, "café", 5, 7, 6]))
    assert read_recording(folder + "/counted")["kept"][0]["not_recorded"] == missing
    assert read_recording(folder + "/counted_unfinished")["cut off"][0]["not_recorded"] == missing
    views(folder)
    print("all files are as docs/format.md says")


if __name__ == "__main__":
    main(sys.argv[1])
