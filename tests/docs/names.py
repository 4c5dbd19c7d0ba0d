"""Checks the names in the running text and the tables of the pages: what is `code` there is compiled by nobody.

A name that code in backquotes calls or qualifies has to be there, and public: in torchtap's headers (declared.py), its Python
package, a code block of the page, or in FOREIGN. `.name(…)` is an option: a member of a class of options; a table of them is of
one class, and complete. A page that uses a part in C++ has the lines of CMake that link it. A line `torchtap …` has a command,
options and as many arguments as `torchtap COMMAND --help` says, also in the shell blocks that do not run.
"""

import re
import shlex
import subprocess

import commands
import declared

# Whose names are not looked up: LibTorch's in C++ and Python, and other libraries'.
FOREIGN_SCOPES = {"std", "at", "aten", "c10", "c10d", "torch", "nn", "boost", "cereal", "subprocess"}
# What pages call that is LibTorch's, Python's, CMake's, the shell's or the reader's own.
FOREIGN = set(
    """
    EmbeddingOptions AdaptiveLogSoftmaxWithLoss AnyModule AnyModulePlaceholder Cloneable GraphFunction Impl Linear Module
    OrderedDict RNN ReLU TORCH_MODULE
    abs add_ detach_ get_submodule grad index_select is_leaf is_view isnan item log_prob named_modules named_parameters ptr
    _rebuild_tensor_v3 register_forward_hook register_forward_pre_hook register_full_backward_hook register_hook
    register_module_forward_hook requires_grad_ sigmoid_ t_ to_dense to_local type_info
    __builtin_LINE decltype isinstance fnmatch add_subdirectory set_source_files_properties
    attention block conv f init
    cka cross_covariance enter run_hooks
    """.split()
)
# Parts by the namespace that their C++ is in, where it is not the part's name: each of these brings it.
LINKED_BY = {"rules": ("report", "explorer", "monitor")}


def without_blocks(text):
    """The page without code blocks and comments; lines stay where they are."""
    return re.sub(r"```.*?```|<!--.*?-->", lambda block: re.sub(r"[^\n]", " ", block[0]), text, flags=re.S)


def inline_code(text):
    for code in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
        yield text.count("\n", 0, code.start()) + 1, " ".join(code[1].split())


def first_cells(text):
    """Of each table the code in its first column, with its lines."""
    table = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("|"):
            table += [(number, code) for code in re.findall(r"`([^`]+)`", line.split("|")[1])]
        elif table:
            yield table
            table = []


def without_text(code):
    return re.sub(r'"(?:\\.|[^"])*"', '""', code)


def top_level(code):
    """Without what is in brackets: "X(…).f(…)" is "X().f()"."""
    before, code = None, without_text(code)
    while before != code:
        before, code = code, re.sub(r"([(\[{])[^()\[\]{}]+([)\]}])", r"\1\2", code)
    return code


class Command:
    """What one command of torchtap takes, as its --help says."""

    def __init__(self, help_text):
        self.takes_value, self.repeats = {}, {}  # by the name of an option
        self.positionals, self.any_number = 0, False
        section = ""
        lines = re.sub(r"\n    (?=\S)", " ", help_text).splitlines()  # names that were broken
        for line in lines:
            if not line or re.match(r"\S.*:$", line):
                section = line
            entry = re.match(r"  (\S.*?)(?:  |$)", line)
            if not entry or section in ("", "Examples:"):
                continue
            names, _, value = entry[1].partition(" ")
            if names.startswith("-"):
                for name in names.split(","):
                    self.takes_value[name.split("[")[0]] = value != "" and "[" not in name
                    self.repeats[name.split("[")[0]] = value.endswith("...")
            elif section == "Positionals:":
                self.positionals += 1
                self.any_number |= "..." in value

    def problem(self, words):
        """What is wrong with the words behind the command's name; "" if nothing. `…` is anything."""
        words, given = list(words), 0
        while words and words[0] != "--":
            word = words.pop(0)
            if word == "…":
                return ""
            if not re.match(r"-\D", word):
                given += 1
                continue
            name, _, value = word.partition("=")
            name = name.split("[")[0]
            if name not in self.takes_value:
                return f"there is no option {name}"
            if self.takes_value[name] and not value and words:
                words.pop(0)
                while self.repeats[name] and words and not words[0].startswith("-"):
                    words.pop(0)
        if given > self.positionals and not self.any_number:
            return f"{given} arguments, and it takes {self.positionals}"
        return ""


