"""Tensor state beyond values (conjugate bit, version, inference mode) and where results go: as on the CPU, error or
value."""

import copy
import io

import pytest
import torch
from torch import nn

from devexplorer.core.virtual.backend import backward_guard

pytestmark = pytest.mark.usefixtures("virtual")
DEVICES = ("vgpu:0", "vgpu:1")


def complexes(device, *shape, seed=0, **options):
    return (
        torch.randn(*shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))
        .to(device)
        .requires_grad_(**options)
    )


def flattened(value):
    if isinstance(value, torch.Tensor):
        facts = (
            value.dtype,
            tuple(value.shape),
            value.stride(),
            value.is_conj(),
            value.is_neg(),
            value.is_inference(),
            value._is_view(),
        )
        return [facts, value.detach().cpu().resolve_conj().resolve_neg()]
    if isinstance(value, (tuple, list)):
        return [part for one in value for part in flattened(one)]
    return [value]


def outcome(case, device):
    try:
        return flattened(case(device))
    except (RuntimeError, TypeError) as error:
        return [
            type(error).__name__,
            str(error).split("\n")[0][:60].replace(device, "DEVICE").replace("vgpu:0", "DEVICE"),
        ]


def check(case, device):
    expected, got = outcome(case, "cpu"), outcome(case, device)
    assert len(got) == len(expected)
    for one, two in zip(expected, got, strict=True):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(two, one, equal_nan=True)
        else:
            assert two == one


# --- conjugate and negative bits
# ----------------------------------------------------------------------------------------------------


def trained_twice(device):
    """Value, gradient and second gradient of something with conjugate views in it."""
    a, b = complexes(device, 3, 4, requires_grad=True), complexes(device, 4, 2, seed=1, requires_grad=True)
    y = ((a.conj() @ b).mT.conj() * (1 + 2j)).mH
    loss = (y * y.conj()).real.sum() + (a.conj() * a.imag).imag.sum()
    first = torch.autograd.grad(loss, (a, b), create_graph=True)
    again = torch.autograd.grad(sum((g * g.conj()).real.sum() for g in first), (a, b))
    return y, loss, first, again


def written_into(device, write):
    x = complexes(device, 3, 3)
    view = x.conj()
    write(view)
    return x, view, x._version


def saved(device):
    file = io.BytesIO()
    torch.save({"x": complexes(device, 3).conj(), "i": complexes(device, 3, seed=1).conj().imag.clone()}, file)
    file.seek(0)
    back = torch.load(file, weights_only=True)
    return back["x"].resolve_conj(), back["i"]


def rotary(device):
    """Rotary embeddings by complex numbers, as Llama's reference code has them, trained."""
    q = torch.linspace(-1, 1, 48).reshape(1, 3, 2, 8).to(device).requires_grad_()
    angles = torch.outer(torch.arange(3.0), 1 / 10 ** (torch.arange(0, 8, 2) / 8)).to(device)
    turn = torch.polar(torch.ones_like(angles), angles)[None, :, None]
    turned = torch.view_as_real(torch.view_as_complex(q.reshape(1, 3, 2, 4, 2)) * turn).flatten(3)
    loss = (turned * turned.roll(1, 1)).sum().tanh()
    (grad,) = torch.autograd.grad(loss, q, create_graph=True)
    return turned, grad, torch.autograd.grad((grad * grad).sum(), q)


class Attention(nn.Module):
    """One head whose queries and keys are turned by complex numbers."""

    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        angles = torch.outer(torch.arange(5.0), 1 / 10 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles))

    def turned(self, x, turn):
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2)) * turn).flatten(2)

    def forward(self, x):
        q, k, v = self.into(x).chunk(3, -1)
        weights = (self.turned(q, self.turn) @ self.turned(k, self.turn).mT).softmax(-1)
        return self.turned(self.out(weights @ v), self.turn.conj())


