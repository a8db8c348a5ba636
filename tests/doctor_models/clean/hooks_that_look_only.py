# Hooks that note shapes and keep no tensor.
# input: 4x12
from torch import nn


class Watched(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 4))
        self.shapes = {}
        for name, child in self.named_children():
            child.register_forward_hook(self._note(name))
            child.register_forward_pre_hook(lambda module, args: tuple(one.contiguous() for one in args))

    def _note(self, name):
        def hook(module, args, output):
            self.shapes[name] = tuple(output.shape)

        return hook


def make():
    return Watched()
