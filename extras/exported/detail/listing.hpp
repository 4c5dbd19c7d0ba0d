#pragma once

// The list of taps that torchtap.export.compile writes into a package.

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::exported::detail {

/// A module that was tapped.
struct Tapped {
  std::string path;
  std::vector<std::string> aliases;
  std::string type;            ///< "Linear"
  std::string qualified_type;  ///< "torch.nn.modules.linear.Linear"
  bool leaf = false;
  std::int64_t calls = 0;  ///< in one forward
  bool inputs = false, outputs = false, replaceable = false;
};

/// An input of the package.
struct Input {
  std::string name;
  std::string dtype;               ///< "float32"
  std::vector<std::string> shape;  ///< numbers, and names of dynamic dimensions
  std::string device;              ///< "cuda"; empty if the package does not say
};

struct Listing {
  std::string type;  ///< of the model itself
  std::string qualified_type;
  std::vector<Tapped> modules;
  std::vector<Input> inputs;
};

/// Reads the text under "torchtap" in the metadata of `file`. Throws `c10::ValueError` if it is damaged or of
/// a newer version.
Listing parse_listing(const std::string& json, const std::string& file);

}  // namespace torchtap::exported::detail
