"""Distillation: the teacher is in eval mode and no optimizer has it, and its forward is recorded all the same."""

import torch
from torch import nn
from torch.nn import functional


class Distillation:
    def __init__(self):
        self.teacher = nn.Sequential(nn.Linear(64, 1024), *(nn.Tanh() for _ in range(24))).to("cuda").eval()
        self.student = nn.Linear(64, 1024).to("cuda")
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.1)

    def step(self, inputs):
        wanted = self.teacher(inputs)
        loss = functional.mse_loss(self.student(inputs), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


Distillation().step(torch.zeros(8192, 64, device="cuda"))
