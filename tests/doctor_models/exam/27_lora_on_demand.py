from torch import nn


class LoRA(nn.Module):
    def __init__(self, dim, rank):
        super().__init__()
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.up(self.down(x))


class AdapterHub(nn.Module):
    def __init__(self, dim=16, rank=2):
        super().__init__()
        self.rank = rank
        self.base = nn.Linear(dim, dim)
        self.adapters = nn.ModuleDict()

    def adapter(self, task):
        if task not in self.adapters:
            self.adapters[task] = LoRA(self.base.in_features, self.rank)
        return self.adapters[task]

    def forward(self, x, task="summarise"):
        return self.base(x) + self.adapter(task)(x)
