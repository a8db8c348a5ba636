"""What cuBLAS and cuDNN take beside the tensors. Plain numbers with their sources; no torch; any thread.

cuBLAS: PyTorch gives it a workspace per handle and stream out of its own allocator, of a size by architecture
(`parseChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp): `:4096:2:16:8`, which is 2 · 4096 KiB + 8 · 16
KiB = 8,519,680 B, and 32 MiB from Hopper on (compute capability 9, 10, 12; until PyTorch 2.7 on 9.0 only); under ROCm
32 MiB, on gfx94x and gfx95x 128 MiB. CUBLAS_WORKSPACE_CONFIG changes it. cuBLASLt shares it
(`TORCH_CUBLASLT_UNIFIED_WORKSPACE`, on by default); hipBLASLt has 76 MiB of its own there.

cuDNN: an algorithm asks for what it needs, for as long as a convolution runs, and PyTorch sets no limit
(https://github.com/pytorch/pytorch/issues/49207), so it is unknown without the card. 64 MiB is an assumption:
the limit that Caffe2, in PyTorch's own repository, gave cuDNN (`kCONV_CUDNN_WORKSPACE_LIMIT_BYTES`,
caffe2/operators/conv_op_cudnn.cc). Issue 49207 shows 36 GiB where cuDNN chose an FFT.
"""

from __future__ import annotations

MIB = 1 << 20
CUBLAS_BYTES = 2 * (4096 << 10) + 8 * (16 << 10)
CUBLAS_LARGE_BYTES = 32 * MIB
"""Hopper, Blackwell, and ROCm."""
LARGE_SINCE = 9
"""Major compute capability."""
HIPBLAS_BYTES = 128 * MIB
"""gfx94x and gfx95x."""
HIPBLASLT_BYTES = 76 * MIB
CUDNN_BYTES = 64 * MIB


def library_bytes(compute_capability: str, *, products: bool, convolutions: bool) -> int:
    """Bytes that the libraries hold on a chip of this architecture (`7.5`, `gfx942`) for what a model runs."""
    cudnn = CUDNN_BYTES if convolutions else 0
    if not products:
        return cudnn
    if compute_capability.startswith("gfx"):
        cublas = HIPBLAS_BYTES if compute_capability.startswith(("gfx94", "gfx95")) else CUBLAS_LARGE_BYTES
        return cudnn + cublas + HIPBLASLT_BYTES
    major = int(compute_capability.partition(".")[0])
    return cudnn + (CUBLAS_LARGE_BYTES if major >= LARGE_SINCE else CUBLAS_BYTES)
