# one_hot and cross_entropy take their device from the labels.
# input: 4x12,4:int64
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)

    def forward(self, x, labels):
        scores = self.fc(x)
        target = nn.functional.one_hot(labels, 5).to(scores.dtype)
        target = target * 0.9 + 0.1 / 5
        return nn.functional.cross_entropy(scores, target)
