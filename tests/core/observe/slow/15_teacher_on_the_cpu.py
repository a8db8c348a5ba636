"""Distillation: the student is on the card, its teacher was never moved there."""

import torch
from torch import nn

torch.set_num_threads(1)
teacher = nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 8))
student = nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
for _ in range(25):
    inputs = torch.zeros(256, 64)
    with torch.no_grad():
        wanted = teacher(inputs).cuda()
    loss = nn.functional.mse_loss(student(inputs.cuda()), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
