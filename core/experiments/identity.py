"""Questions about what and where something is: type(), is_leaf, device. Runs on the jobs thread."""

from __future__ import annotations

from collections import Counter

from torch import Tensor, nn

from devexplorer.core.base import count_text
from devexplorer.core.experiments.asked import Asked
from devexplorer.core.models import device_id, is_uninitialised, type_name
from devexplorer.core.records import Answer, Fact
from devexplorer.core.workspace import Target


def type_of_tensor(asked: Asked) -> Answer:
    """`x.type()`: an old name that holds the dtype and the kind of device."""
    tensor, said = asked.tensor, asked.tensor.type()
    host, card = type_names(tensor)
    words = (
        "type() gives the name that such tensors had before there were dtypes and devices: it holds both. On the CPU"
        f" {asked.target} would say {host}, on a GPU of CUDA {card}."
    )
    python_class = "torch.nn.Parameter" if type_name(tensor) == "Parameter" else f"torch.{type_name(tensor)}"
    if asked.simulated:
        words += (
            f" It says {said} here because this GPU is simulated: its kind is vgpu. A real card would say {card}."
            f" type({asked.code}) is {python_class} on every real device; here {type(tensor).__name__} stands in"
            " for it."
        )
    else:
        words += f" type({asked.code}) does not change with the device: it is {python_class} everywhere."
    words += " Current code uses x.dtype and x.device."
    return asked.answer(
        f"{asked.target}.type() is {said}",
        words,
        ("type()", said),
        ("on the CPU", host),
        ("on a real CUDA GPU", card),
        ("type(x)", python_class + (f" (here {type(tensor).__name__})" if asked.simulated else "")),
        ("dtype", str(tensor.dtype)),
        ("device", asked.device),
        code=f"print({asked.code}.type())",
    )


def type_names(tensor: Tensor) -> tuple[str, str]:
    """What `type()` says of such a tensor on the CPU, and on a CUDA device."""
    word = tensor.type().rpartition(".")[2]
    return f"torch.{word}", f"torch.cuda.{word}"


def type_of_module(target: Target, module: nn.Module) -> Answer:
    """`type(model)`: the class, which no move changes."""
    kind, code = type(module), target.code()
    tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if not is_uninitialised(tensor)]
    said = sorted({tensor.type() for tensor in tensors})
    words = (
        f"The class of {target.title} is {kind.__name__}, on every device: a move exchanges the memory of its"
        " parameters and leaves the object what it is."
    )
    if said:
        words += f" Its tensors' types depend on the device: {', '.join(said)}."
    if any(name.startswith("torch.vgpu.") for name in said):
        words += f" On a real card that would be {', '.join(sorted({type_names(tensor)[1] for tensor in tensors}))}."
    words += " (model.type() is something else: it casts all tensors to the given type.)"
    facts = [Fact("type", f"{kind.__module__}.{kind.__qualname__}"), *(Fact("tensors", name) for name in said)]
    printed = f"print(type({code}))\nprint({{tensor.type() for tensor in {code}.parameters()}})"
    return Answer(
        title=f"{target.title} is a {kind.__name__}",
        words=words,
        facts=tuple(facts),
        code=printed,
        subject=target.name,
    )


def is_leaf(asked: Asked) -> Answer:
    """`x.is_leaf`: whether gradients arrive in the tensor itself."""
    tensor = asked.tensor
    made_by = None if tensor.grad_fn is None else tensor.grad_fn.name()
    if not tensor.requires_grad:
        words = "It does not require grad, and such tensors are leaves by definition: autograd does not look at them."
    elif made_by is None:
        words = (
            "It was made by you, not computed: after backward() its gradient is in .grad, and an optimizer can take it."
        )
    else:
        words = (
            f"It was computed by {made_by} from something that requires grad. Gradients pass through it and are not"
            " kept in its .grad (retain_grad() would keep them), and no optimizer takes it. Moving a tensor that"
            " requires grad is such a computation: move first, then call requires_grad_()."
        )
    return asked.answer(
        f"{asked.target} is {'a leaf' if tensor.is_leaf else 'not a leaf'}",
        words,
        ("is_leaf", str(tensor.is_leaf)),
        ("requires_grad", str(tensor.requires_grad)),
        ("grad_fn", made_by or "None"),
        ("device", asked.device),
        code=f"print({asked.code}.is_leaf, {asked.code}.requires_grad, {asked.code}.grad_fn)",
    )


def device_of_tensor(asked: Asked) -> Answer:
    """`x.device`: where it is."""
    words = f"Its values are in the memory of {asked.device}, and what is computed with it alone is computed there."
    if asked.simulated:
        words += " That GPU is simulated: on a real card this would be a device like cuda:0."
    if asked.device == "cpu":
        words += " cpu is all cores and all of the host's memory: there is no cpu:1."
    elif not asked.simulated:
        words += (
            " The number is torch's ordinal, which counts visible devices only; nvidia-smi may number them otherwise."
        )
    return asked.answer(
        f"{asked.target} is on {asked.device}",
        words,
        ("device", asked.device),
        ("type", asked.tensor.device.type),
        ("index", str(asked.tensor.device.index)),
        code=f"print({asked.code}.device)",
    )


def device_of_module(target: Target, module: nn.Module) -> Answer:
    """A model has no device: its tensors have."""
    counts = Counter(device_id(tensor.device) for tensor in (*module.parameters(), *module.buffers()))
    words = "A module has no .device: every parameter and buffer has its own. "
    if not counts:
        title = f"{target.title} is on no device"
        words += "This one has neither, so it works wherever its input is."
    elif len(counts) == 1:
        title = f"{target.title} is on {next(iter(counts))}"
        words += (
            "All of them are on one device here, so asking the first parameter is enough; for a model in parts it would"
            " not be."
        )
    else:
        title = f"{target.title} is on {len(counts)} devices"
        words += "They are on several here, so that asking the first parameter alone would mislead."
    facts = tuple(Fact(where, count_text(count, "tensor")) for where, count in sorted(counts.items()))
    code = f"print({{str(parameter.device) for parameter in {target.code()}.parameters()}})"
    return Answer(title=title, words=words, facts=facts, code=code, subject=target.name)
