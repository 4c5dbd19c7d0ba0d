// Keeps the large tensors of a state beside its bytes.
#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <istream>
#include <ostream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/distributed/detail/packed_state.hpp>

namespace torchtap::distributed::detail {
namespace {

bool goes_beside(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_quantized() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.element_size() >= StateWriter::kBeside;
}

}  // namespace

void Elements::declare(std::vector<std::int64_t>& sizes) {
  if (!inside) return;
  flat = false;
  switch (use) {
    case Use::see:
      many = c10::multiply_integers(sizes) >= kFewest;
      if (many && whole.empty()) whole = sizes;
      divisible = divisible && (!many || sizes == whole);
      break;
    case Use::cut:
      many = sizes == whole;
      if (many) sizes = {length};
      break;
    case Use::join:
      many = sizes == std::vector<std::int64_t>{length};
      if (many) sizes = whole;
      break;
    case Use::none:
      break;
  }
}

bool Elements::has(at::IntArrayRef sizes) {
  if (use != Use::see) return inside && many;
  const std::int64_t elements = count();
  const at::IntArrayRef first = flat ? at::IntArrayRef(elements) : at::IntArrayRef(whole);
  const bool fits = inside && many && sizes.size() >= first.size() && sizes.slice(0, first.size()) == first;
  divisible = divisible && (fits || !inside || !many);
  return fits;
}

std::int64_t Elements::count() const noexcept {
  return whole.empty() ? 0 : c10::multiply_integers(whole);
}

std::vector<std::int64_t> Elements::read(at::IntArrayRef sizes) const {
  std::vector<std::int64_t> result{length};
  std::size_t first = flat ? 1 : whole.size();
  if (use == Use::join) {
    result = flat ? std::vector<std::int64_t>{count()} : whole;
    first = 1;
  }
  TORCH_CHECK_VALUE(sizes.size() >= first, "merge: the state of another rank has a tensor of shape ", sizes,
                    " for elements of shape ", at::IntArrayRef(whole),
                    "; its bytes were damaged on the way.");
  const at::IntArrayRef rest = sizes.slice(first);
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

StateWriter::StateWriter(std::ostream& stream, bool elements_beside)
    : core::OutputArchive(stream), elements_beside(elements_beside) {}
StateWriter::~StateWriter() noexcept = default;

StateReader::StateReader(std::istream& stream, std::vector<at::Tensor> tensors)
    : StateReader(stream, std::move(tensors), Elements(Elements::Use::none, {}, 0, 0)) {}
StateReader::StateReader(std::istream& stream, std::vector<at::Tensor> tensors, Elements elements)
    : core::InputArchive(stream), elements(std::move(elements)), tensors_(std::move(tensors)) {}
StateReader::~StateReader() noexcept = default;

at::Tensor StateReader::take(const TensorPlace& place) {
  const bool made_of_elements = elements.has(place.sizes);
  const std::vector<std::int64_t> read = made_of_elements ? elements.read(place.sizes) : place.sizes;
  const bool there = next_ < tensors_.size();
  const bool fits = there && tensors_[next_].numel() == c10::multiply_integers(read) &&
                    (made_of_elements || tensors_[next_].sizes() == at::IntArrayRef(read)) &&
                    static_cast<std::int32_t>(tensors_[next_].scalar_type()) == place.dtype;
  TORCH_CHECK_VALUE(fits, "merge: the state of another rank lacks its tensor ", next_, " of shape ",
                    at::IntArrayRef(read), "; its bytes were damaged on the way.");
  at::Tensor tensor = std::move(tensors_[next_++]);
  if (tensor.sizes() != at::IntArrayRef(read)) tensor = tensor.view(read);
  return tensor.to(core::extend::here(place.device_type));
}

void StateWriter::put(const at::Tensor& tensor) {
  OutputArchive& archive = *this;
  const bool made_of_elements = tensor.defined() && elements.has(tensor.sizes());
  const bool beside = goes_beside(tensor) || (made_of_elements && elements_beside);
  archive(beside);
  if (!beside) {
    core::extend::PackedTensor packed = core::extend::pack(tensor);
    archive(packed);
    return;
  }
  TensorPlace place;
  place.dtype = static_cast<std::int32_t>(tensor.scalar_type());
  place.device_type = static_cast<std::int32_t>(tensor.device().type());
  place.sizes = tensor.sizes().vec();
  archive(place);
  widths.push_back(made_of_elements ? tensor.numel() / elements.count() : 0);
  tensors.push_back(tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous());
}

at::Tensor StateReader::get() {
  InputArchive& archive = *this;
  bool beside = false;
  archive(beside);
  if (beside) {
    TensorPlace place;
    archive(place);
    return take(place);
  }
  core::extend::PackedTensor packed;
  archive(packed);
  if (packed.dtype != -1) {
    const at::Device device = core::extend::here(packed.device_type);
    packed.device_type = static_cast<std::int32_t>(device.type());
    packed.device_index = device.index();
  }
  const at::Tensor tensor = core::extend::unpack(packed);
  if (!tensor.defined() || !elements.has(tensor.sizes())) return tensor;
  const std::vector<std::int64_t> read = elements.read(tensor.sizes());  // a small tensor came whole
  return tensor.reshape({elements.count(), -1})
      .narrow(0, elements.begin, elements.length)
      .reshape(read)
      .clone();
}

}  // namespace torchtap::distributed::detail
