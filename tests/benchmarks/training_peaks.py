"""Peaks of training: what `fit` says against what the allocator of a virtual GPU counts in a user's loop, with values.

    python tests/benchmarks/training_peaks.py [--only TEXT]

The loop is the usual one: batches come to the card, a cross entropy or the model's own loss, and nothing is deleted, so
that output and loss live into the next forward. The plan knows neither the targets nor that loss unless the model has
it. Wanted are 90 % of the cases within 5 % and all within 10 %. No device is needed; it takes some minutes."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from fakes.planning import ONE, T4

from devexplorer.core.base import bytes_text
from devexplorer.core.models import first_tensor, make_optimizer
from devexplorer.core.planner.run import StepConfig, autocast, checkpoint_blocks, own_loss, run_step
from devexplorer.core.planner.subject import Subject, subject_of
from devexplorer.core.virtual.backend import install, swapping

NEAR, FAR = 0.05, 0.10
STEPS = 3
TINY = "hidden_size=128&num_hidden_layers=3&num_attention_heads=4&intermediate_size=512&vocab_size=1000"
IMAGES = "head=image-classification"


class Case(NamedTuple):
    """What is trained, and how."""

    source: str
    batch: int
    optimizer: str
    inputs: str = ""
    autocast: torch.dtype | None = None
    checkpointing: bool = False
    micro_batches: int = 1
    """Whose gradients are added before a step of the optimizer."""

    @property
    def title(self) -> str:
        """In a table."""
        extras = [str(self.autocast).removeprefix("torch.")] if self.autocast else []
        extras += ["checkpointing"] if self.checkpointing else []
        extras += [f"{self.micro_batches} micro-batches"] if self.micro_batches > 1 else []
        return " ".join([self.source.split("?")[0], f"batch {self.batch}", self.optimizer, *extras])


GPT2 = "transformers:gpt2?n_embd=128&n_layer=3&n_head=4&vocab_size=1000"
BERT, LLAMA = f"transformers:bert?{TINY}", f"transformers:llama?{TINY}&num_key_value_heads=2"
VIT = f"transformers:vit?{IMAGES}&image_size=64&{TINY.partition('&vocab')[0]}"
RESNET = f"transformers:resnet?{IMAGES}&depths=[1,1,1,1]&hidden_sizes=[32,64,128,256]&embedding_size=32"
CONVNEXT = f"transformers:convnext?{IMAGES}&depths=[1,1,2,1]&hidden_sizes=[32,64,128,256]"
HALF = torch.bfloat16
CASES = (
    Case("mlp", 8, "sgd"),
    Case("mlp", 4096, "adamw"),
    Case("lenet", 16, "momentum"),
    Case("lenet", 256, "adam"),
    Case("lenet", 256, "adamw", autocast=HALF),
    Case("resnet18", 4, "sgd", "1x3x64x64"),
    Case("resnet18", 16, "adamw", "1x3x64x64"),
    Case("resnet18", 16, "sgd", "1x3x64x64", HALF),
    Case("vgg16-bn", 4, "sgd", "1x3x32x32"),
    Case("transformer", 4, "sgd"),
    Case("transformer", 32, "adamw"),
    Case("transformer", 32, "adamw", autocast=HALF),
    Case("transformer", 32, "adamw", checkpointing=True),
    Case("lstm", 3, "sgd", "1x8:int64"),
    Case("lstm", 64, "adamw", "1x16:int64"),
    Case("lstm", 64, "adamw", "1x16:int64", micro_batches=2),
    Case(GPT2, 4, "sgd", "1x64:int64"),
    Case(GPT2, 16, "adamw", "1x64:int64"),
    Case(GPT2, 16, "adamw", "1x64:int64", HALF),
    Case(GPT2, 16, "adamw", "1x64:int64", checkpointing=True),
    Case(GPT2, 8, "adamw", "1x64:int64", micro_batches=4),
    Case(BERT, 8, "adam", "1x64:int64"),
    Case(BERT, 32, "sgd", "1x64:int64"),
    Case(LLAMA, 8, "adamw", "1x64:int64"),
    Case(LLAMA, 8, "adamw", "1x64:int64", HALF),
    Case(LLAMA, 8, "momentum", "1x64:int64", checkpointing=True),
    Case(VIT, 16, "adamw", "1x3x64x64"),
    Case(VIT, 16, "sgd", "1x3x64x64", HALF),
    Case(RESNET, 16, "momentum", "1x3x64x64"),
    Case(RESNET, 8, "adamw", "1x3x64x64", micro_batches=2),
    Case(CONVNEXT, 16, "adamw", "1x3x64x64"),
    Case(CONVNEXT, 16, "adamw", "1x3x64x64", HALF),
)


def planned_bytes(case: Case, subject: Subject) -> int:
    """The peak that `fit` says, without workspaces and context."""
    way = StepConfig(train=True, optimizer=case.optimizer, autocast=case.autocast, checkpointing=case.checkpointing)
    return run_step(subject, way, case.batch, ONE)[0].without_end.peak


def counted_bytes(case: Case, subject: Subject) -> int:
    """The peak of the loop: `torch.vgpu.max_memory_allocated`."""
    made = subject.with_values(RuntimeError("the loop computes"))
    machine = install()
    machine.reset()
    machine.add([T4])
    gc.collect()
    model = made.model.train()
    with swapping():
        model.to("vgpu:0")
    if case.checkpointing:
        checkpoint_blocks(made.title, model)
    optimizer = make_optimizer(case.optimizer, list(model.parameters()), lr=1e-6, foreach=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(case.micro_batches):
            inputs = [spec.tensor(torch.float32, generator).to("vgpu:0") for spec in made.inputs(case.batch)]
            with autocast(case.autocast):
                output = model(*inputs)
                loss = _loss(output)
            (loss / case.micro_batches).backward()
        optimizer.step()
    peak: int = torch.vgpu.max_memory_allocated("vgpu:0")  # type: ignore[attr-defined]
    return peak


def _loss(output: Any) -> Tensor:
    """The model's own, else a cross entropy over the last dimension of its first output."""
    loss = own_loss(output)
    if loss is not None:
        return loss
    scores = first_tensor(output)
    assert scores is not None
    scores = scores.flatten(0, -2)
    targets = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    return nn.functional.cross_entropy(scores, targets)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose title has this in it")
    given = parser.parse_args()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    apart: list[float] = []
    for case in CASES:
        if given.only not in case.title:
            continue
        subject = subject_of(case.source, "", case.inputs)
        planned, counted = planned_bytes(case, subject), counted_bytes(case, subject)
        apart.append(abs(planned / counted - 1))
        print(
            f"{case.title:60} planned {bytes_text(planned):>11}, counted {bytes_text(counted):>11}, "
            f"{planned / counted:.3f}",
            flush=True,
        )
    within = [sum(one <= limit for one in apart) for limit in (NEAR, FAR)]
    print(f"{len(apart)} cases: {within[0]} within {NEAR:.0%}, {within[1]} within {FAR:.0%}, worst {max(apart):.1%}")


if __name__ == "__main__":
    main()
