#!/usr/bin/env python3
"""A strict parser of Prometheus' text format 0.0.4. `exposition.py FILE` says what is wrong with it, status 1.

It wants what the format's page recommends, too: HELP and TYPE before the samples of each family, all samples of a family
together, no sample twice, counters that end in _total. With a second file it compares with lines of name, type, value and
labels, separated by tabs. As a module: `samples(TEXT)`.
"""

import math
import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
VALUE = re.compile(r"NaN|[+-]Inf|[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?")
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def unescape(text):
    return re.sub(r'\\["\\n]', lambda escape: ESCAPES[escape[0]], text)


def number(text):
    assert VALUE.fullmatch(text), text
    return float(text)


def labels_of(text):
    """The labels in braces, and what follows."""
    if not text.startswith("{"):
        return {}, text
    labels, text = {}, text[1:]
    while not text.startswith("}"):
        match = LABEL.match(text)
        assert match, f"no label: {text}"
        assert match[1] not in labels, f"the label {match[1]} twice"
        labels[match[1]] = unescape(match[2])
        text = text[match.end() :]
        assert text[:1] in (",", "}"), text
        text = text.removeprefix(",")
    return labels, text[1:]


def samples(text):
    """[(name, type, labels, value)]"""
    assert text == "" or text.endswith("\n"), "the last line has no end"
    result, seen, finished = [], set(), set()
    family = kind = has_help = None
    for line in text.split("\n")[:-1]:
        assert line, "an empty line"
        comment = re.match(r"# (HELP|TYPE) (\S+) (.+)$", line)
        if comment:
            _, name, rest = comment.groups()
            assert NAME.fullmatch(name), name
            if comment[1] == "HELP":
                assert name not in finished and name != family, f"{name} is in two places"
                assert re.fullmatch(r"(?:[^\\]|\\[\\n])*", rest), f"an escape in {rest}"
                finished.add(family)
                family, kind, has_help = name, None, True
            else:
                assert name == family and kind is None and has_help, f"TYPE of {name}"
                assert rest in ("counter", "gauge"), rest
                assert (rest == "counter") == name.endswith("_total"), f"a {rest} called {name}"
                kind = rest
            continue
        name = NAME.match(line)
        assert name, line
        name = name[0]
        assert name == family and kind, f"{name} has no TYPE before it"
        labels, rest = labels_of(line[len(name) :])
        assert rest.startswith(" ") and not rest.startswith("  "), rest
        key = (name, tuple(sorted(labels.items())))
        assert key not in seen, f"{key} twice"
        seen.add(key)
        result.append((name, kind, labels, number(rest[1:])))
    return result


def main():
    with open(sys.argv[1], encoding="utf-8", newline="") as stream:
        found = samples(stream.read())
    if len(sys.argv) < 3:
        return
    with open(sys.argv[2], encoding="utf-8") as stream:
        truth = [line.rstrip("\n").split("\t") for line in stream]
    assert len(found) == len(truth), (len(found), len(truth))
    for (name, kind, labels, value), (its_name, its_kind, its_value, *pairs) in zip(found, truth):
        pairs = [text.replace("<newline>", "\n").replace("<tab>", "\t") for text in pairs]
        assert (name, kind, labels) == (its_name, its_kind, dict(zip(pairs[::2], pairs[1::2])))
        want = float.fromhex(its_value)
        assert value == want or (math.isnan(value) and math.isnan(want)), (value, want)


if __name__ == "__main__":
    main()
