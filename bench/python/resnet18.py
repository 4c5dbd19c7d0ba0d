"""Writes torchvision's ResNet-18, untrained, as a TorchScript file. usage: resnet18.py FILE"""

import sys

import torch
import torchvision

torch.manual_seed(0)
torch.jit.script(torchvision.models.resnet18(weights=None).eval()).save(sys.argv[1])
