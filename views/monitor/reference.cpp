#include <ATen/Functions.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/views/monitor/detail/digest.hpp>
#include <torchtap/views/monitor/reference.hpp>

namespace torchtap::views::monitor {
namespace {

/// The slot that a key of a recording of all tensors names; -1 for the name of a result.
std::int64_t slot_of_key(const std::string& key) {
  const bool number =
      !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::stol(key) : -1;
}

core::Results results_of_dict(const core::Value& value) {
  core::Results results;
  for (const auto& [name, item] : value.dict()) {
    if (item.is_tensor()) results.set(name, item.tensor());
  }
  return results;
}

}  // namespace

Reference Reference::load(const std::string& directory) {
  const base::RecordingMode quiet;
  Reference reference;
  for (const auto& entry : storage::load(directory)) {
    if (entry.reduction().rfind("Blocks(", 0) != 0 || entry.samples() == 0) continue;
    const core::Value value = entry.value();
    if (!value.is_dict()) continue;
    const auto add = [&](std::int64_t slot, const core::Value& of_slot) {
      if (of_slot.is_dict() && !of_slot.dict().empty())
        reference.tensors_.push_back(
            {entry.path(), entry.aliases(), entry.type(), entry.kind(), slot, results_of_dict(of_slot)});
    };
    bool slots = false;
    for (const auto& [key, item] : value.dict()) {
      const std::int64_t slot = slot_of_key(key);
      if (slot < 0) continue;
      slots = true;
      add(slot, item);
    }
    if (!slots) add(0, value);
  }
  TORCH_CHECK_VALUE(!reference.tensors_.empty(), "views::monitor::Reference: \"", directory,
                    "\" has no distributions to compare with; expected a recording of reductions::Blocks, as "
                    "`torchtap record --learn` and `torchtap preload --learn` write it.");
  return reference;
}

const core::Results* Reference::find(const std::string& path, const std::string& kind,
                                     std::int64_t slot) const {
  const core::Results* by_alias = nullptr;
  for (const auto& tensor : tensors_) {
    if (tensor.kind != kind || tensor.slot != slot) continue;
    if (tensor.path == path) return &tensor.results;
    const auto& aliases = tensor.aliases;
    if (std::find(aliases.begin(), aliases.end(), path) != aliases.end()) by_alias = &tensor.results;
  }
  return by_alias;
}

std::vector<std::string> Reference::paths() const {
  std::vector<std::string> paths;
  for (const auto& tensor : tensors_) {
    if (std::find(paths.begin(), paths.end(), tensor.path) == paths.end()) paths.push_back(tensor.path);
  }
  return paths;
}

std::string Reference::digest() const {
  detail::Digest digest;
  const auto add = [&](std::string_view bytes) { digest.add(bytes.data(), bytes.size()); };
  for (const auto& tensor : tensors_) {
    add(tensor.path + '\n' + tensor.kind + '\n' + std::to_string(tensor.slot) + '\n');
    for (const auto& [name, numbers] : tensor.results) {
      const at::Tensor plain = numbers.contiguous();
      add(name);
      add({static_cast<const char*>(plain.data_ptr()), plain.nbytes()});
    }
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(digest.value()));
  return text;
}

}  // namespace torchtap::views::monitor
