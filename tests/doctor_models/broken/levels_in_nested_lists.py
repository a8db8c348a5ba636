# Sees: a feature pyramid with a list of lists; ModuleList was taken for the outer one only.
# input: 2x4x8x8
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, 4, 1)
        self.levels = {  # defect: unregistered-module
            "fine": [nn.Conv2d(4, 4, 3, padding=1)],
            "coarse": [nn.Conv2d(4, 4, 3, stride=2, padding=1)],
        }

    def forward(self, x):
        x = self.stem(x)
        answers = []
        for layers in self.levels.values():
            y = x
            for layer in layers:
                y = layer(y)
            answers.append(y)
        return answers
