#pragma once

/// Includes all reductions and combinators.

#include <torchtap/reductions/abs_max.hpp>
#include <torchtap/reductions/any.hpp>
#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/blocks.hpp>
#include <torchtap/reductions/by.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/covariance.hpp>
#include <torchtap/reductions/cross_covariance.hpp>
#include <torchtap/reductions/ema.hpp>
#include <torchtap/reductions/every.hpp>
#include <torchtap/reductions/first.hpp>
#include <torchtap/reductions/from_summary.hpp>
#include <torchtap/reductions/histogram.hpp>
#include <torchtap/reductions/joint.hpp>
#include <torchtap/reductions/last.hpp>
#include <torchtap/reductions/linear_cka.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/reductions/map.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/norm.hpp>
#include <torchtap/reductions/over.hpp>
#include <torchtap/reductions/parse.hpp>
#include <torchtap/reductions/quantiles.hpp>
#include <torchtap/reductions/reservoir.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/reductions/series.hpp>
#include <torchtap/reductions/sum.hpp>
#include <torchtap/reductions/topk.hpp>
#include <torchtap/reductions/where.hpp>
#include <torchtap/reductions/window.hpp>
