import math

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class PositionalEncoding(nn.Module):
    def __init__(self, dim, dropout=0.1):
        super().__init__()
        self.dim = dim
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        position = torch.arange(x.size(1), device=device).float().unsqueeze(1)
        rate = torch.exp(torch.arange(0, self.dim, 2, device=device).float() * (-math.log(10000.0) / self.dim))
        pe = torch.zeros(x.size(1), self.dim, device=device)
        pe[:, 0::2] = torch.sin(position * rate)
        pe[:, 1::2] = torch.cos(position * rate)
        return self.dropout(x + pe)


class Forecaster(nn.Module):
    def __init__(self, features=5, dim=16, horizon=3):
        super().__init__()
        self.inp = nn.Linear(features, dim)
        self.position = PositionalEncoding(dim)
        self.encoder = nn.TransformerEncoderLayer(dim, 2, 32, batch_first=True)
        self.out = nn.Linear(dim, horizon)

    def forward(self, series):
        return self.out(self.encoder(self.position(self.inp(series)))[:, -1])
