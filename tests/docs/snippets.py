#!/usr/bin/env python3
"""Compiles and runs the code blocks of the pages, README.md, docs/ and those of parts, with an installed torchtap, so that none of them is wrong.

    snippets.py generate PREFIX OUT.cpp [--transparent]     all C++ blocks as one file
    snippets.py run PREFIX --work FOLDER --program EXE …    runs them, page by page, and the Python and shell blocks between
    snippets.py cmake PREFIX FOLDER                         builds the CMake blocks, each with the program of its page
    snippets.py project PAGE FOLDER                         writes the CMake block and the program of a page to a folder
    snippets.py python FILE PAGE …                          writes the Python blocks of pages as one program, for type checkers
    snippets.py links                                       follows relative links and anchors, and counts words
    snippets.py names [--command EXE]                       looks up what running text and tables call `code` (names.py)

Blocks are run in the order of their page, in a folder of the page's own, so that a shell block finds what a C++ block
before it saved. By language:

    cpp     compiled and run, each as a function of its own; a block with `int main()` as a program of its own
    python  run; the blocks of one page share their names
    sh      run, command by command; files that they are told to write have to be there afterwards. commands.py lists those
            that cannot run as they are written, with the reason and what runs instead
    cmake   built, by `snippets.py cmake`; what it leaves out is put around it
    text    not looked at, unless marked as the output of the block before it; `…` there stands for anything in a line

A comment of one line in front of a block says otherwise:

    <!-- snippet: global -->      C++ at global scope: types, specialisations
    <!-- snippet: continue -->    C++ that goes on in the scope of the block before
    <!-- snippet: compile -->     C++ that is compiled and not run
    <!-- snippet: syntax -->      Python that is parsed and not run
    <!-- snippet: output -->      a text block: what the block before it prints

Code that readers need not see stands in comments of several lines, which begin with one of these words and end with -->:

    <!-- snippet-setup            C++ in front of each block from here on, until the next one
    <!-- snippet-global           C++ at global scope
    <!-- snippet-check            C++ behind the block before: EXPECT(condition)
    <!-- snippet-python           Python that is run here
    <!-- snippet-sh               shell that is run here; `program NAME` makes the C++ block before a program,
                                  `their_program NAME` one that knows nothing of torchtap

`<!-- snippets: transparent -->` in a page has its blocks linked with torchtap::transparent. A page with
`<!-- snippets: NAME -->` needs the part of that name (see PARTS), and is left out where that is not installed.
"""

import argparse
import atexit
import contextlib
import fcntl
import html
import io
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

import commands
import names as named

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPTIONS = {
    "cpp": {"", "global", "continue", "compile"},
    "python": {"", "syntax"},
    "sh": {""},
    "cmake": {""},
    "text": {"", "output"},
}
WORDS, LINES = 30_000, 150  # at most, of docs/ and of README.md
HIDDEN = {"setup": "cpp", "global": "cpp", "check": "cpp", "python": "python", "sh": "sh"}


# Parts that may not be built, and where their headers lie, if they have some.
PARTS = {
    "python": None,
    **dict.fromkeys(("statistics", "torchscript")),  # torchtap.hpp has them
    **{part: part for part in ("cuda", "distributed", "exported", "operations", "quantization", "rows")},
    **{view: f"views/{view}" for view in ("compare", "explorer", "monitor", "report", "stream", "trace")},
}
# The kernel's pages show these beside its own reductions, and do not say of what part they are.
OF_STATISTICS = re.compile(
    r"\b(Blocks|Covariance|EMA|Histogram|Joint|LinearCKA|LogHistogram|Quantiles|Reservoir|TopK)(Options)?\(|\b(by|joint)\("
)


class Block:
    def __init__(self, page, line, language, option, text, hidden=""):
        self.page, self.line, self.language, self.option, self.text, self.hidden = (
            page,
            line,
            language,
            option,
            text,
            hidden,
        )
        self.expected = None
        self.name = f"{page}:{line}"

    def fail(self, message):
        sys.exit(f"{self.name}: {message}")


