# Sees: a scale per language; state_dict() knows none of them.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(12, 12)
        self.scales = {  # defect: unregistered-parameter
            "en": nn.Parameter(torch.ones(12)),
            "de": nn.Parameter(torch.ones(12)),
        }

    def forward(self, x, language="de"):
        return self.proj(x) * self.scales[language]
