# Forward with other values for the parameters, as meta-learning does.
# input: 4x12
# train
import torch
from torch import nn
from torch.func import functional_call


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 12)
        self.shift = nn.Parameter(torch.zeros(12))

    def forward(self, x):
        values = dict(self.inner.named_parameters())
        values["bias"] = values["bias"] + self.shift
        return functional_call(self.inner, values, (x,))
