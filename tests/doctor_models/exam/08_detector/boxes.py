import torch


def decode(centres, deltas, stride):
    """Distances to the four sides, as FCOS predicts them, to corners."""
    left_top, right_bottom = (deltas.exp() * stride).chunk(2, dim=-1)
    return torch.cat([centres - left_top, centres + right_bottom], dim=-1)
