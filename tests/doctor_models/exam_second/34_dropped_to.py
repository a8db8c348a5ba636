import torch
import torch.nn.functional as F
from torch import nn


def causal_mask(length):
    return torch.full((length, length), float("-inf")).triu(1)


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.ff(self.norm2(x))


class TinyGPT(nn.Module):
    def __init__(self, vocab=40, dim=16, heads=2, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads) for _ in range(layers))

    def forward(self, tokens):
        x = self.embed(tokens)
        mask = causal_mask(tokens.size(1))
        mask.to(tokens.device)
        for layer in self.layers:
            x = layer(x, mask)
        return F.linear(x, self.embed.weight)


def gpt_nano():
    torch.manual_seed(0)
    return TinyGPT(layers=1)
