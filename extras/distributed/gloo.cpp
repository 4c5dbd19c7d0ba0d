// Connects ranks with Gloo, if its headers were installed at build time.
#if TORCHTAP_HAVE_GLOO
#include <gloo/transport/device.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include <cstdlib>
#include <string>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/gloo.hpp>
#include <torchtap/distributed/detail/transport.hpp>
#include <torchtap/distributed/environment.hpp>

namespace torchtap::distributed {

#if TORCHTAP_HAVE_GLOO

bool has_gloo() noexcept {
  return true;
}

Group detail::connected(const c10::intrusive_ptr<c10d::Store>& meeting,
                        const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                        std::chrono::milliseconds timeout, bool local) {
  using Gloo = c10d::ProcessGroupGloo;
  const auto options = Gloo::Options::create();
  options->timeout = timeout;
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");  // as torch.distributed reads it
  try {
    if (interface != nullptr && *interface != '\0') {
      const std::string names = interface;
      options->devices.push_back(Gloo::createDeviceForInterface(names.substr(0, names.find(','))));
    } else {
      options->devices.push_back(local ? Gloo::createDeviceForHostname("127.0.0.1")
                                       : Gloo::createDefaultDevice());
    }
    return {c10::make_intrusive<Gloo>(meeting, rank, size, options), store};
  } catch (const std::exception& error) {
    throw LinkError(c10::str("it cannot connect to the other ranks (", base::first_line(error),
                             "); set GLOO_SOCKET_IFNAME to the network interface by which ranks reach each "
                             "other"));
  }
}

#else

bool has_gloo() noexcept {
  return false;
}

Group detail::connected(const c10::intrusive_ptr<c10d::Store>&, const c10::intrusive_ptr<c10d::Store>& store,
                        int rank, int size, std::chrono::milliseconds, bool) {
  return {store, rank, size};
}

#endif

}  // namespace torchtap::distributed
