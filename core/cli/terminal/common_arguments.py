"""What several commands have in their grammar. No torch, no Qt: the window's start-up reads it too."""

from __future__ import annotations

import argparse

TARGET = (
    "a sample model (mlp, lenet, vgg16-bn, …), package.module:factory, path/to/file.py:factory, torchvision:NAME,"
    " transformers:TYPE or transformers:path/to/config.json; options as in transformers:gpt2?n_layer=2"
)
"""What models `place`, `doctor`, `fit` and `bench model` take."""
SHAPES = "what forward gets: 4x12, 8x16:int64, several with commas (default: a guess)"
VIRTUAL = 'add virtual GPUs, for example "2x Tesla T4" or "Tesla T4, NVIDIA A10"'
PYTHON = "run in this Python, an interpreter or the folder of its environment; 'devexplorer env' lists them"
SSH = "run on this machine, which ssh reaches; PATH and files are then that machine's"


def json_option(command: argparse.ArgumentParser, text: str = "print one JSON document") -> None:
    """The option `--json`."""
    command.add_argument("--json", action="store_true", help=text)


def add_options(command: argparse.ArgumentParser, *options: tuple[str, str | None, str]) -> None:
    """Options as flag, what its value is called (None: it takes none), and help."""
    for flag, metavar, text in options:
        if metavar is None:
            command.add_argument(flag, action="store_true", help=text)
        else:
            command.add_argument(flag, metavar=metavar, help=text)
