"""The environment of tensors: the accelerator, modes, compilers, profilers, distributions, process groups."""

from __future__ import annotations

import contextlib
import io
import logging
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Bernoulli, Categorical, MultivariateNormal, Normal, kl_divergence
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from virtual_features import Topic

feature = Topic("Around tensors")


def net(device: str) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to(device)


def data(device: str) -> torch.Tensor:
    return torch.randn(5, 3).to(device)


@feature("torch.accelerator")
def accelerator(device: str) -> Any:
    x = torch.ones(1000, device=device)
    kind = torch.accelerator.current_accelerator()
    if device != "cpu":
        torch.accelerator.synchronize(device)
        assert torch.accelerator.memory_allocated(device) >= x.nbytes
        with torch.accelerator.device_index(1):
            assert torch.ones(1).to("vgpu").device == x.device
    return str(kind), torch.accelerator.is_available(), x.sum()


@feature("streams and events")
def streams(device: str) -> Any:
    x = torch.ones(2, device=device)
    if device == "cpu":
        return x * 2
    begin, end = torch.Event(device, enable_timing=True), torch.Event(device, enable_timing=True)
    with torch.Stream(device) as stream:
        begin.record()
        y = x * 2
        end.record()
        y.record_stream(stream)
    stream.wait_event(end)
    stream.synchronize()
    assert begin.elapsed_time(end) > 0
    return y


@feature("generators")
def generators(device: str) -> Any:
    generator = torch.Generator(device=device).manual_seed(3)
    state = generator.get_state()
    first = torch.randn(3, generator=generator, device=device)
    generator.set_state(state)
    return (
        first,
        torch.empty(3, device=device).normal_(generator=generator),
        torch.randperm(5, generator=generator, device=device),
    )


@feature("seeds and random state")
def seeds(device: str) -> Any:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = torch.rand(2, device=device)
    torch.set_rng_state(state)
    with torch.random.fork_rng(devices=[]):
        second = torch.rand(2, device=device)
    return first, second, torch.rand(2, device=device), torch.initial_seed()


@feature("probability distributions")
def distributions(device: str) -> Any:
    mean = torch.zeros(2, device=device, requires_grad=True)
    normal = Normal(mean, torch.ones(2, device=device))
    drawn = normal.rsample()
    drawn.sum().backward()
    other = MultivariateNormal(torch.zeros(2, device=device), torch.eye(2, device=device))
    return (
        drawn.detach(),
        mean.grad,
        normal.log_prob(drawn).detach(),
        Categorical(logits=torch.ones(3, device=device)).sample((4,)),
        kl_divergence(normal, Normal(mean + 1, 1.0)).detach(),
        other.log_prob(drawn.detach()),
        Bernoulli(torch.ones(2, device=device)).entropy(),
    )


@feature("deterministic algorithms")
def deterministic(device: str) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return torch.zeros(3, device=device).index_add_(
            0, torch.tensor([1, 1], device=device), torch.ones(2, device=device)
        )
    finally:
        torch.use_deterministic_algorithms(False)


@feature("default dtype")
def default_dtype(device: str) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        return (
            torch.ones(2, device=device),
            torch.empty(2, device=device).dtype,
            nn.Linear(1, 1, device=device).weight.dtype,
        )
    finally:
        torch.set_default_dtype(torch.float32)


@feature("function modes")
def function_modes(device: str) -> Any:
    seen: list[str] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    with Mode():
        x = torch.ones(2, device=device)
        (x + 1).sum().item()
        x.tolist()
    return seen


@feature("dispatch modes")
def dispatch_modes(device: str) -> Any:
    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = data(device)
    with Mode():
        result = (x.t() @ x).relu()
    return seen, result


@feature("counting of operations (FlopCounterMode)")
def flops(device: str) -> Any:
    model, x = net(device), data(device)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    return counter.get_total_flops()


@feature("profiler")
def profiler(device: str) -> Any:
    model, x = net(device), data(device)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, record_shapes=True) as profile, torch.profiler.record_function("own"):
        model(x)
    names = {event.key for event in profile.key_averages()}
    return {"own", "aten::linear"} <= names


@feature("custom operators (torch.library)")
def library(device: str) -> Any:
    with torch.library._scoped_library("devexplorer_features", "FRAGMENT"):

        @torch.library.custom_op("devexplorer_features::twice", mutates_args=())
        def twice(x: torch.Tensor, factor: float) -> torch.Tensor:
            return x * (2 * factor)

        @torch.library.custom_op("devexplorer_features::fill", mutates_args={"x"})
        def fill(x: torch.Tensor) -> None:
            x.fill_(3)

        twice.register_fake(lambda x, factor: torch.empty_like(x))
        twice.register_autograd(
            lambda ctx, gradient: (gradient * 2 * ctx.factor, None),
            setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
        )
        x = data(device).requires_grad_()
        y = twice(x, 1.5)
        y.sum().backward()
        z = torch.zeros(2, device=device)
        fill(z)
        return y.detach(), x.grad, z


@feature("custom operators with kernels by device")
def kernels(device: str) -> Any:
    with torch.library._scoped_library("devexplorer_kernels", "FRAGMENT") as own:
        own.define("thrice(Tensor x) -> Tensor")
        own.impl("thrice", lambda x: x * 3, "CPU")
        own.impl("thrice", lambda x: x * 3, "PrivateUse1")
        return torch.ops.devexplorer_kernels.thrice(data(device))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without messages of torch's compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            torch._dynamo.reset()
            yield
        finally:
            logging.disable(logging.NOTSET)


