#!/usr/bin/env python3
"""Finds features in a small transformer: trains it on characters of a text, dumps what its last MLP computes, one row a
character, trains a sparse autoencoder on these rows, and shows where in the text a feature fires.

usage: sparse_autoencoder.py [--text FILE] [--folder FOLDER] [--features 12]

The text is the GNU General Public License unless another is given. The autoencoder has four times as many features as a row
has numbers, and 16 of them speak at a time. Exit status 1 if it explains less than 60 % of the rows' variance, or if a row is not
of the character that the dump says. Takes less than a minute, on one core.
"""

import argparse
import pathlib
import sys

import torch
import torch.nn.functional as F
import torchtap

CONTEXT, WIDTH, HEADS, ACTIVE = 64, 64, 4, 16


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attention = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.up, self.act, self.down = (
            torch.nn.Linear(WIDTH, 4 * WIDTH),
            torch.nn.GELU(),
            torch.nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.down(self.act(self.up(self.norm2(x))))


class Transformer(torch.nn.Module):
    """Logits [B, T, characters] of the character behind each of x, int64 [B, T]."""

    def __init__(self, characters):
        super().__init__()
        self.token, self.place = torch.nn.Embedding(characters, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, characters)

    def forward(self, x):
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = self.token(x) + self.place.weight[:length]
        for block in self.blocks:
            y = block(y, mask)
        return self.head(self.norm(y))


def train_transformer(data, characters, steps):
    torch.manual_seed(0)
    model = Transformer(characters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        at = torch.randint(len(data) - CONTEXT - 1, (16, 1)) + torch.arange(CONTEXT + 1)
        loss = F.cross_entropy(model(data[at[:, :-1]]).flatten(0, 1), data[at[:, 1:]].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / steps)
        if step % 100 == 0 or step + 1 == steps:
            print(f"step {step:4}: {loss.item():.2f} nats a character", flush=True)
    return model.eval()


@torch.no_grad()
def dump(model, data, folder):
    """Rows [256] of the last MLP for every character, with the character and its place in the text beside them. Windows
    overlap by a half, of which a mask leaves out the first, whose characters have little in front of them."""
    recorder = torchtap.ForwardOutput(rows=[0, 1], where="late", beside=["token", "at"], spool=folder)
    recorder.attach(model, "blocks.1.act")
    half = CONTEXT // 2
    starts = torch.arange(0, len(data) - CONTEXT + 1, half)
    for first in starts.split(64):
        at = first[:, None] + torch.arange(CONTEXT)
        late = (torch.arange(CONTEXT) >= half).expand(len(first), -1)
        with torchtap.Context(token=data[at], at=at, late=late):
            model(data[at])
    recorder.save(folder)


class Autoencoder(torch.nn.Module):
    """Features [n, features] of rows [n, width], of which the largest ACTIVE are kept, and the rows again."""

    def __init__(self, width, features):
        super().__init__()
        self.encode, self.decode = torch.nn.Linear(width, features), torch.nn.Linear(features, width)
        self.encode.weight.data = F.normalize(self.decode.weight.data, dim=0).t().clone()
        torch.nn.init.zeros_(self.encode.bias)

    def features(self, x):
        values, places = F.relu(self.encode(x - self.decode.bias)).topk(ACTIVE, dim=1)
        return torch.zeros(len(x), self.encode.out_features).scatter(1, places, values)

    def forward(self, x):
        return self.decode(self.features(x))


def train_autoencoder(rows, epochs):
    """On shuffled batches: neighbours in a text are alike, and would be learnt one after the other."""
    torch.manual_seed(1)
    coder = Autoencoder(rows.shape[0], 4 * rows.shape[0])
    coder.decode.bias.data = rows.take(4096).mean(0)
    scale = rows.take(4096).std()
    optimizer = torch.optim.Adam(coder.parameters(), lr=1e-3)
    batches = rows.shuffled(batch=512, seed=0, buffer="32 MB")
    for epoch in range(epochs):
        total = 0.0
        for x in batches:
            loss = ((coder(x) - x) / scale).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                coder.decode.weight.data = F.normalize(coder.decode.weight.data, dim=0)
            total += loss.item()
        print(f"epoch {epoch}: {total / len(batches):.3f} of the squares are lost", flush=True)
    return coder


@torch.no_grad()
def survey(coder, rows):
    """How much of the variance is explained, how often each feature fires, and its five strongest rows: [5, features]."""
    lost, mean, fires = 0.0, rows.take(len(rows)).mean(0), torch.zeros(coder.encode.out_features)
    values, places, total = torch.zeros(5, len(fires)), torch.zeros(5, len(fires), dtype=torch.int64), 0.0
    for i in range(0, len(rows), 4096):
        x = rows[i : i + 4096]
        found = coder.features(x)
        lost += float((coder.decode(found) - x).square().sum())
        total += float((x - mean).square().sum())
        fires += (found > 0).sum(0)
        best, where = torch.cat([values, found]).topk(5, dim=0)
        places = torch.where(where < 5, places.gather(0, where.clamp(max=4)), where - 5 + i)
        values = best
    return 1 - lost / total, fires / len(rows), values, places


def shown(text, at):
    """A place in the text, and what is around it."""
    before, behind = text[max(at - 24, 0) : at], text[at + 1 : at + 11]
    return f"{before:>24}[{text[at]}]{behind}".replace("\n", "⏎")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=pathlib.Path, default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--folder", default="autoencoder.dump", help="where the dump is written")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--features", type=int, default=12, help="how many are shown")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the operations are small: threads would mostly wait for each other
    text = " ".join(line.strip() + "\n" for line in arguments.text.read_text().splitlines())
    letters = sorted(set(text))
    data = torch.tensor([letters.index(one) for one in text])
    model = train_transformer(data, len(letters), arguments.steps)
    dump(model, data, arguments.folder)
    rows = torchtap.load(arguments.folder)["blocks.1.act"].rows
    print(rows)
    if not torch.equal(rows.beside("token"), data[rows.beside("at")]):
        print("a row is not of the character that the dump says")
        return 1
    coder = train_autoencoder(rows, arguments.epochs)
    explained, fires, values, places = survey(coder, rows)
    alive = int((fires > 0).sum())
    print(
        f"{explained:.1%} of the variance explained by {ACTIVE} of {len(fires)} features at a time; {alive} ever fire\n"
    )
    # The strongest of those that fire in one row out of 100 to 2000.
    rare = (fires > 1 / 2000) & (fires < 1 / 100)
    for feature in (values.mean(0) * rare).topk(min(arguments.features, int(rare.sum()))).indices.tolist():
        print(f"feature {feature}, of one row in {1 / fires[feature]:.0f}")
        for at in rows.beside("at", places[:, feature]).tolist():
            print("   ", shown(text, at))
    return 0 if explained > 0.6 else 1


if __name__ == "__main__":
    sys.exit(main())
