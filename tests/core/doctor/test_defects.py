"""What cards refuse, or do otherwise than the CPU, in small models: found at its line. And right code close to
each, which is not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from fakes.doctor import Examined, examined, marked
from fakes.virtual import virtual

from devexplorer.core.records import Diagnosis

__all__ = ["examined", "virtual"]

DEFECTS = """
# generator: mixed-devices
g = torch.Generator()
return self.f(x) + torch.randn(4, device=x.device, generator=g)  # <-

# generator attribute: mixed-devices
self.g = torch.Generator().manual_seed(1)
---
return self.f(x) * torch.rand(4, generator=self.g, device=x.device)  # <-

# generator in place: mixed-devices
self.g = torch.Generator()
---
return self.f(x).detach().clone().uniform_(generator=self.g)  # <-

# generator of bernoulli: mixed-devices
g = torch.Generator()
return torch.bernoulli(self.f(x).sigmoid(), generator=g)  # <-

# generator of a card: mixed-devices
g = torch.Generator(device=x.device)
return self.f(x) * float(torch.rand(1, generator=g))  # <-

# generator of randperm: mixed-devices
g = torch.Generator()
return self.f(x)[torch.randperm(len(x), generator=g, device=x.device)]  # <-

# target: default-device
return F.cross_entropy(self.f(x)[0], torch.tensor(1))  # <-

# stacked: default-device
total = torch.tensor(0.0)  # <-
return torch.stack([self.f(x).sum(), total])

# clamped: default-device
return self.f(x).clamp(min=torch.tensor(0.1))  # <-

# mask kept by its size: default-device
self.masks = {}
---
h = self.f(x)
if len(h) not in self.masks:
    self.masks[len(h)] = torch.ones(len(h), len(h)).tril()  # <-
return self.masks[len(h)] @ h

# buffer made anew as an attribute: default-device
self.register_buffer('state', torch.zeros(4))
---
del self.state
self.state = torch.zeros(4)  # <-
return self.f(x) + self.state

# one bin: default-device
return torch.bucketize(torch.tensor(0.5), self.f(x)[0].sort().values)  # <-

# one row: default-device
return self.f(x).index_select(0, torch.tensor(1))  # <-

# lerp end: default-device
return torch.lerp(self.f(x), torch.tensor(1.0), 0.5)  # <-

# mask without dimensions: default-device
return self.f(x).masked_fill(torch.tensor(True), 0.0)  # <-

# mse of a number: default-device
return F.mse_loss(self.f(x).mean(), torch.tensor(0.0))  # <-

# embedding of one id: default-device
self.register_buffer('t', torch.ones(3, 4))
---
return self.f(x) + F.embedding(torch.tensor(1), self.t)  # <-

# written into a number: default-device
total = torch.tensor(0.0)  # <-
total += self.f(x).sum()
return total

# attribute: unregistered-tensor
self.floor = torch.tensor(0.1)  # <-
---
return torch.logaddexp(self.f(x), self.floor)

# one_hot: hidden-sync
h = self.f(x)
return h * F.one_hot(h.argmax(-1)).sum()  # <-

# row of a card: hidden-sync
h = self.f(x)
ids = h.argmax(-1)
return h[ids[0]]  # <-

# row written: hidden-sync
h = self.f(x).clone()
h[h.argmax() % 4] = 0.0  # <-
return h

# inverse: hidden-sync
eye = torch.eye(4, device=x.device)
h = self.f(x)
return torch.linalg.inv(h[:4] + eye)  # <-

# cholesky: hidden-sync
eye = torch.eye(4, device=x.device)
h = self.f(x)
return torch.linalg.cholesky(h.T @ h + eye)  # <-

# solve: hidden-sync
eye = torch.eye(4, device=x.device)
h = self.f(x)
return torch.linalg.solve(h.T @ h + eye, h.T)  # <-

# eigenvalues: hidden-sync
h = self.f(x)
return torch.linalg.eigvalsh(h.T @ h)  # <-

