# A wrapper that hands on what it does not know itself.
# input: 4x12
# train
from torch import nn


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x) + self.out_features


def make():
    return Wrapper(nn.Linear(12, 12))
