"""What a virtual GPU imitates, the datasheet figures of real cards, and how people name them; what can be planned for.
No torch, no thread.

The figures come from `resources/gpu_profiles.csv`; its head comment says what each column means. `Profile.unverified`
and `Profile.computed` keep which of them could not be checked against a source, or were derived from clocks and unit
counts.

`resources/apple_chips.csv` has the chips with their sources. Of their memory that part is usable which macOS recommends
the GPU to use; CPU and GPU share it, so what is copied between them is read and written in the same memory.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Literal

import msgspec

from devexplorer.core.base import BadInput, Findings
from devexplorer.core.records import Calibration, DeviceInfo

MAX_DEVICES = 64
"""Most virtual GPUs that one machine gets: more than any server holds, so a larger number is a slip of the pen."""

NAMED = 4
"""Profiles that are named where nothing is like what was asked for."""
_RATES = {
    "fp32": ("float32",),
    "tf32": ("tf32",),
    "fp16": ("float16",),
    "bf16": ("bfloat16",),
    "fp8": ("float8_e4m3fn", "float8_e5m2"),
    "int8": ("int8",),
}
"""CSV column -> dtypes that run at this rate, as torch writes them."""

DeviceKind = Literal["cuda", "mps"]
_APPLE = re.compile(r"\bapple\b|\bm[1-9] ?(pro|max|ultra)?\b")
_COUNT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*[x×]\s*(.*)", re.IGNORECASE | re.ASCII)
_VENDOR_WORDS = {"nvidia", "amd", "tesla", "geforce", "instinct"}
_ALSO = {"NVIDIA H100 80GB HBM3": "sxm sxm5", "NVIDIA H200": "sxm sxm5", "NVIDIA B200": "sxm sxm6"}
"""Words that people add to the name of a card and nvidia-smi does not."""
_LANES_64 = ("6.0", "7.0", "7.2", "7.5", "8.0")
"""Compute capabilities with 64 FP32 lanes on a multiprocessor, where others have 128: CUDA C++ Programming Guide,
"Arithmetic Instructions"."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One card: a row of the CSV in base units."""

    name: str
    """As nvidia-smi writes it."""
    memory_bytes: int
    """Total memory as nvidia-smi reports it."""
    usable_bytes: int
    """The total that programs are told, without what the driver reserves: `total_memory` in PyTorch."""
    compute_capability: str
    sm_count: int
    memory_gb_s: float
    """Decimal GB/s."""
    link: str
    """The fastest link to another card, in words."""
    link_gb_s: float
    """One direction of it, decimal GB/s."""
    host_gb_s: float
    """One direction of the link to the host, decimal GB/s."""
    tflops: Mapping[str, float]
    """Dense TFLOP/s per dtype as torch writes them, `tf32` as a key of its own; a dtype that the chip has no unit for
    is absent."""
    tdp_w: float | None
    unverified: frozenset[str]
    """CSV columns for which no source could be checked."""
    computed: frozenset[str]
    """CSV columns derived from clocks and unit counts."""
    calibration: Calibration | None = None
    """The card's own factors of the cost model; None: the model as it was fitted."""

    @property
    def boost_clock_mhz(self) -> float | None:
        """The SM clock at which the card would reach its datasheet's FP32 rate; None where that is not known."""
        rate = self.tflops.get("float32")
        lanes = 64 if self.compute_capability in _LANES_64 else 128
        return None if rate is None else rate * 1e12 / (self.sm_count * lanes * 2) / 1e6

    @property
    def model(self) -> str:
        """The card's name, also where a calibrated one has another."""
        return self.name if self.calibration is None else self.calibration.card

    @property
    def device(self) -> DeviceKind:
        """What PyTorch calls such a device."""
        return "mps" if self.compute_capability.startswith("apple") else "cuda"

    def simulated_card(self, device: str, uuid: str | None = None) -> DeviceInfo:
        """The record of a card like this one that is called `device`."""
        return DeviceInfo(
            id=device,
            kind="virtual",
            name=self.name,
            uuid=uuid,
            memory_total_bytes=self.memory_bytes,
            compute_capability=self.compute_capability,
            sm_count=self.sm_count,
            datasheet_tflops=dict(self.tflops),
            memory_gb_s=self.memory_gb_s,
            simulated=True,
        )


def load_profiles() -> dict[str, Profile]:
    """Read every profile, by name, in the file's order."""
    return {row["name"]: _profile(row) for row in resource_rows("gpu_profiles.csv")}


