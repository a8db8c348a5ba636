"""What torch asks of an accelerator beyond operators: `torch.vgpu`, generators, loading, tracing, several devices. Any
thread."""
