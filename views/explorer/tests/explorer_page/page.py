"""Tests the explorer's page in Chromium, with trainings that a C++ program runs and serves."""

import shutil

import pytest
from harness import FASHION, SOURCE, call, given

WEB = SOURCE / "views/explorer/web"


def test_live():
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((found for found in map(shutil.which, names) if found), None)
    for there, lack in (
        (chromium, "there is no Chromium to open the page with (apt install chromium)"),
        (shutil.which("node"), "there is no Node.js to drive Chromium with (apt install nodejs)"),
        ((WEB / "node_modules/puppeteer-core").is_dir(), "scripts/check-web --no-browser installs what is missing"),
        ((FASHION / "train-images-idx3-ubyte.gz").exists(), f"there is no Fashion-MNIST in {FASHION}"),
    ):
        if not there:
            pytest.skip(lack)
    server = given("explorer_page_server")
    call("node", "tests/run.mjs", "live", cwd=WEB, CHROMIUM=chromium, TORCHTAP_PAGE_SERVER=server)
