"""A teacher that follows the student: a deep copy, made after the first step."""

import copy

import torch
from torch import nn

student = nn.Sequential(nn.Embedding(80_000, 512), nn.Linear(512, 16)).to("cuda")
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
teacher = None

for _ in range(3):
    tokens = torch.randint(80_000, (4, 16), device="cuda")
    optimizer.zero_grad()
    student(tokens).square().mean().backward()
    optimizer.step()
    if teacher is None:
        teacher = copy.deepcopy(student)
