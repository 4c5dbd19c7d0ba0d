#pragma once

// The modules of a package, with their hooks.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <torchtap/exported/detail/listing.hpp>
#include <torchtap/hooks/extend/hook_point.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::exported::detail {

/// A module of one loaded package. Its address is the identity of the module.
struct Place final : hooks::extend::HookPoint {
  explicit Place(Tapped given) : module(std::move(given)) {}
  const Tapped module;
};

/// An input in the form that `run` compares.
struct ExpectedInput {
  std::optional<at::ScalarType> dtype;  ///< nothing if this LibTorch lacks the dtype
  std::vector<std::int64_t> sizes;      ///< -1 for a dynamic size
};

/// The modules of one loaded package, separate for each loader of a file. Shared with the ModuleRefs that
/// name them.
class Package : public std::enable_shared_from_this<Package> {
 public:
  Package(std::string file, Listing listing);

  const std::string& file() const noexcept { return file_; }
  const std::vector<Input>& inputs() const noexcept { return inputs_; }
  const std::vector<ExpectedInput>& expected_inputs() const noexcept { return expected_inputs_; }
  /// Whether modules other than the root are tapped.
  bool tapped() const noexcept { return places_.size() > 1; }
  /// The whole model; `run` sees its inputs and outputs.
  Place& root() noexcept { return places_.front(); }
  const std::deque<Place>& places() const noexcept { return places_; }
  /// Null if there is none.
  Place* find(std::string_view path) noexcept;
  /// The tapped modules with the root in front.
  std::vector<model::ModuleRef> modules(bool children) const;

 private:
  std::string file_;
  std::vector<Input> inputs_;
  std::vector<ExpectedInput> expected_inputs_;
  mutable std::deque<Place> places_;  // root first; never changed, so threads read it without a lock
  std::unordered_map<std::string_view, Place*> by_path_;
};

}  // namespace torchtap::exported::detail
