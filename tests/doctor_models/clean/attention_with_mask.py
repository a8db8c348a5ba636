# nn.MultiheadAttention with a mask of bools, and a causal mask made by nn.Transformer.
# input: 2x6x16
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x):
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        y, _ = self.attention(x, x, x, attn_mask=hidden, need_weights=False)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.layer(y, src_mask=mask, is_causal=True)
