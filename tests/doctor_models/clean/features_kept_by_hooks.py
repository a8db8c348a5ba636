# An empty tensor stands where a hook puts the features of the last forward.
# input: 2x3x8x8
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
        self.kept = {name: torch.empty(0) for name in ("0", "2")}
        for name in self.kept:
            self.body.get_submodule(name).register_forward_hook(self._keep(name))

    def _keep(self, name):
        def hook(module, given, output):
            self.kept[name] = output

        return hook

    def forward(self, x):
        self.body(x)
        return {name: features.flatten(2) @ features.flatten(2).transpose(1, 2) for name, features in self.kept.items()}
