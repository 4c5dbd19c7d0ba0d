"""Tests the errors of the command: messages, exit status and output stream."""

import json
import os
import pathlib
import re
import shutil
import signal

import harness
import pytest
import torch
from harness import TORCHTAP, document, start


def run(*arguments):
    return harness.run(*arguments, status=None)


def error(*arguments, says=(), silent=(), command=None, lines=None):
    """Returns stderr of a call that ends with 2; its first line contains all of `says`."""
    done = run(*arguments)
    first = done.err.split("\n")[0]
    assert done.status == 2
    assert first.startswith(f"torchtap {command}: " if command else "torchtap: ")
    for part in says:
        assert part in first
    for part in silent:
        assert part not in done.err
    assert not re.search(r"\w+::\w+|\w+Options\b|\b[a-z_]+\(\)|rapidjson|(?<!-)\b(?:spool|save|load): ", first)
    assert first.count("torchtap: ") <= 1
    if lines is not None:
        assert len(done.err.strip().split("\n")) == lines
    return done.err


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 8)
        self.fc2 = torch.nn.Linear(8, 3)
        self.never = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


X = ("--random", "2x4")


@pytest.fixture
def model(folder):
    return folder / "net.pt"


@pytest.fixture
def maps(folder):
    return folder / "maps"


@pytest.fixture(scope="module", autouse=True)
def recordings(folder):
    os.chdir(folder)
    torch.manual_seed(0)
    torch.jit.script(Net()).save(folder / "net.pt")
    for save, arguments in (("maps", ["--reduce", "mean"]), ("others", ["--reduce", "max"]), ("raw", [])):
        how = ("--random", "2x4", "--count", 2, "--names", "fc?", "--names", "", *arguments)
        harness.run("record", folder / "net.pt", *how, "--save", folder / save)
    harness.run("merge", "maps", "maps", "--save", "twice")


def test_stdout(folder):
    """A full disk, a closed pipe and a closed descriptor are errors of every subcommand that prints."""
    maps, model, save = folder / "maps", folder / "net.pt", folder / "saved"
    calls = [
        ["--help"],
        ["--version"],
        ["list", model],
        ["list", model, "--json"],
        ["show", maps],
        ["show", maps, "--json"],
        ["show", maps, "--stats"],
        ["compare", maps, maps],
        ["compare", maps, folder / "others", "--json"],
        ["completion", "bash"],
        ["completion", "zsh"],
        ["completion", "fish"],
        ["record", model, "--random", "2x4", "--save", save],
        ["merge", maps, maps, "--save", save, "--json"],
        ["convert", maps, "--to", "npy", "--save", save, "--json"],
        ["recover", folder / "raw", "--check"],
        ["recover", folder / "raw", "--check", "--json"],
    ]
    for arguments in calls:
        shutil.rmtree(save, ignore_errors=True)
        with open("/dev/full", "w") as full:
            done = start(TORCHTAP, *arguments, stdout=full)
        assert done.communicate()[1].endswith("torchtap: cannot write to stdout: No space left on device\n")
        assert done.returncode == 2
    # Closed: no file opened later takes its number.
    shutil.rmtree(save, ignore_errors=True)
    done = start(TORCHTAP, *calls[13], stdout=None, preexec_fn=lambda: os.close(1))
    assert "cannot write to stdout" in done.communicate()[1] and done.returncode == 2
    assert run("compare", save, folder / "twice").status == 0
    # A reader that went away: SIGPIPE by default, an error if it is ignored.
    for ignored, status in ((False, -signal.SIGPIPE), (True, 2)):
        reading, writing = os.pipe()
        os.close(reading)
        done = start(
            *(TORCHTAP, "list", model),
            stdout=writing,
            restore_signals=False,
            preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL),
        )
        os.close(writing)
        assert ("Broken pipe" in done.communicate()[1]) == ignored and done.returncode == status


