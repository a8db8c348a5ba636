"""Fakes of what a machine without a GPU lacks: NVML, the CUDA driver, a CUDA build of torch."""
