"""A recorder writes a dump in Python, and its rows are what PyTorch's own hooks saw."""

import importlib.util
import os
import sys

import built  # noqa: F401
import numpy
import pytest
import torch
import torchtap
from harness import SOURCE

STEPS, LENGTH = 20, 10


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
        self.layer2 = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.layer2(self.layer1(x))


def record(folder, **how):
    """Runs a model whose outputs are dumped, the last batch smaller than the others. What its layer2 gave, the mask, the
    labels and the ids: [rows, ...] of all calls."""
    torch.manual_seed(0)
    model, seen = Net(), []
    with torchtap.ForwardOutput(**how, spool=folder) as dump:
        dump.attach(model, "layer?")
        model.layer2.register_forward_hook(lambda module, x, y: seen.append(y.flatten(0, 1)))
        masks, labels, ids = [], [], []
        for step in range(STEPS):
            x = torch.randn(1 if step == STEPS - 1 else 6, LENGTH, 8)
            mask, label = torch.rand(len(x), LENGTH) > 0.3, torch.randint(10, (len(x),))
            id = torch.arange(step * 60, step * 60 + len(x) * LENGTH).view(-1, LENGTH)
            with torch.no_grad(), torchtap.Context(mask=mask, label=label, id=id):
                model(x)
            masks.append(mask.flatten())
            labels.append(label.repeat_interleave(LENGTH))
            ids.append(id.flatten())
        assert dump.subrecorders[0].events == STEPS
        dump.save(folder)
    return [torch.cat(one) for one in (seen, masks, labels, ids)]


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps") / "dump"
    y, mask, label, id = record(folder, rows=(0, 1), where="mask", beside=("label", "id"))
    return folder, y[mask], label[mask], id[mask]


def in_order(x):
    return x[x[:, 0].argsort()]


def test_rows_of_a_recorder(dump, monkeypatch):
    folder, wanted, labels, ids = dump
    monkeypatch.chdir(folder.parent)
    rows = torchtap.load("dump")["layer2"].rows
    assert isinstance(rows, torch.utils.data.Dataset) and len(rows) == len(wanted) < 1024
    assert torch.equal(rows[7], wanted[7]) and torch.equal(rows[10:20], wanted[10:20])
    assert torch.equal(rows[torch.tensor([3, 1, 2])], wanted[[3, 1, 2]])
    x, y, where = rows.take(1024, beside=True)
    assert torch.equal(x, wanted) and [*y] == ["label", "id"]
    assert torch.equal(y["label"], labels) and torch.equal(y["id"], ids)
    assert torch.equal(where.forward * 60 + where.place, ids) and not where.call.any()
    assert len(where.run.unique()) == 1 and where.run[0] > 0
    epoch = [(x, y["label"]) for x, y in rows.shuffled(batch=100, seed=0, buffer="256 MB", beside=("label",))]
    assert [len(x) for x, _ in epoch[:-1]] == [100] * (len(wanted) // 100)
    shuffled, of = (torch.cat(one) for one in zip(*epoch))
    assert not torch.equal(shuffled, wanted)
    both = torch.cat([shuffled, of[:, None]], 1)
    assert torch.equal(in_order(both), in_order(torch.cat([wanted, labels[:, None]], 1)))
    loader = torch.utils.data.DataLoader(rows, batch_size=256, shuffle=True, num_workers=2)
    assert torch.equal(in_order(torch.cat([*loader])), in_order(wanted))
    array = rows.numpy()
    assert isinstance(array, numpy.memmap) and (array == wanted.numpy()).all()
    threes = rows.where(label=3)
    assert torch.equal(threes[:], wanted[labels == 3]) and 0 < len(threes) < len(rows)
    assert torch.equal(torchtap.rows.open("dump")["layer2"][:], wanted)


def test_tables(dump):
    pytest.importorskip("pandas")
    table = torchtap.load(dump[0]).table()
    assert sorted(table.path) == ["id", "label", "layer1", "layer2", "place"] and {*table.rows} == {len(dump[1])}


@pytest.mark.parametrize("how", ["kept", "spooled"])
def test_a_table_of_scalars_by_step(tmp_path, how):
    pytest.importorskip("pandas")
    torch.manual_seed(0)
    model, wanted = Net(), {"layer1": [], "layer2": []}
    recorder = torchtap.ForwardOutput(transform=torch.norm, spool=None if how == "kept" else tmp_path / "norms")
    recorder.attach(model, "layer?")
    for path, norms in wanted.items():
        getattr(model, path).register_forward_hook(lambda module, x, y, norms=norms: norms.append(float(torch.norm(y))))
    with torch.no_grad():
        for size in (6, 5, 1):
            model(torch.randn(size, 8))
    recorder.save(tmp_path / "norms", mkdir=True)
    table = torchtap.load(tmp_path / "norms").table()
    assert table.index.name == "step" and [*table.columns] == ["layer1", "layer2"]
    assert {path: table[path].tolist() for path in table} == wanted


def test_arrow_and_datasets(dump):
    pyarrow = pytest.importorskip("pyarrow")
    folder, wanted, labels, ids = dump
    rows = torchtap.load(folder)["layer2"].rows
    table = rows.arrow()
    assert isinstance(table, pyarrow.Table) and table["layer2"].to_pylist() == wanted.tolist()
    assert table["id"].to_pylist() == ids.tolist()
    pytest.importorskip("datasets")
    assert rows.dataset()[:5]["label"] == labels[:5].tolist()


def test_what_is_refused(dump, tmp_path):
    with pytest.raises(ValueError, match="rows"):
        torchtap.ForwardOutput(rows=())
    with pytest.raises(TypeError):
        torchtap.ForwardOutput(rows=("a",), spool=tmp_path / "a")
    with pytest.raises(ValueError, match="spool"):
        torchtap.ForwardOutput(rows=(0,))
    with pytest.raises(ValueError, match="already|another|overwrite|append"):
        torchtap.ForwardOutput(rows=(0,), spool=dump[0])
    model = Net()
    with torchtap.ForwardOutput(rows=0, beside="label", spool=os.fspath(tmp_path / "lacks")) as lacking:
        lacking.attach(model, "layer1")
        model(torch.randn(3, 8))
        with torchtap.Context(label=torch.arange(3)):
            model(torch.randn(3, 8))
        with torchtap.Context(label=torch.arange(4)):
            model(torch.randn(3, 8))
        one = lacking.subrecorders[0]
        assert (one.samples, one.left_out, one.events) == (3, 2, 3) and "label" in one.note
        lacking.save(tmp_path / "lacks")
    assert torchtap.load(tmp_path / "lacks")["layer1"].rows.beside("label").tolist() == [0, 1, 2]


def test_the_example_of_features(tmp_path, monkeypatch, capsys):
    """In a short form: it compares rows with the text, and how much of their variance it explains."""
    file = SOURCE / "examples/sparse_autoencoder/sparse_autoencoder.py"
    spec = importlib.util.spec_from_file_location("sparse_autoencoder", file)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    text = tmp_path / "text"
    text.write_text((SOURCE / "docs/glossary.md").read_text()[:8000])
    short = [
        "--steps",
        "5",
        "--epochs",
        "4",
        "--features",
        "2",
        "--text",
        str(text),
        "--folder",
        str(tmp_path / "dump"),
    ]
    monkeypatch.setattr(sys, "argv", [str(file), *short])
    assert example.main() == 0, capsys.readouterr().out
    assert "Rows of blocks.1.act (ForwardOutput): " in capsys.readouterr().out
