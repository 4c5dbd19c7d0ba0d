#pragma once

/// The reference of a monitor: a recording of `reductions::Blocks`.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::views::monitor {

/// The distribution of one tensor of one module.
struct TORCHTAP_API ReferenceTensor {
  std::string path;                  ///< of the module; "" for the model
  std::vector<std::string> aliases;  ///< further paths of the module
  std::string type;                  ///< of the module
  std::string kind;                  ///< "ForwardPre" for inputs, "ForwardOutput"
  std::int64_t slot = 0;             ///< among the flattened inputs or outputs
  core::Results results;             ///< of `Blocks`
};

/// The tensors of a recording that were reduced by `Blocks`. A regular value.
class TORCHTAP_API Reference {
 public:
  /// Without tensors.
  Reference() = default;
  /// Reads a recording. Throws `c10::ValueError` if no tensor of it was reduced by `Blocks`, and as
  /// `storage::load` does.
  static Reference load(const std::string& directory);

  /// In the order of the recording.
  const std::vector<ReferenceTensor>& tensors() const& noexcept { return tensors_; }
  /// The results of a tensor of a module, by path or alias; null if there are none.
  const core::Results* find(const std::string& path, const std::string& kind, std::int64_t slot = 0) const;
  /// The paths of its modules, each once, in order.
  std::vector<std::string> paths() const;
  /// 16 hexadecimal digits that differ where paths, kinds, slots or counts differ.
  std::string digest() const;

 private:
  std::vector<ReferenceTensor> tensors_;
};

}  // namespace torchtap::views::monitor
