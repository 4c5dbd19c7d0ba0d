"""The shell commands of the pages that cannot run as they are written, and what the test docs_snippets does instead.

All others run, line by line, as a reader would type them: snippets.py knows no list of those. A rule that no command needs is
an error, too. PLACEHOLDERS are names in commands that stand for something of the reader's.
"""

import dataclasses
import re
import typing


@dataclasses.dataclass
class Rule:
    pattern: str  # of the whole command
    why: str
    instead: typing.Optional[str] = r"\g<0>"  # what runs, a template of the pattern's groups; None: nothing
    needs: str = "true"  # a command that fails where this one cannot run
    until: typing.Optional[str] = None  # runs on a terminal until it has printed this, then Ctrl-C is pressed there
    background: typing.Optional[str] = (
        None  # stays until the page ends; goes on once this command succeeds; $LOG has its output
    )


# Ports that are free, the only machine that there is, and no file of whoever runs the tests.
PLACEHOLDERS = {
    "7777": "{port}",
    "9000": "{port}",
    "tcp:host:": "tcp:localhost:",
    "~/.torchtap-token": "torchtap-token",
}

# torchrun connects ranks by libuv, which Debian 13's PyTorch was built without: it starts nothing there, as the page says.
LIBUV = """"$PYTHON" -c 'import torch.distributed as d; d.TCPStore("localhost", 0, 1, True)'"""
GOES_ON = "goes on until Ctrl-C or the program's end, and prints nothing: a number of frames ends it"
PUBLISHED = "torchtap streams | grep -q '^{}:'"

RULES = [
    Rule(r"(scripts/\w+)(?: kernel)?", "installs packages, and takes minutes", r'test -x "$SOURCE/\1"'),
    Rule(
        r"sudo apt-get install (?:--no-install-recommends )?(.*)",
        "needs root; scripts/setup has installed these",
        r"dpkg-query -W \1 >/dev/null",
        needs="command -v dpkg-query",
    ),
    Rule(r"pip (install|wheel) .*", "takes minutes; scripts/check-pip does so", None),
    Rule(r"cmake .*python3 -m torchtap --cmake-prefix.*", "scripts/check-pip does so", None),
    Rule(r"cmake -S \. (.*)", "is said in the source tree, which stays as it is", r'cmake -S "$SOURCE" \1'),
    Rule(r"cmake --build build", "takes minutes", r"\g<0> -- -n"),
    Rule(r"sudo cmake --install build", "needs root; the test `install` installs a build", None),
    Rule(
        r".* --library libtorchvision\.so .*",
        "Debian has torchvision for Python alone: its file in Python's folder",
        r"""torchvision=$("$PYTHON" -c 'import torchvision; print(*torchvision.__path__)')
             command=$(echo '\g<0>' | sed "s,libtorchvision.so,$(ls "$torchvision"/_C*.so | head -1),"); $command""",
        # Some wheels of torchvision link what only Python's own program has.
        needs="""folder=$("$PYTHON" -c 'import torchvision; print(*torchvision.__path__)') &&
                 ! grep -q libtorch_python "$folder"/_C*.so""",
    ),
    Rule(
        r"torchtap compare --run 'python3 ([^']*)' (.*)",
        "another interpreter may have PyTorch; the programs differ",
        r'{ torchtap compare --run "$PYTHON \1" \2 2>/dev/null || test $? = 1; } | sed "s,^A $PYTHON,A python3,"',
    ),
    Rule(
        r"python3 (-m torchtap_compare .*)",
        "another interpreter may have PyTorch",
        r'PYTHONPATH="$(dirname "$(command -v torchtap)")/../share/torchtap" "$PYTHON" \1',
    ),
    Rule(r"torchtap compare original\.prints (.*)", "the programs differ", r"\g<0> || test $? = 1"),
    Rule(r"(torchrun .*)", "Debian 13's starts nothing", needs=LIBUV),
    Rule(
        r"(experts|padding|grad_cam|int8) .*|python3 examples/(experts|padding|grad_cam|int8)/(check|script)\.py .*",
        "trains for minutes; the tests example_experts, example_padding, example_grad_cam and example_int8 do so for less",
        None,
    ),
    Rule(
        r"(torchtap record .*) --count \d+ (--stream (\w+))",
        "publishes as long as the page reads",
        r"\1 --count 1000000 \2",
        background=PUBLISHED.format(r"\3"),
    ),
    Rule(
        r"fashion_mnist_watched .* &",
        "an example, which is built and not installed",
        needs="command -v fashion_mnist_watched",
        background=PUBLISHED.format("fashion-mnist"),
    ),
    Rule(
        r"python3 (\S*/run\.py 3) build/examples/(similarity .*)",
        "an example, which is built and not installed; takes minutes",
        r'"$PYTHON" "$SOURCE"/\1 \2 --samples 64 --test 100 --epochs 1 --width 8',
        needs="command -v similarity",
    ),
    Rule(
        r"python3 (examples/similarity/check\.py .*)",
        "lies in the source tree",
        r'"$PYTHON" "$SOURCE"/\1',
        needs="command -v similarity && \"$PYTHON\" -c 'import matplotlib'",
    ),
    Rule(
        r"(torchtap video fashion-mnist .*)",
        GOES_ON,
        r"\1 --count 2",
        needs="command -v fashion_mnist_watched && command -v ffmpeg",
    ),
    Rule(r"(torchtap video (?!maps/).*\.mp4)", GOES_ON, r"\1 --count 5", needs="command -v ffmpeg"),
    Rule(r"torchtap video maps/.*\.mp4", "without ffmpeg it makes a folder", needs="command -v ffmpeg"),
    Rule(
        r"python3 (examples/unfamiliar/.*)",
        "is said in the source tree, and the picture needs matplotlib",
        r'"$PYTHON" "$SOURCE"/\1',
        needs="\"$PYTHON\" -c 'import sklearn, matplotlib'",
    ),
    Rule(
        r"unfamiliar (\S+) .*(--save \S+)",
        "trains for minutes: with fewer images it takes seconds",
        r"unfamiliar \1 --samples 1000 --test 500 --epochs 1 --threads 1 \2",
        needs="command -v unfamiliar && test -e digits.gz",
    ),
    Rule(r"(torchtap tail .*--save .*)", GOES_ON, r"\1 --count 5"),
    Rule(r"torchtap tail [^-]*", "goes on until Ctrl-C", until=r"mean .*std "),
    Rule(r"torchtap watch .*", "goes on until Ctrl-C", until=r"layer1"),
    Rule(r"ssh host (.*) \| (.*)", "needs a second machine: this one is taken; goes on", r"\1 --count 5 | \2"),
    Rule(r"torchtap explore (?!.*--export).*", "serves until Ctrl-C", until=r"http://\S+#token="),
]


def commands_of(text):
    """Those of a block, without comments."""
    lines = (re.sub(r"(^|\s+)#( .*)?$", "", line) for line in text.replace("\\\n", " ").split("\n"))
    return [re.sub(r"\s+", " ", line.strip()) for line in lines if line.strip()]


def rule_of(command):
    return next((rule for rule in RULES if re.fullmatch(rule.pattern, command)), None)
