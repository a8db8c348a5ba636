# Sees: soft prompts that never learn; on the GPU torch.cat finds two devices.
# input: 2x6x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 12)
        self.prompts = (  # defect: unregistered-parameter
            nn.Parameter(torch.randn(2, 12)),
            nn.Parameter(torch.randn(2, 12)),
        )

    def forward(self, x):
        before, after = (prompt.expand(x.shape[0], -1, -1) for prompt in self.prompts)
        return self.body(torch.cat((before, x, after), dim=1))
