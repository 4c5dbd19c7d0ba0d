#!/usr/bin/env python3
"""Draws kernel.svg: what happens to a sample, from the call of a module to the file, and in which files that is decided.

usage: docs/images/kernel.py            writes kernel.svg beside this file
       docs/images/kernel.py --check    whether kernel.svg is what this draws, and the files are there that the picture and
                                        docs/kernel.md name
"""

import re
import sys

import parts

ROOT = parts.ROOT
PICTURE, PAGE = ROOT / "docs/images/kernel.svg", ROOT / "docs/kernel.md"

# What stands in a row beside each other: a title, what it does, its files. Between rows: what is handed on.
WAY = [
    [
        (
            "1 A module is called",
            ["by one of the doors: the entry of a container,", "a type that opted in"],
            ["hooks/detail/doors.cpp", "hooks/detail/holder_patch.cpp", "hooks/detail/hooked.hpp"],
        ),
        (
            "2 Call",
            ["finds the module's hooks without a lock,", "counts the call, runs them before and after"],
            ["hooks/detail/call.cpp", "hooks/detail/plan.hpp", "hooks/detail/call_gradients.cpp"],
        ),
    ],
    "an event: path, call, tensors",
    [
        (
            "3 Record",
            ["is the event of its slot? what says the condition? which tensors are asked for?"],
            ["recorders/detail/record.cpp", "recorders/detail/event_counts.cpp, if no sample comes of it"],
        ),
    ],
    "tensors, to the taker that taker.cpp chose",
    [
        (
            "4 Keep",
            ["copies or aliases them,", "within a budget, in a spool"],
            ["recorders/detail/keep.cpp", "recorders/detail/keep_within.cpp"],
        ),
        (
            "4 Fold",
            ["into a reduction,", "in one thread or in several"],
            ["recorders/detail/fold.cpp", "recorders/detail/fold_*.cpp"],
        ),
        (
            "4 A part's taker",
            ["pairs them with others, adds them", "up on a device, sends them"],
            ["recorders/extend/takes.hpp", "recorders/extend/on_devices.hpp"],
        ),
    ],
    "samples",
    [
        (
            "5 Slots, under one lock",
            ["the samples of each slot, or its reduction, and the counts"],
            ["recorders/detail/slots.hpp", "recorders/detail/sample_list.cpp", "core/sink.hpp, behind it reductions/"],
        ),
        (
            "5 Spool",
            ["a thread writes shards while the model runs"],
            ["storage/spool.hpp", "storage/detail/spool_disk.cpp"],
        ),
    ],
    "save, tensor, snapshot, merge",
    [
        (
            "6 Recorded",
            ["settles the taker, and copies the slots:", "an answer of one moment"],
            ["recorders/detail/recorded.cpp"],
        ),
        (
            "7 Files",
            ["a folder that appears whole or not at all,", "of files that Python reads"],
            ["storage/save.cpp", "storage/detail/manifest.cpp", "storage/detail/pt.cpp"],
        ),
    ],
]


def draw():
    drawing = parts.Drawing()
    for row in WAY:
        if isinstance(row, str):
            drawing.text(parts.WIDTH / 2 - 20, drawing.y + 8, "↓", "title")
            drawing.text(parts.WIDTH / 2 + 6, drawing.y + 7, row)
            drawing.y += 24
            continue
        width = (parts.WIDTH - 2 * parts.MARGIN - parts.GAP * (len(row) - 1)) / len(row)
        cards = [
            [(title, "title"), *((line, "") for line in does), *((file, "needs") for file in files)]
            for title, does, files in row
        ]
        drawing.row(parts.MARGIN, width, cards, "kernel" if row[0][0] == "3 Record" else "part")
    return parts.whole(drawing, "What happens to a sample", "")


def missing():
    """The files that are named and not there."""
    named = re.findall(r"[\w/]+/[\w*]+\.[ch]pp", draw() + PAGE.read_text())
    return sorted({name for name in named if not list(ROOT.glob(name))})


def main():
    if sys.argv[1:] == ["--check"]:
        wrong = [f"there is no {name}" for name in missing()]
        if PICTURE.read_text() != draw():
            wrong.append("docs/images/kernel.svg is not what docs/images/kernel.py draws; run that again")
        if wrong:
            sys.exit("\n".join(wrong))
        print("the picture and the page name files that are there")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PICTURE.write_text(draw())


main()
