"""Code that asks for CUDA runs on virtual GPUs, and torch is restored afterwards."""

from __future__ import annotations

import copy
import io
import sys
import threading
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.optim.optimizer import _default_to_fused_or_foreach
from torch.overrides import _get_current_function_mode_stack
from torch.utils._foreach_utils import _has_foreach_support

from devexplorer.core.virtual.cuda.emulation import CudaEmulation, Observer
from devexplorer.core.virtual.operators.tensor import VirtualTensor
from devexplorer.core.virtual.torch_api.lazy import LazyVirtualBuffer, LazyVirtualParameter

CARDS = 2


class Notes(Observer):
    """Keeps what has no equivalent on a virtual GPU."""

    def __init__(self):
        self.unchecked = {}

    def not_checked(self, what, why, frame):
        self.unchecked[what] = why


@pytest.fixture
def notes(virtual):
    return Notes()


@pytest.fixture
def cuda(notes):
    with CudaEmulation(CARDS, notes) as stand_in:
        yield stand_in


def cuda_device(index=0):
    return torch.device("cuda", index)


# --- answers to code

ANSWERS = {
    "available": (lambda: torch.cuda.is_available(), True),
    "count": (lambda: torch.cuda.device_count(), CARDS),
    "current": (lambda: torch.cuda.current_device(), 0),
    "initialised": (lambda: torch.cuda.is_initialized(), True),
    "init": (lambda: torch.cuda.init(), None),
    "name": (lambda: torch.cuda.get_device_name(1), "Tesla T4"),
    "capability": (lambda: torch.cuda.get_device_capability("cuda:1"), (7, 5)),
    "properties": (lambda: torch.cuda.get_device_properties(0).multi_processor_count, 40),
    "memory": (lambda: torch.cuda.get_device_properties("cuda").total_memory == torch.cuda.mem_get_info()[1], True),
    "bf16": (
        lambda: (torch.cuda.is_bf16_supported(), torch.cuda.is_bf16_supported(including_emulation=False)),
        (True, False),
    ),
    "capturing": (lambda: torch.cuda.is_current_stream_capturing(), False),
    "synchronize": (lambda: torch.cuda.synchronize(torch.device("cuda:1")), None),
    "empty cache": (lambda: torch.cuda.empty_cache(), None),
    "stats": (lambda: torch.cuda.memory_stats(0)["allocated_bytes.all.current"], 0),
    "accelerator": (lambda: torch.accelerator.current_accelerator(), torch.device("cuda")),
    "accelerators": (lambda: (torch.accelerator.is_available(), torch.accelerator.device_count()), (True, CARDS)),
    "accelerator memory": (lambda: torch.accelerator.memory_allocated(1), 0),
    "cudnn": (lambda: torch.backends.cudnn.is_available(), True),
    "default": (lambda: torch.get_default_device(), torch.device("cpu")),
    "stream": (lambda: torch.cuda.current_stream("cuda:1").device, cuda_device(1)),
    "query": (lambda: torch.cuda.Stream().query(), True),
    "mark": (lambda: torch.cuda.nvtx.range_pop(), 0),
    "module": (lambda: torch.get_device_module().device_count(), CARDS),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_questions_about_cuda_are_answered_for_the_virtual_cards(cuda, notes, name):
    ask, answer = ANSWERS[name]
    assert ask() == answer
    assert not notes.unchecked


def test_a_parameter_gets_data_of_another_device_and_stays_itself(cuda, notes):
    parameter = nn.Parameter(torch.ones(3))
    parameter.data = parameter.data.to("cuda:1")
    assert parameter.device == cuda_device(1)
    assert isinstance(parameter, nn.Parameter)
    assert parameter.requires_grad
    assert parameter.sum().item() == 3


def test_a_parameter_is_made_of_the_class_of_another_one(cuda, notes):
    parameter = nn.Parameter(torch.ones(3, device="cuda"))
    other = type(parameter)(parameter.to("cuda:1"), requires_grad=False)
    assert (isinstance(other, nn.Parameter), other.device, other.requires_grad) == (True, cuda_device(1), False)


def map_location(where):
    file = io.BytesIO()
    torch.save({"a": torch.ones(3)}, file)
    file.seek(0)
    return torch.load(file, map_location=where)["a"]


MADE = {
    "cuda": (lambda x: x.cuda(), 0),
    "cuda of a number": (lambda x: x.cuda(1), 1),
    "cuda of a device": (lambda x: x.cuda(device=torch.device("cuda:1"), non_blocking=True), 1),
    "to": (lambda x: x.to("cuda:1"), 1),
    "to a number": (lambda x: x.to(1), 1),
    "to with dtype": (lambda x: x.to("cuda", torch.float16), 0),
    "to by keyword": (lambda x: x.to(device=torch.device("cuda"), non_blocking=True), 0),
    "factory": (lambda x: torch.zeros(2, device="cuda:1"), 1),
    "number": (lambda x: torch.arange(3, device=1), 1),
    "like": (lambda x: torch.zeros_like(x, device="cuda"), 0),
    "new": (lambda x: x.new_ones(2, device="cuda:1"), 1),
    "tensor": (lambda x: torch.tensor([1.0], device="cuda"), 0),
    "where another is": (lambda x: torch.empty(2, device=x.to("cuda:1").device), 1),
    "parameter": (lambda x: nn.Parameter(x.to("cuda:1")), 1),
    "detached": (lambda x: x.to("cuda:1").requires_grad_().detach().data, 1),
    "type": (lambda x: x.type("torch.cuda.HalfTensor"), 0),
    "type itself": (lambda x: x.type(torch.cuda.FloatTensor), 0),
    "packed": (
        lambda x: nn.utils.rnn.pack_padded_sequence(x[None].cuda(1), torch.tensor([2]), batch_first=True).data,
        1,
    ),
    "old constructor": (lambda x: torch.cuda.FloatTensor([1.0, 2.0]), 0),
    "pinned": (lambda x: x.pin_memory().cuda(1, non_blocking=True), 1),
    "layer": (lambda x: nn.Linear(2, 2, device="cuda:1").weight, 1),
    "module": (lambda x: nn.Linear(2, 2).cuda(1).weight, 1),
    "module to": (lambda x: nn.Linear(2, 2).to("cuda").weight, 0),
    "lazy module": (lambda x: nn.LazyLinear(2).cuda(1)(torch.ones(1, 2, device="cuda:1")), 1),
    "lazy layer": (lambda x: nn.LazyLinear(2, device="cuda")(torch.ones(1, 2, device="cuda")), 0),
    "recurrent": (lambda x: nn.LSTM(2, 2).cuda()(torch.ones(1, 1, 2).cuda())[0], 0),
    "loaded": (lambda x: map_location("cuda:1"), 1),
    "loaded with a device": (lambda x: map_location(torch.device("cuda")), 0),
    "loaded with a dict": (lambda x: map_location({"cpu": "cuda:1"}), 1),
    "loaded with a function": (lambda x: map_location(lambda storage, location: storage.cuda(1)), 1),
    "generator": (lambda x: torch.randn(2, device="cuda", generator=torch.Generator(device="cuda").manual_seed(1)), 0),
    "attention": (lambda x: F.scaled_dot_product_attention(*[torch.ones(1, 1, 2, 8, device="cuda")] * 3), 0),
    "vmap": (lambda x: torch.vmap(lambda row: row + torch.ones(1, device="cuda:1"))(x.to("cuda:1")), 1),
    "parallel": (lambda x: nn.DataParallel(nn.Linear(3, 2).cuda())(torch.ones(4, 3).cuda()), 0),
    "parallel on one": (
        lambda x: nn.DataParallel(nn.Linear(3, 2).cuda(1), device_ids=[1])(torch.ones(4, 3).cuda(1)),
        1,
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_put_on_cuda_is_on_the_virtual_card_and_says_cuda(cuda, notes, name):
    make, index = MADE[name]
    made = make(torch.ones(2, 3))
    assert made.device == cuda_device(index)
    assert made.device.type == "cuda"
    assert str(made.device) == f"cuda:{index}"
    assert made.is_cuda
    assert made.get_device() == index
    assert made.type().startswith("torch.cuda.")
    assert torch.Tensor.device.__get__(made) == torch.device("vgpu", index)
    assert not notes.unchecked


def test_a_tensor_on_the_cpu_is_no_cuda_tensor(cuda):
    x = torch.ones(2)
    assert not x.is_cuda
    assert x.device == torch.device("cpu")
    assert x.cuda().cpu().device == torch.device("cpu")
    assert isinstance(x.cuda(), torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.FloatTensor)


def test_memory_is_the_virtual_card_s(cuda):
    before = torch.cuda.memory_allocated(1)
    x = torch.zeros(1 << 20, device="cuda:1")
    assert torch.cuda.memory_allocated("cuda:1") - before == x.nbytes
    assert torch.cuda.max_memory_allocated(x.device) >= torch.cuda.memory_allocated(1)
    assert torch.cuda.memory_reserved(1) >= x.nbytes
    del x
    assert torch.cuda.max_memory_reserved(1) >= torch.cuda.memory_reserved(1)
    torch.cuda.reset_peak_memory_stats(1)
    assert torch.cuda.max_memory_allocated(1) == before


def test_the_current_card_is_what_cuda_without_a_number_means(cuda):
    with torch.cuda.device(1):
        assert torch.zeros(1, device="cuda").device == cuda_device(1)
        assert torch.zeros(1).cuda().device == cuda_device(1)
    assert torch.zeros(1, device="cuda").device == cuda_device(0)
    torch.cuda.set_device("cuda:1")
    assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.zeros(1, device="cuda:0")):
        assert torch.cuda.current_device() == 0
    assert torch.cuda.current_device() == 1


def test_the_default_device_can_be_cuda(cuda):
    with torch.device("cuda:1"):
        assert torch.zeros(1).device == cuda_device(1)
        assert nn.Linear(1, 1).weight.device == cuda_device(1)
    assert torch.zeros(1).device.type == "cpu"
    torch.set_default_device("cuda")
    assert torch.zeros(1).device == cuda_device(0)
    assert torch.get_default_device() == cuda_device(0)
    torch.set_default_device(None)
    assert torch.zeros(1).device.type == "cpu"


def test_streams_and_events_keep_the_simulated_clock(cuda, notes, virtual):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream(device=1)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream(1) is stream
        assert torch.cuda.current_device() == 1
        start.record()
        x = torch.ones(256, 256, device="cuda")
        x = x @ x
        end.record(stream)
    torch.cuda.current_stream().wait_stream(stream)
    x.record_stream(torch.cuda.current_stream())
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) == pytest.approx(1000 * virtual.clock_seconds("vgpu:1"))
    assert start.elapsed_time(end) > 0
    assert torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match="enable_timing"):
        torch.cuda.Event().elapsed_time(end)
    assert not notes.unchecked


