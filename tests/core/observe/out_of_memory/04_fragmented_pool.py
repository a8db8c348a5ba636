"""Every other piece is given back; what is free lies between the pieces that stay."""

import torch

pieces = [torch.empty(9, 1 << 18, device="cuda") for _ in range(60)]
kept = pieces[::2]
del pieces
whole = torch.empty(100, 1 << 18, device="cuda")
