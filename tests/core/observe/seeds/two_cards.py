"""Document 004, 5.6: two cards."""

import time

import torch
from torch import nn

print((torch.device("cpu"), torch.device("cuda"), torch.device("cuda:1")))
print(torch.cuda.device_count())


def try_gpu(i=0):
    if torch.cuda.device_count() >= i + 1:
        return torch.device(f"cuda:{i}")
    return torch.device("cpu")


def try_all_gpus():
    devices = [torch.device(f"cuda:{i}") for i in range(torch.cuda.device_count())]
    return devices if devices else [torch.device("cpu")]


print((try_gpu(), try_gpu(1), try_gpu(10), try_all_gpus()))
X = torch.ones(2, 3, device=try_gpu())
print(X)
Y = torch.rand(2, 3, device=try_gpu(1))
Z = X.cuda(1)
print(Z)
print((Y + Z).device, Z.cuda(1) is Z, Z.to(torch.device("cuda:1")) is Z)
try:
    X + Y
except RuntimeError as error:
    print(error)
net = nn.Sequential(nn.Linear(3, 1))
nn.init.constant_(net[0].weight, 1)
nn.init.constant_(net[0].bias, 0.5)
net = net.to(device=try_gpu())
print(net(X))
print(net[0].weight.data.device)
a, b = torch.rand(100, 100, device=try_gpu()), torch.rand(100, 100, device=try_gpu(1))
began = time.perf_counter()
for _ in range(10):
    torch.mm(a, a)
    torch.mm(b, b)
torch.cuda.synchronize()
print(time.perf_counter() > began)
try:
    torch.empty(64, 1024, 1024, 1024, device="cuda")
except torch.OutOfMemoryError as error:
    print(str(error)[:45])
