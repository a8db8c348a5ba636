"""Targets as one-hot vectors over a vocabulary of 50,257 tokens."""

import torch
from torch import nn
from torch.nn import functional

embedding = nn.Embedding(50_257, 64).cuda()
tokens = torch.randint(50_257, (8, 256)).cuda()
targets = functional.one_hot(tokens, num_classes=50_257).float()
loss = (embedding(tokens) @ embedding.weight.T - targets).square().mean()
loss.backward()
