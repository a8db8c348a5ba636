import torch
from torch import nn


class LabelCode(nn.Module):
    def __init__(self, dim=10, classes=100):
        super().__init__()
        self.classes = classes
        self.bias = nn.Linear(classes, dim, bias=False)

    def forward(self, x, label):
        every = torch.arange(self.classes, device=label.device)
        return x + self.bias((label.unsqueeze(1) == every).to(x.dtype))
