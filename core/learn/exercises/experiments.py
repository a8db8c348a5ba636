"""Exercises about questions, timing, and replicas. Data; main thread."""

from __future__ import annotations

from devexplorer.core.experiments.records import Ask, Crossover, Replicate, TimeWork
from devexplorer.core.learn.exercise import MANY, TENSORS, Exercise, Step, built, did, elsewhere
from devexplorer.core.learn.objects import NEW_ON_A_GPU
from devexplorer.core.records import Move, NewTensor

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        "numpy",
        "NumPy and the GPU",
        TENSORS,
        "NumPy knows the memory of the host only: a tensor on a GPU has to come to the CPU first.",
        (
            NEW_ON_A_GPU,
            Step(
                "Ask whether it can become a NumPy array",
                "Right-click it, Ask, Can it become a NumPy array?",
                did(Ask, lambda c: c.question == "numpy"),
            ),
            Step(
                "… and through .cpu()",
                "The first offer in the inspector, or right-click, Ask",
                did(Ask, lambda c: c.question == "cpu-numpy"),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "type",
        "type() before and after",
        TENSORS,
        "What a tensor's type() says depends on the kind of its device; the class of a model does not change when it"
        " moves.",
        (
            Step(
                "Create a tensor on the CPU", "Tensor, Device: cpu, Create", did(NewTensor, lambda c: c.device == "cpu")
            ),
            Step(
                "Ask for its type()",
                "Right-click it, Ask, What is its type()?",
                did(Ask, lambda c: c.question == "type"),
            ),
            Step("Move it to a GPU", "Move to: a GPU", did(Move, lambda c: elsewhere(c.device))),
            Step("Ask again", "Right-click, Ask, What is its type()?", did(Ask, lambda c: c.question == "type")),
        ),
        two_devices=True,
    ),
    Exercise(
        "timing",
        "Timing a GPU",
        TENSORS,
        "A GPU works behind the program's back: a clock that is read before torch.cuda.synchronize() has timed the"
        " launches only.",
        (
            Step(
                "Time products on a GPU, without synchronising and with",
                "Tab Experiments, Timing, on: a GPU, Time it",
                did(TimeWork, lambda c: elsewhere(c.device)),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "crossover",
        "Where the GPU overtakes",
        TENSORS,
        "Small products are faster on the CPU: launching them, and copying there and back, costs more than computing.",
        (Step("Compare the CPU and a GPU over growing sizes", "Tab Experiments, Crossover, Compare", did(Crossover)),),
        two_devices=True,
    ),
    Exercise(
        "replicate",
        "A copy on every device",
        MANY,
        "What DataParallel does: every device has all parameters and a part of the batch.",
        (
            Step("Build mlp", "Build: mlp", built("mlp")),
            Step(
                "Replicate it over two devices",
                "Select it, tab Experiments, Replicate, on: two devices, Replicate",
                did(Replicate),
            ),
        ),
        two_devices=True,
    ),
)
