// Emits the type information of `Unfit` once, so that all libraries of a process agree on the type, and tells
// what no reduction can read.

#include <torchtap/base/strided.hpp>
#include <torchtap/core/unfit.hpp>

namespace torchtap::core {

Unfit::~Unfit() = default;

void check_no_wrapper(const at::Tensor& sample, const char* reduction) {
  if (!base::is_wrapper(sample)) return;
  unfit<c10::TypeError>(c10::str("reduction: ", reduction, " got ", base::instead_of_strided(sample), "."));
}

}  // namespace torchtap::core