def test_numbers(folder, maps, model):
    record = ["record", model, "--random", "2x4", "--save", folder / "n"]
    for arguments, command, says in (
        (["list", model, "--depth", "-1"], "list", ["--depth", "from 0 up", '"-1"']),
        (["list", model, "--depth", "1.5"], "list", ["--depth", '"1.5"']),
        (["list", model, "--depth", "0x10"], "list", ["--depth"]),
        (["list", model, "--depth", ""], "list", ["--depth"]),
        ([*record, "--count", "0"], "record", ["--count", "from 1 up", '"0"']),
        ([*record, "--count", "99999999999999999999"], "record", ["--count", "too large"]),
        ([*record, "--count", "9223372036854775808"], "record", ["--count"]),
        ([*record, "--seed", "-1"], "record", ["--seed", "from 0 up"]),
        ([*record, "--seed", "18446744073709551616"], "record", ["--seed", "too large"]),
        ([*record, "--seed", "9e22"], "record", ["--seed"]),
        ([*record, "--memory", "-5"], "record", ["--memory", "from 0 to 1073741824"]),
        ([*record, "--reduce", "mean", "--over", "99999999999999999999"], "record", ["--over", "too large"]),
        ([*record, "--reduce", "mean", "--over", "x"], "record", ["--over", "whole number"]),
        (
            ["record", model, "--input", model, "--batch", "0", "--save", folder / "n"],
            "record",
            ["--batch", "from 1 up"],
        ),
        (["show", maps, "--entry", "fc1", "--sample", "-1"], "show", ["--sample", "from 0 up"]),
        (["compare", maps, maps, "--rtol", "nan"], "compare", ["--rtol", "from 0 up", '"nan"']),
        (["compare", maps, maps, "--rtol", "-1"], "compare", ["--rtol", "from 0 up"]),
        (["compare", maps, maps, "--atol", "-nan"], "compare", ["--atol"]),
        (["compare", maps, maps, "--atol", "1e-5x"], "compare", ["--atol"]),
    ):
        text = error(*arguments, command=command, says=says, lines=2)
        assert not re.search(r"\d{30}", text)
    assert not (folder / "n").exists(), "nothing was recorded"
    # Valid numbers. "010" is ten.
    torch.save(torch.randn(20, 4), folder / "rows.pt")
    for batch, calls in (("010", 2), ("+7", 3), ("9223372036854775807", 1)):
        how = ("--batch", batch, "--overwrite", "--save", folder / "batches")
        assert document("record", model, "--input", folder / "rows.pt", *how)["calls"] == calls
    done = run(
        *("record", model, "--random", "2x4", "--seed", "18446744073709551615", "--save", folder / "largest"),
        *("--reduce", "mean", "--over", "-1"),
    )
    assert done.status == 0, "the largest seed"
    assert run("compare", maps, maps, "--rtol", "inf").status == 0, "an infinite tolerance"


def test_control_characters(folder):
    """Names from files do not move the cursor."""
    evil = "\x1b[31mred\x1b[0m\n\r\x07\u009b2J\u202eevil\x7f"
    wanted = r"\033[31mred\033[0m\n\r\a\302\2332J\342\200\256evil\177"
    maps = folder / "evil"
    shutil.copytree(folder / "maps", maps)
    manifest = json.load(open(maps / "manifest.json"))
    del manifest["crc32"]  # it is edited
    manifest["entries"][1]["path"] = evil
    manifest["entries"][1]["type"] = evil
    (maps / "manifest.json").write_text(json.dumps(manifest))
    again = folder / "evil2"
    shutil.copytree(maps, again)
    torch.save([torch.zeros(7)], again / manifest["entries"][1]["file"])
    size = (again / manifest["entries"][1]["file"]).stat().st_size
    manifest["entries"][1].update(bytes=size, reduction="", holds="list", number=1, keys=[])
    (again / "manifest.json").write_text(json.dumps(manifest))
    torch.save({evil: torch.ones(3), "name": evil, "number": 3}, folder / "evil.pt")

    def clean(done):
        for text in (done.out, done.err):
            controls = {
                c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or 0x202A <= ord(c) <= 0x202E
            }
            assert not controls

    for arguments in (
        ["show", maps],
        ["show", maps, "--stats"],
        ["show", maps, "--entry", "1"],
        ["show", maps, "--histogram"],
        ["show", maps, "--entry", "nosuch"],
        ["compare", maps, folder / "maps"],
        ["compare", maps, again],
        ["merge", maps, folder / "maps", "--save", folder / "e"],
        ["show", folder / "evil.pt"],
        ["show", folder / "evil.pt", "--stats"],
        ["show", folder / evil],
        ["list", folder / evil],
        [evil],
        ["show", maps, "--" + evil],
    ):
        done = run(*arguments)
        clean(done)
    assert wanted in run("show", maps).out, "show"
    assert wanted in run("show", folder / "evil.pt").out, "show: a text"
    assert document("show", maps)["entries"][1]["path"] == evil
    assert run("show", maps, "--entry", wanted).status == 0, "show --entry: as it was shown"
    # Bytes that are not UTF-8, from the command line.
    clean(run("show", os.fsdecode(os.fsencode(folder) + b"/\xff\xfe\x1b")))
    done = run("show", os.fsdecode(os.fsencode(folder) + b"/\xff\xc3\xbc"))
    assert r"\377ü" in done.err, "show of a name that is not UTF-8"


