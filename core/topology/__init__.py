"""Topology: how devices are joined, as a picture; its page is in `gui/topology`."""
