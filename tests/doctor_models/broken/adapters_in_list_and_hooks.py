# Sees: adapters that no optimizer gets, attached by hooks to frozen layers.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(12, 12).requires_grad_(False) for _ in range(2))
        self.adapters = [nn.Linear(12, 12) for _ in self.layers]  # defect: unregistered-module
        for layer, adapter in zip(self.layers, self.adapters, strict=True):
            layer.register_forward_hook(lambda module, given, output, adapter=adapter: output + adapter(output))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
