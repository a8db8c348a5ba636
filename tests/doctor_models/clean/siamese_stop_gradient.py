# Sees: nothing wrong: each side is detached once, and learns through the other one.
# input: 4x12
# train
from torch import nn
from torch.nn.functional import cosine_similarity


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8))
        self.predictor = nn.Linear(8, 8)

    def forward(self, x):
        one, two = self.encoder(x), self.encoder(x.flip(-1))
        first = cosine_similarity(self.predictor(one), two.detach())
        second = cosine_similarity(self.predictor(two), one.detach())
        return -(first + second) / 2
