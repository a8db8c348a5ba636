"""Defects to inject into a clean model: the lines that each adds to `__init__` and `forward`, and the rule that finds
it.

`V` is a float tensor with dimensions that forward has at that place. The line to be found ends in `# defect`.
"""

from __future__ import annotations

from typing import NamedTuple


class Defect(NamedTuple):
    """One kind."""

    rules: frozenset[str]
    """One of these rules must find it."""
    make: str
    """Lines at the end of `__init__`."""
    work: str
    """Lines of forward."""
    train: bool = False
    cuts: bool = False
    """Whether it cuts parameters off from gradients: without parameters before it, there is no defect."""


def _kind(rules: str, make: str, work: str, *, train: bool = False) -> Defect:
    return Defect(frozenset(rules.split()), make, work, train)


def _cut(work: str) -> Defect:
    return Defect(frozenset({"cut-from-autograd"}), "", work, train=True, cuts=True)


_TENSOR = "unregistered-tensor"
_USED = "V = V * self.injected"
DEFECTS: dict[str, Defect] = {
    # found by inspecting the model
    "tensor as attribute": _kind(_TENSOR, "self.injected = torch.full((1,), 0.5)  # defect", _USED),
    "tensor from numpy": _kind(_TENSOR, "self.injected = torch.tensor([0.25, 0.5])[:1]  # defect", _USED),
    "tensor in a list": _kind(
        _TENSOR, "self.injected = [torch.ones(1), torch.ones(1)]  # defect", "V = V * self.injected[1]"
    ),
    "tensor in a tuple": _kind(_TENSOR, "self.injected = (torch.ones(1), 2)  # defect", "V = V * self.injected[0]"),
    "tensor in a dict": _kind(
        _TENSOR, "self.injected = {'scale': torch.ones(1)}  # defect", "V = V * self.injected['scale']"
    ),
    "tensor in a closure": _kind(
        _TENSOR,
        "injected_scale = torch.ones(1)\nself.injected = lambda given: given * injected_scale  # defect",
        "V = self.injected(V)",
    ),
    "tensor in a partial": _kind(
        _TENSOR,
        "import functools\nself.injected = functools.partial(torch.mul, torch.ones(1))  # defect",
        "V = self.injected(V)",
    ),
    "tensor in a distribution": _kind(
        _TENSOR,
        "self.injected = torch.distributions.Normal(torch.zeros(1), torch.ones(1))  # defect",
        "V = V + self.injected.sample()",
    ),
    "module in a list": _kind(
        "unregistered-module", "self.injected = [nn.PReLU()]  # defect", "V = self.injected[0](V)"
    ),
    "module in a dict": _kind(
        "unregistered-module", "self.injected = {'act': nn.PReLU()}  # defect", "V = self.injected['act'](V)"
    ),
    "module in a closure": _kind(
        "unregistered-module",
        "injected_layer = nn.PReLU()\nself.injected = lambda given: injected_layer(given)  # defect",
        "V = self.injected(V)",
    ),
    "parameter in a list": _kind(
        "unregistered-parameter", "self.injected = [nn.Parameter(torch.ones(1))]  # defect", "V = V * self.injected[0]"
    ),
    "parameter in a dict": _kind(
        "unregistered-parameter",
        "self.injected = {'w': nn.Parameter(torch.ones(1))}  # defect",
        "V = V * self.injected['w']",
    ),
    "parameter scaled": _kind(
        "parameter-not-leaf", "self.injected = nn.Parameter(torch.ones(1)) * 0.5  # defect", _USED
    ),
    "parameter moved": _kind(
        "parameter-not-leaf", "self.injected = nn.Parameter(torch.ones(1)).to('cuda:0')  # defect", _USED
    ),
    "view of a buffer": _kind(
        "stale-alias",
        "self.register_buffer('injected_base', torch.ones(4))\nself.injected = self.injected_base[:1]  # defect",
        _USED,
    ),
    "tie by data": _kind(
        "tie-lost",
        "self.injected = nn.Parameter(torch.ones(1))\nself.injected_too = nn.Parameter(self.injected.data)  # defect",
        "V = V * self.injected * self.injected_too",
    ),
    "optimizer with state": _kind(
        "optimizer-before-move", "self.injected = torch.optim.Adagrad(self.parameters())  # defect", "V = V * 1"
    ),
    "lazy layer that never runs": _kind("lazy-parameter", "self.injected = nn.LazyLinear(3)  # defect", "V = V * 1"),
    "buffer not saved": _kind(
        "unsaved-buffer", "self.register_buffer('injected', torch.rand(1), persistent=False)  # defect", _USED
    ),
    # found by tracing a run
    "zeros in forward": _kind("default-device", "", "V = V + torch.zeros(1)  # defect"),
    "arange in forward": _kind("default-device", "", "V = V + torch.arange(1.0)  # defect"),
    "noise in forward": _kind("default-device", "", "injected = torch.randn(V.shape)  # defect\nV = V + injected"),
    "list as tensor in forward": _kind(
        "default-device", "", "injected = torch.tensor([1.0])  # defect\nV = V * injected"
    ),
    "legacy tensor in forward": _kind("default-device", "", "V = V * torch.FloatTensor([1.0])  # defect"),
    "zeros joined": _kind(
        "default-device", "", "V = torch.cat([V, torch.zeros(V.shape)]).split(V.shape[0])[0]  # defect"
    ),
    "copy on the CPU meets it": _kind("mixed-devices hidden-sync", "", "V = V + V.detach().cpu()  # defect"),
    "card in a factory": _kind("hard-coded-device", "", "V = V * torch.ones(1, device='cuda:0')  # defect"),
    "cuda() in forward": _kind("hard-coded-device", "", "V = V * torch.ones(1).cuda()  # defect"),
    "second card in forward": _kind("hard-coded-device", "", "V = V.to('cuda:1').to(V.device)  # defect"),
    "condition": _kind("hidden-sync", "", "if V.sum() > 1e30:  # defect\n    V = -V"),
    "item": _kind("hidden-sync", "", "injected = V.detach().sum().item()  # defect\nV = V if injected < 1e30 else -V"),
    "tolist": _kind(
        "hidden-sync", "", "injected = V.detach().flatten()[:2].tolist()  # defect\nV = V if injected else -V"
    ),
    "integer": _kind(
        "hidden-sync", "", "injected = int(V.detach().argmax())  # defect\nV = V if injected >= 0 else -V"
    ),
    "nonzero": _kind("hidden-sync", "", "V = V if len((V.detach() > 1e30).nonzero()) == 0 else -V  # defect"),
    "boolean mask": _kind("hidden-sync", "", "V = V + V.detach()[V.detach() > 1e30].sum()  # defect"),
    "there and back": _kind("hidden-sync", "", "V = V.cpu().abs().to(V.device)  # defect"),
    "copied over": _kind("device-hop", "", "V = V * torch.ones(1).to(V.device)  # defect"),
    "index on the CPU": _kind("device-hop", "", "V = V[torch.arange(V.shape[0])]  # defect"),
    "mask on the CPU": _kind("device-hop", "", "V = V[torch.ones(V.shape[0], dtype=torch.bool)]  # defect"),
    "index written on the CPU": _kind("device-hop", "", "V = V.clone()\nV[torch.arange(1)] = 0.0  # defect"),
    "numpy": _kind("fails-on-device", "", "V = V * float(V.detach().numpy().size > 0)  # defect"),
    "type by name": _kind(
        "fails-on-device", "", "if V.type() != 'torch.FloatTensor':\n    raise TypeError(V.type())  # defect"
    ),
    "index_select": _kind("default-device", "", "V = V.index_select(0, torch.arange(V.shape[0]))  # defect"),
    # parameters without a gradient
    "detach": _cut("V = V.detach()  # defect"),
    "data": _cut("V = V.data  # defect"),
    "no_grad": _cut("with torch.no_grad():  # defect\n    V = V * 1.0"),
    "inference mode": _cut("with torch.inference_mode():  # defect\n    V = V * 1.0\nV = V.clone()"),
    "gradients off": _cut("torch.set_grad_enabled(False)  # defect\nV = V * 1.0\ntorch.set_grad_enabled(True)"),
    "through a list": _cut("V = torch.tensor(V.tolist(), device=V.device)  # defect"),
    "through numpy": _cut("injected = V.detach().cpu().numpy()  # defect\nV = torch.from_numpy(injected).to(V.device)"),
    "to integers": _cut("V = V.long().to(V.dtype)  # defect"),
    "compared": _cut("V = (V > 0).to(V.dtype)  # defect"),
    "argmax": _cut("injected = V.argmax(dim=-1, keepdim=True)  # defect\nV = torch.zeros_like(V) + injected"),
    "frozen in forward": _cut("self.requires_grad_(False)  # defect\nV = V * 1.0"),
}
