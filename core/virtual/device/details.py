"""`DeviceDetails` of a virtual GPU: the few that the profile knows. No torch, any thread."""

from __future__ import annotations

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.records.devices import DeviceDetails


def details(device: str, profile: Profile, time_unix_s: float) -> DeviceDetails:
    """The profile's multiprocessors and power limit; the rest is not modelled."""
    return DeviceDetails(
        device=device,
        time_unix_s=time_unix_s,
        sm_count=profile.sm_count,
        power_limit_default_w=profile.tdp_w,
        simulated=True,
    )
