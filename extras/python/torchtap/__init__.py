"""torchtap in Python: what is recorded in C++ is read with torch.load; these modules are for the rest.

torchtap.stream   reads what a program publishes while it runs; needs numpy
torchtap.export   taps models for AOTInductor packages; needs PyTorch 2.6 and libtorchtap_taps.so
"""

__version__ = "0.1.0"  # as in include/torchtap/version.hpp
