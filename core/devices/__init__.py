"""What devices there are: each source has its module, `catalog` joins them by UUID. No Qt.

Named here is what `watch` needs too, whose start is quick: the profiles of virtual GPUs have their module.
"""

from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.catalog import Catalog, join, uuid_bytes
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.device_id import choose_device, parse_device, torch_module
from devexplorer.core.devices.drm import Drm, DrmCard
from devexplorer.core.devices.nvml_card import Card
