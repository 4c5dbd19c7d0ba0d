#!/usr/bin/env python3
"""Checks what examples/unfamiliar computed against PyTorch, NumPy and scikit-learn, and draws the scores.

usage: check.py FOLDER [--picture FILE.svg]

Runs the images through the classifier in float64, with the saved parameters. Then computes everything of all features at
once: class means, the shared covariance, scores, AUROC, confusion matrix, mutual information; first of the float32
features that the program kept, so that results agree but for the rounding of float64, then of its own. Prints the
largest differences beside their tolerances, and exits with status 1 if one is exceeded.
"""

import argparse
import json
import pathlib
import sys

import numpy
import torch

try:
    from sklearn.covariance import EmpiricalCovariance
    from sklearn.datasets import load_digits
    from sklearn.metrics import confusion_matrix, mutual_info_score, roc_auc_score
except ImportError as error:
    sys.exit(f"check.py needs scikit-learn, which Debian has in python3-sklearn: {error}")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fashion_mnist"))
import check as classifier  # noqa: E402

SETS = "training", "familiar", "unfamiliar"
LAYERS = {"relu3": "features", "fc2": "logits"}


def recorded(folder):
    """The values of a recording by path."""
    entries = json.loads((folder / "manifest.json").read_text())["entries"]
    return {entry["path"]: classifier.load(folder / entry["file"]) for entry in entries}


def own_outputs(folder, images):
    """Features and logits, in float64."""
    parameters = {name: tensor.double() for name, tensor in classifier.load(folder / "parameters.pt").items()}
    parts = {layer: [] for layer in LAYERS}
    for part in images.split(200):
        outputs = classifier.forward(parameters, ((part.double() / 255 - 0.2860) / 0.3530).unsqueeze(1))
        for layer in LAYERS:
            parts[layer].append(outputs[layer])
    return {layer: torch.cat(outputs) for layer, outputs in parts.items()}


def scores_of(outputs, labels):
    """The means of the classes, and each score for familiar and unfamiliar images."""
    features = {name: outputs[name]["relu3"].double().numpy() for name in SETS}
    means = numpy.stack([features["training"][labels == label].mean(0) for label in range(10)])
    within = EmpiricalCovariance(assume_centered=True).fit(features["training"] - means[labels])

    everything = EmpiricalCovariance().fit(features["training"])

    def mahalanobis(x):
        return -numpy.min([within.mahalanobis(x - mean) for mean in means], axis=0)

    def relative(x):
        return mahalanobis(x) + everything.mahalanobis(x)

    def softmax(logits):
        powers = numpy.exp(logits - logits.max(1, keepdims=True))
        return (powers / powers.sum(1, keepdims=True)).max(1)

    return means, {
        "mahalanobis": {name: mahalanobis(features[name]) for name in SETS[1:]},
        "relative": {name: relative(features[name]) for name in SETS[1:]},
        "softmax": {name: softmax(outputs[name]["fc2"].double().numpy()) for name in SETS[1:]},
    }


def rounding(features):
    """How far rounding may move a relative score: a unit that hardly any image activates has a variance that is close to 0,
    and the inverse makes much of its last bits."""
    variances = numpy.linalg.eigvalsh(numpy.cov(features.double().numpy().T))
    kept = variances[variances > 1e-14 * variances[-1]]  # as in the program's pseudoinverse
    return max(1e-9, kept[-1] / kept[0] * numpy.finfo(float).eps)


def auroc(scores):
    familiar, unfamiliar = scores["familiar"], scores["unfamiliar"]
    truth = numpy.repeat([1, 0], [len(familiar), len(unfamiliar)])
    return roc_auc_score(truth, numpy.concatenate([familiar, unfamiliar]))


def check_digits(images):
    small = torch.from_numpy(load_digits().images / 16 * 255).unsqueeze(1)
    wanted = torch.nn.functional.interpolate(small, (28, 28), mode="bilinear").squeeze(1)
    classifier.require("digits  shape", images.shape == wanted.shape)
    classifier.report("digits  grey values", float((images - wanted).abs().max()), 0.5 + 1e-9)  # rounded


def check_classes(folder, features, labels, means):
    got = recorded(folder / "classes")["relu3"]
    classifier.require("classes  counts", bool((got["labels.count"] == torch.from_numpy(numpy.bincount(labels))).all()))
    classifier.report("classes  means", classifier.relative(got["mean"], torch.from_numpy(means)), 1e-12)
    wanted = [numpy.cov(features[labels == label].double().numpy().T, bias=True) for label in range(10)]
    difference = classifier.relative(got["covariance"], torch.from_numpy(numpy.stack(wanted)))
    classifier.report("classes  covariances", difference, 1e-12)


