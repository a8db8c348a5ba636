"""Virtual GPUs: a torch device `vgpu:N` whose values and semantics are real, whose memory is counted and whose time is
modelled.

- `profiles` what real cards are like, `memory` their allocator's rules, `cost` how long things take, `machine` the
  devices: no torch here
- `books`    which device a storage counts on, `tensor` the tensor and how operations run, `operations` what is known of
  each, `copies`   between devices, `loading` of files, `backward` and what Python raises in it, `lazy` parameters
  without a shape yet, `autocast`, `module` (`torch.vgpu`)
- `current` device and streams of a thread, `streams`, `generator`, `accelerator` (what `torch.accelerator` asks),
  `names` (the types in `torch` that choose ours), `parallel` and `collectives` (several devices, several processes),
  `tracing` (compile and export)
- `backend`  puts all of it into torch; the one to import from elsewhere
"""
