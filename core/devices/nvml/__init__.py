"""NVML, accessed only through `library`: cards, readings, details, links, processes. Sampler threads; no torch, no
Qt."""
