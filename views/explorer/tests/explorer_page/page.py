#!/usr/bin/env python3
"""Tests the explorer's page in Chromium, with trainings that a C++ program runs and serves.

usage: page.py EXPLORER_PAGE_SERVER"""

import os
import pathlib
import shutil
import subprocess
import sys

program = pathlib.Path(sys.argv[1]).resolve()
web = pathlib.Path(__file__).resolve().parents[2] / "web"
data = pathlib.Path(os.environ.get("TORCHTAP_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


chromium = next(
    (found for found in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if found), None
)
if chromium is None:
    skip("there is no Chromium to open the page with (apt install chromium)")
if shutil.which("node") is None:
    skip("there is no Node.js to drive Chromium with (apt install nodejs)")
if not (web / "node_modules/puppeteer-core").is_dir():
    skip("the packages of views/explorer/web are not installed (scripts/check-web --no-browser installs them)")
if not (data / "train-images-idx3-ubyte.gz").exists():
    skip(f"there is no Fashion-MNIST in {data} (apt install dataset-fashion-mnist)")
done = subprocess.run(
    ["node", "tests/run.mjs", "live"],
    cwd=web,
    env={**os.environ, "CHROMIUM": chromium, "TORCHTAP_PAGE_SERVER": str(program)},
)
sys.exit(done.returncode)
