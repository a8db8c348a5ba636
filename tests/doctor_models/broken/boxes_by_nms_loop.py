# Sees: non-maximum suppression in Python: a synchronisation for each box.
# input: 6x4
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, boxes):
        scores = self.score(boxes).squeeze(-1)
        kept = []
        order = scores.argsort(descending=True)
        while order.numel() > 0 and len(kept) < 3:
            kept.append(order[0])
            far = (boxes[order[1:]] - boxes[order[0]]).abs().sum(-1) > 1.0
            order = order[1:][far]  # defect: hidden-sync
        return boxes[torch.stack(kept)]
