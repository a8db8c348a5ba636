// Puts the CPU in the place of torch's CUDA kernels, when this library is loaded. The CPU has none for some; those are written here.
#include "on_cpu.h"

#include <ATen/native/Copy.h>
#include <ATen/ops/copy_native.h>
#include <torch/library.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

/// Those that only make, look at or rearrange tensors, and those that are copies: torch's own do it with calls of the runtime.
const std::set<std::string> TORCHS_OWN = {
    "aten::empty", "aten::empty_strided", "aten::as_strided", "aten::_reshape_alias", "aten::view", "aten::set_", "aten::resize_",
    "aten::unfold", "aten::record_stream", "aten::is_pinned", "aten::_pin_memory", "aten::is_set_to", "aten::alias",
    "aten::_resize_output_", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::_efficientzerotensor", "aten::view_as_real",
    "aten::view_as_complex", "aten::set_data", "aten::_local_scalar_dense"};

/// Written below.
const std::set<std::string> OWN = {"aten::copy_", "aten::_fused_sdp_choice", "aten::_thnn_fused_lstm_cell",
                                   "aten::_thnn_fused_lstm_cell_backward_impl", "aten::_thnn_fused_gru_cell",
                                   "aten::_thnn_fused_gru_cell_backward"};

/// Within a card a kernel copies what is not contiguous or changes its type; all else is one call of the runtime.
Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  const bool both = self.is_cuda() && source.is_cuda();
  const bool plain = self.dtype() == source.dtype() && self.sizes() == source.sizes() && self.is_contiguous() && source.is_contiguous() &&
                     self.is_conj() == source.is_conj() && self.is_neg() == source.is_neg();
  if (!both || plain) return at::native::copy_(self, source, non_blocking);
  standin::launch(self.device());
  Tensor to = standin::on_cpu(self);
  at::AutoDispatchBelowADInplaceOrView below;
  at::native::copy_(to, standin::on_cpu(source), false);
  return self;
}

Tensor plus(const Tensor& gates, const Optional& bias) { return bias && bias->defined() ? gates + *bias : gates; }

/// Gates in PyTorch's order: input, forget, cell, output. The workspace holds them after their activation.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& of_input, const Tensor& of_hidden, const Tensor& cx, const Optional& input_bias,
                                             const Optional& hidden_bias) {
  const auto gates = (plus(of_input, input_bias) + plus(of_hidden, hidden_bias)).chunk(4, 1);
  const Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  const Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Optional& of_hy, const Optional& of_cy, const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  const auto gates = workspace.chunk(4, 1);
  const Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const Tensor squashed = cy.tanh();
  const Tensor dh = of_hy && of_hy->defined() ? *of_hy : at::zeros_like(cy);
  Tensor dc = of_cy && of_cy->defined() ? *of_cy : at::zeros_like(cy);
  dc = dc + dh * o * (1 - squashed * squashed);
  const Tensor of_gates =
      at::cat({dc * g * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - g * g), dh * squashed * o * (1 - o)}, 1);
  return {of_gates, dc * f, has_bias ? of_gates.sum(0, false) : Tensor()};
}

/// Gates in PyTorch's order: reset, update, new. The workspace holds them, the state before, and what the reset gate scales.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& of_input, const Tensor& of_hidden, const Tensor& hx, const Optional& input_bias,
                                    const Optional& hidden_bias) {
  const auto in = plus(of_input, input_bias).chunk(3, 1), hidden = plus(of_hidden, hidden_bias).chunk(3, 1);
  const Tensor r = (in[0] + hidden[0]).sigmoid(), z = (in[1] + hidden[1]).sigmoid(), n = (in[2] + r * hidden[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& of_hy, const Tensor& workspace, bool has_bias) {
  const auto kept = workspace.chunk(5, 1);
  const Tensor &r = kept[0], &z = kept[1], &n = kept[2], &hx = kept[3], &scaled = kept[4];
  const Tensor dz = of_hy * (hx - n) * z * (1 - z), dn = of_hy * (1 - z) * (1 - n * n), dr = dn * scaled * r * (1 - r);
  const Tensor of_input = at::cat({dr, dz, dn}, 1), of_hidden = at::cat({dr, dz, dn * r}, 1);
  return {of_input, of_hidden, of_hy * z, has_bias ? of_input.sum(0, false) : Tensor(), has_bias ? of_hidden.sum(0, false) : Tensor()};
}

/// Attention by plain operators: the fused kernels are CUDA's own.
int64_t attention_by_operators(const Tensor&, const Tensor&, const Tensor&, const Optional&, double, bool, std::optional<double>, bool) {
  return 0;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  return false;
}

bool cpu_computes(const c10::OperatorHandle& op) {
  for (auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::CompositeImplicitAutograd,
                   c10::DispatchKey::CompositeExplicitAutogradNonFunctional})
    if (op.hasKernelForDispatchKey(key)) return true;
  return false;
}

struct Quiet : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

std::vector<std::unique_ptr<torch::Library>> libraries;  // what they registered is gone when they are

torch::Library& library_for_cuda() {
  libraries.push_back(
      std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__));
  return *libraries.back();
}

int install() {
  Quiet quiet;  // torch warns of each kernel that is replaced
  c10::WarningUtils::WarningHandlerGuard handled(&quiet);
  auto& dispatcher = c10::Dispatcher::singleton();
  auto names = dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CUDA);
  names.push_back({"aten::convolution", ""});  // they choose a library of NVIDIA's for CUDA tensors
  names.push_back({"aten::convolution_backward", ""});
  std::set<std::string> done;
  torch::Library& library = library_for_cuda();
  for (const c10::OperatorName& name : names) {
    if (name.name.rfind("aten::", 0) != 0 || TORCHS_OWN.count(name.name) || OWN.count(name.name)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || returns_view(op->schema()) || !done.insert(c10::toString(name)).second) continue;
    if (!cpu_computes(*op)) {
      if (getenv("FAKE_CUDA_LIST")) fprintf(stderr, "no CPU kernel: %s\n", c10::toString(name).c_str());
      continue;
    }
    library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&standin::run_on_cpu>());
  }
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_fused_sdp_choice", TORCH_FN(attention_by_operators));
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
  auto& context = at::globalContext();
  context.setUserEnabledCuDNN(false);
  context.setSDPUseFlash(false);
  context.setSDPUseMemEfficient(false);
  context.setSDPUseCuDNN(false);
  if (getenv("FAKE_CUDA_LIST")) fprintf(stderr, "%zu operators computed by the CPU\n", done.size());
  return 0;
}

const int installed = install();

}  // namespace
