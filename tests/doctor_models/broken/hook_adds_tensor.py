# Sees: a steering vector is added by a forward hook that holds it; the hook knows nothing of .to().
# input: 4x12
import torch
from torch import nn


def adds(vector):
    def hook(module, args, output):
        return output + vector

    return hook


def make():
    model = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 4))
    model[0].register_forward_hook(adds(torch.ones(12)))  # defect: unregistered-tensor
    return model
