"""torchtap preload: programs whose models lie anywhere, and which work while they end, end as they do without, in
every mode; what ran before is recorded."""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

torchtap, program = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:])
os.environ["UCX_HANDLE_ERRORS"] = "none"


ENDS = {
    "on_stack": 3,
    "on_stack_in_turn": 3,
    "in_static": 3,
    "in_thread_local": 3,
    "in_atexit": 3,
    "in_destructors": 3,
    "in_threads": 3,
    "exit_in_thread": 4,
    "err": 4,
    "terminate": -6,
}
MODES = {
    "keep": ["--save", "{}"],
    "reduce": ["--reduce", "moments,histogram:16", "--save", "{}"],
    "report": ["--report", "{}.json"],
    "explore": ["--explore", "--save", "{}"],
    "trace": ["--trace", "{}"],
    "fingerprint": ["--fingerprint", "{}"],
    "learn": ["--learn", "{}"],
    "monitor": ["--monitor", "", "--cost", "1", "--save", "{}"],
    "stream": ["--stream", f"ends-{os.getpid()}-{{}}", "--reduce", "moments"],
}


def run(command, folder):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def is_there(mode, place, said):
    """Whether there is a result with what ran before the end."""
    if mode == "stream":
        return "published as" in said
    if mode == "fingerprint":
        return place.stat().st_size > 2000
    if mode == "report":
        (whole,) = json.load(open(f"{place}.json")).values()
        return whole["report"]["repeats"] >= 3
    if mode == "explore":
        return any(file.stat().st_size > 2000 for file in (place / "explorer").glob("*.tapx"))
    if mode == "monitor":
        lines = [json.loads(line) for line in open(place / "alarms.jsonl")]
        return any(line.get("rule") == "nonfinite" and line["incident"] for line in lines)
    if mode == "trace":
        return "logged" in said and place.is_dir()
    entries = json.load(open(place / "manifest.json"))["entries"]
    return any(entry["samples"] >= 3 for entry in entries)


def try_out(what, mode, folder, bare):
    name = f"{what}-{mode}"
    options = [option.format(name) for option in MODES[mode]]
    status, out, err = run([torchtap, "preload", *options, "--", program, what], folder)
    assert (status, out) == bare[:2]
    said = err.replace(bare[2], "", 1) if bare[2] else err
    assert all(line.startswith("torchtap: ") for line in said.splitlines())
    if what == "terminate":
        return  # what is saved depends on who holds which lock
    try:
        assert is_there(mode, folder / name, said)
    except (OSError, ValueError) as error:
        pytest.fail(f"{name}: no result: {error}: {said}")
    later = what in ("in_atexit", "in_destructors", "err")
    if what != "in_threads":  # where a thread may be running
        words = "after main had returned, or exit had been called, are left out" in said
        assert words == later


with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
    folder = pathlib.Path(name)
    jobs = []
    for what, status in ENDS.items():
        bare = run([program, what], folder)
        assert bare[0] == status
        jobs += [pool.submit(try_out, what, mode, folder, bare) for mode in MODES]
    for job in jobs:
        job.result()
