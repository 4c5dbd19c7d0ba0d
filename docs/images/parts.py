#!/usr/bin/env python3
"""Draws parts.svg: the kernel in front, and the parts beside it with what each needs, as their part.cmake files say.

usage: docs/images/parts.py            writes parts.svg beside this file
       docs/images/parts.py --check    whether parts.svg says what the part.cmake files say; a part whose folder was taken
                                       away may still be in the picture
"""

import pathlib
import re
import shlex
import sys
import textwrap
from html import escape, unescape

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PICTURE = ROOT / "docs" / "images" / "parts.svg"
KEYS = {"DESCRIPTION", "NEEDS", "WANTS", "AFTER", "LACKS", "ROOMS", "INNER_ROOMS", "HEADERS", "SUGGESTS"}

WIDTH, MARGIN, GAP, STEP, PADDING, COLUMNS = 1000, 20, 14, 22, 14, 3
LINE, TITLE_LINE = 20, 26
CHARACTER = 8.5  # the width of a letter of 15 pixels in a wide font
BOLD_CHARACTER = 9.3
STYLE = """
text { font: 15px system-ui, "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 18px }
.heading { font-weight: 600 }
.needs { fill: #59636e }
.page { fill: #ffffff }
.kernel { fill: #ddf4ff; stroke: #0969da; stroke-width: 2.5 }
.part { fill: #f6f8fa; stroke: #8c959f }
.stair { fill: #0969da; fill-opacity: 0.35 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .needs { fill: #9fa8b2 }
  .page { fill: #0d1117 }
  .kernel { fill: #12314f; stroke: #4493f8 }
  .part { fill: #1b222c; stroke: #656c76 }
  .stair { fill: #4493f8 }
}
"""


def kernel():
    """The rooms, and what they need."""
    rooms = re.search(r"^set\(TORCHTAP_ROOMS (.*)\)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1].split()
    first = ["hooks", "selectors", "recorders", "reductions", "storage"]  # those that users name
    needs = re.findall(r"^find_dependency\((\S+)\)", (ROOT / "cmake" / "torchtapConfig.cmake.in").read_text(), re.M)
    return (
        first + [room for room in rooms if room not in [*first, "base"]],
        [{"Torch": "LibTorch"}.get(name, name) for name in needs],
    )


def parts():
    """Of each part: what it is, the parts it needs and those it uses where they can be built, and what else it needs."""
    found = {}
    for file in sorted([*ROOT.glob("*/part.cmake"), *ROOT.glob("*/*/part.cmake")]):
        text = file.read_text()
        name, *words = shlex.split(re.search(r"^torchtap_part\((.*)\)$", text, re.M | re.S)[1])
        values = {}
        for word in words:
            if word in KEYS:
                key = word
            else:
                values.setdefault(key, []).append(word)
        lacks = re.findall(r'set\(lacks "it needs (.*)"\)', text)
        else_needs = [re.sub(r".*\(Debian: (.*)\)", r"\1", lack) for lack in lacks]
        found[name] = (" ".join(values["DESCRIPTION"]), values.get("NEEDS", []), values.get("WANTS", []), else_needs)
    return found


def facts(name, part):
    description, needs, wants, else_needs = part
    return f"{name} {description}; needs {', '.join(['torchtap', *needs, *else_needs])}; uses {', '.join(wants) or 'no other'}"


def level(name, known):
    return 1 + max((level(needed, known) for needed in known[name][1]), default=0)


class Drawing:
    def __init__(self):
        self.shapes, self.y = [], MARGIN

    def text(self, x, y, words, kind=""):
        self.shapes.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>')

    def box(self, x, y, width, height, kind, corner=8):
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner}" class="{kind}"/>'
        )

    def card(self, x, width, height, kind, lines):
        self.box(x, self.y, width, height, kind)
        y = self.y + PADDING + 14
        for words, style in lines:
            self.text(x + PADDING, y, words, style)
            y += TITLE_LINE if style == "title" else LINE

    def row(self, x, width, cards, kind="part"):
        height = max(TITLE_LINE + LINE * (len(card) - 1) for card in cards) + 2 * PADDING - 4
        for column, card in enumerate(cards):
            self.card(x + column * (width + GAP), width, height, kind, card)
        self.y += height + GAP


def card(name, part, width):
    description, _, _, else_needs = part
    letters = int((width - 2 * PADDING) / CHARACTER)
    title = "the command torchtap" if name == "tools" else f"torchtap::{name}"
    lines = [(title, "title")]
    if name != "tools":
        lines += [(line, "") for line in textwrap.wrap(description, letters)]
    if else_needs:
        lines += [(line, "needs") for line in textwrap.wrap("needs " + ", ".join(else_needs), letters)]
    return lines


def draw(known):
    drawing = Drawing()
    rooms, needs = kernel()
    drawing.row(
        MARGIN,
        WIDTH - 2 * MARGIN,
        [
            [
                ("torchtap::kernel", "title"),
                ("  ·  ".join(rooms), ""),
                ("needs " + ", ".join(needs), "needs"),
            ]
        ],
        "kernel",
    )
    groups = {}
    for name in sorted(known, key=lambda name: (level(name, known), name)):
        _, needs, wants, _ = known[name]
        groups.setdefault((level(name, known), tuple(needs), tuple(wants)), []).append(name)
    for (depth, needs, wants), names in groups.items():
        x = MARGIN + STEP * depth
        top = drawing.y
        heading = "on " + (", ".join(needs) if needs else "the kernel alone")
        if wants:
            heading += "; uses " + ", ".join(wants) + " where they can be built"
        for line in textwrap.wrap(heading, int((WIDTH - MARGIN - x) / BOLD_CHARACTER)):
            drawing.text(x, drawing.y + 16, line, "heading")
            drawing.y += LINE
        drawing.y += PADDING - 4
        columns = COLUMNS if len(names) > 1 else 1
        width = (WIDTH - MARGIN - x - GAP * (columns - 1)) / columns
        for start in range(0, len(names), columns):
            drawing.row(x, width, [card(name, known[name], width) for name in names[start : start + columns]])
        drawing.box(x - STEP / 2 - 2, top, 4, drawing.y - GAP - top, "stair", 2)
    return whole(
        drawing,
        "The kernel of torchtap and the parts beside it",
        "\n".join(escape(facts(name, part)) for name, part in known.items()),
    )


def whole(drawing, title, said):
    """The picture as a file."""
    height = drawing.y - GAP + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" role="img">'
    body = [head, f"<title>{title}</title>", *([f"<desc>\n{said}\n</desc>"] if said else [])]
    body += [
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height:g}" class="page"/>',
        *drawing.shapes,
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def main():
    known = parts()
    if sys.argv[1:] == ["--check"]:
        picture = PICTURE.read_text()
        said = unescape(re.search(r"<desc>\n(.*)\n</desc>", picture, re.S)[1]).split("\n")
        true = [facts(name, part) for name, part in known.items()]
        names = {fact.split()[0] for fact in said}
        wrong = [fact for fact in true if fact not in said]
        if wrong or (names == set(known) and picture != draw(known)):
            sys.exit(
                "\n".join(["docs/images/parts.svg is not what docs/images/parts.py draws; run that again", *wrong])
            )
        print(f"the picture has {len(known)} parts as they are")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PICTURE.write_text(draw(known))


if __name__ == "__main__":
    main()
