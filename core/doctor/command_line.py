"""What `devexplorer doctor` takes. Data; main thread, no torch."""

from __future__ import annotations

import argparse

from devexplorer.core.cli.arguments import SHAPES, TARGET, TIMEOUT, CliCommand, add_options, json_option


def _doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("target", metavar="TARGET", help=TARGET)
    add_options(
        doctor,
        ("--device", "D", "where the model is moved and runs (default: the first GPU, or else vgpu:0)"),
        ("--input", "SHAPES", SHAPES),
        ("--train", None, "backward and a step of an optimizer, too"),
        ("--dtype", "T", "move the model to this dtype, too"),
        ("--timeout", "S", TIMEOUT),
        ("--allow-unchecked", None, "exit code 0 also when something could not be checked"),
    )
    json_option(doctor)
    add_options(doctor, ("--github", None, "print annotations for GitHub Actions"))


COMMANDS = (
    CliCommand(
        "doctor",
        "find the line that puts a tensor on the wrong device",
        _doctor,
        "doctor.cli:doctor",
        elsewhere=True,
        one_kind=True,
    ),
)
