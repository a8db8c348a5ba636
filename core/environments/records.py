"""A Python environment of a machine: what its files say, what it says itself. Plain frozen records."""

from __future__ import annotations

import msgspec


class Environment(msgspec.Struct, frozen=True):
    """One that was found, by its files."""

    python: str
    """The interpreter as one would type it; that of a virtual environment is a link and stays one."""
    prefix: str = ""
    """The folder of the environment."""
    kind: str = ""
    """`own`, `active`, `project`, `module`, `conda`, `venv`, `uv`, `pyenv`, `path`; `given`: named by the user."""
    label: str = ""
    """What people call it."""
    version: str = ""
    """Of Python, as far as its files tell it."""
    torch: str = ""
    """Its version; empty: none is seen without starting Python."""


class ProbedDevice(msgspec.Struct, frozen=True):
    """An accelerator that torch lists there."""

    id: str
    name: str = ""
    memory_bytes: int = 0
    problem: str = ""


class Probe(msgspec.Struct, frozen=True):
    """What an interpreter said of itself."""

    version: str = ""
    implementation: str = ""
    executable: str = ""
    prefix: str = ""
    platform: str = ""
    """As `sysconfig.get_platform`: `linux-x86_64`."""
    libc: str = ""
    """`glibc 2.36`; empty: another one."""
    free_threaded: bool = False
    pip: bool = False
    packages: dict[str, str] = {}
    """The versions of those that we need, of those that are there."""
    torch: str = ""
    """Its version; `?`: it is there and has none that is known before it is imported."""
    torch_problem: str = ""
    """Why it cannot be imported."""
    cuda: str = ""
    """The version that torch was built for; empty: none."""
    rocm: str = ""
    devices: tuple[ProbedDevice, ...] = ()
    problem: str = ""
    """Why nothing, or not everything, is known."""
