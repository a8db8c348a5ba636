"""The frozen records that cross threads and processes, and nothing else. No thread, no torch, no Qt.

Units are in the field names; `None` means "not available", never 0. The home of each family:

- `devices`:   what a device is (`DeviceInfo`) and one reading of it (`DeviceSample`, `AllocatorSample`)
- `objects`:   what is where (`ObjectSnapshot`, `Row`), what a move did (`MoveReport`)
- `benchmark`: what to measure (`BenchSpec`) and what was measured (`BenchPoint`, `BenchResult`)
- `messages`:  what goes over the link: `Command` in, `Event` out

They are msgspec structs rather than dataclasses: just as frozen and slotted, and they carry the tag that a union needs
on the link.
"""
