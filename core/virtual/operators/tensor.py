"""`VirtualTensor`: a tensor that reports the device `vgpu:N`, computes on the CPU, and charges memory and time to that
device. Any thread.

torch's dispatcher hands every operation on it to `__torch_dispatch__`, below autograd. There the CPU tensors inside are
taken out, the operation runs on them, its result is wrapped again, new storages are counted, and the device's clock
advances.

The tensor inside may be on `meta`: then memory and time are counted and there are no values, for plans and benchmarks.
A GPU that counts keeps the values of what is small: of inputs and what is made of them alone, such as masks, which
models look at. What meets a parameter has none, and what such a result is written into loses its own.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from devexplorer.core.virtual.device.accounting import (
    KIND,
    StorageBlock,
    allocate_block,
    count_storage,
    gpu_of,
    take_and_give_back,
)
from devexplorer.core.virtual.device.cost import HostCall
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.operators import serialization
from devexplorer.core.virtual.operators.backward import backward_guard, failure
from devexplorer.core.virtual.operators.operations import (
    INDEXED,
    VIEW,
    Operation,
    check_devices,
    is_written,
    rate,
)
from devexplorer.core.virtual.operators.recurrence import is_within_recurrence
from devexplorer.core.virtual.operators.work import call_of, work_of


def drop_values(inner: torch.Tensor, gpu: VirtualGpu) -> torch.Tensor:
    """Move the tensor to `meta` if this GPU keeps no values of its kind."""
    if gpu.values_bytes is None or inner.is_meta:
        return inner
    if inner.nbytes <= gpu.values_bytes:
        return inner
    return torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device="meta")


def has_mixed_values(plain: Sequence[Any]) -> bool:
    """Whether some of the tensors have values and others none."""
    kinds = {value.is_meta for value in flatten(plain) if isinstance(value, torch.Tensor)}
    return len(kinds) == 2


def lose_values(inner: Any) -> None:
    """Of this tensor and all that share its memory: a result without values was written there."""
    for item in flatten([inner]):
        if isinstance(item, torch.Tensor) and not item.is_meta:
            held = item.untyped_storage()._vgpu  # type: ignore[attr-defined]
            held.lost = held.gpu.lost_values = True


def with_its_values(inner: Any) -> Any:
    """The argument, whose tensors are on meta where their values were lost: of the same block."""
    if isinstance(inner, (list, tuple)):
        return [with_its_values(item) for item in inner]
    if not isinstance(inner, torch.Tensor) or inner.is_meta:
        return inner
    held = getattr(inner.untyped_storage(), "_vgpu", None)
    if held is None or not held.lost:
        return inner
    without = torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device="meta")
    without.untyped_storage()._vgpu = held  # type: ignore[attr-defined]
    return without


def numbered(indices: Sequence[Any]) -> list[Any]:
    """Truth values among indices as numbers, where they are known: without values nobody could count them."""
    found: list[Any] = []
    for index in indices:
        known = isinstance(index, torch.Tensor) and index.dtype == torch.bool and not index.is_meta
        found += index.nonzero(as_tuple=True) if known else [index]
    return found


def flatten(plain: Sequence[Any]) -> list[Any]:
    """Arguments and the items of those that are lists: `torch.cat` takes one."""
    return [item for value in plain for item in (value if isinstance(value, (list, tuple)) else (value,))]


def to_meta(value: Any) -> Any:
    """The argument with every tensor in it on meta."""
    if isinstance(value, (list, tuple)):
        return [to_meta(item) for item in value]
    return value.to("meta") if isinstance(value, torch.Tensor) else value


SUMS = ("aten::add", "aten::add_")
"""cuDNN's kernels of a recurrence add within their products."""
_inferring = torch.is_inference_mode_enabled
_is_multithreaded = torch._C._is_multithreading_enabled
_clock = time.perf_counter
_operations: dict[Any, Operation] = {}
_devices: dict[int, torch.device] = {}
_exclude = torch._C._dispatch_tls_set_dispatch_key_excluded
_CONJUGATE, _NEGATIVE, _VIEWS = (
    torch._C.DispatchKey.Conjugate,
    torch._C.DispatchKey.Negative,
    torch._C.DispatchKey.ADInplaceOrView,
)
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_BITS = {
    (True, False): torch._C.DispatchKeySet(_CONJUGATE),
    (False, True): torch._C.DispatchKeySet(_NEGATIVE),
    (True, True): torch._C.DispatchKeySet(_CONJUGATE).add(_NEGATIVE),
}
"""The dispatch keys of a tensor that is a conjugate, or negative, view: the wrapper has those of the tensor inside."""
_handlers: dict[Any, Callable[..., Any]] = {}
_set_data: Callable[[torch.Tensor, torch.Tensor], None]


