# Sees: "Expected all tensors to be on the same device" in a product with a transposed basis.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.basis = torch.linalg.qr(torch.randn(12, 12))[0]  # defect: unregistered-tensor

    def forward(self, x):
        where = torch.linspace(0, 1, 12)  # defect: default-device
        x = self.fc(x) @ self.basis.T
        return x @ self.basis.mT + where.real
