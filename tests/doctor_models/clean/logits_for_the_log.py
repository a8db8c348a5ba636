# Sees: nothing wrong: what is asked for once is asked for by the caller, and the detached half comes with a straight
# path.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        soft = torch.softmax(self.fc(x), dim=-1)
        hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
        return {"chosen": hard + soft - soft.detach(), "for_the_log": soft.detach()}
