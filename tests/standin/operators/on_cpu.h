// Operators of torch's CUDA backend, computed by the CPU on the same bytes: the memory of the stand-in's cards is host memory.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace standin {

/// A CPU tensor on the bytes of a CUDA tensor, with its sizes, strides, and conjugate and negative bits.
at::Tensor on_cpu(const at::Tensor& tensor);

/// Any operator that has a CPU kernel: arguments to the CPU, that kernel, results back to the device.
void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// An operator begins on a device: raises what the runtime says, a fault on demand or an earlier sticky error.
void launch(at::Device device);

}  // namespace standin
