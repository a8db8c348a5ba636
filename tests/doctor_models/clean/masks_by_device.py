# A cache of masks, one for each device and length, made where they are used.
# input: 2x6x16
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.masks = {}

    def forward(self, x):
        key = (x.shape[1], x.device)
        if key not in self.masks:
            self.masks[key] = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(1)
        return self.layer(x, src_mask=self.masks[key])
