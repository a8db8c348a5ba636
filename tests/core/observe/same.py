"""Prints what a script can see of being observed: values to the bit, random order, tracebacks, warnings, what is
compiled. Run with and without, both print the same."""

import copy
import hashlib
import io
import traceback
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.multiprocessing.set_start_method("fork")  # from Python 3.14 on others are the default: they want `if __name__`
torch.set_num_threads(1)
torch.manual_seed(0)


def bits(*tensors):
    return hashlib.sha1(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()[:12]


# The iterator is made before the model: it draws the loader's base seed.
loader = DataLoader(TensorDataset(torch.arange(32.0)), batch_size=4, shuffle=True)
iterator = iter(loader)
model = nn.Linear(4, 1)
print(type(iterator).__name__, bits(model.weight), next(iterator)[0].tolist(), len(loader), type(loader.__iter__))


def train(optimizer_of, closure=False, scaler=None, accumulate=1, workers=0):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 3))
    optimizer = optimizer_of(net.parameters())
    data = DataLoader(TensorDataset(torch.randn(48, 8), torch.randint(3, (48,))), 8, shuffle=True, num_workers=workers)
    for number, (inputs, labels) in enumerate(data):

        def loss_of(inputs=inputs, labels=labels):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(inputs), labels)
            loss.backward()
            return loss

        if closure:
            optimizer.step(loss_of)
            continue
        loss = nn.functional.cross_entropy(net(inputs), labels)
        (scaler.scale(loss) if scaler else loss).backward()
        if number % accumulate:
            continue
        if scaler:
            if number == 2:
                net[0].weight.grad[0, 0] = torch.inf
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
    return bits(*net.state_dict().values()), loss.item().hex() if not closure else None


print("sgd", train(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)))
print("adamw", train(lambda p: torch.optim.AdamW(p, 0.01), accumulate=2))
print("lbfgs", train(lambda p: torch.optim.LBFGS(p, 0.1, max_iter=4), closure=True))
print("scaler", train(lambda p: torch.optim.SGD(p, 0.1), scaler=torch.amp.GradScaler("cpu")))
print("workers", train(lambda p: torch.optim.SGD(p, 0.1), workers=2))


class Broken(nn.Module):
    def forward(self, inputs):
        return self.inner(inputs)

    def inner(self, inputs):
        return inputs @ torch.ones(3, 3)


class Unreadable(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise OSError("no such sample")


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("in backward")


class FailsToStep(torch.optim.SGD):
    def step(self, closure=None):
        raise ArithmeticError("in step")


def failing():
    yield lambda: Broken()(torch.ones(2, 2))
    yield lambda: nn.Sequential(nn.Linear(2, 2), Broken())(torch.ones(2, 2))
    yield lambda: next(iter(DataLoader(Unreadable())))
    yield lambda: Fails.apply(torch.ones(2, requires_grad=True)).sum().backward()
    yield lambda: torch.autograd.grad(torch.ones(2), torch.ones(2))
    yield lambda: torch.ones(2).item()
    yield lambda: bool(torch.ones(2))
    yield lambda: float(torch.ones(2))
    yield lambda: torch.ones(2).to("nowhere")
    yield lambda: torch.ones(2).to(torch.float32, 3, 4, 5)
    yield lambda: nn.Linear(2, 2).to(torch.int32)
    yield lambda: nn.Linear(2, 2).to("nowhere")
    yield lambda: FailsToStep(nn.Linear(2, 2).parameters(), 0.1).step()
    yield lambda: torch.optim.LBFGS(nn.Linear(2, 2).parameters()).step(lambda: 1 / 0)
    yield lambda: next(iter(DataLoader([])))
    yield lambda: torch.compile(Broken(), backend="eager")(torch.ones(2, 2))


for attempt in failing():
    try:
        attempt()
        print("nothing raised")
    except BaseException:
        print(traceback.format_exc())

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    float(torch.ones(1, requires_grad=True) * 2)
    float(torch.ones(1, requires_grad=True) * 3)
    print([(str(warning.message)[:40], warning.lineno, warning.filename == __file__) for warning in caught])

# What is compiled, and how often it is compiled again.
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def scaled(inputs):
    return net(inputs).to(torch.float64).sum() * 2 + inputs.sum().item()


compiled, function = torch.compile(net, backend="eager"), torch.compile(scaled, backend="eager")
in_place = nn.Linear(4, 4)
in_place.compile(backend="eager")
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for size in (3, 3, 5, 7):
    compiled(torch.ones(size, 4)).sum().backward()
    print(function(torch.ones(size, 4)).item().hex(), bits(in_place(torch.ones(size, 4))))
    optimizer.step()
from torch._dynamo.utils import counters  # noqa: E402 - dynamo comes after the patches, as with a script

counted = {key: dict(counters[key]) for key in ("frames", "stats", "graph_break", "unimplemented")}
print(counted)

print(bits(checkpoint(net, torch.ones(2, 4, requires_grad=True), use_reentrant=False)))
print(type(copy.deepcopy(net)).__name__, net.__call__.__name__)
print(nn.Module.__call__.__qualname__, nn.Module.__call__.__module__, torch.Tensor.to.__name__)
file = io.BytesIO()
torch.save(net, file)
print(
    torch.fx.symbolic_trace(net).code.strip().splitlines()[-1],
    torch.jit.trace(net, torch.ones(1, 4))(torch.ones(1, 4)).shape,
)
print(torch.rand(1).item().hex())