def is_installed(part, prefix):
    if part == "python":
        return any(pathlib.Path(prefix).rglob("_C.*.so"))
    return any(pathlib.Path(prefix).rglob(f"torchtap-{part}-targets.cmake"))


def installed_parts(prefix):
    return [part for part in PARTS if is_installed(part, prefix)]


def pages():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for room in ("reductions", "extras", "views", "tools", "bench", "scripts"):
        files += sorted([*(ROOT / room).glob("*.md"), *(ROOT / room).glob("*/*.md")])
    return [str(file.relative_to(ROOT)) for file in files]


def folders_away():
    """The folders of parts that docs/images/parts.svg has and this tree has not: they were taken away (scripts/check-parts)."""
    picture = html.unescape((ROOT / "docs/images/parts.svg").read_text())
    told = re.search(r"<desc>\n(.*)\n</desc>", picture, re.S)[1].split("\n")
    names = [{"python": "binding"}.get(name, name) for name in (line.split()[0] for line in told)]
    return [
        ROOT / folder
        for name in names
        for folder in ([name] if name in ("tools", "views") else [f"extras/{name}", f"views/{name}"])
        if not any((ROOT / one).exists() for one in (name, f"extras/{name}", f"views/{name}"))
    ]


def left_out(page, parts):
    lines = (ROOT / page).read_text().splitlines()
    needs = {part for part in PARTS if f"<!-- snippets: {part} -->" in lines or pathlib.Path(page).parent.name == part}
    if any(OF_STATISTICS.search(block.text) for block in blocks(page)[0] if block.language == "cpp"):
        needs.add("statistics")
    return bool(needs - {*parts})


def blocks(page):
    """All blocks of a page in order, and whether they need torchtap::transparent."""
    found, option, transparent = [], "", False
    lines = (ROOT / page).read_text().splitlines()
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.strip() == "<!-- snippets: transparent -->":
            transparent = True
        elif line.strip() in (f"<!-- snippets: {part} -->" for part in PARTS):
            pass
        elif marked := re.fullmatch(r"\s*<!-- snippet: (\w+) -->\s*", line):
            option = marked[1]
        elif hidden := re.fullmatch(r"<!-- snippet-(\w+)", line):
            end = lines.index("-->", i)
            if hidden[1] not in HIDDEN:
                sys.exit(f"{page}:{i + 1}: snippet-{hidden[1]} is none of {', '.join(HIDDEN)}")
            found.append(Block(page, i + 2, HIDDEN[hidden[1]], "", "\n".join(lines[i + 1 : end]), hidden[1]))
            i = end
        elif "<!-- snippet" in line:
            sys.exit(f"{page}:{i + 1}: not understood: {line}")
        elif fence := re.fullmatch(r"(\s*)```(\S*)", line):
            end = next(j for j in range(i + 1, len(lines)) if lines[j].strip() == "```")
            text = [text[len(fence[1]) :] for text in lines[i + 1 : end]]
            block = Block(page, i + 2, fence[2], option, "\n".join(text))
            if option not in OPTIONS.get(block.language, ()):
                block.fail(f'a block of "{block.language}" marked "{option}": known are {OPTIONS}')
            if option == "output":
                found[-1].expected = block
            found.append(block)
            option, i = "", end
        i += 1
    return found, transparent


def is_program(block):
    return re.search(r"^int main\(", block.text, re.M) is not None


def identifier(block):
    return "block_" + re.sub(r"\W", "_", block.name)


