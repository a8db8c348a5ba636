"""One embedding table is larger than the card; others are there already."""

from torch import nn

tables = [nn.Embedding(rows, 64, device="cuda") for rows in (1_000, 100_000, 40_000_000)]
