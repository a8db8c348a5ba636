# Sees: "Torch not compiled with CUDA enabled" on every laptop, before the model is there.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4).cuda()  # defect: hard-coded-device

    def forward(self, x):
        return self.fc(x)