def resource_rows(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file of ours, without its comments."""
    text = (files("devexplorer.resources") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if line.strip() and not line.startswith("#")))


def _profile(row: dict[str, str]) -> Profile:
    """The columns as they are, converted to the types of the fields, and those that the fields have in another form."""
    other = {
        "memory_bytes": int(row["memory_mib"]) << 20,
        "usable_bytes": int(row["usable_mib"]) << 20,
        "tflops": {dtype: row[column] for column, dtypes in _RATES.items() if row[column] for dtype in dtypes},
        "tdp_w": row["tdp_w"] or None,
        "unverified": list(filter(None, row["unverified"].split(";"))),
        "computed": list(filter(None, row["computed"].split(";"))),
    }
    return msgspec.convert(row | other, Profile, strict=False)


def parse_virtual(spec: str) -> list[Profile]:
    """Return the profiles that `[Nx ]PROFILE[, ...]` means, one per device.

    Case does not matter, and a part of a name is enough when only one profile has it (`T4`, `V100 32GB`).
    Raises `BadInput` with everything that is wrong.

    >>> [profile.name for profile in parse_virtual("2x t4, nvidia a10")]
    ['Tesla T4', 'Tesla T4', 'NVIDIA A10']
    """
    return parse_profiles(spec, load_profiles())


def parse_profiles(spec: str, profiles: Mapping[str, Profile]) -> list[Profile]:
    """The same, of these profiles. Calibrated cards are found by the word `calibrated` (`T4 calibrated`)."""
    chosen: list[Profile] = []
    findings = Findings()
    for part in (piece.strip() for piece in spec.split(",")):
        same = findings.checked(partial(_devices, part, profiles), [])
        if len(chosen) + len(same) > MAX_DEVICES:
            findings.add(f"'{part}' makes more than {MAX_DEVICES} virtual GPUs; ask for {MAX_DEVICES} at most")
        else:
            chosen += same
    findings.demand_none()
    return chosen


def _devices(part: str, profiles: Mapping[str, Profile]) -> list[Profile]:
    """`2x Tesla T4`: the profile of each."""
    count, name = _split_count(part)
    profile = _find(name, profiles)
    return [profile] * min(count, MAX_DEVICES + 1)


def _split_count(part: str) -> tuple[int, str]:
    match = _COUNT.fullmatch(part)
    number, name = match.groups() if match else ("1", part)
    if not name.strip():
        raise BadInput('no virtual GPU is named; write it like "2x Tesla T4" or "Tesla T4, NVIDIA A10"')
    count = 0 if "." in number else int(number[:9])  # enough digits to be too many, and few enough for int()
    if count < 1:
        raise BadInput(f"'{number}' of '{name}' is no number of GPUs; write a whole number from 1 on, like 2x {name}")
    return count, name


def _find(name: str, profiles: Mapping[str, Profile]) -> Profile:
    wanted = " ".join(name.casefold().split())
    calibrated = [profile for profile in profiles.values() if profile.calibration is not None]
    plain = [profile for profile in profiles.values() if profile.calibration is None]
    for profile in profiles.values():
        if profile.name.casefold() == wanted:
            return profile
    words = name_words(wanted)
    if (
        not any(words and words <= name_words(p.name) for p in profiles.values())
        and _APPLE.search(wanted)
        and not any(p.device == "mps" for p in profiles.values())
    ):
        raise BadInput(
            f"'{name}' cannot be a virtual GPU, which behaves as CUDA does: PyTorch's device there is mps; plan for it"
            " with devexplorer fit --gpu"
        )
    matches: list[Profile] = []
    for known in (plain, calibrated):
        by_word = [p for p in known if words and words <= name_words(p.name) | _also(p)]
        exact = [p for p in by_word if words == name_words(p.name)]  # RTX 3070, of which there is a laptop's
        by_part = [p for p in known if _is_part(wanted, p.name)]
        matches = matches or exact or by_word or by_part
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise BadInput(f"'{name}' could be {_one_of(p.name for p in matches)}; write more of the name")
    raise BadInput(f"there is no profile '{name}'; {_hint(wanted, profiles)}")


def _also(profile: Profile) -> set[str]:
    """The form factor of a card whose name is without it, or with the number of its generation (`SXM4`)."""
    bare = {word.rstrip("0123456789") for word in name_words(profile.model) if word.startswith("sxm")}
    return bare | set(_ALSO.get(profile.model, "").split())


def _is_part(wanted: str, name: str) -> bool:
    """Whether a name has this part, with whole numbers: `L40` is no part of `L40S`, nor `70` of `RTX 3070`."""
    before = r"(?<![a-z0-9])" if wanted[:1].isdigit() else ""
    after = r"(?![a-z0-9])" if wanted[-1:].isdigit() else ""
    return re.search(before + re.escape(wanted) + after, name.casefold()) is not None


def name_words(name: str) -> frozenset[str]:
    """The words of a card's name, without the maker's: some drivers write those and some do not."""
    return frozenset(re.split(r"[\s-]+", name.casefold().strip())) - _VENDOR_WORDS


def _one_of(names: Iterable[str]) -> str:
    *most, last = [f"'{name}'" for name in names]
    return f"{', '.join(most)} or {last}" if most else last


def _hint(wanted: str, profiles: Mapping[str, Profile]) -> str:
    """The nearest names: of the whole name, or of its last word (people type `A1000` for `A100`)."""
    spelled = {p.name.casefold(): p.name for p in profiles.values()}
    close = [spelled[text] for text in difflib.get_close_matches(wanted, spelled, n=3, cutoff=0.5)]
    if not close:
        by_word = {word: p.name for p in profiles.values() for word in name_words(p.name)}
        close = [by_word[word] for word in difflib.get_close_matches(wanted.split()[-1], by_word, n=3, cutoff=0.6)]
    if close:
        return f"did you mean {_one_of(dict.fromkeys(close))}? {_all_of(profiles)}"
    first = list(profiles)[:NAMED]
    return f"there are {', '.join(first)} and {len(profiles) - len(first)} others; {_all_of(profiles)}"


def _all_of(profiles: Mapping[str, Profile]) -> str:
    """Where every name is written."""
    listed = sum(p.device == "cuda" and p.calibration is None for p in profiles.values())
    text = f"docs/virtual_gpus.md lists all {listed} of virtual GPUs"
    if any(p.device == "mps" for p in profiles.values()):
        text += ", resources/apple_chips.csv Apple's"
    if any(p.calibration is not None for p in profiles.values()):
        text += ", devexplorer calibrations yours"
    return text


GIB = 1 << 30
SMALL_GB = 32
"""Up to here macOS lets the GPU use two thirds of the memory, and three quarters beyond it."""


def planned_profiles(calibrations: Iterable[Calibration] = ()) -> dict[str, Profile]:
    """Every profile by name: calibrated cards, those of virtual GPUs, Apple's."""
    return calibrated_profiles(calibrations) | load_profiles() | apple_profiles()


def parse_planned(spec: str, calibrations: Iterable[Calibration] = ()) -> list[Profile]:
    """As `parse_virtual`, of everything that can be planned for."""
    return parse_profiles(spec, planned_profiles(calibrations))


def calibrated_profiles(calibrations: Iterable[Calibration]) -> dict[str, Profile]:
    """A profile for each calibration, by its name; of cards without a profile there is none."""
    profiles = load_profiles()
    return {
        each.name: replace(profiles[each.card], name=each.name, calibration=each)
        for each in calibrations
        if each.card in profiles
    }


def apple_profiles() -> dict[str, Profile]:
    """`Apple M4 Max 64GB`: each chip with each size of memory that it is sold with."""
    found = (
        _chip_profile(row, int(size))
        for row in resource_rows("apple_chips.csv")
        for size in row["memory_gb"].split(";")
    )
    return {profile.name: profile for profile in found}


def usable_bytes(gigabytes: int) -> int:
    """Metal's `recommendedMaxWorkingSetSize`, as Macs print it: 10,922.67 MiB of 16 GiB, 21,845.34 of 32, 73,728 of 96
    (logs of llama.cpp: llama-cpp-python issue 687, llama.cpp issues 2011 and 3213). Newer versions of macOS allow more
    of large memories, 107.5 of 128 GiB (antirez/ds4 issue 893), and `sysctl iogpu.wired_limit_mb` changes it."""
    whole = gigabytes * GIB
    return whole * 2 // 3 if gigabytes <= SMALL_GB else whole * 3 // 4


def _chip_profile(row: dict[str, str], gigabytes: int) -> Profile:
    family, bandwidth, rate = row["gpu_family"], float(row["memory_gb_s"]), float(row["fp32"])
    dtypes = ("float32", "float16") if family == "apple7" else ("float32", "float16", "bfloat16")
    return Profile(
        name=f"Apple {row['chip']} {gigabytes}GB",
        memory_bytes=gigabytes * GIB,
        usable_bytes=usable_bytes(gigabytes),
        compute_capability=family,
        sm_count=int(row["gpu_cores"]),
        memory_gb_s=bandwidth,
        link="none",
        link_gb_s=bandwidth / 2,
        host_gb_s=bandwidth / 2,
        tflops=dict.fromkeys(dtypes, rate),
        tdp_w=None,
        unverified=frozenset({"usable_mib", "host_gb_s"}),
        computed=frozenset({"fp32", "fp16", "bf16"}),
    )
