#!/usr/bin/env python3
"""What Doxygen reads of a header: the header, and a comment on members that mean the same in every class and say so by
their names and types, where they have none. Everything else without a comment stays a warning."""

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
    (r"(auto|iterator|const_iterator|Iterator|\w+::Iterator) c?(begin|end)\(\)", "To iterate."),
    (r"bool empty\(\) const", "Whether there is nothing in it."),
    (r"(std::\w+) size\(\) const", "How many there are."),
    (r"\w+& operator=\(", "Assigns."),
    (r"(explicit )?(\w+)\((const )?\2&+( \w+)?\)", "Copies or moves."),
    (r"friend bool operator[!=]=\(", "Compares."),
    (r"explicit (\w+)\(\1Options options = \{\}\);", "Without samples."),
    (r"(\w+)Options\(.*k = \d+\)", "With the option that there is no use without."),
    (r"virtual std::unique_ptr<Sink> clone\(\)", "A copy that shares nothing that a later update changes."),
    # What an option of the same name has set.
    (r"(const )?[\w:<>]+&? \w+\(\) const noexcept \{ return \w+(\.|->)?\w+_?; \}", "The value."),
]

# Machinery of torchtap's own that has to be public.
PRIVATE = r".*\bdetail::Scan& scan\)( const)?;$|.*Impl> impl\);$|.* folding_;$|.*shared_ptr<detail::Record> record\)"

comment = False
held = []  # `template <…>` in front of a declaration
for line in open(sys.argv[1]).read().split("\n"):
    stripped = line.strip()
    if stripped.startswith("template <") and stripped.endswith(">"):
        held.append(line)
        continue
    if re.match(PRIVATE, stripped):
        print()
        held = []
        comment = False
        continue
    if not comment:
        for pattern, text in CONVENTIONS:
            if re.match(pattern, stripped):
                print("/// " + text)
                break
    for one in held:
        print(one)
    held = []
    print(line)
    comment = stripped.startswith("///")
