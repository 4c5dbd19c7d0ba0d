// Records which types can be followed and which modules were given out, and holds the interposed calls.

#include <torch/nn/module.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <torchtap/model/extend/interposed_calls.hpp>

namespace torchtap::model::extend {
namespace {

std::atomic<const InterposedCalls*> installed{nullptr};

/// By name and address, and never read through: a plug-in may have taken its types along when it was closed.
struct Notes {
  std::mutex mutex;
  std::unordered_map<std::string, std::map<const void*, Following>> types;
};

Notes& notes() {
  static auto* notes = new Notes;  // static holders may be made before it and used after it
  return *notes;
}

/// Null for a module that no holder in a program linked with torchtap::transparent made.
bool* given_out_flag(const torch::nn::Module& module) noexcept {
  const auto owner = module.weak_from_this().lock();
  const auto* made = std::get_deleter<MadeByHolder>(owner);
  return made == nullptr ? nullptr : &made->given_out;
}

}  // namespace

void note_given_out(const torch::nn::Module& module) noexcept {
  bool* const flag = given_out_flag(module);
  if (flag != nullptr) __atomic_store_n(flag, true, __ATOMIC_RELAXED);
}

bool given_out(const torch::nn::Module& module) noexcept {
  const bool* flag = given_out_flag(module);
  return flag != nullptr && __atomic_load_n(flag, __ATOMIC_RELAXED);
}

void note_type(const std::type_info& type, Following following) {
  const std::lock_guard<std::mutex> lock(notes().mutex);
  notes().types[type.name()][&type] = following;
}

std::optional<Following> noted_type(const std::type_info& type) {
  const std::lock_guard<std::mutex> lock(notes().mutex);
  const auto found = notes().types.find(type.name());
  if (found == notes().types.end()) return std::nullopt;
  const auto same = found->second.find(&type);
  return (same == found->second.end() ? found->second.begin() : same)->second;
}

const InterposedCalls* interposed_calls() noexcept {
  return installed.load();
}

void set_interposed_calls(const InterposedCalls* calls) noexcept {
  installed.store(calls);
}

}  // namespace torchtap::model::extend