def functions(page):
    """The functions that the C++ blocks of a page become: [first block, C++ text], and what stands outside of them."""
    result, outside, setup = [], [], ""
    for block in blocks(page)[0]:
        if block.language != "cpp":
            continue
        line = f'#line {block.line} "{block.page}"\n'
        if block.hidden == "setup":
            setup = line + block.text + "\n"
        elif block.hidden == "global" or block.option == "global":
            outside.append(line + block.text + "\n")
        elif block.hidden == "check" or block.option == "continue":
            if not result or is_program(result[-1][0]):
                block.fail("there is no function before it that it could go on in")
            result[-1][1] += line + block.text + "\n"
        elif is_program(block):
            text = re.sub(
                r"^#include.*$", lambda include: outside.append(include[0] + "\n") or "", block.text, flags=re.M
            )
            result.append([block, line + re.sub(r"^int main\(\)", "static void program()", text, flags=re.M) + "\n"])
        else:
            result.append([block, setup + "{\n" + line + block.text + "\n"])
    return result, outside


PRELUDE = """// Made by tests/docs/snippets.py of the code blocks in the pages.
#include <torch/script.h>
#include <torch/torch.h>

#include <atomic>
#include <iostream>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <torchtap/torchtap.hpp>
#include <vector>
%s
namespace tap = torchtap;

#define EXPECT(...) \\
  if (!(__VA_ARGS__)) throw std::runtime_error("this does not hold: " #__VA_ARGS__)
"""

MAIN = """
int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> blocks = {
%s  };
  for (int i = 1; i < argc; ++i) {
    std::cout << '\\x1e' << argv[i] << std::endl;
    try {
      blocks.at(argv[i])();
    } catch (const std::exception& error) {
      std::cerr << argv[i] << ": " << error.what() << std::endl;
      return 1;
    }
  }
}
"""


def generate(out, transparent, parts):
    text = PRELUDE % (
        "#include <torchtap/transparent/transparent.hpp>\n" * transparent
        + "".join(f"#include <torchtap/{PARTS[part]}/{part}.hpp>\n" for part in parts if PARTS[part])
    )
    names = []
    for page in pages():
        if blocks(page)[1] != transparent or left_out(page, parts):
            continue
        made, outside = functions(page)
        text += "".join(outside)
        for block, body in made:
            if is_program(block):
                text += f"namespace {identifier(block)} {{\n{body}}}\n"
            else:
                text += f"namespace {identifier(block)} {{\nstatic void program() {{\n{body}}}\n}}\n}}\n"
            names.append(f'    {{"{block.name}", &{identifier(block)}::program}},\n')
    text += MAIN % "".join(names)
    out = pathlib.Path(out)
    if not out.exists() or out.read_text() != text:
        out.write_text(text)


def agrees(block, printed):
    if block.expected is None:
        return

    def clean(text):
        return [line.rstrip() for line in text.strip("\n").split("\n")]

    want, have = clean(block.expected.text), clean(printed)
    same = len(want) == len(have) and all(
        re.fullmatch(".*".join(map(re.escape, line.split("…"))), other) for line, other in zip(want, have)
    )
    if not same:
        block.expected.fail("the block before it printed\n" + "\n".join(have) + "\nand not\n" + "\n".join(want))


def run_cpp(program, group):
    run = subprocess.run([program, *[block.name for block in group]], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{run.stdout[-2000:]}\n{run.stderr[-4000:]}\n{group[0].page}: a C++ block failed")
    printed = dict(part.split("\n", 1) for part in run.stdout.split("\x1e")[1:])
    for block in group:
        agrees(block, printed[block.name])


def run_python(block, names):
    # A file with the lines of the page: torch.jit.script looks for the source of what it compiles.
    code = "\n" * (block.line - 1) + block.text + "\n"
    file = pathlib.Path(f"block_{block.line}.py").resolve()
    file.write_text(code)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(file), "exec"), names)
    except Exception:
        block.fail(traceback.format_exc())
    agrees(block, printed.getvalue())


SHELL_PRELUDE = """
program() { printf '#!/bin/sh\\nexec "%s" "%s"\\n' "$PROGRAM" "$BLOCK" >"$1"; chmod +x "$1"; }
their_program() { ln -sf "$THEIRS" "$1"; }
"""


