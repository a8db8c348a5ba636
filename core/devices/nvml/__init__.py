"""NVML, read through one door (`library`): cards, readings, details, links, processes. Sampler threads; no torch, no
Qt."""
