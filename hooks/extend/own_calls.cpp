// Counts the `OwnCalls` that live in each thread.

#include <torchtap/hooks/extend/own_calls.hpp>

namespace torchtap::hooks::extend {
namespace {

thread_local int depth = 0;

}  // namespace

OwnCalls::OwnCalls() noexcept {
  ++depth;
}

OwnCalls::~OwnCalls() {
  --depth;
}

bool OwnCalls::here() noexcept {
  return depth != 0;
}

}  // namespace torchtap::hooks::extend
