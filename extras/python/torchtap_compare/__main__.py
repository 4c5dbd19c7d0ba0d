"""Runs a Python program as it is, and records what passes through its modules."""

import argparse
import atexit
import builtins
import importlib.abc
import importlib.util
import io
import os
import re
import runpy
import shlex
import sys
import types
import zipfile

CALL = re.compile(r":\d+$")


def arguments():
    parser = argparse.ArgumentParser("python3 -m torchtap_compare", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--to", metavar="FILE", help="where to write; - is the standard output, and the program's goes to stderr"
    )
    parser.add_argument(
        "--forwards", type=int, default=1, metavar="N", help="so many forwards of each model (1); 0 for all"
    )
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="not the first N of them")
    parser.add_argument("--values", action="append", metavar="PATH:SAMPLE", help="these calls, with all their values")
    parser.add_argument(
        "--try", dest="request", metavar="REQUEST.json", help="try these calls with values of another program"
    )
    parser.add_argument("--answer", metavar="ANSWER.json", help="where to write what came of it")
    parser.add_argument("-m", dest="is_module", action="store_true", help="PROGRAM is the name of a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM …", help="and its own arguments")
    given, at = sys.argv[1:], 0
    while at < len(given) and given[at][0:1] == "-" and given[at] not in ("-m", "--"):  # up to the program
        at += 1 if "=" in given[at] else 2
        while given[at - 2] == "--values" and at < len(given) and CALL.search(given[at]):  # which takes more than one
            given.insert(at, "--values")
            at += 2
    chosen = parser.parse_args(given)
    chosen.program = chosen.program[chosen.program[:1] == ["--"] :]
    if not chosen.program:
        parser.error("which program? Name a script, or a module behind -m")
    if chosen.forwards < 0 or chosen.skip < 0:
        parser.error("--forwards and --skip are numbers from 0")
    if bool(chosen.request) != bool(chosen.answer) or not (chosen.to or chosen.request):
        parser.error("--to FILE records, and --try REQUEST.json goes with --answer ANSWER.json")
    for call in chosen.values or []:
        if not CALL.search(call):
            parser.error(f"--values {call}: a call is PATH:SAMPLE, as in layer1.0.conv1:0")
    if not chosen.is_module and not os.path.exists(chosen.program[0]):
        parser.error(f"there is no script {chosen.program[0]!r}")
    return chosen


class AfterTorch(importlib.abc.MetaPathFinder):
    """Calls a function when the program has imported PyTorch, which must not be before: what a program sets in the environment,
    the number of threads for example, is read then."""

    def __init__(self, then):
        self.then = then

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.then()

            spec.loader.exec_module = exec_module
        return spec


def run(program, is_module):
    """As Python runs it."""
    if is_module:
        return runpy.run_module(program, run_name="__main__", alter_sys=True)
    if not os.path.isfile(program) or zipfile.is_zipfile(program):
        return runpy.run_path(program, run_name="__main__")
    path = os.path.abspath(program)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(program))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    exec(code, main.__dict__)


def is_prints(path):
    with open(path, "rb") as file:
        return file.read(4) in (b"", b"TTF1")


def main():
    chosen, recorders = arguments(), []
    to = chosen.to
    if to == "-":
        to = os.dup(1)
        os.dup2(2, 1)
    elif to:
        if os.path.isfile(to) and not is_prints(to):
            sys.exit(
                f"torchtap_compare: {to} is there and holds no fingerprints, so it is not overwritten; choose another file"
            )
        try:
            to = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        except OSError as error:
            sys.exit(f"torchtap_compare: cannot write {to}: {error.strerror}")

    def begin():
        from .recording import Recorder
        from .trial import Trial

        trial = Trial(chosen.request, chosen.answer) if chosen.request else None
        calls = [call.rpartition(":") for call in chosen.values or []]
        values = {(path, int(sample)) for path, _, sample in calls} or None
        command = shlex.join(["python3", *["-m"] * chosen.is_module, *chosen.program])
        recorders.append(Recorder(to, chosen.forwards, chosen.skip, values, trial, command).__enter__())

    def end():
        for recorder in recorders:
            recorder.close()
            if recorder.error:
                print(f"torchtap_compare: not all was recorded: {recorder.error!r}", file=sys.stderr)
        if not recorders:
            print("torchtap_compare: nothing was recorded: the program did not import PyTorch", file=sys.stderr)

    atexit.register(end)  # behind what the program registers, and behind its threads
    sys.meta_path.insert(0, AfterTorch(begin))
    sys.argv = chosen.program
    run(chosen.program[0], chosen.is_module)


if __name__ == "__main__":
    main()