# topk of a tensor: hidden-sync
h = self.f(x)
k = h.argmax(-1).max().clamp(min=1)
return h.topk(k, -1).values  # <-

# shape of a tensor: hidden-sync
h = self.f(x)
n = h.argmax(-1).max() * 0 + 4
return h.view(-1, n)  # <-

# zeros of a tensor: hidden-sync
h = self.f(x)
n = h.argmax(-1).max() * 0 + 4
return h + torch.zeros(n, device=x.device)  # <-

# histc: hidden-sync
return torch.histc(self.f(x), 5)  # <-

# is_cuda: differs-on-device
h = self.f(x)
if x.is_cuda:  # <-
    h = h.round()
return h

# is_available: differs-on-device
h = self.f(x)
if torch.cuda.is_available():  # <-
    return h + 1
return h

# kept answer: differs-on-device
on_card = x.is_cuda  # <-
h = self.f(x)
if on_card:
    h = h.sigmoid()
return h

# table of devices: differs-on-device
scale = {'cpu': 1.0, 'cuda': 0.5}[x.device.type]  # <-
return self.f(x) * scale

# state: growing-graph
self.h = None
---
h = self.f(x)
if self.h is not None:
    h = h + self.h
self.h = h  # <-
return h.detach() + self.f(x)

# sum of losses: growing-graph
self.total = 0.0
---
h = self.f(x)
self.total += h.pow(2).mean()  # <-
return h

# dict of outputs: growing-graph
self.seen = {}
---
h = self.f(x)
self.seen[len(self.seen)] = h  # <-
return h

# layers in a list in parallel: stale-alias
self.all = [self.f]  # <-
---
return self.all[0](x)

# first parameter in parallel: fails-on-device
where = next(self.parameters()).device  # <-
return self.f(x) + torch.ones(4, device=where)

# penalty over parameters in parallel: differs-on-device
return self.f(x) + sum(p.norm() for p in self.parameters())  # <-

# loop over parameters in parallel: differs-on-device
h = self.f(x)
for name, p in self.f.named_parameters():  # <-
    h = h + p.mean()
return h

# counter in parallel: differs-on-device
self.steps = 0
---
self.steps += 1  # <-
return self.f(x) * self.steps

# filled key by key: unregistered-tensor
self.masks = {}
for width in (4, 8):
    self.masks[width] = torch.ones(width)  # <-
---
return self.f(x) * self.masks[4]

# appended: unregistered-tensor
self.scales = list()
self.scales.append(torch.full((4,), 2.0))  # <-
---
return self.f(x) * self.scales[0]

# within a partial: unregistered-tensor
self.g = functools.partial(
    F.linear,
    weight=torch.eye(4),  # <-
)
---
return self.g(self.f(x))

# adapter made in forward: default-device
if not hasattr(self, 'more'):
    self.more = Pair(4)  # <-
return self.more(self.f(x))

# sparse attribute: unregistered-tensor
self.edges = torch.eye(4).to_sparse()  # <-
---
return torch.sparse.mm(self.edges, self.f(x))
"""
"""A name and the rule; what `__init__` does besides making `self.f`, if anything; the lines of forward, the marked one
with the defect."""
CLEAN = """
# generator of the device
g = torch.Generator(device=x.device).manual_seed(1)
return self.f(x) + torch.randn(4, device=x.device, generator=g)

# generator of the CPU on the CPU
self.register_buffer('noise', torch.randn(4, generator=torch.Generator().manual_seed(1)))
---
h = self.f(x)
return h + self.noise

# numbers that CUDA takes
h = self.f(x)
n = torch.tensor(0.5)
return torch.where(h > n, h * n, n) + torch.maximum(h, n).lerp(h, n).masked_fill(h > 0, n) ** n

# numbers of the device
n = torch.tensor(0.5, device=x.device)
h = self.f(x).clamp(min=n)
return torch.stack([h.sum(), n])

# numbers of Python
h = self.f(x)
return h.clamp(min=0.1).masked_fill(h > 1, 0.0) + torch.where(h > 0, h, 0.0)

# one_hot of known classes
h = self.f(x)
return h * F.one_hot(h.argmax(-1), 4)