def check_confusion(folder, results, logits, labels):
    got = recorded(folder / "confusion")["fc2"]["prediction.count"]
    predicted = logits.argmax(1).numpy()
    wanted = confusion_matrix(labels, predicted, labels=range(10))
    classifier.report("confusion matrix", float(numpy.abs(got.numpy() - wanted).max()), 0)
    difference = abs(float(results["mutual_information"]) - mutual_info_score(labels, predicted))
    classifier.report("mutual information", difference, 1e-12)


def draw(scores, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "unfamiliar", "font.size": 10})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for axes, score, title, most, label in (  # unfamiliar to the right in all of them
        (panels[0], "mahalanobis", "Mahalanobis", 0, "squared distance to the nearest class"),
        (panels[1], "relative", "Relative Mahalanobis", 0, "the same, less the distance to all classes"),
        (panels[2], "softmax", "Softmax", 1, "1 − largest probability, 1e-6 or more"),
    ):
        values = {name: most - of for name, of in scores[score].items()}
        ends = numpy.quantile(numpy.concatenate(list(values.values())), (0, 1))
        bins = numpy.linspace(*ends, 61)
        if score != "relative":
            bins = numpy.geomspace(max(ends[0], 1e-6), ends[1], 61)
            axes.set_xscale("log")
        for name, colour, what in (
            ("familiar", "#4477aa", "Fashion-MNIST, test images"),
            ("unfamiliar", "#ee6677", "handwritten digits"),
        ):
            shares = numpy.full(len(values[name]), 1 / len(values[name]))
            inside = values[name].clip(bins[0], bins[-1])
            axes.hist(inside, bins, weights=shares, histtype="stepfilled", color=colour, alpha=0.6, label=what)
        axes.set(title=f"{title}: AUROC {auroc(scores[score]):.3f}", xlabel=label)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of images")
    panels[0].set_ylim(0, 1.35 * panels[0].get_ylim()[1])
    panels[0].legend(loc="upper left", frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main():
    parser = argparse.ArgumentParser(description="Checks what examples/unfamiliar computed.")
    parser.add_argument("folder", type=pathlib.Path, help="what was given to unfamiliar as --save")
    parser.add_argument("--picture", type=pathlib.Path, help="draws the scores here; needs matplotlib")
    arguments = parser.parse_args()
    folder = arguments.folder
    results = classifier.load(folder / "results.pt")

    kept = {}
    for name in SETS:
        kept[name] = {layer: torch.cat(samples) for layer, samples in recorded(folder / name).items()}
    sizes = {name: len(kept[name]["relu3"]) for name in SETS}
    digits = pathlib.Path(results["digits"])
    images = {
        "training": classifier.read_idx(results["data"], "train-images-idx3-ubyte", sizes["training"]),
        "familiar": classifier.read_idx(results["data"], "t10k-images-idx3-ubyte", sizes["familiar"]),
        "unfamiliar": classifier.read_idx(digits.parent, digits.name.removesuffix(".gz"), None),
    }
    labels = classifier.read_idx(results["data"], "train-labels-idx1-ubyte", sizes["training"]).numpy()
    test_labels = classifier.read_idx(results["data"], "t10k-labels-idx1-ubyte", sizes["familiar"]).numpy()

    print(f"{'what':44} {'difference':>12} {'tolerated':>12}")
    check_digits(images["unfamiliar"])
    own = {name: own_outputs(folder, images[name]) for name in SETS}
    for name in SETS:
        for layer, what in LAYERS.items():
            classifier.report(f"{name}  {what}", classifier.relative(kept[name][layer], own[name][layer]), 1e-5)

    means, scores = scores_of(kept, labels)
    check_classes(folder, kept["training"]["relu3"], labels, means)
    check_confusion(folder, results, kept["familiar"]["fc2"], test_labels)
    inverted = rounding(kept["training"]["relu3"])
    for score, wanted in scores.items():
        tolerance = 1e-9 if score == "softmax" else inverted
        for name, values in wanted.items():
            difference = classifier.relative(results[score][name], torch.from_numpy(values))
            classifier.report(f"{score}  {name}", difference, tolerance)
        classifier.report(f"{score}  AUROC", abs(float(results[score]["auroc"]) - auroc(wanted)), 1e-6)
    for score, wanted in scores_of(own, labels)[1].items():
        difference = abs(float(results[score]["auroc"]) - auroc(wanted))
        classifier.report(f"{score}  AUROC, of features in float64", difference, 1e-4)

    if arguments.picture:
        draw(scores, arguments.picture)
    if classifier.failed:
        print(f"\n{len(classifier.failed)} of the numbers are wrong: " + "; ".join(classifier.failed))
        return 1
    print("\nThe scores are what Python computes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
