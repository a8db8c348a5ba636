"""Allocators: releasing caches, recording, and allocator snapshots in PyTorch's own format. Jobs thread of the
engine."""
