#pragma once

#include <string>

#include <torchtap/base/disk.hpp>

namespace torchtap::tools::preload {

/// The right to write to a place, while it lives: of all launchers on this machine one has it. Throws
/// `std::runtime_error` if another launcher has it. Nothing of it is on the disk, and it ends with the
/// process.
class Reservation {
 public:
  explicit Reservation(const std::string& place);

 private:
  base::Descriptor socket_;
};

}  // namespace torchtap::tools::preload
