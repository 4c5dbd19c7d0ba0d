#pragma once

/// The loops over numbers in the CPU's memory, for reductions in libraries of their own.

#include <cstdint>
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
using detail::parts_of;

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

}  // namespace torchtap::reductions::extend
