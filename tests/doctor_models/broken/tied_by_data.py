# Sees: the loss is the same on the CPU and another one on the GPU after a step: the two weights are one memory on the
# CPU only.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(12, 12, bias=False)
        self.decode = nn.Linear(12, 12, bias=False)
        self.decode.weight.data = self.encode.weight.data  # defect: tie-lost

    def forward(self, x):
        return self.decode(self.encode(x).relu())
