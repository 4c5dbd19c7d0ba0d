#!/usr/bin/env python3
"""What Doxygen reads of a header: the header, with each comment on all that it is about (`int a, b;  ///< …`), and a comment on
members that mean the same in every class and say so by their names and types, where they have none. Everything else without a
comment stays a warning. Lines keep their numbers."""

import re
import sys

CONVENTIONS = [
    (r"void serialize\(Archive& archive\)", "Reads or writes configuration and state, for cereal."),
    (
        r"void (save|load)\((core::)?(Out|In)putArchive& archive\)",
        "Writes or reads configuration and state, for cereal.",
    ),
    (r"\w+ fresh\(\) const", "The same configuration without samples."),
    (r"std::string describe\(\) const", "The name with its configuration, for messages and manifests."),
    (r"bool commutative\(\) const", "Whether samples may come in any order; see `core::is_reduction_v`."),
    (r"using (const_)?iterator = ", "To iterate."),
    (r"[\w:*]+ c?(begin|end)\(\)", "To iterate."),
    (r"bool empty\(\) const", "Whether there is nothing in it."),
    (r"(std::\w+) size\(\) const", "How many there are."),
    (r"\w+& operator=\(", "Assigns."),
    (r"(explicit )?(\w+)\((const )?\2&+( \w+)?\)", "Copies or moves."),
    (r"friend bool operator[!=]=\(", "Compares."),
    (r"explicit (\w+)\(\1Options options = \{\}\);", "Without samples."),
    (r"(\w+)Options\(.*k = \d+\)", "With the option that there is no use without."),
    (r"virtual std::unique_ptr<Sink> clone\(\)", "A copy that shares nothing that a later update changes."),
    # What an option of the same name has set.
    (r"(const )?[\w:<>, ]+&? \w+\(\) const&? noexcept \{ return \w+(\.|->)?\w+_?; \}", "The value."),
    # Protected, for the classes of torchtap that derive.
    (r"(explicit )?\w+\(.*\b(detail|extend)::(Intake|Folding) ", "For torchtap's own reductions."),
    (r"(\w+::)?(detail|extend)::\w+ \w+_;", "State, for torchtap's own reductions."),
]
FIELDS = {
    "path": "The path of the module.",
    "type": "The type of the module.",
    "slot": "Which of the flattened inputs, outputs or gradients.",
    "sample": "Which of the recorded calls of the module.",
    "thread": "The number of the thread.",
    "rank": "The rank of the process.",
    "pid": "The number of the process.",
    "shape": "The shape of the tensor.",
    "dtype": "The dtype of the tensor.",
    "device": "The device of the tensor.",
    "elements": "How many elements the tensor has.",
    "bytes": "How many bytes these take.",
    "nan": "How many are NaN.",
    "inf": "How many are infinite.",
    "zeros": "How many are zero.",
    "kind": "What it is.",
}

# Machinery of torchtap's own that has to be public.
PRIVATE = r".*\bdetail::Scan& scan\)( const)?;$|.*Impl> impl\);$|.* folding_;$|.*shared_ptr<detail::Record> record\)"
# `type a = 0, b = 0;  ///< comment`
FIELD = re.compile(r"^( +(?:static constexpr )?[\w:]+(?:<[^;()]*>)? )(\w+[^,;()]*(?:, \w+[^,;()]*)*);(?: *///< (.*))?$")


def fields(line, above):
    """The line with a comment on each field; `above` are the lines of the comment that the first one has."""
    match = FIELD.match(line)
    if not match or match[1].split()[0] in ("return", "using", "friend", "typedef", "namespace", "class", "struct"):
        return None
    kind, names, behind = match.groups()
    names = re.split(r", (?=\w+(?:\[\w+\])?(?: = |,|$))", names)
    shared = behind or " ".join(above)
    made = ""
    for index, name in enumerate(names):
        own = shared or FIELDS.get(re.match(r"\w+", name)[0], "")
        made += f" /** {own} */{kind}{name};" if own and not (above and index == 0) else f"{kind}{name};"
    return made


def main():
    held = []  # `template <…>` in front of a declaration
    above = []  # the comment in front of it
    lines = open(sys.argv[1]).read().split("\n")
    if lines[0] == "#pragma once" and lines[2].startswith("///"):
        lines[1] = "/// @file"  # whose comment would be taken for one of what follows, such as the namespace
    for index, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("template <") and stripped.endswith(">"):
            held.append(line)
            continue
        if re.match(PRIVATE, stripped):
            print("\n" * len(held))
            held, above = [], []
            continue
        behind = index + 1 < len(lines) and lines[index + 1].strip().startswith("///<")
        made = None if held or behind else fields(line, above)
        if made:
            line = made
        elif not above and "///<" not in line and not behind:
            for pattern, text in CONVENTIONS:
                if re.match(pattern, stripped):
                    first = held[0] if held else line
                    held = held and [f"/** {text} */{first}", *held[1:]]
                    line = line if held else f"/** {text} */{line}"
                    break
        for one in held:
            print(one)
        held = []
        print(line)
        if stripped.startswith("///<"):
            above = []
        elif stripped.startswith("///"):
            above.append(stripped[3:].strip())
        else:
            above = []


main()