def rotary_trained(device):
    """Losses and weights of a few steps, with an optimizer made before the move."""
    torch.manual_seed(0)
    model = Attention()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model.to(device)
    x = torch.linspace(-1, 1, 80).reshape(2, 5, 8).to(device)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((model(x) - x.flip(1)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, list(model.parameters())


CONJUGATES = {
    "a product": lambda d: complexes(d, 3).conj() * complexes(d, 3, seed=1),
    "trained twice": trained_twice,
    "bits": lambda d: [
        x
        for t in [complexes(d, 3).conj()]
        for x in (t, t.imag, t.real, t.conj(), t.resolve_conj(), t.imag.resolve_neg())
    ],
    "a negative view": lambda d: torch._neg_view(torch.arange(3.0, device=d)) + 1,
    "of a negative view": lambda d: torch._neg_view(torch.arange(3.0, device=d))[1:].abs().neg(),
    "physical": lambda d: complexes(d, 3).conj_physical() + complexes(d, 3).conj().conj_physical(),
    "view_as_real of a conjugate view": lambda d: torch.view_as_real(complexes(d, 3).conj()),
    "view of a conjugate view": lambda d: complexes(d, 2, 2).conj().view(4)[1:].reshape(3, 1).expand(3, 2).T,
    "add_": lambda d: written_into(d, lambda view: view.add_(1j)),
    "mul_": lambda d: written_into(d, lambda view: view.mul_(complexes(d, 3, 3, seed=1).conj())),
    "copy_": lambda d: written_into(d, lambda view: view.copy_(complexes(d, 3, 3, seed=1))),
    "fill": lambda d: written_into(d, lambda view: view[0].fill_(2j)),
    "index_put": lambda d: written_into(d, lambda view: view.__setitem__(torch.tensor([0, 2], device=d), 3j)),
    "imag of a conjugate view": lambda d: written_into(d, lambda view: view.imag.add_(1)),
    "out=": lambda d: written_into(d, lambda view: torch.add(view, 1j, out=view)),
    "out= of mm": lambda d: written_into(
        d, lambda view: torch.mm(complexes(d, 3, 3, seed=1), complexes(d, 3, 3, seed=2), out=view)
    ),
    "contiguous, clone": lambda d: (
        complexes(d, 3).conj().contiguous(),
        complexes(d, 3).conj().clone(),
        complexes(d, 3).conj().detach(),
    ),
    "casts": lambda d: (complexes(d, 3).conj().to(torch.complex128), complexes(d, 3).conj().imag.double()),
    "item, tolist": lambda d: (
        complexes(d, 3).conj()[1].item(),
        complexes(d, 3).conj().tolist(),
        complexes(d, 3).conj().imag.tolist(),
    ),
    "numpy, forced": lambda d: (
        complexes(d, 3).conj().numpy(force=True).tolist() + complexes(d, 3).conj().imag.numpy(force=True).tolist()
    ),
    "a deep copy": lambda d: copy.deepcopy(complexes(d, 3).conj()).resolve_conj(),
    "saved": saved,
    "foreach": lambda d: torch._foreach_add([complexes(d, 3).conj(), complexes(d, 2)], 1j),
    "rotary embeddings": rotary,
    "rotary embeddings trained": rotary_trained,
}


@pytest.mark.parametrize("case", CONJUGATES)
def test_conjugate_and_negative_views_are_as_on_the_cpu(case):
    for device in DEVICES:
        check(CONJUGATES[case], device)


@pytest.mark.parametrize("source", ["cpu", *DEVICES])
@pytest.mark.parametrize("target", ["cpu", *DEVICES])
def test_conjugate_views_keep_their_values_when_they_move(source, target):
    x = complexes(source, 3, 2)
    for view in (x.conj(), x.conj().imag, x.mH):
        expected = view.detach().cpu().resolve_conj().resolve_neg()
        assert torch.equal(view.to(target).cpu().resolve_conj().resolve_neg(), expected)
        assert torch.equal(torch.zeros_like(expected).to(target).copy_(view).cpu(), expected)
        assert torch.equal((view.to(target) + 0).cpu(), expected)


def test_a_conjugate_view_is_printed_with_its_values():
    x = torch.tensor([1 + 2j])
    for make in (torch.conj, lambda t: t.conj().imag, lambda t: torch._neg_view(t.real)):
        assert repr(make(x.to("vgpu:0"))) == repr(make(x)).replace(")", ", device='vgpu:0')")


def test_a_conjugate_view_takes_no_memory_and_no_time(virtual):
    x = complexes("vgpu:0", 1000)
    memory, seconds = virtual.gpu("vgpu:0").memory.allocated_bytes, virtual.clock_seconds("vgpu:0")
    view = x.conj().imag
    assert (virtual.gpu("vgpu:0").memory.allocated_bytes, virtual.clock_seconds("vgpu:0")) == (memory, seconds)
    made = view.resolve_neg()
    assert virtual.gpu("vgpu:0").memory.allocated_bytes == memory + 4096
    assert virtual.clock_seconds("vgpu:0") > seconds
    del made


# --- inference mode
# ----------------------------------------------------------------------------------------------------


def inference(work):
    """A case that gets a tensor made outside and runs in inference mode."""

    def case(device):
        x = torch.arange(6.0, device=device)
        with torch.inference_mode():
            made = work(x)
        return made, x, x._version

    return case


def made_inside(use):
    """A case that gets a tensor made in inference mode and uses it outside."""

    def case(device):
        with torch.inference_mode():
            x = torch.arange(6.0, device=device)
        return use(x, torch.ones(6, device=device, requires_grad=True))

    return case


INFERENCE = {
    "a view": inference(lambda x: x.view(2, 3)),
    "views by way of others": inference(
        lambda x: (x.reshape(3, 2), x.chunk(2), x.narrow(0, 1, 2), x.unflatten(0, (2, 3)).mT, x[None, 1:])
    ),
    "lists of views": inference(lambda x: (*x.split(2), *x.unbind(), *x.tensor_split(2))),
    "the same again": inference(lambda x: (x.contiguous(), x.to(torch.float32), x.detach(), x.data)),
    "in place": inference(lambda x: (x.add_(1), x.view(3, 2).mul_(2))),
    "out=": inference(lambda x: torch.add(x, 1, out=x)),
    "resized": inference(lambda x: x.resize_(4)),
    "turned": inference(lambda x: x.unsqueeze_(0).t_()),
    "a layer": inference(lambda x: nn.functional.layer_norm(x.view(2, 3), (3,))),
    "a view of a view": lambda d: inference(lambda x: x)(d) and made_inside(lambda x, w: x.view(2, 3)[1:])(d),
    "written outside": made_inside(lambda x, w: x.add_(1)),
    "a view written outside": made_inside(lambda x, w: x.view(2, 3).add_(1)),
    "kept for backward": made_inside(lambda x, w: x * w),
    "used without gradients": made_inside(lambda x, w: (x + 1, x.view(3, 2) @ x.view(2, 3), x.clone().add_(1))),
    "its version": made_inside(lambda x, w: x._version),
    "out= outside": made_inside(lambda x, w: torch.add(x, 1, out=x)),
    "requires_grad": made_inside(lambda x, w: x.requires_grad_()),
    "a parameter of it": made_inside(lambda x, w: nn.Parameter(x).sum().backward()),
    "turned outside": made_inside(lambda x, w: x.unsqueeze_(0)),
}


@pytest.mark.parametrize("case", INFERENCE)
def test_inference_mode_is_as_on_the_cpu(case):
    for device in DEVICES:
        check(INFERENCE[case], device)


# --- versions
# ----------------------------------------------------------------------------------------------------


def versions(device):
    x = torch.zeros(3, device=device)
    counts = [x._version]
    for write in (
        lambda: x.data.add_(1),
        lambda: x.detach().add_(1),
        lambda: x.view(3, 1).add_(1),
        lambda: x.data[0].fill_(1),
        lambda: x.zero_(),
    ):
        write()
        counts.append(x._version)
    return counts, x.data._version, x.detach()._version


class Clipping(nn.Module):
    """Clips its weight in forward through `.data`, as code for GANs does."""

    def __init__(self, device):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 9).reshape(3, 3).to(device))

    def forward(self, x):
        y = x @ self.weight
        self.weight.data.clamp_(-0.5, 0.5)
        return y @ self.weight