class CommandLine:
    """All of them."""

    def __init__(self, program):
        def help_of(*command):
            done = subprocess.run(
                [program, *command, "--help"], capture_output=True, text=True, check=True, env={"COLUMNS": "100"}
            )
            return done.stdout

        names = re.findall(r"^  ([a-z]+)  ", help_of(), re.M)
        self.commands = {name: Command(help_of(name)) for name in names}
        self.options = {option for command in self.commands.values() for option in command.takes_value}

    def problem(self, line):
        line = re.sub(r"<\(.*?\)", "FILE", line)  # a pipe that is one file
        line = re.sub(r"(?:^|(?<=\s))\[|\](?=\s|$)", "", line)  # [what may be left out]
        words = shlex.split(re.sub(r"[<>] ?\S+", "", line), comments=True)  # without files of the shell's
        if "|" in words:
            words = words[: words.index("|")]
        if len(words) < 2 or words[1] in ("COMMAND", "…") or words[1].startswith("-"):
            return ""
        command = self.commands.get(words[1])
        return command.problem(words[2:]) if command else f"there is no command {words[1]}"


class Pages:
    def __init__(self, root, pages, program=None):
        self.root, self.pages = root, pages
        self.command_line = CommandLine(program) if program else None
        scripts = [
            file
            for folder in ("scripts", "bench", "extras/python", "examples", "tests/docs", "docs/images")
            for file in (root / folder).rglob("*")
            if file.is_file() and file.suffix in ("", ".py", ".sh")
        ]
        self.script_options = set(
            re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(file.read_text() for file in scripts))
        )
        self.names = declared.Names()
        self.everywhere, self.options = self.names.everywhere(), self.names.options()
        self.components = {"torchtap", "kernel", *(file.parent.name for file in root.glob("*/**/part.cmake"))}
        self.wrong, self.seen = [], 0

    def check(self):
        for page in self.pages:
            text = (self.root / page).read_text()
            blocks = set(re.findall(r"\w+", "".join(re.findall(r"```.*?```", text, re.S))))
            plain = without_blocks(text)
            for line, code in inline_code(plain):
                for problem in self.problems(code, blocks):
                    self.wrong.append(f"{page}:{line}: `{code}`: {problem}")
            for table in first_cells(plain):
                self.table(page, table)
            self.linked(page, text)
            if self.command_line:
                self.shell(page, text)

    def shell(self, page, text):
        """Lines that begin with torchtap, in running text and in blocks, and options alone."""
        lines = list(inline_code(without_blocks(text)))
        for block in re.finditer(r"^```sh\n(.*?)^```", text, re.S | re.M):
            number = text.count("\n", 0, block.start()) + 2
            lines += [(number, command) for command in commands.commands_of(block[1])]
        for number, line in lines:
            problem = ""
            if line.startswith("torchtap "):
                problem = self.command_line.problem(line)
            elif option := re.match(r"--[a-z][\w-]*", line):
                if option[0] not in self.command_line.options | self.script_options:
                    problem = "no command and no script has this option"
            else:
                continue
            self.seen += 1
            if problem:
                self.wrong.append(f"{page}:{number}: `{line}`: {problem}")

    def problems(self, code, blocks):
        plain, outer = without_text(code), top_level(code)
        chain = re.match(r"(?:\w+::)*(\w+Options)\(\)((?:\.\w+\(\))+)", outer)
        if chain:
            members = self.names.of(chain[1])
            for name in re.findall(r"\w+", chain[2]):
                self.seen += 1
                if members is None or name not in members:
                    yield f"{chain[1]} has no {name}"
        option = re.match(r"\.(\w+)\(", outer)
        if option:
            self.seen += 1
            if option[1] not in FOREIGN and not any(option[1] in members for members in self.options.values()):
                yield f"no class of options has a member {option[1]}"
        for scope, name in re.findall(r"((?:\w+::)+)(\w+)", plain):
            scope = scope[:-2]
            if scope.split("::")[0] in FOREIGN_SCOPES or re.match(r"(?:tap|torchtap)::nn$", scope):
                continue
            self.seen += 1
            if scope in ("tap", "torchtap"):
                if not (name in self.everywhere | self.components | FOREIGN or self.names.of(name)):
                    yield f"torchtap has no {name}"
            elif scope not in FOREIGN and scope not in blocks:
                members = self.names.of(scope)
                if members is None:
                    yield f"there is no {scope}"
                elif name not in members:
                    yield f"{scope} has no {name}"
        # What stands behind a type is a name that the code gives itself.
        for type_before, before, name in re.findall(r"([\w>&*] )?((?:\w+(?:\.|::))*)(\w+)\(", plain):
            if re.split(r"\.|::", before)[0] in FOREIGN_SCOPES or type_before and not before:
                continue
            self.seen += 1
            if name not in self.everywhere and name not in blocks and name not in FOREIGN:
                yield f"there is no {name}"

    def table(self, page, table):
        rows = [(line, option[1]) for line, code in table if (option := re.match(r"\.(\w+)\(", code))]
        if not rows or len(rows) < len(table):
            return
        fits = {full: sum(name in members for _, name in rows) for full, members in self.options.items()}
        best = max(fits, key=fits.get)
        for line, name in rows:
            if name not in self.options[best]:
                self.wrong.append(f"{page}:{line}: `.{name}(…)`: {best} has no {name}, as the rest of the table")
        for name in sorted(self.names.scopes[best].chained - {name for _, name in rows}):
            self.wrong.append(f"{page}:{rows[0][0]}: the table of {best} has no row with {name}")

    def linked(self, page, text):
        """A page with C++ of a part says what to link."""
        blocks = dict.fromkeys(("cpp", "cmake"), "")
        for language, block in re.findall(r"^```(cpp|cmake)\n(.*?)^```", text, re.S | re.M):
            blocks[language] += block
        used = re.findall(r"(?:tap|torchtap)::(?:views::)?(\w+)", blocks["cpp"])
        used += re.findall(r"#include <torchtap/(?:views/)?(\w+)/", blocks["cpp"])
        for part in sorted(set(used) & ({*self.components, *LINKED_BY} - {"torchtap"})):
            self.seen += 1
            if not any(f"torchtap::{one}" in blocks["cmake"] for one in LINKED_BY.get(part, [part])):
                self.wrong.append(f"{page}: its C++ uses torchtap::{part}, and no CMake block links it")