def register_handlers(handlers: Mapping[Any, Callable[..., Any]]) -> None:
    """Register special implementations of overloads; each is called with the `Operation` and its arguments."""
    _handlers.update(handlers)
    _operations.clear()


def register_kernels(kernels: Mapping[Any, Callable[..., Any]]) -> None:
    """The same of implementations that are called with the arguments alone."""
    register_handlers({overload: functools.partial(_call, kernel) for overload, kernel in kernels.items()})


def _call(kernel: Callable[..., Any], operation: Operation, *args: Any, **kwargs: Any) -> Any:
    return kernel(*args, **kwargs)


def register_set_data(become: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    """Let this be how a tensor takes data on a device of another kind (`core.virtual.backend`)."""
    global _set_data
    _set_data = become


def _overridable(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a `TorchFunctionMode` that is on see calls of this method, as it sees those of torch's own."""

    @functools.wraps(method)
    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(call, (self,), self, *args, **kwargs)
        return method(self, *args, **kwargs)

    return call


class VirtualTensor(torch.Tensor):
    """Wraps a CPU (or meta) tensor and reports a virtual device."""

    _inner: torch.Tensor
    _gpu: VirtualGpu
    # nothing to add there, and it costs microseconds per call
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor, gpu: VirtualGpu | None = None, **parameter: Any) -> VirtualTensor:
        """Wrap `inner`, whose storage is counted by the caller.

        Without a GPU it is called by code that makes a parameter of the class of another one, as accelerate does:
        `type(parameter)(tensor, requires_grad=False)`.
        """
        if gpu is None:
            made: Any = torch.nn.Parameter(inner, **parameter)
            return made  # type: ignore[no-any-return]
        device = _devices.get(gpu.index)
        if device is None:
            device = _devices[gpu.index] = torch.device(KIND, gpu.index)
        if _is_multithreaded():
            # The Python device guard reports one device, and autograd's device threads go by it. On the calling thread,
            # where CPU backward
            # runs anyway, backward works for every index.
            torch._C._set_multithreading_enabled(False)
        bits = _BITS[inner.is_conj(), inner.is_neg()] if inner.is_neg() or inner.is_conj() else None
        wrapper = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            inner.stride(),
            inner.storage_offset(),
            dtype=inner.dtype,
            device=device,
            _extra_dispatch_keys=bits,
        )
        wrapper._inner = inner
        wrapper._gpu = gpu
        return wrapper

    def __init__(self, inner: torch.Tensor, gpu: VirtualGpu | None = None, **parameter: Any) -> None:
        """Everything is done in `__new__`."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares it without `func`
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        operation = _operations.get(func)
        if operation is None:
            operation = _operations[func] = Operation(func, _handlers.get(func))
        if len(types) > 1 and any(not issubclass(kind, VirtualTensor) for kind in types):
            return NotImplemented
        # torch excludes these keys for the whole call. Then a lazy conjugation on the CPU, also one inside a kernel
        # (`linalg.pinv`), would
        # be lost in silence. What is excluded here comes back by itself when torch leaves this function.
        _exclude(_CONJUGATE, False)
        _exclude(_NEGATIVE, False)
        try:
            if operation.handler is not None:
                return operation.handler(operation, *args, **(kwargs or {}))
            return run_operation(operation, args, kwargs)
        except BaseException as error:
            returned = failure(error, len(operation.returns))
            if returned is None:
                raise
            return returned

    def __coerce_same_metadata_as_tangent__(self, metadata: Any, kind: Any = None) -> VirtualTensor:
        # A compiled backward expects a plain tensor, and takes this one for one.
        return self

    @_overridable
    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return serialization.tensor_repr(self)

    @_overridable
    def __format__(self, format_spec: str) -> str:
        return format(self.item(), format_spec) if self.dim() == 0 else object.__format__(self, format_spec)

    def __deepcopy__(self, memo: dict[Any, Any]) -> torch.Tensor:
        return serialization.deep_copy(self, memo)

    def __copy__(self) -> torch.Tensor:
        return serialization.shallow_copy(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return serialization.reduce_for_pickle(self, protocol)

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """As `torch.Tensor.backward`."""
        with backward_guard():
            super().backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    # torch spells its options out
    def new_tensor(self, data: Any, **options: Any) -> torch.Tensor:  # type: ignore[override]
        """As `torch.Tensor.new_tensor`, on this device: torch asks the device guard, which knows the first one only."""
        return super().new_tensor(data, **{**options, "device": options.get("device") or self.device})

    def new(self, *args: Any, **options: Any) -> torch.Tensor:  # type: ignore[override]  # the same
        """As `torch.Tensor.new`, on this device."""
        device = options.get("device") or self.device
        if not args:
            return torch.empty(0, dtype=self.dtype, device=device)
        if isinstance(args[0], torch.Tensor):
            return super().new(*args, **options)
        return super().new(*args, device=device)

    @_overridable
    def numpy(self, *, force: bool = False) -> Any:
        """Refused as on CUDA, unless forced."""
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            f"can't convert {self._gpu.spoken} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host"
            " memory first."
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy()

    def __dlpack_device__(self) -> Any:
        raise BufferError(
            f"other libraries cannot read the memory of {self._gpu.spoken}; use Tensor.cpu() to copy the tensor to host"
            " memory first"
        )

    def __dlpack__(self, **options: Any) -> Any:
        return self.__dlpack_device__()

    def as_subclass(self, cls: Any) -> Any:
        """Refused: a tensor on a virtual GPU already has a special class."""
        raise TypeError(
            f"a tensor on {self._gpu.spoken} cannot become a {cls.__name__}; keep those on the CPU, or wrap the tensor"
            " instead"
        )

    @_overridable
    def tolist(self) -> Any:
        """The values, copied to the host as on CUDA."""
        return self.detach().cpu().tolist()

    def data_ptr(self) -> int:
        """The address in the virtual GPU's memory."""
        held = getattr(self._inner.untyped_storage(), "_vgpu", None)
        return 0 if held is None else held.block.address + self._inner.storage_offset() * self._inner.element_size()

    def untyped_storage(self) -> torch.UntypedStorage:
        """The CPU storage: the same object for tensors that share memory."""
        return self._inner.untyped_storage()

    @property
    def data(self) -> torch.Tensor:
        """As `torch.Tensor.data`: changes made through it are not counted in `_version`."""
        return cast(torch.Tensor, torch.Tensor.data.__get__(self))  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if isinstance(value, VirtualTensor):
            self._adopt_memory(value._inner, value._gpu)
        else:
            _set_data(self, value)

    def _adopt_memory(self, inner: torch.Tensor, gpu: VirtualGpu) -> None:
        with torch.inference_mode(self.is_inference()):
            new = VirtualTensor(inner, gpu)
        torch.Tensor.data.__set__(self, new)  # type: ignore[attr-defined]
        self._inner, self._gpu = inner, gpu


