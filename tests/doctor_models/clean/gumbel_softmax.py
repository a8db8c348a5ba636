# A hard choice that stays a product.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4)
        self.values = nn.Embedding(4, 6)

    def forward(self, x):
        hard = nn.functional.gumbel_softmax(self.fc(x), hard=True)
        return hard @ self.values.weight
