#include "on_cpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <map>
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

/// The operators whose tensors have to be on one device, each with the name of torch's function that checks that.
const std::map<std::string, std::string> CHECKED_BY = {
#include "device_checks.inc"
};

const std::set<std::string> INDEXING = {
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
  std::vector<Stand> stands;
  std::optional<at::Device> device;
};

/// A tensor among the arguments.
struct Given {
  Tensor tensor;
  std::string argument;
  bool written;
};

/// What an operator writes comes first, as for torch.
std::vector<Given> tensors_of(const c10::FunctionSchema& schema, const torch::jit::Stack& stack, size_t begin) {
  std::vector<Given> given;
  for (const bool outputs : {true, false})
    for (size_t i = 0; i < schema.arguments().size(); i++) {
      const c10::Argument& argument = schema.arguments()[i];
      const bool written = argument.alias_info() && argument.alias_info()->isWrite();
      if ((written && argument.kwarg_only()) != outputs) continue;
      const IValue& value = stack[begin + i];
      std::vector<Tensor> tensors;
      if (value.isTensor()) tensors.push_back(value.toTensor());
      if (value.isTensorList()) tensors = value.toTensorVector();
      for (const Tensor& tensor : tensors)
        if (tensor.defined()) given.push_back({tensor, argument.name(), written});
    }
  return given;
}

constexpr auto BEGIN = "Expected all tensors to be on the same device, but ";

/// The check that torchgen writes before most operators: no exceptions, also not for numbers.
void check_generated(const std::vector<Given>& given, const std::string& method) {
  std::optional<at::Device> common;
  for (const auto& [tensor, argument, written] : given) {
    if (!common) common = tensor.device();
    TORCH_CHECK(*common == tensor.device(), BEGIN, "got ", argument, " is on ", tensor.device(), ", different from other tensors on ",
                *common, " (when checking argument in method ", method, ")");
  }
}

/// What TensorIterator does for the others: one input without dimensions may be on the CPU; only a weight or value if not `takes_number`.
void check_iterator(const std::vector<Given>& given, bool takes_number) {
  at::Device common = at::kCPU;
  for (const Given& one : given)
    if (common.is_cpu()) common = one.tensor.device();
  int numbers = 0;
  for (const auto& [tensor, argument, written] : given) {
    if (tensor.is_cpu() && tensor.dim() == 0 && !written && (takes_number || argument == "weight" || argument == "value")) {
      TORCH_CHECK(!numbers++, "Trying to pass too many CPU scalars to non-CPU kernel!");
    } else {
      TORCH_CHECK(tensor.device() == common, BEGIN, "found at least two devices, ", common, " and ", tensor.device(), "!");
    }
  }
}

/// `where` takes tensors without dimensions from anywhere.
void check_where(std::vector<Given> given) {
  given.erase(std::remove_if(given.begin(), given.end(), [](const Given& one) { return one.tensor.dim() == 0 && !one.written; }),
              given.end());
  check_iterator(given, true);
}

void check_masked_fill(const std::vector<Given>& given) {
  const Tensor &self = given[0].tensor, &mask = given[1].tensor;
  TORCH_CHECK(given.size() < 3 || self.is_cuda(), "masked_fill_: Expected inputs to be on same device");
  TORCH_CHECK(self.device() == mask.device(), "expected self and mask to be on the same device, but got mask on ", mask.device(),
              " and self on ", self.device());
}

void check_convolution(const std::vector<Given>& given) {
  for (size_t i = 1; i < given.size(); i++)
    TORCH_CHECK(given[0].tensor.is_cuda() == given[i].tensor.is_cuda(), "Input type (", given[0].tensor.toString(), ") and ",
                given[i].argument, " type (", given[i].tensor.toString(), ") should be the same");
  check_generated(given, "wrapper_CUDA__cudnn_convolution");
}

/// Indices may be on the CPU, and a value without dimensions anywhere.
void check_indexing(const torch::jit::Stack& stack, size_t begin, size_t arguments) {
  const IValue &self = stack[begin], &indices = stack[begin + 1];
  const at::Device device = self.toTensor().device();
  for (const auto& index : indices.toOptionalTensorVector())
    TORCH_CHECK(!index || !index->defined() || index->is_cpu() || index->device() == device,
                "indices should be either on cpu or on the same device as the indexed tensor (", device, ")");
  if (arguments == 2) return;
  const Tensor value = stack[begin + 2].toTensor();
  TORCH_CHECK(value.device() == device || value.dim() == 0, "expected device ", device, " but got device ", value.device(), " for value tensor");
}

/// Several tensors at once: torch itself takes them apart where their devices differ.
bool is_list_operator(const std::string& name) {
  for (const char* part : {"_foreach", "_fused_", "_amp_"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

/// PyTorch's own refusals of tensors on several devices, in its own words.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t begin) {
  const std::string& name = op.schema().name();
  if (INDEXING.count(name)) return check_indexing(stack, begin, op.schema().arguments().size());
  if (is_list_operator(name)) return;
  const std::vector<Given> given = tensors_of(op.schema(), stack, begin);
  if (name == "aten::convolution") return check_convolution(given);
  const auto checked = CHECKED_BY.find(c10::toString(op.operator_name()));
  if (checked != CHECKED_BY.end()) return check_generated(given, checked->second);
  if (name.rfind("aten::masked_fill", 0) == 0) return check_masked_fill(given);
  if (name == "aten::where") return check_where(given);
  bool takes_number = true;
  for (const char* part :
       {"aten::addcdiv", "aten::binary_cross_entropy", "aten::index_fill", "aten::lerp", "aten::mse_loss", "aten::smooth_l1_loss"})
    if (name.rfind(part, 0) == 0) takes_number = false;
  check_iterator(given, takes_number);
}

Tensor converted(Call& call, const Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  if (!call.device) call.device = tensor.device();
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && tensor.has_storage(), "the stand-in for CUDA computes no ",
                              tensor.layout(), " tensors (", call.name, ")");
  for (const Stand& stand : call.stands)
    if (stand.original.is_same(tensor)) return stand.alias;
  Tensor alias = on_cpu(tensor);
  call.stands.push_back({tensor, alias, alias.storage().data()});
  return alias;
}

IValue converted(Call& call, const IValue& value, const std::string& argument) {
  if (value.isTensor()) return converted(call, value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(converted(call, tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor && tensor->defined()) list.push_back(converted(call, *tensor));
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

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  Call call;
  call.name = schema.name();
  check_devices(op, *stack, begin);

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
