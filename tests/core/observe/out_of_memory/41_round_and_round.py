"""A loader goes round and round by itertools.cycle, which keeps each batch of the first round, on the card."""

from itertools import cycle

import torch


def on_the_card():
    for _ in range(100):
        yield torch.zeros(64, 3, 128, 128).to("cuda"), torch.zeros(64).to("cuda")


batches = cycle(on_the_card())
for _step in range(1000):
    inputs, targets = next(batches)
