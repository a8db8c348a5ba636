"""The window: panels and plots over `core.session.state`. No torch, no NVML, no threads."""
