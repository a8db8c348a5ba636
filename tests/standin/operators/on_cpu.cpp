#include "on_cpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <mutex>
#include <set>
#include <string>
#include <vector>

extern "C" int fake_cuda_launch(int device);
extern "C" int fake_cuda_break(int device, int code);

namespace standin {

using at::Tensor;
using c10::IValue;

namespace {

const std::set<std::string> NO_CHECK = {
#include "no_check.inc"
};

/// Operators that take tensors of the CPU beside those of the card.
const std::set<std::string> TAKES_BOTH = {
    "aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index_put"};

/// Operators whose CUDA kernels assert that an index is in range; the CPU's raise IndexError.
const std::set<std::string> ASSERTS = {
    "aten::embedding", "aten::embedding_dense_backward", "aten::_embedding_bag", "aten::index", "aten::_unsafe_index", "aten::index_put_",
    "aten::_index_put_impl_", "aten::index_select", "aten::index_add", "aten::index_copy", "aten::gather", "aten::scatter", "aten::scatter_add",
    "aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::take", "aten::put_"};

/// Operators without a generator among their arguments that draw random numbers.
const std::set<std::string> RANDOM_WITHOUT_GENERATOR = {"aten::native_dropout", "aten::_fused_dropout"};

/// A tensor of the card and the one that stands for it during a call.
struct Stand {
  Tensor original, alias;
  const void* bytes;
};

/// One call of an operator.
struct Call {
  std::string name;
  bool takes_both, checks;
  std::vector<Stand> stands;
  std::optional<at::Device> device;
  bool cpu_seen = false;
};

std::string text_of(at::Device device) { return device.is_cpu() ? "cpu" : device.str(); }

/// PyTorch's own words: those of TensorIterator, or those of the check that is generated for all other operators.
[[noreturn]] void refuse(const Call& call, at::Device first, at::Device second, const std::string& argument) {
  constexpr auto BEGIN = "Expected all tensors to be on the same device, but ";
  if (!call.checks)
    TORCH_CHECK(false, BEGIN, "found at least two devices, ", text_of(first), " and ", text_of(second), "!");
  TORCH_CHECK(false, BEGIN, "got ", argument, " is on ", text_of(second), ", different from other tensors on ", text_of(first),
              " (when checking argument in method wrapper_CUDA_", call.name.substr(6), ")");
}

/// A CPU tensor without dimensions may join an operator that does not check devices: it is a number.
void see_cpu(Call& call, const Tensor& tensor, const std::string& argument) {
  if (call.takes_both || (tensor.dim() == 0 && !call.checks)) return;
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
  if (call.device) refuse(call, *call.device, tensor.device(), argument);
  call.cpu_seen = true;
}

Tensor converted(Call& call, const Tensor& tensor, const std::string& argument) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_cuda()) {
    if (tensor.is_cpu()) see_cpu(call, tensor, argument);
    return tensor;
  }
  const at::Device device = tensor.device();
  if (!call.takes_both) {
    if (call.device && *call.device != device) refuse(call, *call.device, device, argument);
    if (call.cpu_seen) refuse(call, device, at::kCPU, argument);
  }
  if (!call.device) call.device = device;
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && tensor.has_storage(), "the stand-in for CUDA computes no ",
                              tensor.layout(), " tensors (", call.name, ")");
  for (const Stand& stand : call.stands)
    if (stand.original.is_same(tensor)) return stand.alias;
  Tensor alias = on_cpu(tensor);
  call.stands.push_back({tensor, alias, alias.storage().data()});
  return alias;
}

IValue converted(Call& call, const IValue& value, const std::string& argument) {
  if (value.isTensor()) return converted(call, value.toTensor(), argument);
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(converted(call, tensor, argument));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor && tensor->defined()) list.push_back(converted(call, *tensor, argument));
      else list.push_back(std::nullopt);
    }
    return list;
  }
  if (value.isDevice() && value.toDevice().is_cuda()) {
    if (!call.device) call.device = value.toDevice();
    return at::Device(at::kCPU);
  }
  if (argument == "pin_memory" && value.isBool()) return false;
  return value;
}

/// A CPU generator with a seed from the card's generator, which goes on as if it had been used.
at::Generator generator_for(at::Device device, const std::optional<at::Generator>& given) {
  at::Generator generator = given ? *given : at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> held(generator.mutex());
  const uint64_t seed = generator.current_seed(), offset = generator.get_offset();
  generator.set_offset(offset + 4);
  // Two odd constants (the golden ratio, and one of splitmix64) keep seeds and offsets that follow each other apart.
  return at::make_generator<at::CPUGeneratorImpl>(seed * 0x9E3779B97F4A7C15ull + offset * 0xBF58476D1CE4E5B9ull + 1);
}

void choose_generator(const Call& call, IValue& value) {
  std::optional<at::Generator> given;
  if (value.isGenerator()) given = value.toGenerator();
  if (given && given->device().is_cpu())
    TORCH_CHECK(false, "Expected a 'cuda' device type for generator but found 'cpu'");
  value = generator_for(*call.device, given);
}

