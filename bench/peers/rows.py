"""Reading rows beside other ways to keep them: a gather of random rows, and an epoch in random order, against an array that NumPy
maps and against reading in order. Needs no C++: a dump is written here as a recorder writes it. With --write, writing rows beside
write(2) of the same bytes, also by a recorder in Python if torchtap is installed; extras/rows/bench has the recorder in C++.

usage: rows.py FOLDER [--gigabytes 1] [--row 1024] [--rounds 5] [--threads 1] [--cold] [--write] [--few]

Ways that are not installed are left out (h5py, zarr, datasets), with --few all but the fast ones. All take turns, round by round;
the median of a way's ratios to the first way of the same round is printed, by the clock and by the CPU time of the process. --cold
drops files from the page cache before each epoch. Memory is the most that is anonymous (not mapped files) while it runs, less that
before.
"""

import argparse
import gc
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import numpy
import torch

if "--write" not in sys.argv:  # the file of this checkout; a recorder is of what is installed
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "extras/python"))
from torchtap import rows as torchtap_rows

BATCH, SHARD = 4096, 64 << 20


def entry(folder, number, path, kind, type, stacks):
    shards = []
    for i, stack in enumerate(stacks):
        file = folder / f"{number}-{i}.pt"
        torch.save(stack, file)
        about = {"file": file.name, "slot": -1, "samples": len(stack), "bytes": file.stat().st_size, "holds": "tensor"}
        shards.append({**about, "dtype": str(stack.dtype)[6:], "shape": [*stack.shape[1:]], "ragged": False})
    return {"path": path, "kind": kind, "type": type, "reduction": "", "shards": shards}


