#!/usr/bin/env python3
"""Wrong uses do not compile, and the compiler says why in torchtap's words: every text after `// says:` in SOURCE stands
in an error, and every line after `// is refused` has one.

usage: check.py SOURCE COMPILER [ARGUMENTS…]"""

import pathlib
import re
import subprocess
import sys

source, compiler = sys.argv[1:3]
text = pathlib.Path(source).read_text()
wanted = re.findall(r"^\s*// says: (.+)$", text, re.MULTILINE)
refused = [number + 2 for number, line in enumerate(text.splitlines()) if line.strip() == "// is refused"]
if not wanted:
    sys.exit(f"{source}: says nothing")
command = [compiler, *sys.argv[3:], "-fsyntax-only", "-w", source]
result = subprocess.run(command, capture_output=True, text=True, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"})
# Clang writes quotes of a static_assert as in the source.
errors = [line.replace('\\"', '"') for line in result.stderr.splitlines() if "error:" in line]
missing = [text for text in wanted if not any(text in line for line in errors)]
missing += [f"line {line}" for line in refused if not any(f"{source}:{line}:" in error for error in errors)]
if result.returncode == 0:
    missing.append("nothing at all: it compiles")
if missing:
    print("not among the errors:", *missing, sep="\n  ")
    print("the compiler says:", *errors[:20], sep="\n  ")
    sys.exit(1)
print(f"{len(wanted) + len(refused)} wrong uses are refused, each in its words")