# What nobody declares: a check that does not see these sees nothing.
WRONG_CODE = (
    ".tensor(n)",
    "Recorder::shrink",
    "recorders::Capture::view",
    "MonitorOptions().tensor(1)",
    "recorder.shrink(1)",
)
WRONG_COMMANDS = (
    "torchtap shw maps/",
    "torchtap show maps/ --statistic",
    "torchtap convert maps/ --to tensorboard runs/a",
)


def check(root, pages, program):
    found = Pages(root, pages, program)
    # Pages speak of all parts, whose folders may be taken away (scripts/check-parts).
    told = set(re.findall(r"^\| \[(\w+)\].*\| `torchtap::\1` \|$", (root / "README.md").read_text(), re.M))
    if away := told - found.components or {"extras/python"} - {str(f.relative_to(root)) for f in root.glob("extras/*")}:
        print(f"names are not looked up: {', '.join(sorted(away))} is not there")
        return
    unseen = [code for code in WRONG_CODE if not list(found.problems(code, set()))]
    unseen += [line for line in WRONG_COMMANDS if program and not found.command_line.problem(line)]
    if unseen:
        raise SystemExit("this is wrong, and is not found: " + ", ".join(unseen))
    found.check()
    if found.wrong or found.seen == 0:
        raise SystemExit("\n".join(found.wrong) or "no names found")
    print(
        f"{found.seen} names are there"
        + ("" if program else "; the command is not built, so its options were not looked up")
    )
