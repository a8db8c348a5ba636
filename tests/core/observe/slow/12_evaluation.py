"""The whole validation set is looked at after every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
train = DataLoader(TensorDataset(torch.randn(480, 256), torch.randint(10, (480,))), batch_size=32)
valid = DataLoader(TensorDataset(torch.randn(1024, 256), torch.randint(10, (1024,))), batch_size=128)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def accuracy():
    model.eval()
    right = 0
    with torch.no_grad():
        for inputs, labels in valid:
            right += int((model(inputs).argmax(1) == labels).sum())
    model.train()
    return right / 1024


for _epoch in range(3):
    for inputs, labels in train:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        accuracy()
