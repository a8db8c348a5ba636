# Sees: the branch for GPUs calls a kernel that was renamed; no CPU ever went there.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def _fused(self, x):
        return self.fc(x).relu_()

    def forward(self, x):
        if x.device.type != "cpu":
            return self._fused_kernel(x)  # defect: fails-on-device
        return self._fused(x)
