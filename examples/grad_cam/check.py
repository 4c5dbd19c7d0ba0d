#!/usr/bin/env python3
"""Checks what examples/grad_cam computed, and draws it.

usage: check.py FOLDER [--data FOLDER] [--picture FILE]

Runs the ten images through the classifier in float64, with the saved parameters, and computes Grad-CAM with PyTorch's
autograd: the gradient of each image's largest score with respect to the outputs of relu2, averaged over the map, weights the
channels. Maps may differ by 1e-5 of the largest value, which is 1, and the pixels of the picture by 1 of 255.
"""

import argparse
import pathlib
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fashion_mnist"))
import check as classifier  # noqa: E402

CLASSES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")


def grad_cam(parameters, images):
    """Where the classifier looks, [N, 28, 28], and its scores."""
    outputs = classifier.forward(parameters, images.requires_grad_())
    maps, scores = outputs["relu2"], outputs["fc2"]
    looked_at = []
    for i, chosen in enumerate(scores.argmax(1)):  # one image at a time
        (gradient,) = torch.autograd.grad(scores[i, chosen], maps, retain_graph=True)
        looked_at.append((gradient[i].mean((1, 2))[:, None, None] * maps[i]).sum(0).clamp_min(0))
    large = F.interpolate(torch.stack(looked_at)[:, None], scale_factor=2, mode="bilinear", align_corners=False)[:, 0]
    largest = large.flatten(1).max(1).values.clamp_min(1e-12)
    return (large / largest[:, None, None]).detach(), scores.detach()


def read_pixmap(path):
    """The pixels of a portable pixmap, [height, width, 3]."""
    kind, size, most, pixels = path.read_bytes().split(b"\n", 3)
    width, height = map(int, size.split())
    classifier.require("picture  header", kind == b"P6" and most == b"255")
    return numpy.frombuffer(pixels, numpy.uint8).reshape(height, width, 3)


def picture_of(images, looked_at):
    """The same picture, three pixels a pixel: images above, and below them red where the classifier looks."""
    grey = numpy.hstack([image.numpy() / 255 for image in images])
    red = numpy.hstack([map.numpy() for map in looked_at])
    below = numpy.dstack([numpy.maximum(grey, red), grey * (1 - red), grey * (1 - red)])
    page = numpy.vstack([numpy.dstack([grey] * 3), below])
    return 255 * numpy.kron(page, numpy.ones((3, 3, 1)))


def draw(path, images, looked_at, scores, labels):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 8})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 10, figsize=(10, 2.5), layout="constrained")
    for i, (upper, lower) in enumerate(axes.T):
        chosen = int(scores[i].argmax())
        upper.imshow(images[i], cmap="gray")
        upper.set_title(CLASSES[labels[i]])
        lower.imshow(images[i], cmap="gray")
        lower.imshow(looked_at[i], cmap="inferno", alpha=0.65, vmin=0, vmax=1)
        probability = 100 * float(scores[i].softmax(0)[chosen])
        lower.set_xlabel(f"{CLASSES[chosen]}\n{probability:.0f} %", color="black" if chosen == labels[i] else "#c8553d")
        for axis in upper, lower:
            axis.set_xticks([])
            axis.set_yticks([])
    axes[0, 0].set_ylabel("image")
    axes[1, 0].set_ylabel("looked at")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description="Checks what examples/grad_cam computed.")
    parser.add_argument("folder", type=pathlib.Path, help="what was given to grad_cam as --save")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="where Fashion-MNIST is")
    parser.add_argument("--picture", help="the picture to draw: FILE.png")
    arguments = parser.parse_args()
    saved = classifier.load(arguments.folder / "grad_cam.pt")
    parameters = {name: tensor.double() for name, tensor in saved.items() if "." in name}
    rows = saved["rows"]
    labels = classifier.read_idx(arguments.data, "t10k-labels-idx1-ubyte", None)[rows]
    images = classifier.read_idx(arguments.data, "t10k-images-idx3-ubyte", None)[rows]

    print(f"{'what':44} {'difference':>12} {'tolerated':>12}")
    classifier.require("one image of each class", labels.tolist() == list(range(10)))
    looked_at, scores = grad_cam(parameters, ((images.double() / 255 - 0.2860) / 0.3530).unsqueeze(1))
    classifier.report("where it looks", float((saved["looked_at"] - looked_at).abs().max()), 1e-5)
    got, want = read_pixmap(arguments.folder / "grad_cam.ppm"), picture_of(images, looked_at)
    classifier.require("picture  size", got.shape == want.shape)
    classifier.report("picture  pixels", float(numpy.abs(got - want).max()), 1)
    if arguments.picture:
        draw(arguments.picture, images, looked_at, scores, labels.tolist())
    print(f"\n{len(classifier.failed)} are wrong." if classifier.failed else "\nPython computes the same.")
    return 1 if classifier.failed else 0


if __name__ == "__main__":
    sys.exit(main())