def write(folder, count, width):
    """The same rows as a dump, as an array, and as HDF5, zarr and datasets have them."""
    (folder / "dump").mkdir(parents=True)
    generator, per = torch.Generator().manual_seed(0), SHARD // (4 * width)
    array = numpy.memmap(folder / "rows.bin", numpy.float32, "w+", 0, (count, width))
    stacks = [torch.randn(min(per, count - at), width, generator=generator) for at in range(0, count, per)]
    for i, stack in enumerate(stacks):
        array[i * per : i * per + len(stack)] = stack.numpy()
    array.flush()
    calls = torch.tensor([[1, i, i, 0, min(256, count - i * 256)] for i in range(-(-count // 256))])
    entries = [entry(folder / "dump", 0, "m", "ForwardOutput", "Linear", stacks)]
    entries.append(entry(folder / "dump", 1, "m", "ForwardOutput.calls", "rows 1", [calls]))
    entries.append(entry(folder / "dump", 2, "label", "Beside", "", [torch.arange(count)]))
    entries.append(entry(folder / "dump", 3, "label", "Beside.calls", "rows 1", [calls]))
    (folder / "dump/manifest.json").write_text(json.dumps({"format": 2, "count": 4, "entries": entries}))
    if importlib.util.find_spec("h5py"):
        import h5py

        with h5py.File(folder / "rows.h5", "w") as file:
            file["rows"] = array
    if importlib.util.find_spec("zarr"):
        import zarr

        store = zarr.open_array(folder / "rows.zarr", mode="w", shape=array.shape, chunks=(256, width), dtype="f4")
        store[:] = array
    if importlib.util.find_spec("datasets"):
        torchtap_rows.open(folder / "dump")["m"].dataset().save_to_disk(folder / "rows.hf")


def ways(folder, count):
    """{name: (gather of an index or None, batches of an epoch or None)}"""
    rows = torchtap_rows.open(folder / "dump")["m"]
    array = numpy.memmap(folder / "rows.bin", numpy.float32, "r").reshape(count, -1)

    def in_order():
        for i in range(0, count, BATCH):
            yield torch.from_numpy(numpy.array(array[i : i + BATCH]))

    def read():
        with open(folder / "rows.bin", "rb", 0) as file:
            while True:
                batch = numpy.empty((BATCH, array.shape[1]), numpy.float32)
                if not file.readinto(batch.reshape(-1).view(numpy.uint8)):
                    return
                yield batch

    def permuted(source):
        order = numpy.random.default_rng(0).permutation(count)
        for i in range(0, count, BATCH):
            yield source(order[i : i + BATCH])

    loader = torch.utils.data.DataLoader
    found = {
        "numpy.memmap, in order": (lambda index: array[index], in_order),
        "read(2), in order": (None, read),
        "torchtap, in order": (None, lambda: (rows[i : i + BATCH].clone() for i in range(0, count, BATCH))),
        "torchtap, shuffled": (lambda index: rows[index], lambda: rows.shuffled(BATCH)),
        "torchtap, shuffled with a column": (None, lambda: rows.shuffled(BATCH, beside=("label",))),
        "torchtap, shuffled, 2 workers": (None, lambda: loader(rows.shuffled(BATCH), batch_size=None, num_workers=2)),
        "DataLoader(rows, shuffle=True)": (None, lambda: loader(rows, BATCH, shuffle=True)),
        "DataLoader(rows, shuffle=True), 2 workers": (None, lambda: loader(rows, BATCH, shuffle=True, num_workers=2)),
        "numpy.memmap, permuted": (None, lambda: permuted(lambda index: array[index])),
    }
    if (folder / "rows.h5").exists():
        import h5py

        h5 = h5py.File(folder / "rows.h5", "r")["rows"]

        def from_h5(index):
            which, back = numpy.unique(index, return_inverse=True)  # in order, and none twice
            return h5[which][back]

        found["h5py, permuted"] = (from_h5, lambda: permuted(from_h5))
    if (folder / "rows.zarr").exists():
        import zarr

        store = zarr.open_array(folder / "rows.zarr", mode="r")
        found["zarr, permuted"] = (
            lambda index: store.oindex[index],
            lambda: permuted(lambda index: store.oindex[index]),
        )
    if (folder / "rows.hf").exists():
        import datasets

        hf = datasets.load_from_disk(str(folder / "rows.hf")).select_columns("m").with_format("numpy")
        found["datasets, shuffle"] = (lambda index: hf[index]["m"], lambda: hf.shuffle(seed=0).iter(BATCH))
        streamed = hf.to_iterable_dataset(num_shards=16).shuffle(seed=0, buffer_size=BATCH * 16)
        found["datasets, streamed shuffle"] = (None, lambda: streamed.iter(BATCH))
    return found


def writers(folder, width):
    """{name: writes batches of rows}. Those that wait for the disk say so."""
    shape = (0, width)

    def write(batches, sync=False):
        with open(folder / "bare", "wb", 0) as file:
            for one in batches:
                file.write(one.reshape(-1).view(numpy.uint8))
            if sync:
                os.fsync(file.fileno())

    def h5(batches):
        import h5py

        with h5py.File(folder / "h5", "w") as file:
            rows = file.create_dataset("rows", shape, "f4", maxshape=(None, width), chunks=(256, width))
            for one in batches:
                rows.resize(len(rows) + len(one), 0)
                rows[-len(one) :] = one

    def zarr(batches):
        import zarr

        rows = zarr.create_array(folder / "zarr", shape=shape, chunks=(256, width), dtype="f4", compressors=None)
        for one in batches:
            rows.append(one)

    def datasets(batches):
        import datasets.arrow_writer

        features = datasets.Features({"m": datasets.Array2D((1, width), "float32")})
        with datasets.arrow_writer.ArrowWriter(features=features, path=str(folder / "arrow")) as writer:
            for one in batches:
                writer.write_batch({"m": one[:, None]})
            writer.finalize()

    def recorder(batches):
        import torchtap

        same = torch.nn.Identity()
        with torchtap.ForwardOutput(rows=0, spool=folder / "dump") as dump:
            dump.attach(same)
            for one in batches:
                same(torch.from_numpy(one))
            dump.save(folder / "dump")

    found = {"write(2)": write, "write(2), fsync": lambda batches: write(batches, sync=True)}
    if importlib.util.find_spec("torchtap._C"):
        found["torchtap in Python, fsync"] = recorder
    for name, way in {"h5py": h5, "zarr": zarr, "datasets": datasets}.items():
        if importlib.util.find_spec(name):
            found[name] = way
    return found


def measure_writing(folder, row, gigabytes, rounds):
    batch = numpy.random.default_rng(0).random((512, row // 4), numpy.float32)
    count, rates = max(int(gigabytes * 1e9) // batch.nbytes, 1), {}
    for _ in range(rounds):
        for name, way in writers(folder, row // 4).items():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            start = time.perf_counter()
            way(batch for _ in range(count))
            rates.setdefault(name, []).append(count * batch.nbytes / (time.perf_counter() - start))
    shutil.rmtree(folder)
    print(f"writing rows of {row} bytes, {gigabytes} GB in batches of 512")
    for name, of in rates.items():
        ratio = statistics.median(one / other for one, other in zip(of, rates["write(2)"]))
        print(f"write | {name} | {statistics.median(of) / 1e9:.2f} GB/s | most {max(of) / 1e9:.2f} | {ratio:.2f} ×")


def drop(folder):
    """Drops files from the page cache, and says so if some of their pages are still there."""
    for file in folder.rglob("*"):
        if file.is_file():
            with open(file, "rb") as one:
                os.fsync(one.fileno())
                os.posix_fadvise(one.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if shutil.which("fincore"):
        files = [one for one in folder.rglob("*") if one.is_file() and one.stat().st_size > 1 << 20]
        told = subprocess.run(["fincore", "-bnro", "RES", *files], capture_output=True, text=True, check=True).stdout
        held = sum(map(int, told.split()))
        if held > 1 << 24:
            print(f"{held / 1e6:.0f} MB of {folder} are still in the page cache")


def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1e3


def clocks():
    return numpy.array([time.perf_counter(), time.process_time()])


def ratios(times, base):
    """By the clock and by CPU time, medians of the rounds."""
    return " | ".join(f"{one:.2f} ×" for one in numpy.median(numpy.array(base) / numpy.array(times), 0))


def epoch(make, size, seconds):
    """Seconds and CPU seconds a byte, whole or for so many seconds, and the growth of memory in MB."""
    before, most, done, start = anonymous(), 0.0, 0, clocks()
    for batch in make():
        x = batch["m"] if isinstance(batch, dict) else batch[0] if isinstance(batch, tuple) else batch
        done += len(x) * size
        most = max(most, anonymous() - before)
        if (clocks() - start)[0] > seconds:
            break
    return (clocks() - start) / done, most


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--row", type=int, default=1024, help="bytes of a row")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of an epoch at most")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--few", action="store_true", help="the fast ways only")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--write", action="store_true", help="measure writing")
    arguments = parser.parse_args()
    if arguments.write:
        return measure_writing(arguments.folder / "written", arguments.row, arguments.gigabytes, arguments.rounds)
    folder, width = arguments.folder / f"{arguments.row}", arguments.row // 4
    count = int(arguments.gigabytes * 1e9) // arguments.row
    if not folder.exists():
        write(folder, count, width)
    torch.set_num_threads(arguments.threads)
    slow = ("h5py", "zarr", "datasets", "DataLoader", "workers") if arguments.few else ()

    def made():
        return {name: way for name, way in ways(folder, count).items() if not any(one in name for one in slow)}

    found, generator = made(), numpy.random.default_rng(1)
    gathers, epochs, memory = {}, {}, {}
    for name, (gather, _) in found.items():
        if gather:
            for index in generator.integers(0, count, (2, 64)):  # pages, and what is made once
                gather(index)
    for _ in range(arguments.rounds):
        for _ in range(0 if arguments.cold else 10):
            for name, (gather, _) in found.items():
                if gather and (name not in gathers or gathers[name][0][0] < 0.5 or len(gathers[name]) < 10):
                    index = generator.integers(0, count, BATCH)
                    start = clocks()
                    kept = gather(index)
                    gathers.setdefault(name, []).append(clocks() - start)
                    del kept
        for name in [name for name, (_, make) in found.items() if make]:
            if arguments.cold:  # what is mapped cannot be dropped
                found = make = None
                gc.collect()
                drop(folder)
                found = made()
            make = found[name][1]
            taken, grown = epoch(make, arguments.row, arguments.seconds)
            epochs.setdefault(name, []).append(taken)
            memory[name] = max(memory.get(name, 0), grown)
    print(
        f"rows of {arguments.row} bytes, {count} of them, {'from the disk' if arguments.cold else 'in the page cache'}"
    )
    if gathers:
        base = gathers["numpy.memmap, in order"]
        for name, times in gathers.items():
            ratio = ratios(times, base[: len(times)])
            print(f"gather | {name} | {1e3 * numpy.median(times, 0)[0]:.2f} ms | {ratio}")
    base = epochs["read(2), in order"]
    for name, times in epochs.items():
        rate = 1e-9 / numpy.median(times, 0)[0]
        print(f"epoch | {name} | {rate:.2f} GB/s | {ratios(times, base)} | {memory[name]:.0f} MB")


if __name__ == "__main__":
    main()
