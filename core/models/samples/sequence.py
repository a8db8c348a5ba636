"""Sequence models: a Transformer encoder and an LSTM over token ids. Built on the jobs thread."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

VOCABULARY, LENGTH, WIDTH, CLASSES = 1000, 32, 64, 10


class Encoder(nn.Module):
    """Token ids (batch, length) → class scores (batch, 10): embedding, learned positions, two encoder layers,
    mean, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(nn.init.normal_(torch.empty(LENGTH, WIDTH), std=0.02))
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        return cast(Tensor, self.head(self.encoder(x).mean(dim=1)))


class Reader(nn.Module):
    """Token ids (batch, length) → class scores (batch, 10): embedding, LSTM, the last step through a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        steps, _ = self.lstm(self.embedding(tokens))
        return cast(Tensor, self.head(steps[:, -1]))