def clipped(device):
    model = Clipping(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3, device=device)).sum().backward()
        optimizer.step()
    return model.weight, model.weight.grad, model.weight._version


def changed_after_it_was_kept(change):
    def case(device):
        w = torch.ones(3, device=device, requires_grad=True)
        x = w * 2
        y = x * x
        change(x)
        y.sum().backward()
        return w.grad

    return case


VERSIONS = {
    "counted": versions,
    "weights clipped in forward": clipped,
    "changed in place": changed_after_it_was_kept(lambda x: x.add_(1)),
    "changed through detach": changed_after_it_was_kept(lambda x: x.detach().add_(1)),
    "changed through a view": changed_after_it_was_kept(lambda x: x[1:].mul_(2)),
    "changed through data": changed_after_it_was_kept(lambda x: x.data.add_(1)),
    "data replaced": changed_after_it_was_kept(lambda x: setattr(x, "data", x.data + 1)),
    "a leaf changed": lambda d: torch.ones(3, device=d, requires_grad=True).add_(1),
}


@pytest.mark.parametrize("case", VERSIONS)
def test_changes_are_counted_as_on_the_cpu(case):
    for device in DEVICES:
        check(VERSIONS[case], device)


# --- shared memory
# ----------------------------------------------------------------------------------------------------


