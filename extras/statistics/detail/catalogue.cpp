// Lists the reductions that text can name, and makes them from their arguments.

#include <torchtap/base/error.hpp>
#include <torchtap/base/numbers.hpp>
#include <torchtap/reductions/abs_max.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/first.hpp>
#include <torchtap/reductions/last.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/norm.hpp>
#include <torchtap/reductions/sum.hpp>
#include <torchtap/statistics/blocks.hpp>
#include <torchtap/statistics/covariance.hpp>
#include <torchtap/statistics/detail/catalogue.hpp>
#include <torchtap/statistics/ema.hpp>
#include <torchtap/statistics/histogram.hpp>
#include <torchtap/statistics/quantiles.hpp>
#include <torchtap/statistics/reservoir.hpp>
#include <torchtap/statistics/topk.hpp>

namespace torchtap::statistics::detail {
namespace {

using namespace reductions;  // NOLINT: this file lists them
using extend::Arguments;
using extend::Named;
using extend::whole_number;

double number(const std::string& argument) {
  const auto value = base::number_of(argument);
  TORCH_CHECK_VALUE(value, "\"", argument, "\" is not a number");
  return *value;
}

/// `R`, whose options `make(arguments)` returns.
template <class R, class Make>
Named named(const char* name, const char* usage, const char* summary, std::size_t least, std::size_t most,
            Make make, decltype(make(Arguments())) blank = {}) {
  return {{name, usage, summary},
          least,
          most,
          [make](const Arguments& given, const ParseOptions& rows) {
            auto options = make(given);
            if (!rows.over().empty()) options.over(rows.over());
            return Any(R(options.over_all(rows.over_all())));
          },
          [blank] { return Any(R(blank)); }};
}

/// A reduction without arguments.
template <class R, class Options>
Named plain(const char* name, const char* usage, const char* summary) {
  return named<R>(name, usage, summary, 0, 0, [](const Arguments&) { return Options(); });
}

HistogramOptions histogram(const Arguments& given) {
  const std::int64_t bins = whole_number(given[0]);
  if (given.size() == 1) return HistogramOptions(bins);
  TORCH_CHECK_VALUE(given.size() == 3, "there is a low end without a high one");
  return {bins, number(given[1]), number(given[2])};
}

std::vector<Named>& list() {
  static auto& all = *new std::vector<Named>{
      // models may outlive static objects
      plain<Sum, SumOptions>("Sum", "sum", "the sum"),
      plain<Mean, MeanOptions>("Mean", "mean", "the arithmetic mean"),
      named<Moments>(
          "Moments", "moments[:ORDER]", "mean, variance, skewness, kurtosis; ORDER 2: the first two", 0, 1,
          [](const Arguments& given) {
            return given.empty() ? MomentsOptions() : MomentsOptions().order(whole_number(given[0]));
          }),
      plain<Min, MinOptions>("Min", "min", "the smallest value"),
      plain<Max, MaxOptions>("Max", "max", "the largest value"),
      plain<AbsMax, AbsMaxOptions>("AbsMax", "abs_max", "the largest magnitude"),
      named<Norm>("Norm", "norm[:P]", "the P-norm; P is 2 unless given", 0, 1,
                  [](const Arguments& given) {
                    return given.empty() ? NormOptions() : NormOptions().p(number(given[0]));
                  }),
      plain<Count, CountOptions>("Count", "count", "rows, elements, NaN, infinities and zeros"),
      plain<First, FirstOptions>("First", "first", "the first sample"),
      plain<Last, LastOptions>("Last", "last", "the last sample"),
      named<EMA>(
          "EMA", "ema[:DECAY]", "the exponential moving average; DECAY is 0.9 unless given", 0, 1,
          [](const Arguments& given) { return given.empty() ? EMAOptions() : EMAOptions(number(given[0])); }),
      named<Histogram>("Histogram", "histogram:BINS[:LOW:HIGH]",
                       "counts in bins; the range grows unless given", 1, 3, histogram, HistogramOptions(2)),
      named<LogHistogram>("LogHistogram", "log_histogram[:BITS]",
                          "counts in bins for all numbers, 2^BITS an octave; BITS is 3 unless given", 0, 1,
                          [](const Arguments& given) {
                            return given.empty() ? LogHistogramOptions()
                                                 : LogHistogramOptions(whole_number(given[0]));
                          }),
      plain<Quantiles, QuantilesOptions>("Quantiles", "quantiles", "quantiles, from a sketch"),
      plain<Covariance, CovarianceOptions>("Covariance", "covariance",
                                           "mean, covariance and correlation of features"),
      plain<Gram, GramOptions>("Gram", "gram", "the Gram matrix of features"),
      named<TopK>("TopK", "top_k[:K]", "the K largest values and their samples; K is 10 unless given", 0, 1,
                  [](const Arguments& given) {
                    return given.empty() ? TopKOptions() : TopKOptions(whole_number(given[0]));
                  }),
      named<Reservoir>("Reservoir", "reservoir[:K]", "K samples chosen at random; K is 100 unless given", 0,
                       1,
                       [](const Arguments& given) {
                         return given.empty() ? ReservoirOptions() : ReservoirOptions(whole_number(given[0]));
                       }),
      {{"Blocks", "blocks[:MOST]",
        "counts in the bins of log_histogram:3, sums and extrema, apart for each of up to MOST blocks of "
        "samples in a row; MOST is 512 unless given"},
       0,
       1,
       [](const Arguments& given, const ParseOptions& rows) {
         TORCH_CHECK_VALUE(rows.over().empty(), "it counts all elements of each sample, so it has no rows");
         return Any(given.empty() ? Blocks() : Blocks(whole_number(given[0])));
       },
       [] { return Any(Blocks()); }},
  };
  return all;
}

}  // namespace

const std::vector<reductions::extend::Named>& all_named() {
  return list();
}

}  // namespace torchtap::statistics::detail

namespace torchtap::reductions::extend {

void add_to_catalogue(Named named) {
  statistics::detail::list().push_back(std::move(named));
}

std::int64_t whole_number(const std::string& argument) {
  const double value = statistics::detail::number(argument);
  TORCH_CHECK_VALUE(value == static_cast<double>(static_cast<std::int64_t>(value)), "\"", argument,
                    "\" is not a whole number");
  return static_cast<std::int64_t>(value);
}

}  // namespace torchtap::reductions::extend
