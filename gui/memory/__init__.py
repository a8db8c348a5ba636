"""Where a device's memory went, and allocator snapshots. Main thread only."""
