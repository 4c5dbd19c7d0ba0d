"""torchtap preload: processes that are killed at any moment leave what they recorded, whole, in every mode, and torchtap
says how much is missing."""

import json
import random
import re
import sys

import pytest
from harness import SOURCE, document, entries, given, recording, run

sys.path.insert(0, str(SOURCE / "tools/tests/preload"))
from ends import MODES
from explore import runs_in

pytestmark = pytest.mark.usefixtures("inside")
program, kills = given("processes"), int(given("kills"))
AT_ONCE = 50


def samples_of(entry, value):
    """Their number, if they are those of as many forwards, from the first on."""
    count = entry["samples"]
    if isinstance(value, list):
        assert [one.item() for one in value] == [2 * i for i in range(count)]
    else:
        assert value["moments.mean"].item() == pytest.approx(count - 1)
        assert int(value["histogram.counts"].sum()) == count
    return count


def check_reduce(place, begun, ended, missing):
    samples = [samples_of(entry, value) for entry, value in recording(place) if entry["samples"]]
    assert len(samples) < 2 or samples[0] - samples[1] in (0, 1), "the state of one moment"
    # A forward that had not returned may have called its modules.
    assert 2 * ended <= sum(samples) + missing <= 2 * begun
    return sum(samples)


def check_keep(place, begun, ended, missing):
    assert check_reduce(place, begun, ended, missing) >= 2 * ended


def check_report(place, begun, ended, missing):
    (whole,) = json.loads(place.read_text()).values()
    assert ended - 1 <= whole["report"]["repeats"] + missing <= begun


def check_explore(place, begun, ended, _missing):
    """Recorded are the first step, and as many as there is time for. A Sequential's first forward has begun when its first
    module is seen, and is no step."""
    (one,) = runs_in(place)
    assert (one.step is not None and one.step < begun and one.columns) or ended < 3


def check_trace(place, _begun, _ended, _missing):
    assert [node["type"] for node in document("trace", place)["nodes"]][:2] == ["input", "linear"]


def check_fingerprint(place, _begun, _ended, _missing):
    assert "is compared with itself" not in run("compare", place, place, status=3).out


def check_learn(place, begun, ended, missing):
    assert ended - 1 <= max(entry["samples"] for entry in entries(place)) + missing <= begun
    recording(place)


def check_monitor(place, begun, ended, _missing):
    """The inputs of the forward that did not return, and of those before."""
    assert place.is_dir()
    for incident in place.glob("*-crash"):
        about = json.loads((incident / "incident.json").read_text())
        assert ended - 1 <= about["forwards"] < begun
        forwards = [json.loads(line) for line in (incident / "forwards.jsonl").read_text().splitlines()]
        numbers = [one["forward"] for one in forwards]
        assert numbers == list(range(about["forwards"] - len(forwards), about["forwards"]))
        (inputs,) = (value for _, value in recording(incident / "inputs"))
        assert [one[0, 0].item() for one in inputs["0"]] == [1 + one for one in numbers]


def check_stream(_place, _begun, _ended, _missing):
    pass


CHECKS = {name: globals()["check_" + name] for name in MODES}


@pytest.mark.parametrize("mode", MODES)
def test_killed_at_any_moment(folder, mode):
    seed, found = random.randrange(1 << 20), 0
    for first in range(0, kills, AT_ONCE):
        count, name = min(AT_ONCE, kills - first), f"killed-{mode}-{first}"
        options = [option.format(name) for option in MODES[mode]]
        done = run("preload", *options, "--", program, "killed_children", count, seed + first, status=5)
        print(f"seed {seed + first}\n{done.out}\n{done.err}")
        children = [map(int, line.split()) for line in done.out.splitlines()]
        assert len(children) == count
        for process, begun, ended in children:
            said = "\n".join(re.findall(rf"^torchtap: process {process} \(processes\):? (.*)$", done.err, re.M))
            print(process, begun, ended, said)
            places = [folder / one for one in re.findall(rf"(?:^|[ :/])({name}[^ \n/]*)", said)]
            found += bool(places) or "published as" in said or "watched 1 model" in said
            if not places:
                # Nothing is lost but a forward whose end was not seen: some modes see it as the next one begins.
                assert ended <= (mode not in ("keep", "reduce", "fingerprint")) or mode in ("stream", "monitor"), said
                continue
            missing = re.search(r"its last ([\d,]+) ", said)
            CHECKS[mode](places[0], begun, ended, int(missing[1].replace(",", "")) if missing else 0)
    assert found >= kills // 2
