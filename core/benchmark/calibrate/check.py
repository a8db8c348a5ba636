"""What keeps a device from being calibrated, and the profile that its factors are relative to. No torch; any thread."""

from __future__ import annotations

from msgspec.structs import replace

from devexplorer.core.base import BadInput, parse_seconds
from devexplorer.core.benchmark.checking import Checks
from devexplorer.core.benchmark.spec import FLUSH_BYTES
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.catalog import sheet_of
from devexplorer.core.devices.profiles import Profile, load_profiles
from devexplorer.core.records import CalibrateSpec, DeviceInfo

CALIBRATED_KINDS = ("cuda", "virtual")
NEEDED_BYTES = (768 << 20) + FLUSH_BYTES
"""The largest measurement and what empties the cache (`probes.Sizes`)."""
LONGEST_SECONDS = 600.0


def check_calibrate(spec: CalibrateSpec, registry: DeviceRegistry) -> CalibrateSpec:
    """The specification with its device's canonical name. Raises `BadInput` with everything that is wrong; allocates
    nothing."""
    checks = Checks(registry)
    device = next(iter(checks.devices((spec.device,))), None)
    seconds = checks.checked(lambda: parse_seconds(spec.seconds))
    if seconds is not None and seconds > LONGEST_SECONDS:
        checks.add(f"a calibration lasts {LONGEST_SECONDS:.0f} s at most, not {spec.seconds:g}")
    if device is not None:
        info = registry.info(device)
        if checks.checked(lambda: card_of(info)) is not None:
            checks.fits(device, NEEDED_BYTES, "a calibration needs")
    checks.demand_none()
    return replace(spec, device=device or spec.device)


def card_of(info: DeviceInfo) -> Profile:
    """The profile of a device. Raises `BadInput` where there is none: the cost model starts from a datasheet."""
    if info.kind not in CALIBRATED_KINDS:
        raise BadInput(
            f"{info.id} cannot be calibrated: the cost model is one of GPUs; choose a CUDA device or a virtual GPU"
        )
    if (info.uuid or "").upper().startswith("MIG-"):
        raise BadInput(f"{info.id} is a MIG instance, and the cost model is one of whole cards; choose a whole card")
    card = sheet_of(info.name, load_profiles())
    if card is None:
        raise BadInput(
            f"there is no profile of {info.name}, which a calibration is relative to; docs/virtual_gpus.md lists the"
            " cards that have one"
        )
    return card
