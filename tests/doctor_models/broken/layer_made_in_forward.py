# Sees: a layer that is made at every call: never trained, and on the CPU.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        norm = nn.LayerNorm(x.shape[-1])  # defect: default-device
        return norm(self.fc(x))