def compiled(device: str, **options: Any) -> Any:
    with quiet():
        model, x = net(device), data(device)
        y = torch.compile(model, **options)(x)
        y.sum().backward()
        return y.detach(), [one.grad for one in model.parameters()]


@feature('torch.compile(backend="eager")')
def compile_eager(device: str) -> Any:
    return compiled(device, backend="eager", fullgraph=True)


@feature('torch.compile(backend="aot_eager")')
def compile_aot(device: str) -> Any:
    return compiled(device, backend="aot_eager", fullgraph=True)


@feature("torch.compile (Inductor)")
def compile_inductor(device: str) -> Any:
    return compiled(device) if device != "cpu" else 0


@feature("torch.export")
def export(device: str) -> Any:
    with quiet():
        model, x = net(device), data(device)
        exported = torch.export.export(model, (x,))
        file = io.BytesIO()
        torch.export.save(exported, file)
        file.seek(0)
        return exported.module()(x).detach(), len(exported.graph.nodes), len(torch.export.load(file).state_dict)


@feature("make_fx")
def traced_fx(device: str) -> Any:
    weight, x = data(device), data(device)
    graph = make_fx(lambda one: (one * weight).sin().sum())(x)
    return graph(x + 1), [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


@feature("functionalisation")
def functionalised(device: str) -> Any:
    def work(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0].add_(1)
        return y

    return torch.func.functionalize(work)(data(device))


@feature("torch.jit.trace and script")
def jit(device: str) -> Any:
    with quiet():
        model, x = net(device), data(device)
        return (
            torch.jit.trace(model, (x,))(x).detach(),
            torch.jit.script(model)(x).detach(),
            torch.jit.freeze(torch.jit.script(model).eval())(x).detach(),
        )


@feature("torch.jit.save")
def jit_saved(device: str) -> Any:
    with quiet():
        torch.jit.save(torch.jit.script(net(device)), io.BytesIO())


@feature("torch.fx")
def fx(device: str) -> Any:
    model = torch.fx.symbolic_trace(net(device))
    return model(data(device)).detach(), len(model.graph.nodes)


@feature("fake tensors")
def fake(device: str) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    with mode:
        x = torch.ones(3, 4, device=device)
        y = mode.from_tensor(torch.zeros(4, 2)) if device == "cpu" else torch.zeros(4, 2, device=device)
        z = x @ y
    real = FakeTensorMode().from_tensor(data(device))
    return tuple(z.shape), str(z.device) == device, str(real.device) == device


@feature("timing with torch.utils.benchmark")
def benchmark(device: str) -> Any:
    from torch.utils.benchmark import Timer

    return Timer("x + x", globals={"x": data(device)}).timeit(3).number_per_run


@feature("CUDA graphs")
def graphs(device: str) -> Any:
    if device == "cpu":
        return 0
    graph = torch.accelerator.Graph()
    graph.capture_begin()
    return 0


@feature("DTensor over a fake process group")
def dtensor(device: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        try:
            if device != "cpu":
                torch.vgpu.set_device(device)
            mesh = init_device_mesh(torch.device(device).type, (2,))
            x = distribute_tensor(torch.arange(8.0).view(4, 2).to(device), mesh, [Shard(0)], src_data_rank=None)
            y = x * 2 + DTensor.from_local(torch.ones(4, 2, device=device), mesh, [Replicate()]).redistribute(
                mesh, [Shard(0)]
            )
            return x.to_local(), y.to_local(), y.sum().placements[0].is_partial(), tuple(y.shape)
        finally:
            if device != "cpu":
                torch.vgpu.set_device(0)
            dist.destroy_process_group()


@feature("DataParallel")
def data_parallel(device: str) -> Any:
    model, x = net(device), data(device)
    if device != "cpu":
        model.to("vgpu:0")
        return nn.DataParallel(model, device_ids=[0, 1], output_device=1)(x.to("vgpu:0")).detach()
    return model(x).detach()


@feature("process groups (gloo), DistributedDataParallel")
def ddp(device: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            model, x = nn.parallel.DistributedDataParallel(net(device)), data(device)
            model(x).sum().backward()
            dist.all_reduce(x)
            return x, [one.grad for one in model.parameters()]
        finally:
            _let_gloo_go()
            dist.destroy_process_group()


@feature("FSDP (fully_shard)")
def fsdp(device: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            if device != "cpu":
                torch.vgpu.set_device(device)
            model, x = net(device), data(device)
            fully_shard(model, mesh=init_device_mesh(torch.device(device).type, (1,)))
            model(x).sum().backward()
            return [one.grad.to_local() for one in model.parameters()]
        finally:
            if device != "cpu":
                torch.vgpu.set_device(0)
            _let_gloo_go()
            dist.destroy_process_group()


def _let_gloo_go() -> None:
    """A thread of gloo lets go of its last tensor, for which it needs the interpreter's lock; the end of the group
    waits for that thread without giving the lock away (torch 2.13: `~ProcessGroupGloo` joins it)."""
    time.sleep(0.02)


@feature("a full device")
def full(device: str) -> Any:
    if device == "cpu":
        return "out of memory"
    try:
        torch.empty(1 << 40, device=device)
    except torch.OutOfMemoryError as error:
        return "out of memory" if "vgpu out of memory. Tried to allocate" in str(error) else str(error)
    return None


@feature("tensors of two devices in one operation")
def mixed(device: str) -> Any:
    try:
        torch.ones(2, device=device) + torch.ones(2, device="meta" if device == "cpu" else "cpu")
    except RuntimeError as error:
        return "device" in str(error)
    return False