# row of Python
h = self.f(x)
return h[0] + h[:, 1].sum() + h[h.argmax(0)].sum(0)

# variants that do not check
eye = torch.eye(4, device=x.device)
h = self.f(x)
return torch.linalg.inv_ex(h.T @ h + eye).inverse + torch.linalg.cholesky_ex(h.T @ h + eye).L

# determinant and QR
h = self.f(x)
return torch.linalg.qr(h).Q * torch.linalg.det(h.T @ h)

# drawn without a wait
h = self.f(x)
return h.gather(1, torch.multinomial(h.softmax(-1), 1)) + h.repeat_interleave(2, 1)[:, :4]

# the same on every device
self.w, self.b = nn.Parameter(torch.eye(4)), nn.Parameter(torch.ones(4))
---
h = self.f(x)
if x.is_cuda:
    return torch.addmm(self.b, h, self.w)
return h @ self.w + self.b

# narrower on the card
h = self.f(x)
if x.is_cuda:
    h = h.half().float()
return h

# another device
h = self.f(x)
if x.device.type == 'mps':
    h = h.contiguous()
return h

# state detached
self.h = None
---
h = self.f(x)
if self.h is not None:
    h = h + self.h
self.h = h.detach()
return h

# last output
self.last = self.f(x)
return self.last

# window of outputs
self.past = collections.deque(maxlen=3)
---
h = self.f(x)
self.past.append(h)
return h

# sum of numbers
self.register_buffer('total', torch.zeros(()))
---
h = self.f(x)
with torch.no_grad():
    self.total += h.pow(2).mean()
return h

# replicas in parallel
self.norm = nn.BatchNorm1d(4)
self.more = nn.ModuleList([nn.Linear(4, 4)])[0]
self.head = nn.Linear(4, 4)
self.head.weight = self.more.weight
self.register_buffer('s', torch.ones(4))
---
h = self.more(self.norm(self.f(x)))
return self.head(h) + x.new_zeros(4) * self.s

# parameters asked for with something in their place in parallel
first = next(self.parameters(), None)
return self.f(x) + torch.zeros(4, device=x.device if first is None else first.device)

# replicas with a list of names in parallel
self.names = ['f']
---
return sum(getattr(self, name)(x) for name in self.names)
"""
FRAME = """
from torch.nn import functional as F
import collections
import functools

class Pair(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.layer = nn.Linear(size, size)

    def forward(self, x):
        return self.layer(x * self.scale)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(8, 4)
{init}

    def forward(self, x):
{forward}


def parallel():
    return nn.DataParallel(Net(), device_ids=[0, 1])
"""


def sections(text: str) -> dict[str, str]:
    """Their lines by their names."""
    parts = (part.partition("\n") for part in text.strip().split("\n\n"))
    return {head.removeprefix("# "): lines for head, _, lines in parts}


def diagnosis(examined: Examined, name: str, lines: str, *, train: bool) -> Diagnosis:
    before, divided, after = lines.partition("---\n")
    init, forward = (before, after) if divided else ("", before)
    code = FRAME.format(init=textwrap.indent(init, 8 * " "), forward=textwrap.indent(forward, 8 * " "))
    factory = "parallel" if "in parallel" in name else "Net"
    return examined(code, factory=factory, inputs="4x8", train=train, virtual="2x Tesla T4")


@pytest.mark.parametrize("name", sections(DEFECTS))
def test_a_defect_is_found_at_its_line(examined: Examined, tmp_path: Path, name: str) -> None:
    rule = name.partition(": ")[2]
    for train in sorted({False, rule == "growing-graph"}):
        found = diagnosis(examined, name, sections(DEFECTS)[name], train=train)
        assert [(one.rule, one.line) for one in found.problems] == [(rule, *marked(tmp_path / "net.py"))], found


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", sections(CLEAN))
def test_right_code_close_to_it_is_silent(examined: Examined, name: str, train: bool) -> None:
    found = diagnosis(examined, name, sections(CLEAN)[name], train=train)
    assert found.clean, found
