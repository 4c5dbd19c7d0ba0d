#pragma once

/// Includes the reductions of the component statistics. Where it was not built, there is no such file.

#include <torchtap/statistics/blocks.hpp>
#include <torchtap/statistics/by.hpp>
#include <torchtap/statistics/covariance.hpp>
#include <torchtap/statistics/cross_covariance.hpp>
#include <torchtap/statistics/ema.hpp>
#include <torchtap/statistics/every.hpp>
#include <torchtap/statistics/histogram.hpp>
#include <torchtap/statistics/joint.hpp>
#include <torchtap/statistics/linear_cka.hpp>
#include <torchtap/statistics/log_histogram.hpp>
#include <torchtap/statistics/map.hpp>
#include <torchtap/statistics/parse.hpp>
#include <torchtap/statistics/quantiles.hpp>
#include <torchtap/statistics/reservoir.hpp>
#include <torchtap/statistics/restore.hpp>
#include <torchtap/statistics/topk.hpp>
#include <torchtap/statistics/where.hpp>
#include <torchtap/statistics/window.hpp>
