"""A program whose results depend on types prints the same without torchtap::transparent and with
TORCHTAP_EXACT_TYPES; with views it differs as documented, and the documented command finds where."""

import re

import pytest
from harness import SOURCE, call, given


def test_results():
    plain, exact, views = (call(given(f"exact_{way}")).out.splitlines() for way in ("plain", "exact", "views"))
    assert len(plain) > 10 and plain == exact
    with_views = {"init: Block": "init: any", "48": "12", "kind: Block": "kind: any", "same: 1": "same: 0"}
    assert set(with_views) <= set(plain)
    assert views == [with_views.get(line, line) for line in plain[: len(views)]]


@pytest.mark.parametrize("program, found", [("exact_views", ["init", "tell"]), ("exact_exact", [])])
def test_the_documented_command(program, found):
    page = (SOURCE / "extras/transparent/README.md").read_text()
    command = re.search(r"^ *(nm -C .*)$", page, re.MULTILINE).group(1)
    assert command.count(" program ") == 1
    lines = call("sh", "-c", command.replace(" program ", f" '{given(program)}' "), status=None).out.splitlines()
    assert sorted(re.search(r"(\w+)<torchtap", line).group(1) for line in lines) == found