def test_a_deep_copy_of_views_takes_the_memory_once(virtual):
    memory = virtual.gpu("vgpu:0").memory
    x = torch.zeros(1024, device="vgpu:0")
    copies = copy.deepcopy([x, x[1:], x.view(2, 512)])
    assert memory.allocated_bytes == 2 * 4096
    del copies
    assert memory.allocated_bytes == 4096


# --- out=
# ----------------------------------------------------------------------------------------------------


def written(operation, *shapes, count=1):
    """A case that writes into empty tensors, into strided ones, and in inference mode."""

    def case(device):
        given = [torch.linspace(-1, 2, torch.Size(shape).numel()).reshape(shape).to(device) for shape in shapes]
        expected = operation(*given)
        wanted = list(expected) if count > 1 else [expected]
        outs = [
            [one.new_empty(0) for one in wanted],
            [torch.zeros((*one.shape, 2), dtype=one.dtype, device=device)[..., 1] for one in wanted],
        ]
        for out in outs:
            operation(*given, out=out if count > 1 else out[0])
        with torch.inference_mode():
            operation(*given, out=outs[1] if count > 1 else outs[1][0])
        return outs

    return case


OUT = {
    "matmul with a vector": written(torch.matmul, (2, 3, 4), (4,)),
    "matmul of a batch with a matrix": written(torch.matmul, (2, 3, 4), (4, 5)),
    "matmul with gradients": lambda d: torch.matmul(
        torch.ones(2, 2, device=d).requires_grad_(), torch.ones(2, device=d), out=torch.empty(0, device=d)
    ),
    "unbind_copy": written(torch.unbind_copy, (3, 2), count=3),
    "split_copy": written(lambda a, **out: torch.split_copy(a, 2, **out), (4, 2), count=2),
    "the wrong dtype": lambda d: torch.add(torch.ones(2, device=d), 1, out=torch.empty(2, device=d, dtype=torch.int64)),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("case", OUT)
def test_results_are_written_where_they_shall_be(case):
    for device in DEVICES:
        check(OUT[case], device)


def test_matmul_into_another_dtype_is_refused():
    matrices, vector = torch.ones(2, 2, 2, device="vgpu:0"), torch.ones(2, device="vgpu:0")
    with pytest.raises(RuntimeError, match="dtype"):
        torch.matmul(matrices, vector, out=torch.empty(0, device="vgpu:0", dtype=torch.int32))


# --- gradients that are not defined
# ----------------------------------------------------------------------------------------------------


def through_eigenvectors(decompose, loss):
    def case(device):
        matrix = complexes(device, 3, 3, requires_grad=True)
        values, vectors = decompose(matrix @ matrix.mH)
        with backward_guard():
            return torch.autograd.grad(loss(values, vectors), matrix)

    return case


EIGENVECTORS = {
    "their phase": lambda values, vectors: vectors.real.sum(),
    "their size": lambda values, vectors: (vectors.abs() ** 3).sum(),
    "values alone": lambda values, vectors: values.abs().sum(),
}


@pytest.mark.parametrize("decompose", [torch.linalg.eig, torch.linalg.eigh])
@pytest.mark.parametrize("loss", EIGENVECTORS)
def test_gradients_through_eigenvectors_are_refused_where_the_cpu_refuses_them(decompose, loss):
    for device in DEVICES:
        check(through_eigenvectors(decompose, EIGENVECTORS[loss]), device)
