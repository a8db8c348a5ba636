"""Document 002: CUDA_VISIBLE_DEVICES at the head, names, and where things are."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"

import torch

print(torch.cuda.device_count(), os.environ["CUDA_VISIBLE_DEVICES"])
print(torch.cuda.get_device_name(0))
print(repr(torch.Tensor([1, 2]).cuda().device))
x = torch.tensor([1, 2, 3])
y = x.cuda()
print(x.device, y.device)
x = y
y = x.cpu()
print(x.device, y.device)
GPU, CPU = torch.device("cuda"), torch.device("cpu")
a, b, c = (torch.tensor(values, device=GPU) for values in ([1, 2], [3, 4], [5, 6]))
print((a.device, b.device, c.device))
a, b, c = (tensor.to(CPU) for tensor in (a, b, c))
print((a.device, b.device, c.device))
