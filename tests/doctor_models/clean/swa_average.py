# PyTorch's own average of the weights, which holds a copy of the model.
# input: 4x12
# train
from torch import nn
from torch.optim.swa_utils import AveragedModel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 2)
        self.average = AveragedModel(self.fc).requires_grad_(False)

    def forward(self, x):
        return self.fc(x) + self.average(x).detach()
