// Keeps the large tensors of a state beside its bytes.
#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <istream>
#include <limits>
#include <ostream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/core/extend/packed_state.hpp>

namespace torchtap::core::extend {
namespace {

/// This thread's device of the same type. Ranks number their devices each for itself.
at::Device here(std::int32_t type) {
  return detail::device_of(type, std::numeric_limits<c10::DeviceIndex>::max());
}

bool goes_beside(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_quantized() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.element_size() >= StateWriter::kBeside;
}

}  // namespace

void Elements::declare(std::vector<std::int64_t>& sizes) {
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
  return tensor.to(here(place.device_type));
}

void note_version(OutputArchive& archive, const char* what, std::uint32_t version) {
  if (auto* const writer = dynamic_cast<StateWriter*>(&archive))
    writer->facts.push_back({what, version, false, {}});
}

void note_shape(OutputArchive& archive, const char* what, bool shaped,
                const std::vector<std::int64_t>& shape) {
  if (auto* const writer = dynamic_cast<StateWriter*>(&archive))
    writer->facts.push_back({what, 0, shaped, shape});
}

void declare_elements(OutputArchive& archive, std::vector<std::int64_t>& sizes) {
  Elements* const elements = detail::elements_of(archive);
  if (elements != nullptr && elements->inside) elements->declare(sizes);
}

void declare_elements(InputArchive& archive, std::vector<std::int64_t>& sizes) {
  Elements* const elements = detail::elements_of(archive);
  if (elements != nullptr && elements->inside) elements->declare(sizes);
}

at::Device placed(InputArchive& archive, std::int32_t type, std::int32_t index) {
  return dynamic_cast<StateReader*>(&archive) == nullptr ? detail::device_of(type, index) : here(type);
}

}  // namespace torchtap::core::extend

namespace torchtap::core::detail {

extend::Elements* elements_of(OutputArchive& archive) {
  auto* const writer = dynamic_cast<extend::StateWriter*>(&archive);
  return writer == nullptr ? nullptr : &writer->elements;
}

extend::Elements* elements_of(InputArchive& archive) {
  auto* const reader = dynamic_cast<extend::StateReader*>(&archive);
  return reader == nullptr ? nullptr : &reader->elements;
}

void save(OutputArchive& archive, const at::Tensor& tensor) {
  auto* const writer = dynamic_cast<extend::StateWriter*>(&archive);
  if (writer == nullptr) {
    archive(cereal::make_nvp("tensor", pack(tensor)));
    return;
  }
  const bool made_of_elements = tensor.defined() && writer->elements.has(tensor.sizes());
  const bool beside = extend::goes_beside(tensor) || (made_of_elements && writer->elements_beside);
  archive(beside);
  if (!beside) {
    PackedTensor packed = pack(tensor);
    archive(packed);
    return;
  }
  extend::TensorPlace place;
  place.dtype = static_cast<std::int32_t>(tensor.scalar_type());
  place.device_type = static_cast<std::int32_t>(tensor.device().type());
  place.sizes = tensor.sizes().vec();
  archive(place);
  writer->widths.push_back(made_of_elements ? tensor.numel() / writer->elements.count() : 0);
  writer->tensors.push_back(tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous());
}

void load(InputArchive& archive, at::Tensor& tensor) {
  const base::RecordingMode quiet;  // what is restored may be changed later, in any mode
  auto* const reader = dynamic_cast<extend::StateReader*>(&archive);
  bool beside = false;
  if (reader != nullptr) archive(beside);
  if (beside) {
    extend::TensorPlace place;
    archive(place);
    tensor = reader->take(place);
    return;
  }
  PackedTensor packed;
  archive(cereal::make_nvp("tensor", packed));
  if (reader != nullptr && packed.dtype != -1) {
    const at::Device device = extend::here(packed.device_type);
    packed.device_type = static_cast<std::int32_t>(device.type());
    packed.device_index = device.index();
  }
  tensor = unpack(packed);
  if (reader != nullptr && tensor.defined() && reader->elements.has(tensor.sizes())) {
    const extend::Elements& elements = reader->elements;  // a small tensor came whole
    const std::vector<std::int64_t> read = elements.read(tensor.sizes());
    tensor = tensor.reshape({elements.count(), -1})
                 .narrow(0, elements.begin, elements.length)
                 .reshape(read)
                 .clone();
  }
}

}  // namespace torchtap::core::detail

namespace torchtap::core {

void Elementwise::begin(extend::Elements* elements) {
  elements_ = elements;
  if (elements_ != nullptr) elements_->inside = true;
}

Elementwise::~Elementwise() {
  if (elements_ != nullptr) elements_->inside = elements_->many = false;
}

void Elementwise::sizes(std::vector<std::int64_t>& sizes) {
  if (elements_ != nullptr) elements_->declare(sizes);
}

void Elementwise::flatten() {
  if (elements_ != nullptr) elements_->flat = true;
}

}  // namespace torchtap::core
