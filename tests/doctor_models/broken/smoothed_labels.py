# Sees: label smoothing by hand: the smoothed distribution is filled on the CPU.
# input: 4x12,4:int64
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)

    def forward(self, x, labels):
        scores = self.fc(x).log_softmax(-1)
        target = torch.full(scores.shape, 0.1 / 4)  # defect: default-device
        target = target.masked_fill(torch.arange(5, device=labels.device) == labels.unsqueeze(1), 0.9)
        return -(target * scores).sum(-1).mean()