def test_a_seed_of_cuda_s_gives_the_same_values_again(cuda):
    draws = []
    for seed in (torch.cuda.manual_seed, torch.cuda.manual_seed_all):
        seed(5)
        state = torch.cuda.get_rng_state()
        draws.append(torch.rand(3, device="cuda").tolist())
    torch.cuda.set_rng_state(state)
    assert draws[0] == draws[1] == torch.rand(3, device="cuda").tolist()


# --- training


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}])
def test_a_loop_with_autocast_and_a_scaler_of_gradients_trains(cuda, notes, options):
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, **options)
    scaler = torch.amp.GradScaler("cuda")
    before = model.weight.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            assert torch.is_autocast_enabled()
            assert torch.is_autocast_enabled("cuda")
            logits = model(torch.randn(8, 4, device="cuda"))
            assert logits.dtype is torch.float16
            loss = F.cross_entropy(logits, torch.zeros(8, dtype=torch.long, device="cuda"))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert not torch.is_autocast_enabled("cuda")
    assert scaler.get_scale() > 1
    assert not torch.equal(before, model.weight)
    assert not notes.unchecked


def test_an_optimizer_takes_all_parameters_at_once_as_on_cards(notes):
    with CudaEmulation(CARDS, notes, spoken=True):
        parameters = list(nn.Linear(2, 2).cuda().parameters())
        assert _default_to_fused_or_foreach(parameters, differentiable=False) == (False, True)
        assert _has_foreach_support([one.detach() for one in parameters], parameters[0].device)


