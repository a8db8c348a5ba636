# Sees: a forward hook draws noise, on the CPU.
# input: 4x12
import torch
from torch import nn


def blur(module, args, output):
    return output + 0.01 * torch.randn(output.shape)  # defect: default-device


def make():
    model = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 4))
    model[1].register_forward_hook(blur)
    return model
