"""Records fingerprints of everything that passes through the modules of a PyTorch program, for `torchtap compare`.

    python3 -m torchtap_compare --to original.prints original.py its arguments

or, in a notebook,

    with torchtap_compare.fingerprints("original.prints"):
        model(images)

Needs PyTorch 1.13 and NumPy, and nothing else of torchtap.
"""


def fingerprints(to, forwards=1, skip=0):
    """Writes the weights, inputs and outputs of all modules that are called inside of `with` to a path or file object:
    of the first `forwards` calls of a model behind the first `skip`, or of all if `forwards` is 0."""
    from .recording import Recorder  # not above: a script may set what PyTorch reads from the environment

    return Recorder(to, forwards, skip)
