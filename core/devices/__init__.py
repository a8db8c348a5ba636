"""What devices there are: each source has its module, `catalog` joins them by UUID. No Qt."""

from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.catalog import Catalog, join, uuid_bytes
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.device_id import choose_device, parse_device, torch_module
from devexplorer.core.devices.drm import Drm, DrmCard
from devexplorer.core.devices.nvml_card import Card
from devexplorer.core.devices.profiles import (
    MAX_DEVICES,
    Profile,
    load_profiles,
    name_words,
    parse_virtual,
    resource_rows,
)
