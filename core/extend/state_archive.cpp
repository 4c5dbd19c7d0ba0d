// Asks archives whether they do more than write bytes.
#include <limits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/extend/state_archive.hpp>

namespace torchtap::core {
namespace detail {

extend::StateArchive* state_of(OutputArchive& archive) {
  return dynamic_cast<extend::StateArchive*>(&archive);
}

extend::StateArchive* state_of(InputArchive& archive) {
  return dynamic_cast<extend::StateArchive*>(&archive);
}

void save(OutputArchive& archive, const at::Tensor& tensor) {
  if (auto* const state = dynamic_cast<extend::StateOutput*>(&archive)) return state->put(tensor);
  archive(cereal::make_nvp("tensor", pack(tensor)));
}

void load(InputArchive& archive, at::Tensor& tensor) {
  const base::RecordingMode quiet;  // what is restored may be changed later, in any mode
  if (auto* const state = dynamic_cast<extend::StateInput*>(&archive)) {
    tensor = state->get();
    return;
  }
  PackedTensor packed;
  archive(cereal::make_nvp("tensor", packed));
  tensor = unpack(packed);
}

}  // namespace detail

void extend::note_version(OutputArchive& archive, const char* what, std::uint32_t version) {
  if (auto* const state = dynamic_cast<StateOutput*>(&archive))
    state->facts.push_back({what, version, false, {}});
}

void extend::note_shape(OutputArchive& archive, const char* what, bool shaped,
                        const std::vector<std::int64_t>& shape) {
  if (auto* const state = dynamic_cast<StateOutput*>(&archive))
    state->facts.push_back({what, 0, shaped, shape});
}

void extend::declare_elements(OutputArchive& archive, std::vector<std::int64_t>& sizes) {
  if (auto* const state = detail::state_of(archive)) state->declare(sizes);
}

void extend::declare_elements(InputArchive& archive, std::vector<std::int64_t>& sizes) {
  if (auto* const state = detail::state_of(archive)) state->declare(sizes);
}

at::Device extend::here(std::int32_t type) {
  return detail::device_of(type, std::numeric_limits<c10::DeviceIndex>::max());
}

at::Device extend::placed(InputArchive& archive, std::int32_t type, std::int32_t index) {
  return dynamic_cast<StateInput*>(&archive) == nullptr ? detail::device_of(type, index) : here(type);
}

void Elementwise::begin(extend::StateArchive* state) {
  state_ = state;
  if (state_ != nullptr) state_->inside(true);
}

Elementwise::~Elementwise() {
  if (state_ != nullptr) state_->inside(false);
}

void Elementwise::sizes(std::vector<std::int64_t>& sizes) {
  if (state_ != nullptr) state_->declare(sizes);
}

void Elementwise::flatten() {
  if (state_ != nullptr) state_->flatten();
}

}  // namespace torchtap::core
