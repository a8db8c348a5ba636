# Sees: a model that was tuned on a laptop is worse on the GPU.
# input: 4x8
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.norm = nn.LayerNorm(4)

    def scaled(self, h):
        if h.is_cuda:  # defect: differs-on-device
            return self.norm(h)
        return h / 2

    def forward(self, x):
        return self.scaled(self.fc(x))
