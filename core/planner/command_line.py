"""What `devexplorer fit` and `devexplorer calibrations` take. Data; main thread, no torch."""

from __future__ import annotations

import argparse

from devexplorer.core.cli.arguments import SHAPES, TARGET, TIMEOUT, BenchKeeper, CliCommand, add_options, json_option

WEIGHTS = (
    "with --generate: int4, int8, fp8, gptq, awq, bnb-int8 or bnb-nf4, or a checkpoint (a .safetensors file or a folder"
    " of them; headers only)"
)


def _fit(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("target", metavar="TARGET", help=TARGET)
    cards = (
        'a card, or several with the model split over them: "2x Tesla T4"; may be given again (default: --virtual, else'
        " every profile)"
    )
    fit.add_argument("--gpu", metavar="GPU", action="append", help=cards)
    add_options(
        fit,
        ("--batch", "N", "samples per step (default 1, or the first size of --input)"),
        ("--dtype", "T", "of parameters and inputs (default: the model's own)"),
        ("--autocast", "T", "float16 or bfloat16"),
        ("--train", None, "forward, backward and optimizer step; otherwise forward"),
        ("--optimizer", "NAME", "with --train: sgd, momentum, adam or adamw (default adamw)"),
        ("--checkpointing", None, "with --train: compute activations of blocks again in backward"),
        ("--tf32", None, "float32 matrix products in TF32; by default only convolutions"),
        ("--channels-last", None, "weights of convolutions and images in channels_last"),
        ("--input-copy", None, "each step copies its inputs from the host's pageable memory"),
        ("--curve", None, "time and memory of the first card over the batch"),
        ("--input", "SHAPES", SHAPES),
        ("--generate", "N", "generate so many tokens with a language model of transformers"),
        ("--prompt", "N", "with --generate: tokens of each prompt (default 512)"),
        ("--kv-dtype", "T", "with --generate: of keys and values (default: as activations), fp8 for example"),
        ("--kv-block", "N", "with --generate: page the cache in blocks of so many tokens (vLLM: 16)"),
        ("--prefill-chunk", "N", "with --generate: at most so many tokens of a prompt at a time (default: all)"),
        ("--tensor-parallel", "N", "with --generate: split every layer over so many cards"),
        ("--weights", "W", WEIGHTS),
        ("--timeout", "S", TIMEOUT),
    )
    json_option(fit)


def _calibrations(calibrations: argparse.ArgumentParser) -> None:
    add_options(calibrations, ("--remove", "NAME", "remove the one of this name"))
    json_option(calibrations)


COMMANDS = (
    CliCommand(
        "fit",
        "say whether a model fits a card, and how fast it would be",
        _fit,
        "planner.commands.fit:fit",
        elsewhere=True,
    ),
    CliCommand(
        "calibrations",
        "list the cards that were calibrated for fit",
        _calibrations,
        "planner.commands.calibrations:calibrations",
        takes_common=False,
    ),
)
BENCH_KEEPERS = (BenchKeeper(lambda parser: None, "planner.commands.calibrations:KeepingCalibrations"),)
