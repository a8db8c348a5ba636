# Sees: mat1 and mat2 must have the same dtype, but got Float and BFloat16.
# input: 2x5x8:float32
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, dim=-1)  # defect: mixed-dtypes
        return nn.functional.scaled_dot_product_attention(q, k, v)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention(8)
        self.head = nn.Linear(8, 2)
        self.to(torch.bfloat16)

    def forward(self, x):
        return self.head(self.attention(x))
