#!/usr/bin/env python3
"""A program whose results depend on types prints the same without torchtap::transparent and with
TORCHTAP_EXACT_TYPES; with views it differs as documented, and the documented command finds where.

usage: exact.py PLAIN EXACT VIEWS COMPATIBILITY.md"""

import pathlib
import re
import subprocess
import sys

plain, exact, views = (
    subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    for program in sys.argv[1:4]
)
assert len(plain) > 10 and plain == exact, (plain, exact)
with_views = {"init: Block": "init: any", "48": "12", "kind: Block": "kind: any", "same: 1": "same: 0"}
assert set(with_views) <= set(plain), plain
assert views == [with_views.get(line, line) for line in plain[: len(views)]], (plain, views)

command = re.search(r"^ *(nm -C .*)$", pathlib.Path(sys.argv[4]).read_text(), re.MULTILINE).group(1)
assert command.count(" program ") == 1, command
for program, found in (sys.argv[3], ["init", "tell"]), (sys.argv[2], []):
    lines = subprocess.run(
        command.replace(" program ", f" '{program}' "), shell=True, capture_output=True, text=True
    ).stdout.splitlines()
    names = sorted(re.search(r"(\w+)<torchtap", line).group(1) for line in lines)
    assert names == found, (program, lines)