class Shell:
    """Runs the shell blocks of a page as its reader would type them, but for what commands.py says."""

    not_run, patience = [], 120

    def __init__(self):
        self.background = []

    def block(self, block, environment):
        printed = ""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for command in commands.commands_of(block.text):
            for name, value in commands.PLACEHOLDERS.items():
                command = command.replace(name, value.format(port=port))
            printed += self.command(command, block, environment)
        agrees(block, printed)

    def command(self, command, block, environment):
        rule = commands.rule_of(command)
        text = command
        if rule:
            missing = self.run(rule.needs, environment)[0] != 0
            if missing or rule.instead is None:
                Shell.not_run.append(
                    f"{block.name}: {command}: " + (f"this fails: {rule.needs}" if missing else rule.why)
                )
                return ""
            found = re.fullmatch(rule.pattern, command)
            text = found.expand(rule.instead)
            if rule.background:
                return self.start(text.rstrip("& "), found.expand(rule.background), block, environment)
            if rule.until:
                return self.press(text, rule.until, block, environment)
        status, printed = self.run(text, environment)
        if status != 0:
            block.fail(f"{text}\nexit status {status}\n{printed}")
        for option, file in re.findall(r"(--(?:save|html|export|draw|report|trace)|>) ([^\s-]\S*)", command):
            if not pathlib.Path(file).exists() or not file.endswith("/") and pathlib.Path(file).stat().st_size == 0:
                block.fail(f"{text}\n{option} {file}: there is no such file, or it is empty\n{printed}")
        return printed

    @staticmethod
    def run(text, environment):
        """The exit status and what was printed."""
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            printed = process.communicate(timeout=Shell.patience)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed = process.communicate()[0] + f"\ndid not end in {Shell.patience} s"
        return process.returncode, printed

    def start(self, text, ready, block, environment):
        log = tempfile.NamedTemporaryFile(mode="r")
        process = subprocess.Popen(
            ["bash", "-c", "exec " + text],
            stdin=subprocess.DEVNULL,
            stdout=open(log.name, "w"),
            stderr=subprocess.STDOUT,
            env=environment,
        )
        self.background.append(process)
        end = time.monotonic() + Shell.patience
        while self.run(ready, {**environment, "LOG": log.name})[0] != 0:
            if process.poll() is not None or time.monotonic() > end:
                block.fail(f"{text}\nended, or did not become ready ({ready})\n{log.read()}")
            time.sleep(0.2)
        return ""

    @staticmethod
    def press(text, until, block, environment):
        process, terminal = pty.fork()
        if process == 0:
            os.execvpe("bash", ["bash", "-c", "exec " + text], environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        printed, pressed, end = "", False, time.monotonic() + Shell.patience
        while time.monotonic() < end:
            try:
                part = os.read(terminal, 65536) if select.select([terminal], [], [], 1)[0] else b""
            except OSError:  # it ended
                break
            printed += part.decode(errors="replace")
            if not pressed and re.search(until, printed):
                os.write(terminal, b"\x03")
                pressed = True
        else:
            os.kill(process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.close(terminal)
        if not pressed or status not in (0, 130, -signal.SIGINT):
            block.fail(f"{text}\nwas to print {until} and to end by Ctrl-C; exit status {status}\n{printed}")
        return printed

    def end(self):
        for process in reversed(self.background):
            process.terminate()
            process.wait()
        self.background = []


def run(arguments):
    work, prefix = pathlib.Path(arguments.work).resolve(), pathlib.Path(arguments.prefix).resolve()
    shutil.rmtree(work, ignore_errors=True)
    parts = installed_parts(prefix)
    command = shutil.which("torchtap", path=prefix / "bin")
    os.environ["PATH"] = os.pathsep.join([str(prefix / "bin"), os.environ["PATH"], *arguments.path])
    sys.path.insert(0, str(prefix / "share/torchtap"))  # as the pages tell
    written = {
        command
        for page in pages()
        for block in blocks(page)[0]
        if block.language == "sh" and not block.hidden
        for command in commands.commands_of(block.text)
    }
    unused = {rule.pattern for rule in commands.RULES} - {
        rule.pattern for rule in map(commands.rule_of, written) if rule
    }
    if unused and not folders_away():
        sys.exit("no command of a page needs these rules of commands.py:\n" + "\n".join(unused))
    counts = {}
    environment = {
        **os.environ,
        "SOURCE": str(ROOT),
        "PYTHON": sys.executable,
        "THEIRS": str(pathlib.Path(arguments.program or ".").resolve().parent / "their_program"),
    }
    # Short, as sockets in it want it.
    runtime = tempfile.TemporaryDirectory(prefix="torchtap-")
    environment["XDG_RUNTIME_DIR"] = runtime.name

    def count(what):
        counts[what] = counts.get(what, 0) + 1

    for page in pages():
        if left_out(page, parts) or arguments.only and page not in arguments.only:
            continue
        found, transparent = blocks(page)
        program = arguments.transparent if transparent else arguments.program
        folder = work / re.sub(r"\W", "_", page)
        folder.mkdir(parents=True)
        os.chdir(folder)
        names = {"__name__": "block"}
        made = {block.name: block for block, _ in functions(page)[0]}
        environment["PROGRAM"] = program or ""
        group, shell = [], Shell()
        atexit.register(shell.end)
        for block in [*found, None]:
            if block is not None and block.language == "cpp":
                if not block.hidden:
                    count("C++ compiled" if program else "C++ not compiled")
                if block.name in made and block.option != "compile" and program:
                    count("C++ run")
                    group.append(block)
                    environment["BLOCK"] = block.name
                continue
            if block is not None and block.language in ("text", "cmake"):
                continue
            if group:
                run_cpp(program, group)
                group = []
            if block is None:
                break
            if block.language == "python":
                if block.option == "syntax":
                    compile(block.text, block.page, "exec")
                    count("Python parsed")
                else:
                    run_python(block, names)
                    if not block.hidden:
                        count("Python run")
            elif command and block.hidden:
                status, printed = shell.run(SHELL_PRELUDE + block.text, environment)
                if status != 0:
                    block.fail(f"exit status {status}\n{printed}")
            elif command:
                shell.block(block, environment)
                count("shell run")
        shell.end()
    for line in Shell.not_run:
        print("not run:", line)
    print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))


