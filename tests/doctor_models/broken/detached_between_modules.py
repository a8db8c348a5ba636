# Sees: only the head learns. The encoder was detached for an ablation; the line was forgotten.
# input: 4x12
# train
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 8))

    def forward(self, x):
        return self.layers(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        features = self.encoder(x)
        features = features.detach()  # defect: cut-from-autograd
        return self.head(features)
