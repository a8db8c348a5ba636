"""Whether a build of torch has code for a card, and a driver is new enough for a build. No torch, no thread."""

from __future__ import annotations

import re
from collections.abc import Sequence


def arch_reason(capability: str, arch_list: Sequence[str]) -> str | None:
    """Why a build with these architectures (`torch.cuda.get_arch_list`) has no code for a card; None when it has.

    Machine code (`sm_86`) runs on the same major and the same or a newer minor capability; with `a` only on exactly
    that one, with `f` within the family. PTX (`compute_86`) is compiled on the spot for any newer one.
    """
    major, minor = (int(part) for part in capability.split("."))
    for arch in arch_list:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch)
        if match is None:
            continue
        form, suffix = match.group(1), match.group(4)
        built = (int(match.group(2)), int(match.group(3)))
        if suffix == "a":
            fits = built == (major, minor)
        elif form == "sm" or suffix == "f":
            fits = built[0] == major and built[1] <= minor
        else:
            fits = built <= (major, minor)
        if fits:
            return None
    return f"needs sm_{major}{minor}, this build of torch has {', '.join(arch_list) or 'none'}"


def older(version: str, than: str | None) -> bool:
    """Whether a driver's CUDA has an older major version than torch's (minor versions are compatible)."""
    return than is not None and int(version.split(".")[0]) < int(than.split(".")[0])
