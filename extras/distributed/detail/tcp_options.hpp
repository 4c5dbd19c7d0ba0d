#pragma once

/// Options of a c10d::TCPStore that every build of LibTorch can serve.

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace torchtap::distributed::detail {

template <class Options>
auto without_libuv(Options& options, int) -> decltype(static_cast<void>(options.useLibUV)) {
  options.useLibUV = false;
}
template <class Options>
void without_libuv(Options&, long) {}

/// Options for the store's plain backend. LibTorch 2 asks for libuv by default, also where it was built
/// without it, as Debian's is. Clients of either backend are the same.
inline c10d::TCPStoreOptions tcp_options() {
  c10d::TCPStoreOptions options;
  without_libuv(options, 0);
  return options;
}

}  // namespace torchtap::distributed::detail
