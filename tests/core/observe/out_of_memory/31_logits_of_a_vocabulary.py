"""Logits over 50,257 words are most of what a batch needs."""

import torch
from torch import nn
from torch.nn import functional

model = nn.Sequential(nn.Embedding(50_257, 16), nn.Linear(16, 50_257)).cuda()
tokens = torch.randint(50_257, (8, 192)).cuda()
functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
