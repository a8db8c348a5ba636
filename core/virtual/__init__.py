"""Virtual GPUs: a torch device `vgpu:N` whose values and semantics are real, whose memory is counted and whose time is
modelled.

- `device`: one simulated card. `memory` (the allocator's rules), `cost` (the time model), `machine` (all cards),
  `accounting` (the current device; which card a storage is charged to), `streams`, `snapshot`
- `operators`: `tensor` (`VirtualTensor` and how an operation runs), `operations` (what is known about each operator),
  `copies` between devices, and operators that need special treatment
- `torch_api`: what torch expects of an accelerator: `module` (`torch.vgpu`, `torch.accelerator`), `names`, `loading`,
  `lazy` parameters, `parallel`, `collectives`, `tracing` (compile and export)
- `tensor_swap`: moves that keep the tensor object
- `cuda`: lets code that asks for CUDA run on virtual GPUs
- `backend`: registers all of it with torch; the module to import from elsewhere
"""
