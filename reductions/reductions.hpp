#pragma once

/// Includes all reductions and combinators, also those of the component statistics
/// where it was built.

#include <torchtap/reductions/abs_max.hpp>
#include <torchtap/reductions/any.hpp>
#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/first.hpp>
#include <torchtap/reductions/from_summary.hpp>
#include <torchtap/reductions/last.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/norm.hpp>
#include <torchtap/reductions/over.hpp>
#include <torchtap/reductions/series.hpp>
#include <torchtap/reductions/sum.hpp>
#if __has_include(<torchtap/reductions/statistics.hpp>)
#include <torchtap/reductions/statistics.hpp>
#endif
