"""torchtap preload: programs whose models lie anywhere, and which work while they end, end as they do without, in
every mode; what ran before is recorded."""

import concurrent.futures
import json
import os
import signal
from pathlib import Path

import pytest
from harness import TORCHTAP, entries, given, preload, start

pytestmark = pytest.mark.usefixtures("inside")
program = given("ends")
os.environ["UCX_HANDLE_ERRORS"] = "none"

ENDS = {
    "on_stack": 3,
    "on_stack_in_turn": 3,
    "in_static": 3,
    "in_thread_local": 3,
    "in_atexit": 3,
    "in_destructors": 3,
    "in_threads": 3,
    "in_small_thread": 3,
    "closes_plug_in": 3,
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


def is_there(mode, place, said):
    """Whether there is a result with what ran before the end."""
    if mode == "stream":
        return "published as" in said
    if mode == "fingerprint":
        return place.stat().st_size > 2000
    if mode == "report":
        (whole,) = json.loads(place.with_suffix(".json").read_text()).values()
        return whole["report"]["repeats"] >= 3
    if mode == "explore":
        return any(file.stat().st_size > 2000 for file in (place / "explorer").glob("*.tapx"))
    if mode == "monitor":
        lines = [json.loads(line) for line in (place / "alarms.jsonl").read_text().splitlines()]
        return any(line.get("rule") == "nonfinite" and line["incident"] for line in lines)
    if mode == "trace":
        return "logged" in said and place.is_dir()
    return any(entry["samples"] >= 3 for entry in entries(place))


@pytest.fixture(scope="module")
def said(request, inside):
    """What torchtap says of each program in each mode; two at a time."""

    def job(what, mode):
        options = [option.format(f"{what}-{mode}") for option in MODES[mode]]
        return preload(options, program, what, status=ENDS[what])

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        chosen = [item.callspec.params for item in request.session.items if "what" in item.callspec.params]
        yield {(one["what"], one["mode"]): pool.submit(job, **one) for one in chosen}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ENDS)
def test_ends_as_without(folder, said, what, mode):
    said = said[what, mode].result()
    if what == "terminate":
        return  # what is saved depends on who holds which lock
    assert is_there(mode, folder / f"{what}-{mode}", said)
    later = what in ("in_atexit", "in_destructors", "err")
    if mode in ("keep", "reduce"):
        calls = {entry["samples"] for entry in entries(folder / f"{what}-{mode}") if entry["path"] != "unused"}
        assert not later or calls == ({13, 15} if what == "in_destructors" else {10, 12})
    elif what != "in_threads":  # where a thread may be running
        left_out = "after main had returned, or exit had been called, are left out" in said
        assert left_out == (later and mode != "stream")


def state_of(pid):
    """What a process has that torchtap might have brought: threads, signals' fates, files by their kind."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    files = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return (
        {name: status[name].strip() for name in ("Threads", "SigBlk", "SigIgn", "SigCgt")},
        sorted(file.split(":")[0] for file in files if "memfd:torchtap-preload" not in file),
    )


@pytest.mark.parametrize("mode", MODES)
def test_nothing_of_torchtap_lives_in_the_program(folder, mode):
    """Neither a thread nor a signal handler nor a file, but for the shared memory."""
    options = [option.format(f"lives-{mode}") for option in MODES[mode]]
    states = []
    for command in ([given("processes"), "wait"], [TORCHTAP, "preload", *options, "--", given("processes"), "wait"]):
        with start(*command) as process:
            pid = int(process.stdout.readline().split()[1])
            assert process.stdout.readline() == "waiting\n"
            states.append(state_of(pid))
            os.kill(pid, signal.SIGKILL)
            process.communicate()
    assert states[0] == states[1]
