"""What torchtap's headers and its Python package declare, by name: enough of C++ to tell which name stands in which scope."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOT_PUBLIC = {"detail", "tests", "bench", "examples", "tools"}
IDENTIFIER = r"[A-Za-z_]\w*"


class Scope:
    """A namespace, a class or an enumeration, with the names that a user may write behind its `::` or `.`."""

    def __init__(self, kind):
        self.kind, self.names, self.bases = kind, set(), []
        self.chained = set()  # members that return the object: options


def public_headers():
    rooms = [folder for folder in ROOT.iterdir() if folder.is_dir() and not re.match(r"build|\.|include$", folder.name)]
    for room in sorted(rooms):
        for header in sorted(room.rglob("*.hpp")):
            if not NOT_PUBLIC & set(header.relative_to(ROOT).parts):
                yield header
    yield from sorted((ROOT / "include/torchtap").glob("*.hpp"))


def without_comments(text):
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.S)
    text = re.sub(
        r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', lambda m: '""' if m[0][0] == '"' else " ", text, flags=re.S
    )
    return re.sub(r"'(?:\\.|[^'\\])'", "0", text)


def expanded(text):
    """With the macros applied that the file defines in order to declare classes."""
    macros = re.findall(r"^#define (\w+)\(([^)]*)\)\s*((?:.*\\\n)*.*)", text, re.M)
    text = re.sub(r"^[ \t]*#(?:\\\n|.)*", "", text, flags=re.M)
    for name, parameters, body in macros:
        if not re.search(r"\b(class|struct)\b", body):
            continue
        parameters = [one.strip() for one in parameters.split(",")]

        def applied(call):
            values = dict(zip(parameters, (one.strip() for one in call[1].split(","))))
            made = re.sub(IDENTIFIER, lambda word: values.get(word[0], word[0]), body.replace("\\\n", "\n"))
            return re.sub(r"\s*##\s*", "", made)

        text = re.sub(rf"\b{name}\(([^()]*)\)", applied, text)
    return text


def without_arguments(text):
    """Without what is in <…>, and the attributes."""
    text = re.sub(r"\[\[.*?\]\]|\b(?:alignas|decltype|noexcept|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)", " ", text)
    text = re.sub(r"operator\s*\S+?(?=\s*\()", "operator", text).replace("->", " ")
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>]*>", " ", text)
    return text


def declared_name(head):
    """The name that a declaration declares; "" if none that a page would say."""
    head = without_arguments(head).strip()
    if argument := re.match(r"TORCH_ARG\(.*,\s*(\w+)\)", head, re.S):
        return argument[1]
    head = re.sub(r"^template\s+", "", head)
    if using := re.match(r"using\s+(?:namespace\s+)?(?:[\w:\s]*::)?(\w+)", head):
        return using[1]
    if head.startswith("friend") or "operator" in head:
        return ""
    before = re.split(r"[(={;,\[]|(?<!:):(?!:)", head)[0]
    return names[-1] if (names := re.findall(IDENTIFIER, before)) else ""


def read(text, scopes):
    text = without_comments(text)
    for macro in re.findall(r"^\s*#\s*define\s+(\w+)", text, re.M):
        scopes.setdefault("", Scope("namespace")).names.add(macro)
    text = expanded(text)
    stack = [("namespace", "", True)]  # kind, full name, whether what comes is public
    head = ""

    def note(name):
        kind, scope, public = stack[-1]
        if name and (public or "TORCH_ARG" in head) and kind != "other":
            made = scopes.setdefault(scope, Scope(kind))
            made.names.add(name)
            if "TORCH_ARG" in head or re.search(rf"\b{scope.split('::')[-1]}\s*&\s+{name}\s*\(", head):
                made.chained.add(name)

    for token in re.findall(r"[;{}]|[^;{}:]+|::|:", text):
        kind, scope, _ = stack[-1]
        if token == "{":
            opened = ("other", "", False)
            plain = without_arguments(head)
            if kind != "other" and (found := re.search(r"\bnamespace\s+([\w:]*)\s*$", plain)):
                opened = ("namespace", "::".join(filter(None, [scope, found[1]])), True)
            elif kind != "other" and (
                found := re.search(
                    r"\b(enum\s+class|enum|class|struct|union)\s+(?:TORCHTAP_\w+\s+)*(\w+)\s*(?:final\s*)?(?::(?!:)(.*))?$",
                    plain,
                    re.S,
                )
            ):
                note(found[2])
                opened = (found[1].split()[0], f"{scope}::{found[2]}".strip(":"), found[1] != "class")
                made = scopes.setdefault(opened[1], Scope(opened[0]))
                if opened[0] != "enum":
                    made.bases += re.findall(rf"({IDENTIFIER}(?:::{IDENTIFIER})*)\s*(?:,|$)", found[3] or "")
            else:
                note(declared_name(head))
            stack.append(opened)
            head = ""
        elif token == "}":
            if kind == "enum":
                for one in head.split(","):
                    note(one.split("=")[0].strip())
            if len(stack) > 1:
                stack.pop()
            head = ""
        elif token == ";":
            note(declared_name(head))
            head = ""
        elif (
            token == ":"
            and kind in ("class", "struct", "union")
            and re.fullmatch(r"\s*(public|protected|private)\s*", head)
        ):
            stack[-1] = (kind, scope, head.strip() == "public")
            head = ""
        else:
            head += token


class Names:
    """All of them."""

    def __init__(self):
        self.scopes = {}
        for header in public_headers():
            read(header.read_text(), self.scopes)
        self.scopes = {full: scope for full, scope in self.scopes.items() if "detail" not in full.split("::")}
        self.python = {
            name
            for file in [*ROOT.glob("extras/python/**/*.py"), *ROOT.glob("extras/python/**/*.pyi")]
            for name in re.findall(r"(?:def|class)\s+(\w+)", file.read_text())
        }

    def called(self, name):
        """The full names of the scopes that a page may mean by a name, qualified or not."""
        name = re.sub(r"^(?:tap|torchtap)::", "", name)
        return [full for full in self.scopes if full == name or full.endswith("::" + name)]

    def members(self, full, seen=()):
        """What may be named behind this scope, inherited names included."""
        names = set(self.scopes[full].names)
        for base in self.scopes[full].bases:
            for one in self.called(base):
                if one != full and one not in seen:
                    names |= self.members(one, (*seen, full))
        return names

    def of(self, name):
        """What may be named behind `name`; None if there is no such scope."""
        found = self.called(name)
        outer, _, last = name.rpartition("::")
        if not found and outer and last in (self.of(outer) or ()):  # another name of a scope
            found = self.called(last)
        return set().union(*map(self.members, found)) if found else None

    def everywhere(self):
        return set().union(*(scope.names for scope in self.scopes.values())) | self.python

    def options(self):
        """The classes of options, with their members."""
        return {full: self.members(full) for full in self.scopes if full.endswith("Options")}
