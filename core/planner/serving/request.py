"""What a request for generated text has to be like. Pure; no torch; any thread."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import groupby

from devexplorer.core.base import Findings
from devexplorer.core.devices.profiles import MAX_DEVICES, Profile, calibrated_profiles, load_profiles, parse_planned
from devexplorer.core.planner.records import LARGEST_BATCH, LONGEST_CONTEXT, ONE_GPU, FitSpec, ServingSpec
from devexplorer.core.records import Calibration

KV_DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8")
"""What keys and values can be kept in."""


def checked(spec: FitSpec) -> list[Profile]:
    """The cards of each fit. Raises `BadInput` with everything that is wrong."""
    findings = Findings()
    serving = spec.serving
    assert serving is not None
    found = [findings.checked(partial(one_card, text, serving, spec.calibrations)) for text in spec.gpus]
    cards = [card for card in found if card is not None]
    if not 1 <= spec.batch <= LARGEST_BATCH:
        findings.add(f"a batch of {spec.batch} cannot be planned for; it is from 1 to {LARGEST_BATCH}")
    counts = (
        ("tokens to generate", serving.generate, LONGEST_CONTEXT),
        ("tokens of a prompt", serving.prompt, LONGEST_CONTEXT),
        ("tokens of a block", serving.kv_block, LONGEST_CONTEXT),
        ("tokens of a piece of the prompt", serving.prefill_chunk, LONGEST_CONTEXT),
        ("cards for tensor parallelism", serving.tensor_parallel, MAX_DEVICES),
    )
    for what, number, limit in counts:
        if number is not None and not 1 <= number <= limit:
            findings.add(f"{number} {what} cannot be planned for; it is from 1 to {limit:,}")
    if serving.kv_dtype is not None and serving.kv_dtype not in KV_DTYPES:
        findings.add(f"keys and values are not kept in {serving.kv_dtype}; there are {', '.join(KV_DTYPES)}")
    for given, what in (
        (spec.train, "training"),
        (spec.checkpointing, "checkpointing"),
        (spec.autocast is not None, "autocast"),
        (bool(spec.inputs.strip()), "shapes of inputs"),
    ):
        if given:
            findings.add(f"{what} means nothing where text is generated")
    for card in cards:
        if (lacking := lacks(card, serving)) is not None:
            findings.add(lacking)
    findings.demand_none()
    return cards or list((calibrated_profiles(spec.calibrations) | load_profiles()).values())


def one_card(text: str, serving: ServingSpec, calibrations: Iterable[Calibration] = ()) -> Profile:
    """The card that is meant. Raises `BadInput` for several that are not as many as work together."""
    profiles = parse_planned(text, calibrations)
    findings = Findings()
    names = [name for name, _ in groupby(profile.name for profile in profiles)]
    if len(names) > 1 or len(profiles) not in (1, serving.tensor_parallel):
        findings.add(
            f"'{text}' is several cards, and text is generated on one, or on equal ones with every layer split over"
            f" them; name the card once and give --tensor-parallel {len(profiles)}"
            if len(set(names)) == 1
            else f"'{text}' is different cards; tensor parallelism takes equal ones"
        )
    if profiles[0].device == "mps" and serving.tensor_parallel > 1:
        findings.add(ONE_GPU.format(profiles[0].name))
    findings.demand_none()
    return profiles[0]


def lacks(profile: Profile, serving: ServingSpec) -> str | None:
    """Why keys and values cannot be of that dtype on a card; None: they can."""
    dtype = serving.kv_dtype
    if dtype is None or dtype in profile.tflops:
        return None
    has = [name for name in KV_DTYPES if name in profile.tflops]
    return f"{profile.name} has no {dtype} for keys and values; it has {', '.join(has)}"
