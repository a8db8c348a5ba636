import torch
import torch.nn.functional as F
from torch import nn


def add_spectral_norm(layer, steps=1):
    """Divides the weight by its largest singular value before each forward."""
    weight = layer.weight
    del layer._parameters["weight"]
    layer.register_parameter("weight_orig", nn.Parameter(weight.data))
    layer.weight = weight.data
    state = {"u": F.normalize(torch.randn(weight.size(0)), dim=0)}

    def hook(module, inputs):
        w = module.weight_orig.flatten(1)
        with torch.no_grad():
            for _ in range(steps):
                v = F.normalize(torch.mv(w.t(), state["u"]), dim=0)
                state["u"] = F.normalize(torch.mv(w, v), dim=0)
        sigma = torch.dot(state["u"], torch.mv(w, v))
        module.weight = module.weight_orig / sigma

    layer.register_forward_pre_hook(hook)
    return layer


class SNDiscriminator(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.a = add_spectral_norm(nn.Linear(dim, 32))
        self.b = add_spectral_norm(nn.Linear(32, 1))

    def forward(self, x):
        return self.b(F.leaky_relu(self.a(x), 0.2))


def build_discriminator(name="sn", **options):
    return {"sn": SNDiscriminator}[name](**options)