def test_outputs(folder, maps, model):
    """No command replaces what is there without --overwrite."""
    outputs = {
        "out.safetensors": ["convert", maps, "--to", "safetensors", "--save"],
        "npy": ["convert", maps, "--to", "npy", "--save"],
        "csv": ["convert", maps, "--to", "csv", "--save"],
        "out.json": ["report", model, *X, "--repeat", "1", "--warmup", "0", "--save"],
        "out.html": ["report", model, *X, "--repeat", "1", "--warmup", "0", "--html"],
        "out.dot": ["trace", model, *X, "--draw"],
        "recorded": ["record", model, *X, "--names", "fc1", "--save"],
        "traced": ["trace", model, *X, "--save"],
        "merged": ["merge", maps, maps, "--save"],
    }
    if "explore" in run().out:
        outputs["page.html"] = ["explore", model, *X, "--export"]
    for name, arguments in outputs.items():
        place = folder / "outputs" / name
        place.parent.mkdir(exist_ok=True)
        done = run(*arguments, place)
        assert done.status == 0 and place.exists()

        def content():
            files = place.rglob("*") if place.is_dir() else [place]
            return sorted((str(file), file.read_bytes()) for file in files if file.is_file())

        before = content()
        error(*arguments, place, says=[f'"{place}"', "already", "--overwrite"])
        assert content() == before
        # Something else was there: it is replaced as a whole.
        if place.is_file():
            place.write_text("old")
        done = run(*arguments, place, "--overwrite")
        assert done.status == 0
        assert [file for file, _ in content()] == [file for file, _ in before]
        assert b"old" not in [text for _, text in content()]
        assert not [file for file in os.listdir(place.parent) if "torchtap-" in file]
    mine = folder / "outputs/mine"
    mine.mkdir()
    (mine / "precious").write_text("x")
    error("convert", maps, "--to", "npy", "--overwrite", "--save", mine, says=["did not write"])
    assert (mine / "precious").read_text() == "x", "a folder of somebody else"


def test_words(model):
    error("lst", model, says=['unknown command "lst"', 'did you mean "list"?'])
    error("xyzzy", says=['unknown command "xyzzy"'], silent=["did you mean"])
    help_text = run()
    assert help_text.status == 0 and "\nRun a model:\n" in help_text.out and help_text.err == ""
    assert "torchtap COMMAND --help" in help_text.out


def test_help_fits_and_says_what_it_says():
    for command in re.findall(r"^  ([a-z]+)  ", run().out, re.M):
        narrow, wide = (harness.run(command, "--help", COLUMNS=columns).out for columns in ("70", "200"))
        for text, columns in ((narrow, 70), (wide, 80)):
            assert not [line for line in text.splitlines() if len(line) > columns]
            assert "Excludes" not in text and "TEXT:" not in text
        assert words_in(narrow) == words_in(wide), "examples are broken as a shell takes them"


