#!/usr/bin/env python3
"""Writes the network that examples/int8 trains: torchvision's ResNet-18 for ten classes, untrained, as TorchScript.

usage: script.py FILE.pt
"""

import sys

import torch
import torchvision

if len(sys.argv) != 2:
    sys.exit(__doc__)
torch.manual_seed(1)
torch.jit.script(torchvision.models.resnet18(weights=None, num_classes=10)).save(sys.argv[1])
