#!/usr/bin/env python3
"""Opens a page of a report in headless Chromium and checks what it shows. Exit status 77 (skipped) without Chromium.

usage: page.py FOLDER, in which are insight.json, insight.html, nasty.json and nasty.html"""

import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

folder = pathlib.Path(sys.argv[1])
chromium = next(
    (found for found in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if found), None
)
if chromium is None:
    print("skipped: there is no Chromium to open the page with (apt install chromium)")
    sys.exit(77)

# Appended to the page: uses it as a person does, and leaves what it saw in the title.
PROBE = """
<script>
const rows = () => [...document.querySelectorAll("#rows tr:not(.detail)")].map(row => row.querySelector(".name").textContent);
const head = name => [...document.querySelectorAll("#heads th")].find(th => th.textContent.startsWith(name));
const seen = {errors: window.wrong};
seen.title = document.title;
seen.heads = [...document.querySelectorAll("#heads th")].map(th => th.textContent);
document.getElementById("fold").click();
seen.folded = rows();
document.getElementById("unfold").click();
seen.unfolded = rows();
head("Forward") && head("Forward").firstChild.click();
seen.sort = head("Forward") && head("Forward").getAttribute("aria-sort");
document.getElementById("flat").click();
seen.flat = rows();
document.getElementById("flat").click();
head("Forward") && (head("Forward").firstChild.click(), head("Forward").firstChild.click());
seen.unsorted = rows();
const search = document.getElementById("search");
search.value = "downsample";
search.dispatchEvent(new Event("input"));
seen.found = rows();
search.value = "exploding";
search.dispatchEvent(new Event("input"));
seen.marked = rows();
search.value = "";
search.dispatchEvent(new Event("input"));
document.querySelectorAll("#rows tr")[1].click();
seen.details = document.querySelector("tr.detail").textContent;
document.querySelector(".twist").click();
seen.twisted = rows();
seen.findings = [...document.querySelectorAll("#findings li, #rest li")].map(li => li.textContent);
seen.cards = [...document.querySelectorAll(".card")].map(card => card.textContent);
seen.scripts = document.scripts.length;
seen.alerts = window.alerts;
seen.requests = performance.getEntriesByType("resource").map(entry => entry.name);
const out = document.createElement("textarea");
out.id = "seen";
out.textContent = JSON.stringify(seen);
document.body.append(out);
</script>
"""
BEFORE = """<script>window.wrong = []; window.alerts = 0; window.alert = () => ++window.alerts;
addEventListener("error", event => window.wrong.push(String(event.message)));
addEventListener("securitypolicyviolation", event => window.wrong.push(event.violatedDirective));</script>"""


class Areas(html.parser.HTMLParser):
    inside, text = False, ""

    def handle_starttag(self, tag, attributes):
        self.inside = tag == "textarea" and ("id", "seen") in attributes

    def handle_data(self, data):
        self.text += data if self.inside else ""

    def handle_endtag(self, tag):
        self.inside = False


def look(name):
    page = (folder / f"{name}.html").read_text()
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", page.split('id="data">')[0]), (
        "the page loads something"
    )
    with tempfile.TemporaryDirectory() as work:
        probed = pathlib.Path(work) / "page.html"
        probed.write_text(page.replace("<style>", BEFORE + "<style>", 1).replace("</body>", PROBE + "</body>"))
        command = [
            chromium,
            "--headless=new",
            "--disable-gpu",
            "--no-first-run",
            f"--user-data-dir={work}/profile",
            "--virtual-time-budget=20000",
            "--dump-dom",
            probed.as_uri(),
        ]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    areas = Areas()
    areas.feed(done.stdout)
    assert areas.text, f"the page ended early:\n{done.stderr}\n{done.stdout[-2000:]}"
    return json.loads(areas.text)


def paths(module):
    return [module["info"]["path"], *(path for child in module["children"].values() for path in paths(child))]


def names(module, name="(root)"):
    return [name, *(inner for child, part in module["children"].items() for inner in names(part, child))]


seen = look("insight")
(model,) = json.load(open(folder / "insight.json")).values()
assert seen["errors"] == [] and seen["requests"] == [] and seen["alerts"] == 0, seen
assert seen["title"] == "ResNet – torchtap report", seen["title"]
assert seen["heads"] == [
    "Module",
    "Type",
    "Output",
    "Parameters",
    "MACs",
    "Forward",
    "Backward",
    "Peak memory",
    "Kept",
    "Zeros",
    "Gradient norm",
], seen["heads"]
assert seen["folded"] == ["(root)"], seen["folded"]
assert seen["unfolded"] == names(model) == seen["unsorted"], seen["unfolded"]
assert seen["sort"] == "descending", seen["sort"]


def times(module):
    return [
        (
            module["info"]["forward_latency_seconds"] if module["info"]["forward"]["inclusive"]["calls"] else -1,
            module["info"]["path"],
        ),
        *(one for child in module["children"].values() for one in times(child)),
    ]


by_time = [path or "the model itself" for _, path in sorted(times(model), key=lambda one: -one[0])]
assert seen["flat"] == by_time, seen["flat"]
assert seen["found"].count("downsample") == 3 and "conv1" not in seen["found"] and seen["found"][0] == "(root)", seen[
    "found"
]
assert "layer1" not in seen["found"], seen["found"]
assert seen["marked"] == ["(root)", "layer2", "0", "conv1"], seen["marked"]
assert "conv1" in seen["details"] and "9,408" in seen["details"] and "8×64×112×112 float32 on cpu" in seen["details"], (
    seen["details"]
)
assert seen["twisted"] == ["(root)"], seen["twisted"]
text = "\n".join(seen["findings"])
for part in (
    "producer aten::batch_norm in layer4.1.bn1, forward of call 1 in repeat 1: 3 NaN and 1 Inf",
    "never_ran: aux",
    "my::attention in layer3.1 (4 calls)",
    "oneDNN's scratch",
):
    assert part in text, (part, text)
assert any("11,689,512" in card for card in seen["cards"]) and any("14.5\u00a0G" in card for card in seen["cards"]), (
    seen["cards"]
)

seen = look("nasty")
(model,) = json.load(open(folder / "nasty.json")).values()
assert seen["errors"] == [] and seen["requests"] == [] and seen["alerts"] == 0, seen
assert seen["scripts"] == 4, f"{seen['scripts']} scripts; two are the page's, two are of this test"
assert seen["unfolded"] == names(model), (seen["unfolded"], names(model))
print(f"{chromium} shows the page as it should be")
