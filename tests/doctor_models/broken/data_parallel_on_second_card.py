# Sees: "module must have its parameters and buffers on device cuda:0 (device_ids[0])".
# input: 4x12
# device: vgpu:1
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.DataParallel(nn.Linear(12, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.features(x))  # defect: fails-on-device