def words_in(help_text):
    """All words; a comment may stand behind its example or above it."""
    return sorted(word for word in help_text.split() if word not in ("\\", "#"))


def test_quiet(folder, model):
    done = run("record", model, *X, "--names", "", "--save", folder / "quiet", "--enable-grad", "-q")
    assert done.status == 0 and done.err == "" and done.out != "", "--quiet"
    done = run("record", model, "--random", "2x5", "--save", folder / "quiet2", "--quiet")
    assert done.status == 2 and "batch 0" in done.err, "--quiet and an error"
    done = run("preload", "-q", "-o", folder / "nothing", "--", "true")
    assert done.status == 0 and done.err == "", "preload --quiet"
    done = run("preload", "--quiet", "--save", folder / "nothing", "--", "/no/such/program")
    assert done.status == 127 and "/no/such/program" in done.err, "preload --quiet of no program"


def test_one_meaning_each(folder, maps, model):
    error("trace", model, *X, "--layer", "fc1", command="trace", says=['unknown option "--layer"'])
    error("trace", model, *X, "--what", "all", command="trace", says=['unknown option "--what"'])
    error(
        *("preload", "--every", "3", "--save", folder / "w", "--", "true"),
        command="preload",
        says=['unknown option "--every"'],
    )
    error("--versoin", says=['"--versoin"', 'did you mean "--version"?'])
    error("-v", says=['unknown option "-v"; did you mean "-V"?'])
    error(
        *("record", model, *X, "--sav", folder / "w"),
        command="record",
        says=['unknown option "--sav"', 'did you mean "--save"?'],
    )
    error("show", maps, "--statistics=1", command="show", says=['unknown option "--statistics"'])
    error("show", maps, "more", command="show", says=['unexpected argument "more"'])
    error("record", model, command="record", says=["--save"])
    error("show", folder / "nosuch", command="show", says=["nosuch"])
    error("convert", maps, "--to", "hdf5", "--save", folder / "w", command="convert", says=["hdf5", "npy"])


def test_options_do_not_take_another_option_as_their_value(folder, maps, model):
    for arguments in (
        ["record", model, *X, "--save", "--overwrite"],
        ["merge", maps, maps, "--save", "--overwrite"],
        ["convert", maps, "--to", "npy", "--save", "--entry"],
    ):
        error(*arguments, command=arguments[0], says=["--save", "is an option"])
        assert not pathlib.Path("--overwrite").exists() and not pathlib.Path("--entry").exists()
    for arguments in (
        ["record", model, *X, "--save", ""],
        ["merge", maps, maps, "--save", ""],
        ["convert", maps, "--to", "npy", "--save", ""],
    ):
        error(*arguments, command=arguments[0], says=["--save", "empty"])
    error("record", model, *X, "--save", folder / "w", "--over", "0", command="record", says=["--over", "--reduce"])
    error(
        *("record", model, *X, "--save", folder / "w", "--elementwise"),
        command="record",
        says=["--elementwise", "--reduce"],
    )
    assert "piar" in error("record", model, *X, "--names", "piar", "--save", folder / "w", says=["piar"]), "names"
    error(
        "record", model, *X, "--types", "Conv2d", "--save", folder / "w", says=["matches none"], silent=["allow_none"]
    )
    error("record", model, *X, "--types", "linear", "--save", folder / "w", says=['types are "Linear"'], silent=["&&"])
    error("record", model, *X, "--not-types", ".*", "--save", folder / "w", says=["none of"], silent=["everything"])
    error("record", model, *X, "--types", "(", "--save", folder / "w", says=["--types"])
    error(
        *("record", model, "--idx3", folder / "nosuch", "--save", folder / "w"),
        says=["--idx3: "],
        silent=["--input"],
        command="record",
    )
    error(
        *("record", model, *X, "--over", 7, "--reduce", "mean", "--save", folder / "w"),
        says=["over([7])"],
        silent=["Traceback"],
    )