def test_a_copy_of_a_parameter_has_no_gradient_as_on_cards(notes):
    with CudaEmulation(CARDS, notes, spoken=True):
        parameter = nn.Parameter(torch.ones(2, device="cuda"))
        parameter.sum().backward()
        copied = copy.deepcopy(parameter)
        assert type(copied) is type(parameter)
        assert copied.requires_grad
        assert copied.grad is None


def test_the_older_names_of_mixed_precision_work(cuda):
    with pytest.warns(FutureWarning):
        scaler = torch.cuda.amp.GradScaler()
    with pytest.warns(FutureWarning):
        mixed = torch.cuda.amp.autocast()
    with mixed:
        assert nn.Linear(2, 2).cuda()(torch.ones(1, 2).cuda()).dtype is torch.float16
    assert scaler.is_enabled()


def test_data_parallel_computes_what_one_card_computes(cuda):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).cuda()
    x = torch.randn(5, 3, device="cuda")
    model(x).sum().backward()
    alone = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    places = []
    model[0].register_forward_hook(lambda module, inputs, output: places.append(str(output.device)))
    parallel = nn.DataParallel(model)
    together = parallel(x)
    together.sum().backward()
    assert places == ["cuda:0", "cuda:1"]
    assert torch.allclose(together, model(x))
    for parameter, gradient in zip(model.parameters(), alone, strict=True):
        assert torch.allclose(parameter.grad, gradient)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.zeros(1, device="cuda")

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.full((1,), 2.0, device="cuda")


