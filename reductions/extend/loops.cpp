// Calls the loops over numbers in memory for reductions in other libraries.

#include <memory>
#include <utility>

#include <torchtap/reductions/extend/loops.hpp>

namespace torchtap::reductions::extend {

Edges make_edges(std::vector<double> edges) {
  return std::make_shared<const BinEdges>(std::move(edges));
}

const Kernels* cpu_kernels() noexcept {
  return detail::kernels();
}

Summary summarize(const detail::Memory& x, Needs needs) {
  return detail::summarize(x, needs);
}

void decay(const detail::Memory& x, double decay, double* state) {
  detail::decay(x, decay, state);
}

void decay_all(const detail::Memory& x, double decay, double* state) {
  detail::decay_all(x, decay, state);
}

}  // namespace torchtap::reductions::extend