class VirtualParameter(VirtualTensor):
    """A parameter in a script that runs as it would on cards: its type reads as PyTorch's own."""

    __module__ = "torch.nn.parameter"
    __qualname__ = "Parameter"

    def __deepcopy__(self, memo: dict[Any, Any]) -> torch.Tensor:
        """Without its gradient, as PyTorch copies parameters."""
        return serialization.deep_copy(self, memo, gradient=False)


VirtualParameter.__name__ = "Parameter"


def run_operation(operation: Operation, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
    """Run an operation on the CPU, and charge its memory and time to the virtual GPU of its tensors."""
    if operation.composite:
        if operation.views_by_parts and _inferring():
            _exclude(_VIEWS, False)  # the views that it makes of ordinary tensors share their version counter
        # torch's own composition in C++; `decompose` would take one in Python where there is one too, with other random
        # numbers.
        return operation.overload._op_dk(_COMPOSITE, *args, **(kwargs or {}))
    gpu: VirtualGpu | None = None
    stranger = False
    nbytes = 0
    dtype: torch.dtype | None = None
    plain: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is VirtualTensor or kind is VirtualParameter:
            if gpu is None:
                gpu, dtype = value._gpu, value.dtype
            elif value._gpu is not gpu:
                stranger = True
            inner = value._inner
            nbytes += inner.nbytes
            plain.append(inner)
        elif kind is list or kind is tuple:
            taken = [item._inner if isinstance(item, VirtualTensor) else item for item in value]
            for item, inner in zip(value, taken, strict=True):
                if inner is not item:
                    if gpu is None:
                        gpu, dtype = item._gpu, item.dtype
                    elif item._gpu is not gpu:
                        stranger = True
                    nbytes += inner.nbytes
                stranger = stranger or (inner is item and isinstance(item, torch.Tensor))
            plain.append(taken)
        else:
            stranger = stranger or isinstance(value, torch.Tensor)
            plain.append(value)
    named = kwargs
    if kwargs:
        named = dict(kwargs)
        for name, value in kwargs.items():
            if isinstance(value, VirtualTensor):
                if gpu is None:
                    gpu, dtype = value._gpu, value.dtype
                elif value._gpu is not gpu:
                    stranger = True
                named[name] = value._inner
            elif isinstance(value, torch.Tensor):
                stranger = True
            elif isinstance(value, (list, tuple)):  # `out=[…]`
                named[name] = [item._inner if isinstance(item, VirtualTensor) else item for item in value]
                stranger = True
    if gpu is None:
        gpu = _first_gpu(args, kwargs)
    if stranger:
        check_devices(operation, args, kwargs or {})
    if gpu.lost_values:
        plain = [with_its_values(value) for value in plain]

    if operation.view:
        if not is_within_recurrence():
            gpu.clock.call(gpu.roofline.call_seconds(HostCall.VIEW))
        result = operation.call(*plain, **named) if named else operation.call(*plain)
        viewed = args[0].is_inference()
        if viewed is not _inferring():
            with torch.inference_mode(viewed):
                return _views(result, gpu)
        return _views(result, gpu)

    destination: VirtualGpu | None = gpu
    if operation.device_argument and named and named.get("device") is not None:
        destination = _redirect(named, plain)
    began = _clock()
    result, plain, named = _computed(operation, gpu, plain, named or {})
    wall = _clock() - began
    answer = _wrapped(operation, result, destination, args, kwargs)
    if operation.scratch is not None:
        take_and_give_back(gpu, operation.scratch(*plain, **(named or {})))

    for item in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(item, torch.Tensor):
            nbytes += item.nbytes
            if operation.gathers and plain and isinstance(plain[0], torch.Tensor):
                nbytes += item.nbytes - plain[0].nbytes
    if operation.mutates and isinstance(plain[0], list):  # what is written there is not returned
        nbytes += sum(item.nbytes for item in plain[0])
    done = 0 if operation.flops is None or dtype is None else operation.flops(*plain, **(named or {}), out_val=result)
    works = work_of(operation.kind, rate(operation, dtype), done, nbytes, plain, result)
    recurs = is_within_recurrence()
    if recurs and operation.name in SUMS:
        works = ()
    gpu.clock.advance(gpu.roofline.seconds(*works), wall)
    if not recurs:
        gpu.clock.call(gpu.roofline.call_seconds(call_of(operation.kind)))
    return answer


def _computed(
    operation: Operation, gpu: VirtualGpu, plain: list[Any], named: dict[str, Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """The result, and the arguments that it was made of: on meta where one of them has no values."""
    if not (operation.mutates and has_mixed_values([*plain, *named.values()])):
        try:
            return operation.call(*plain, **named), plain, named
        except (RuntimeError, NotImplementedError):  # where values are rare, also for a kernel that the CPU lacks
            if gpu.values_bytes is None and not has_mixed_values([*plain, *named.values()]):
                raise
    if operation.mutates:
        for position, argument in enumerate(operation.overload._schema.arguments):
            if is_written(argument):
                lose_values(plain[position] if position < len(plain) else named.get(argument.name))
    if operation.name in INDEXED:
        plain[1] = numbered(plain[1])
    plain, named = [to_meta(value) for value in plain], {name: to_meta(value) for name, value in named.items()}
    return operation.call(*plain, **named), plain, named


def _views(result: Any, gpu: VirtualGpu) -> Any:
    if isinstance(result, torch.Tensor):
        return VirtualTensor(result, gpu)
    return [VirtualTensor(item, gpu) for item in result]


def _wrapped(
    operation: Operation, result: Any, gpu: VirtualGpu | None, args: Sequence[Any], kwargs: dict[str, Any] | None
) -> Any:
    """The result as the caller gets it: mutated arguments as the very same objects, everything else wrapped and
    counted."""
    kinds = operation.returns
    if len(kinds) == 1:
        kind = kinds[0]
        if kind >= 0:
            return _mutated(operation, kind, args, kwargs)
        if gpu is not None:
            result = _wrap(result, gpu, kind)
    elif kinds:
        items = []
        for position, (kind, item) in enumerate(zip(kinds, result, strict=True)):
            if kind >= 0:
                items.append(_mutated(operation, kind, args, kwargs))
            elif gpu is None or position in operation.host_results:
                items.append(item)
            else:
                items.append(_wrap(item, gpu, kind))
        result = tuple(items)
    if operation.reshapes:
        for value in flatten([*args, *(kwargs or {}).values()]):
            if isinstance(value, VirtualTensor):
                _update_wrapper(value)
    return result


def _wrap(value: Any, gpu: VirtualGpu, kind: int) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise NotImplementedError(
                f"virtual GPUs hold dense tensors only, not {value.layout}; keep it on the CPU or make it dense"
            )
        if kind != VIEW:
            value = drop_values(value, gpu)
            count_storage(value.untyped_storage(), gpu)
        return VirtualTensor(value, gpu)
    if isinstance(value, (list, tuple)):
        return [_wrap(item, gpu, kind) for item in value]
    return value


def _mutated(operation: Operation, position: int, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
    value = args[position] if position < len(args) else (kwargs or {})[operation.arguments[position]]
    if operation.reshapes and isinstance(value, VirtualTensor):
        _update_wrapper(value)
    return value


def _update_wrapper(tensor: VirtualTensor) -> None:
    """After an operation that can change the shape of its argument: let the wrapper say what the tensor inside is
    now."""
    inner = tensor._inner
    count_storage(inner.untyped_storage(), tensor._gpu)
    if (
        inner.shape != tensor.shape
        or inner.stride() != tensor.stride()
        or inner.storage_offset() != tensor.storage_offset()
    ):
        tensor._adopt_memory(inner, tensor._gpu)


def _first_gpu(args: Sequence[Any], kwargs: dict[str, Any] | None) -> VirtualGpu:
    """The device of a tensor deeper down than `run_operation` looks."""
    leaves, _ = torch.utils._pytree.tree_flatten((args, kwargs))
    return next(value._gpu for value in leaves if isinstance(value, VirtualTensor))


def _redirect(named: dict[str, Any], plain: list[Any]) -> VirtualGpu | None:
    """For an operation that names a device: let the CPU (or meta) make the result, and return the virtual GPU it is
    for, if any."""
    device = torch.device(named["device"])
    if device.type != KIND:
        return None
    to_meta = any(isinstance(value, torch.Tensor) and value.is_meta for value in plain)
    named["device"] = torch.device("meta" if to_meta else "cpu")
    named.pop("pin_memory", None)
    return gpu_of(device)


def new_tensor(make: Callable[[], torch.Tensor], nbytes: int, gpu: VirtualGpu) -> VirtualTensor:
    """A tensor that `make` creates, refused before the host does any work when its bytes do not fit."""
    block = allocate_block(gpu, nbytes)
    try:
        inner = drop_values(make(), gpu)
    except BaseException:
        gpu.memory.free(block)
        raise
    inner.untyped_storage()._vgpu = StorageBlock(gpu, block, inner.untyped_storage().nbytes())  # type: ignore[attr-defined]
    return VirtualTensor(inner, gpu)
