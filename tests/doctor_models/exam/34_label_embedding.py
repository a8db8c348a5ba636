import torch.nn.functional as F
from torch import nn


class ConditionalBias(nn.Module):
    def __init__(self, dim=10, classes=100):
        super().__init__()
        self.classes = classes
        self.bias = nn.Linear(classes, dim, bias=False)
        self.net = nn.Linear(dim, dim)

    def forward(self, x, label):
        code = F.one_hot(label).float()
        code = F.pad(code, (0, self.classes - code.size(1)))
        return self.net(x) + self.bias(code)