def test_code_that_runs_in_backward_is_on_cuda_too(cuda):
    x = torch.ones(2, device="cuda", requires_grad=True)
    x.register_hook(lambda gradient: gradient + torch.ones(1, device="cuda"))
    Doubled.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_computes_again_on_cuda(cuda, reentrant):
    x = torch.ones(2, device="cuda", requires_grad=True)
    result = torch.utils.checkpoint.checkpoint(
        lambda y: y * y * torch.ones(1, device="cuda"), x, use_reentrant=reentrant
    )
    result.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_thread_of_the_code_sees_the_same(cuda):
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.zeros(1, device="cuda:1").device))
    thread.start()
    thread.join()
    assert found == [cuda_device(1)]


# --- a model that uses many of them at once


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        if not torch.cuda.is_available():
            raise RuntimeError("no CUDA")
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.first = nn.Linear(4, 4).cuda(0)
        self.second = nn.Linear(4, 4).to(f"cuda:{torch.cuda.device_count() - 1}")

    def forward(self, x):
        x = x.to(self.device)
        assert x.is_cuda
        with torch.cuda.stream(torch.cuda.Stream()), torch.autocast(x.device.type):
            y = self.first(x) + torch.zeros(4, device=x.device)
        torch.cuda.synchronize()
        return self.second(y.float().to(self.second.weight.device)).cuda()


def test_a_model_that_asks_for_two_cards_runs_on_two_virtual_ones(cuda, virtual):
    model = Everything()
    model(torch.ones(2, 4)).sum().backward()
    assert model.first.weight.grad.device == cuda_device(0)
    assert model.second.weight.grad.device == cuda_device(1)
    assert virtual.clock_seconds("vgpu:1") > 0


def test_ranks_meet_by_gloo_also_where_code_names_the_card_to_meet_on(cuda, notes, tmp_path):
    card = torch.device("cuda", 1)
    where = f"file://{tmp_path}/meeting"
    torch.distributed.init_process_group("gloo", init_method=where, rank=0, world_size=1, device_id=card)
    try:
        torch.distributed.barrier()
        torch.distributed.barrier(device_ids=[1])
        total = torch.ones(2, device=card)
        torch.distributed.all_reduce(total)
        assert (total.device, total.tolist()) == (card, [1, 1])
    finally:
        torch.distributed.destroy_process_group()
    assert not notes.unchecked


# --- not emulated

NOT_CHECKED = {
    "torch.cuda.CUDAGraph": lambda: torch.cuda.CUDAGraph(),
    "torch.cuda.graph": lambda: torch.cuda.graph(None),
    "torch.cuda.MemPool": lambda: torch.cuda.MemPool(),
    "torch.cuda.cudart": lambda: torch.cuda.cudart(),
    "torch.cuda.ExternalStream": lambda: torch.cuda.ExternalStream(0),
    "torch.cuda.utilization": lambda: torch.cuda.utilization(),
    "torch.cuda.memory_snapshot": lambda: torch.cuda.memory.memory_snapshot(),
    "torch.nn.parallel.comm.broadcast": lambda: torch.nn.parallel.comm.broadcast(torch.ones(1), [0, 1]),
    "torch.cuda.jiterator._create_jit_fn": lambda: torch.cuda.jiterator._create_jit_fn(
        "template <typename T> T f(T x) { return x; }"
    ),
    "torch.distributed with NCCL": lambda: torch.distributed.init_process_group("nccl"),
}