/// The CPU kernel. An index out of range breaks the card's context, as an assertion in a kernel does.
void compute(const Call& call, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below;
  try {
    op.callBoxed(stack);
  } catch (const c10::IndexError& error) {
    if (!ASSERTS.count(call.name)) throw;
    fprintf(stderr, "%s on %s: assertion failed in a kernel: %s\n", call.name.c_str(), call.device->str().c_str(),
            error.what_without_backtrace());
    C10_CUDA_CHECK(static_cast<cudaError_t>(fake_cuda_break(call.device->index(), cudaErrorAssert)));
  }
}

/// What the kernel has resized, restrided or put elsewhere is brought back into the tensors of the card.
void write_back(const Call& call) {
  for (const Stand& stand : call.stands) {
    const Tensor &original = stand.original, &alias = stand.alias;
    const bool same_bytes = alias.storage().data() == stand.bytes;
    if (same_bytes && alias.sizes() == original.sizes() && alias.strides() == original.strides()) continue;
    if (same_bytes && original.numel() == alias.numel()) {
      original.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
      continue;
    }
    original.resize_(alias.sizes());
    on_cpu(original).copy_(alias);
  }
}

/// A result: the argument itself, a view of it, or a new tensor of the card.
Tensor returned(const Call& call, const Tensor& result) {
  if (!result.defined() || !result.is_cpu()) return result;
  for (const Stand& stand : call.stands)
    if (stand.alias.is_same(result)) return stand.original;
  for (const Stand& stand : call.stands)
    if (stand.bytes && result.numel() && result.storage().data() == stand.bytes && result.dtype() == stand.original.dtype())
      return stand.original.as_strided(result.sizes(), result.strides(), result.storage_offset());
  Tensor made = at::empty_strided(result.sizes(), result.strides(), result.options().device(*call.device));
  if (result.numel()) on_cpu(made).copy_(result);
  return made;
}

IValue returned(const Call& call, const IValue& value) {
  if (value.isTensor()) return returned(call, value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<Tensor> list;
  for (const Tensor& tensor : value.toTensorVector()) list.push_back(returned(call, tensor));
  return list;
}

/// Several tensors at once: torch itself takes them apart where their devices differ.
bool is_list_operator(const std::string& name) {
  for (const char* part : {"_foreach", "_fused_", "_amp_"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

/// `cpu_tensor[cuda_index]`: the only mix that indexing refuses.
void check_indices(const torch::jit::Stack& stack, size_t begin) {
  const IValue &self = stack[begin], &indices = stack[begin + 1];
  if (!self.isTensor() || !self.toTensor().is_cpu() || !indices.isOptionalTensorList()) return;
  for (const auto& index : indices.toOptionalTensorVector())
    TORCH_CHECK(!index || !index->defined() || index->is_cpu(),
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)");
}

}  // namespace

Tensor on_cpu(const Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  c10::Storage shared(c10::Storage::use_byte_size_t(), storage.nbytes(),
                      at::DataPtr(const_cast<void*>(storage.data()), at::Device(at::kCPU)), c10::GetCPUAllocator(), true);
  Tensor alias =
      at::detail::make_tensor<c10::TensorImpl>(std::move(shared), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  auto* impl = alias.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  alias._set_conj(tensor.is_conj());
  alias._set_neg(tensor.is_neg());
  return alias;
}

void launch(at::Device device) { C10_CUDA_CHECK(static_cast<cudaError_t>(fake_cuda_launch(device.index()))); }

bool checks_no_devices(const c10::OperatorName& name) {
  return NO_CHECK.count(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name) > 0;
}

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  Call call;
  call.name = schema.name();
  call.takes_both = TAKES_BOTH.count(call.name) || is_list_operator(call.name);
  call.checks = !checks_no_devices(op.operator_name());
  if (TAKES_BOTH.count(call.name)) check_indices(*stack, begin);

  const std::vector<IValue> originals(stack->begin() + static_cast<long>(begin), stack->end());  // alive until the end
  IValue* generator = nullptr;
  for (size_t i = 0; i < originals.size(); i++) {
    const std::string& argument = schema.arguments()[i].name();
    IValue& value = (*stack)[begin + i];
    value = converted(call, value, argument);
    if (argument == "generator") generator = &value;
  }
  if (!call.device || call.device->index() < 0) call.device = at::Device(at::kCUDA, c10::cuda::current_device());
  launch(*call.device);
  if (generator) choose_generator(call, *generator);

  if (!generator && RANDOM_WITHOUT_GENERATOR.count(call.name)) {
    at::Generator of_cpu = at::globalContext().defaultGenerator(at::kCPU);
    const Tensor before = of_cpu.get_state();
    of_cpu.set_current_seed(generator_for(*call.device, std::nullopt).current_seed());
    compute(call, op, stack);
    of_cpu.set_state(before);
  } else {
    compute(call, op, stack);
  }

  c10::cuda::CUDAGuard on(*call.device);
  write_back(call);
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); i++) (*stack)[i] = returned(call, (*stack)[i]);
}

}  // namespace standin
