#pragma once

/// The loops over numbers in the CPU's memory, and bins counted in a pass, for reductions in libraries of
/// their own.

#include <cstdint>
#include <optional>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/fast/bin_edges.hpp>
#include <torchtap/reductions/fast/kernels.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/pass.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions::extend {

using detail::BinEdges;
using detail::Edges;
using detail::Kernels;
using detail::kSmall;

/// The edges of bins, and what finds the bin of a value fast.
TORCHTAP_API Edges make_edges(std::vector<double> edges);
/// Vector loops, each in one thread; null in a build without Highway.
TORCHTAP_API const Kernels* cpu_kernels() noexcept;

/// Summarises all elements of real numbers, in one thread.
TORCHTAP_API Summary summarize(const detail::Memory& x, Needs needs);
/// state = state * decay + x * (1 - decay), for each element.
TORCHTAP_API void decay(const detail::Memory& x, double decay, double* state);
/// The same of a single number, by all elements as one row after another.
TORCHTAP_API void decay_all(const detail::Memory& x, double decay, double* state);

/// Whether the kernels can read the sample of a pass, at least elementwise.
inline bool is_plain(const Pass& pass) noexcept {
  return detail::kernels_of(pass).plain();
}

/// The summary of all elements, which was asked for, if the kernels can compute it.
inline std::optional<Summary> total(const Pass& pass) {
  return detail::kernels_of(pass).answer_total();
}

/// Asks that the pass also counts its sample in these bins, before its first result is read.
inline void ask_bins(Pass& pass, const detail::Folding& folding, const Edges& edges) {
  detail::kernels_of(pass).ask_bins(folding, edges);
}

/// Adds the number of elements in each of the bins, below, above and NaN to `slots`, [kept, bins + 3], in a
/// pass of its own unless these bins were asked for. Returns false and changes nothing if there is no answer.
inline bool count_bins(const Pass& pass, const detail::Folding& folding, const Edges& edges,
                       std::int64_t* slots) {
  return detail::kernels_of(pass).count_bins(folding, edges, slots);
}

}  // namespace torchtap::reductions::extend
