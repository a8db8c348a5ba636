"""What cuBLAS and cuDNN take beside the tensors. Plain numbers with their sources; no torch; any thread.

All of it comes from PyTorch's allocator, so `max_memory_allocated` has it too.

cuBLAS: PyTorch gives it a workspace per handle and stream, and keeps it. A thread has a handle of its own
(`getCurrentCUDABlasHandle`), and autograd runs backward on a thread of its own for each device (`Engine::thread_init`
in torch/csrc/autograd/engine.cpp): training has two. The size goes by architecture (`parseChosenWorkspaceSize` in
aten/src/ATen/cuda/CublasHandlePool.cpp): `:4096:2:16:8`, which is 2 · 4096 KiB + 8 · 16 KiB = 8,519,680 B, and 32 MiB
from Hopper on (compute capability 9, 10, 12; until PyTorch 2.7 on 9.0 only); under ROCm 32 MiB, on gfx94x and gfx95x
128 MiB. CUBLAS_WORKSPACE_CONFIG changes it. cuBLASLt shares it (`TORCH_CUBLASLT_UNIFIED_WORKSPACE`, on by default);
hipBLASLt has 76 MiB of its own there.

cuDNN: an algorithm asks for what it needs, for as long as a convolution runs (here: one does at the peak), and PyTorch
sets no limit (https://github.com/pytorch/pytorch/issues/49207), so it is unknown without the card. 64 MiB is an
assumption: the limit that Caffe2, in PyTorch's own repository, gave cuDNN (`kCONV_CUDNN_WORKSPACE_LIMIT_BYTES`,
caffe2/operators/conv_op_cudnn.cc). Issue 49207 shows 36 GiB where cuDNN chose an FFT.
"""

from __future__ import annotations

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES

MIB = 1 << 20
THREADS_OF_TRAINING = 2
"""That run products: the caller's and autograd's."""
CUBLAS_BYTES = 2 * (4096 << 10) + 8 * (16 << 10)
CUBLAS_LARGE_BYTES = 32 * MIB
"""Hopper, Blackwell, and ROCm."""
LARGE_SINCE = 9
"""Major compute capability."""
HIPBLAS_BYTES = 128 * MIB
"""gfx94x and gfx95x."""
HIPBLASLT_BYTES = 76 * MIB
CUDNN_BYTES = 64 * MIB


def library_bytes(compute_capability: str, *, products: bool, convolutions: bool, train: bool) -> int:
    """Bytes that the libraries hold on a chip of this architecture (`7.5`, `gfx942`) for what a model runs."""
    cudnn = convolutions and not compute_capability.startswith("apple")
    return (CUDNN_BYTES if cudnn else 0) + cublas_bytes(compute_capability, products=products, train=train)


def cublas_bytes(compute_capability: str, *, products: bool, train: bool) -> int:
    """What stays once a product ran: also at rest. None under MPS, which has no cuBLAS."""
    if compute_capability.startswith("apple"):
        return 0
    threads = THREADS_OF_TRAINING if train else 1
    return threads * _workspace(compute_capability) if products else 0


def _workspace(compute_capability: str) -> int:
    """Of one thread."""
    if compute_capability.startswith("gfx"):
        large = compute_capability.startswith(("gfx94", "gfx95"))
        return (HIPBLAS_BYTES if large else CUBLAS_LARGE_BYTES) + HIPBLASLT_BYTES
    major = int(compute_capability.partition(".")[0])
    return CUBLAS_LARGE_BYTES if major >= LARGE_SINCE else CUBLAS_BYTES


def context_bytes(profile: Profile) -> int:
    """Of the CUDA context; what Metal takes for itself is not known."""
    return CONTEXT_BYTES if profile.device == "cuda" else 0