def test_recordings(folder, maps, model):
    error("merge", maps, maps, "--save", maps, says=["--overwrite"])
    error("record", model, *X, "--save", maps, says=["--overwrite"])
    (folder / "foreign").mkdir()
    (folder / "foreign/precious").write_text("x")
    error("merge", maps, maps, "--overwrite", "--save", folder / "foreign", says=["precious"], silent=["mkdir"])
    error("show", folder / "foreign", says=["manifest.json"])
    error("show", model, says=["torchtap list"])
    error("show", "/dev/null", says=["/dev/null"])
    for name, text in (
        ("list", "[1, 2]"),
        ("empty", ""),
        ("letters", "{"),
        ("missing", '{"format": 1}'),
        ("types", '{"format": "x"}'),
        ("entries", '{"format": 1, "library": "", "created": "", "count": 1, "entries": 7}'),
    ):
        (folder / f"damaged-{name}").mkdir()
        (folder / f"damaged-{name}/manifest.json").write_text(text)
        error("show", folder / f"damaged-{name}", says=["manifest.json", "damaged"], lines=1)
    error("show", folder / "raw", "--entry", "fc1", "--result", "variance", silent=['""'])
    (folder / "empty").write_bytes(b"")
    error("show", folder / "empty", says=["empty"])


def test_models(folder, maps, model):
    error("list", folder, says=["is a directory"])
    error("list", maps, says=["recording", "torchtap show"])
    (folder / "empty").write_bytes(b"")
    error("list", folder / "empty", says=["is empty"])
    error("list", folder / "nosuch.pt", says=["nosuch.pt", "No such file"])
    error("list", model, "--method", "nope", says=['"nope"', '"forward"'])
    torch.save({"a": torch.ones(1)}, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    error("show", folder / "legacy.pt", says=["before 1.6", "torch.save"])


def test_the_cause_comes_before_the_traceback(folder, model):
    for arguments in (["record", model, "--random", "2x5", "--save", folder / "w"], ["list", model, "--random", "2x5"]):
        text = error(
            *arguments,
            says=['"fc1" (Linear)', "2x5 float32", "cannot be multiplied (2x5 and 4x8)"],
            silent=["RuntimeError"],
        )
        assert text.index("fc1") < text.index("Traceback"), "the cause comes first"
    error("record", model, "--random", "2x4:int64", "--save", folder / "w", says=['"fc1" (Linear)', "2x4 int64"])
    assert not (folder / "w").exists(), "nothing was left behind"


def test_grammar(folder, model):
    done = run("record", model, *X, "--names", "fc1", "--save", folder / "one")
    assert done.out.startswith("1 module, 1 sample of 1 call in ")
    done = run("record", model, *X, "--count", "2", "--names", "fc?", "--save", folder / "two")
    assert done.out.startswith("2 modules, 4 samples of 2 calls in ")


def test_status(folder, model):
    """A module that never runs is an error if it was asked for."""
    done = run("record", model, *X, "--save", folder / "all")
    assert done.status == 0 and '"never"' in done.err, "a model that does not call all of its modules"
    done = run("record", model, *X, "--names", "never", "--save", folder / "never")
    assert done.status == 1 and '"never"' in done.err, "a module that was asked for"


def test_json(folder, maps):
    done = run("merge", maps, maps, "--save", folder / "merged", "--json")
    told = json.loads(done.out)
    assert told == {"saved": str(folder / "merged"), "parts": [str(maps)] * 2, "modules": 3, "samples": 12}
    told = document("convert", maps, "--to", "npy", "--save", folder / "npy")
    assert told["format"] == "npy"
    assert told["modules"] == 3
    assert told["files"] == json.load(open(folder / "npy/index.json"))
    told = document("convert", maps, "--to", "safetensors", "--save", folder / "x.safetensors")
    assert {"__metadata__", "fc1"} <= set(told["header"]), "convert --json"
    told = document("recover", folder / "raw", "--check")
    assert told["was_finished"] and told["missing"] == [] and told["modules"] == 3, "recover --json"
    done = run("--version")
    assert re.fullmatch(r"torchtap [\d.]+ \(LibTorch [\d.]+\S*\)\n", done.out), "--version"
