"""The window: panels and plots over `core.state`. No torch, no NVML, no threads."""
