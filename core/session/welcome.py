"""The welcome page: what torch and the driver report about this machine, and what is missing and why. No thread, no
torch."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import MISSING, count_text, sentence
from devexplorer.core.records import AddVirtual, Answer, DeviceInfo, EngineReady, Fact, Offer, Problem

CODE = """import torch
torch.__version__
torch.version.cuda
torch.cuda.is_available()
torch.cuda.device_count()
[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]"""


def this_machine(engine: EngineReady, devices: Sequence[DeviceInfo], problems: Sequence[Problem]) -> Answer:
    """The first page of the inspector."""
    cards = [info for info in devices if info.kind not in ("cpu", "virtual")]
    usable = [info for info in cards if info.usable]
    virtual = [info for info in devices if info.simulated]
    facts = [
        Fact("torch", engine.torch_version),
        Fact("CUDA of this torch", engine.cuda_version or "none: a build without CUDA"),
        Fact("cuda.is_available()", str(engine.cuda_available)),
        Fact("cuda.device_count()", str(engine.cuda_device_count)),
        Fact("driver", next((info.driver_version for info in cards if info.driver_version), None) or MISSING),
        Fact(
            "CUDA_VISIBLE_DEVICES",
            "unset" if engine.cuda_visible_devices is None else engine.cuda_visible_devices or "empty",
        ),
        Fact(
            "CPU threads",
            str(next((info.threads for info in devices if info.id == "cpu" and info.threads), engine.threads)),
        ),
        Fact("Python", engine.python_version),
    ]
    offers: tuple[Offer, ...] = ()
    refused = next((sentence(info.reason) for info in cards if info.reason), "")
    if usable or virtual:
        title = f"{count_text(len(usable or virtual), 'GPU' if usable else 'virtual GPU')} can be used"
        words = "Build a model or create a tensor, then move it: select it and press Ctrl+1, or drag it onto a card."
        if not usable:
            words += f" Virtual GPUs work like real ones; their numbers are simulated. {refused}".rstrip()
    else:
        title = "No GPU can be used here"
        words = " ".join(dict.fromkeys(sentence(problem.reason) for problem in problems if problem.device is None))
        words = words or refused or "No driver and no card was found."
        if engine.virtual_unavailable is None:
            words += " Virtual GPUs make everything work here too; their numbers are simulated."
            offers = (Offer("Add two virtual GPUs", AddVirtual(spec="2x Tesla T4")),)
    return Answer(title=title, words=words, facts=tuple(facts), code=CODE, offers=offers)
