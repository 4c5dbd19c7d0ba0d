#!/usr/bin/env python3
"""Writes scikit-learn's handwritten digits as an idx file of images like Fashion-MNIST's: [1797, 28, 28], 0 to 255.

usage: digits.py FILE    gzip'ed if its name ends with .gz
"""

import gzip
import sys

import numpy

try:
    from sklearn.datasets import load_digits
except ImportError as error:
    sys.exit(f"digits.py needs scikit-learn, which Debian has in python3-sklearn: {error}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    small = load_digits().images / 16 * 255  # [1797, 8, 8]
    # Bilinear: each of 28 pixels between the centres of two of 8.
    centres = (numpy.arange(28) + 0.5) * 8 / 28 - 0.5
    weights = numpy.stack([numpy.interp(centres, range(8), one) for one in numpy.eye(8)], axis=1)  # [28, 8]
    images = numpy.rint(weights @ small @ weights.T).astype(numpy.uint8)
    sizes = b"".join(size.to_bytes(4, "big") for size in images.shape)
    with (gzip.open if sys.argv[1].endswith(".gz") else open)(sys.argv[1], "wb") as file:
        file.write(b"\0\0\x08\x03" + sizes + images.tobytes())


if __name__ == "__main__":
    main()