def write_project(block, folder):
    """A CMake block as a project, with what it leaves out and the program of its page."""
    program = program_of(block.page)
    text = block.text
    if "find_package(torchtap" not in text:
        text = "find_package(torchtap REQUIRED)\n" + text
    if "add_executable(" not in text:
        text = "add_executable(my_program main.cpp)\n" + text
    if "project(" not in text:
        text = "cmake_minimum_required(VERSION 3.25)\nproject(my_program CXX)\n" + text
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ("CMakeLists.txt", text), ("main.cpp", program.text + "\n" if program else "int main() {}\n"):
        if not (folder / name).exists() or (folder / name).read_text() != content:
            (folder / name).write_text(content)


def parts_named(block):
    """The parts that a CMake block links."""
    return sorted(set(re.findall(r"torchtap::(\w+)", block.text)) - {"torchtap"})


def program_of(page):
    return next((block for block in blocks(page)[0] if block.language == "cpp" and is_program(block)), None)


def build_projects(prefix, work):
    number, parts = 0, installed_parts(prefix)
    for page in pages():
        found = blocks(page)[0] if not left_out(page, parts) else []
        for block in found:
            if block.language != "cmake":
                continue
            lacking = [part for part in parts_named(block) if not is_installed(part, prefix)]
            if lacking:
                print(f"not built: {block.name}, which needs {', '.join(lacking)}")
                continue
            folder = pathlib.Path(work, re.sub(r"\W", "_", block.name)).resolve()
            write_project(block, folder)
            for command in (
                ["cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"],
                ["cmake", "--build", folder / "build"],
            ):
                made = subprocess.run(command, capture_output=True, text=True)
                if made.returncode != 0:
                    block.fail(made.stdout + made.stderr)
            shutil.rmtree(folder / "run", ignore_errors=True)
            (folder / "run").mkdir()
            os.chdir(folder / "run")
            names = {"__name__": "block"}
            ran = subprocess.run([folder / "build/my_program"], capture_output=True, text=True)
            program = program_of(page)
            if ran.returncode != 0:
                (program or block).fail(f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")
            if program:  # and what Python does with its files
                agrees(program, ran.stdout)
                for other in found:
                    if other.language == "python" and other.option != "syntax":
                        run_python(other, names)
            number += 1
    print(f"{number} projects of CMake blocks built and run")


def write_python(file, of):
    found = [block for page in of for block in blocks(page)[0] if block.language == "python" and not block.hidden]
    pathlib.Path(file).write_text("".join(f"# {block.name}\n{block.text}\n\n" for block in found))


def anchors(file):
    """The anchors that GitHub gives to headings."""
    text = re.sub(r"```.*?```", "", file.read_text(), flags=re.S)
    result = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        result.add(re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-"))
    return result


def links():
    broken, seen, away = [], 0, folders_away()
    for page in pages():
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"", text):
            target = target[0] or target[1]
            if re.match(r"[a-z]+:", target):
                continue
            seen += 1
            path, _, anchor = target.partition("#")
            file = ((ROOT / page).parent / path).resolve() if path else ROOT / page
            if any(file.is_relative_to(folder) for folder in away):
                continue
            if not file.exists() or not file.is_relative_to(ROOT):
                broken.append(f"{page}: {target}: there is no such file")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                broken.append(f"{page}: {target}: there is no such heading")
        broken += [
            f"{page}: there is no {script}"
            for script in re.findall(r"`(scripts/[\w-]+)", text)
            if not (ROOT / script).exists()
        ]
    words = sum(len(file.read_text().split()) for file in (ROOT / "docs").rglob("*.md"))
    if words > WORDS:
        broken.append(f"docs/ has {words} words, more than {WORDS}: what is of a part belongs to its folder")
    if (lines := len((ROOT / "README.md").read_text().splitlines())) > LINES:
        broken.append(f"README.md has {lines} lines, more than {LINES}")
    if broken or seen == 0:
        sys.exit("\n".join(broken) or "no links found")
    print(f"{seen} links lead somewhere")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("generate")
    one.add_argument("prefix")
    one.add_argument("out")
    one.add_argument("--transparent", action="store_true")
    one = commands.add_parser("run")
    one.add_argument("prefix")
    one.add_argument("--program")
    one.add_argument("--transparent")
    one.add_argument("--work", required=True)
    one.add_argument("--path", action="append", default=[], help="more folders of programs that the pages name")
    one.add_argument("--only", action="append", help="a page, instead of all")
    one = commands.add_parser("cmake")
    one.add_argument("prefix")
    one.add_argument("work")
    one = commands.add_parser("project")
    one.add_argument("page")
    one.add_argument("folder")
    one = commands.add_parser("python")
    one.add_argument("file")
    one.add_argument("page", nargs="+")
    commands.add_parser("links")
    one = commands.add_parser("names")
    one.add_argument("--command", help="torchtap, whose --help says what it takes")
    arguments = parser.parse_args()
    if arguments.what == "generate":
        generate(arguments.out, arguments.transparent, installed_parts(arguments.prefix))
    elif arguments.what == "run":
        run(arguments)
    elif arguments.what == "cmake":
        build_projects(arguments.prefix, arguments.work)
    elif arguments.what == "project":
        block = next(block for block in blocks(arguments.page)[0] if block.language == "cmake")
        write_project(block, pathlib.Path(arguments.folder))
    elif arguments.what == "python":
        write_python(arguments.file, arguments.page)
    elif arguments.what == "names":
        named.check(ROOT, pages(), arguments.command)
    else:
        links()


main()
