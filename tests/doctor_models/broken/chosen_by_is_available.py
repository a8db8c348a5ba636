# Sees: the forward picks "cuda" when there is CUDA, wherever the model is.
# input: 4x12
# device: vgpu:1
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return self.fc(x) + torch.zeros(12, device=device)  # defect: hard-coded-device
