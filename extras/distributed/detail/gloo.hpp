#pragma once

/// Makes the process group of Gloo; only one source needs Gloo's headers.

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

#include <torchtap/distributed/group.hpp>

namespace torchtap::distributed::detail {

/// A group of Gloo that meets in `meeting` and has `store` beside it, or the store alone where torchtap was
/// built without Gloo. `local`: all ranks are on this machine.
Group connected(const c10::intrusive_ptr<c10d::Store>& meeting, const c10::intrusive_ptr<c10d::Store>& store,
                int rank, int size, std::chrono::milliseconds timeout, bool local);

}  // namespace torchtap::distributed::detail