@pytest.mark.parametrize("name", NOT_CHECKED)
def test_what_virtual_gpus_cannot_do_is_not_checked(cuda, notes, name):
    with pytest.raises(NotImplementedError, match="virtual GPUs"):
        NOT_CHECKED[name]()
    assert list(notes.unchecked) == [name]
    assert notes.unchecked[name].endswith(".")


def profiled(**wishes):
    with torch.profiler.profile(**wishes):
        torch.zeros(1, device="cuda")


HARMLESS = {
    "profiling CUDA": lambda: profiled(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    ),
    "torch.cuda.make_graphed_callables": lambda: torch.cuda.make_graphed_callables(len, ()),
    "torch.cuda.memory_summary": lambda: torch.cuda.memory_summary(),
    "torch.cuda.set_per_process_memory_fraction": lambda: torch.cuda.set_per_process_memory_fraction(0.5),
    "get_device_properties().L2_cache_size": lambda: getattr(
        torch.cuda.get_device_properties(0), "L2_cache_size", None
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_the_code_can_do_without_is_not_checked_and_the_run_continues(cuda, notes, name):
    HARMLESS[name]()
    assert list(notes.unchecked) == [name]


def test_a_profiler_of_the_cpu_is_no_trouble(cuda, notes):
    profiled()
    assert not notes.unchecked


def test_a_list_of_cards_that_the_code_sets_itself_is_not_checked(notes, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with CudaEmulation(CARDS, notes):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert list(notes.unchecked) == ["CUDA_VISIBLE_DEVICES"]


# --- everything is restored


def everything_of_torch():
    modules = {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "torch" and isinstance(module, ModuleType)
    }
    attributes = {
        (name, key): id(value) for name, module in modules.items() for key, value in list(vars(module).items())
    }
    classes = (torch.Tensor, VirtualTensor, LazyVirtualParameter, LazyVirtualBuffer, nn.Module, nn.DataParallel,
               threading.Thread,
               torch.amp.autocast, torch.amp.GradScaler, torch.UntypedStorage,
               torch.profiler.profile, torch.autograd.profiler.profile, nn.utils.rnn.PackedSequence,
               nn.UninitializedParameter,
               nn.UninitializedBuffer, torch.autograd.graph.saved_tensors_hooks,
               torch.autograd.function.BackwardCFunction, torch.utils._device.DeviceContext)  # fmt: skip
    return attributes | {(kind.__name__, key): id(value) for kind in classes for key, value in vars(kind).items()}


def test_everything_of_torch_is_as_it_was(notes):
    torch.zeros(1, device="vgpu").sum()  # what torch imports at the first operation
    with CudaEmulation(CARDS):
        torch.randn(1, device="cuda")
    before, modes = everything_of_torch(), len(_get_current_function_mode_stack())

    def fail():
        with CudaEmulation(CARDS, notes):
            assert everything_of_torch() != before
            torch.set_default_device("cuda")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    after = everything_of_torch()
    assert [key for key in before.keys() | after.keys() if after.get(key) != before.get(key)] == []
    assert len(_get_current_function_mode_stack()) == modes
    assert torch.get_default_device() == torch.device("cpu")
    assert not torch.cuda.is_available() or torch.version.cuda


def test_what_was_set_around_it_stays_and_what_code_left_goes(notes):
    with torch.device("meta"):
        with CudaEmulation(CARDS, notes):
            torch.device("cuda:1").__enter__()
            assert torch.zeros(1).device == cuda_device(1)
        assert torch.zeros(1).is_meta
    assert torch.zeros(1).device == torch.device("cpu")
    assert not _get_current_function_mode_stack()


def test_functions_that_code_kept_are_torch_s_own_afterwards(notes):
    real = torch.cuda.device_count()
    with CudaEmulation(CARDS, notes):
        kept = torch.cuda.device_count
        assert kept() == CARDS
    assert kept() == real


def test_a_thread_that_continues_afterwards_sees_the_real_torch(notes):
    go_on, real, found = threading.Event(), torch.cuda.is_available(), []

    def work():
        found.append(torch.cuda.is_available())
        go_on.wait()
        found.append(torch.cuda.is_available())
        found.append(torch.zeros(1).device.type)

    with CudaEmulation(CARDS, notes):
        thread = threading.Thread(target=work)
        thread.start()
    go_on.set()
    thread.join()
    assert found[1:] == [real, "cpu"]
