"""Document 000: types, moves with and without history, a layer on a card."""

import torch
from torch import autograd, nn

print(torch.cuda.is_available(), torch.cuda.device_count())
t = torch.FloatTensor(2)
c = t.cuda()
print(t.type(), c.type(), c.cpu().type(), isinstance(c, torch.cuda.FloatTensor))
moved = autograd.Variable(t, requires_grad=True).cuda()
made_there = autograd.Variable(t.cuda())
print(moved.grad_fn is not None, made_there.grad_fn, moved is made_there)
print(torch.equal(autograd.Variable(t).cuda(), autograd.Variable(t.cuda())))
print(torch.ones(2).cuda(1))
on_cpu, layer = nn.Linear(2, 2), nn.Linear(2, 2).cuda()
nn.init.constant_(on_cpu.weight, 0.5)
nn.init.constant_(layer.weight, 0.5)
print(on_cpu.weight)
print(layer.weight)
print(type(layer.weight), layer.weight.is_cuda, layer.weight.type())
try:
    layer(torch.rand(1, 2))
except RuntimeError as error:
    print(error)
print(layer(torch.rand(1, 2).cuda()).type())


class MakesOne(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        self.made = torch.zeros(2)
        return self.linear(x)


model = MakesOne().cuda()
model(torch.rand(1, 2).cuda())
print(model.made.device)
