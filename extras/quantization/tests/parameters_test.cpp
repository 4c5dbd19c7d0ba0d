// Scales and zero points beside those of torch.ao's observers and of an independent computation in NumPy.
#include <torch/torch.h>

#include <cstdlib>
#include <limits>
#include <sstream>
#include <thread>

#include <torchtap/quantization/parameters.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/recording.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(quantization_parameters)

using namespace torchtap_test;
using namespace torchtap::quantization;
using namespace torchtap::reductions;
using torchtap::core::Results;
using torchtap::core::Value;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

void run_python(const std::string& mode, const std::string& directory) {
  const std::string command = std::string(TORCHTAP_TEST_PYTHON) + " " + TORCHTAP_TEST_QUANTIZATION +
                              "/parameters.py " + mode + " " + directory;
  BOOST_TEST_REQUIRE(std::system(command.c_str()) == 0, command);
}

Value to_value(const Parameters& of) {
  return Value::Dict{{"low", of.low}, {"high", of.high}, {"scale", of.scale}, {"zero_point", of.zero_point}};
}

template <class R>
Results results_of(R reduction, const at::Tensor& x) {
  reduction.update(x);
  return reduction.results();
}

bool same(const Parameters& a, const Parameters& b) {
  return a.dtype == b.dtype && a.axis == b.axis && a.scale.equal(b.scale) &&
         a.zero_point.equal(b.zero_point) && a.low.equal(b.low) && a.high.equal(b.high);
}

const std::vector<Method> methods{Method::min_max, Method::percentile, Method::mse, Method::entropy};
const std::vector<Dtype> dtypes{Dtype::int8, Dtype::uint8, Dtype::int4};

std::string key(const std::string& kind, const QuantizationOptions& options) {
  return kind + "/" + std::string(name_of(options.method())) + "/" + std::string(name_of(options.dtype())) +
         "/" + (options.symmetric() ? "symmetric" : "affine");
}

/// All kinds of results that a tensor can be recorded as.
Value::Dict counted(const at::Tensor& x) {
  std::vector<std::int64_t> others;
  for (std::int64_t dim = 0; dim < x.dim(); ++dim) {
    if (dim != 1) others.push_back(dim);
  }
  const double least = x.min().item<double>(), largest = x.max().item<double>();
  const Series extrema{Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true))};
  const Series of_channels{Min(MinOptions().over(others)), Max(MaxOptions().over(others))};
  return {
      {"exact", results_of(extrema, x)},
      {"fixed", results_of(Histogram(HistogramOptions(2048, least, largest).over_all(true)), x)},
      {"growing", results_of(Histogram(HistogramOptions(2048).over_all(true)), x)},
      {"log", results_of(LogHistogram(LogHistogramOptions().over_all(true)), x)},
      {"fine", results_of(Series(LogHistogram(LogHistogramOptions(7).over_all(true)),
                                 Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true))),
                          x)},
      {"blocks", results_of(Blocks(), x)},
      {"channels_exact", results_of(of_channels, x)},
      {"channels_growing", results_of(Histogram(HistogramOptions(2048).over(others)), x)},
      {"channels_log", results_of(Series(LogHistogram(LogHistogramOptions().over(others)),
                                         Min(MinOptions().over(others)), Max(MaxOptions().over(others))),
                                  x)},
  };
}

Results to_results(const Value& value) {
  Results results;
  for (const auto& [name, tensor] : value.dict()) results.set(name, tensor.tensor());
  return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_the_observers_and_numpy_on_activations_and_random_data) {
  const TemporaryDirectory directory;
  run_python("write", directory.path());
  for (const auto& [name, x] : torchtap::storage::load_value(directory / "tensors.pt").dict()) {
    const Value::Dict all = counted(x.tensor());
    Value::Dict made;
    for (const auto& [kind, results] : all) {
      for (const Method method : methods) {
        if (contains(kind, "exact") && method != Method::min_max) continue;
        for (const Dtype dtype : dtypes) {
          for (const bool symmetric : {false, true}) {
            const QuantizationOptions options =
                QuantizationOptions().method(method).dtype(dtype).symmetric(symmetric).percentile(99.5);
            made.emplace_back(key(kind, options), to_value(parameters(to_results(results), options)));
          }
        }
      }
    }
    torchtap::storage::save_value(directory / (name + ".pt"),
                                  Value::Dict{{"counted", all}, {"parameters", made}});
  }
  run_python("check", directory.path());
}

BOOST_AUTO_TEST_CASE(each_channel_has_the_parameters_that_it_has_alone) {
  torch::manual_seed(3);
  const auto x = torch::randn({40, 5, 60}) * torch::tensor({1.0, 20.0, 1e-3, 5.0, 0.0}).reshape({5, 1}) +
                 torch::tensor({0.0, 3.0, 0.0, -40.0, 0.0}).reshape({5, 1});
  const LogHistogramOptions bins;
  for (const Method method : methods) {
    for (const bool symmetric : {false, true}) {
      const QuantizationOptions options = QuantizationOptions().method(method).symmetric(symmetric).axis(-2);
      const auto both = [&](auto folding, const at::Tensor& of) {
        return parameters(results_of(Series(LogHistogram(folding(LogHistogramOptions())),
                                            Min(folding(MinOptions())), Max(folding(MaxOptions()))),
                                     of),
                          options);
      };
      const Parameters all = both([](auto options) { return options.over({0, 2}); }, x);
      BOOST_TEST(all.axis.value() == -2);
      BOOST_TEST(all.scale.sizes() == (std::vector<std::int64_t>{5}), boost::test_tools::per_element());
      for (std::int64_t i = 0; i < 5; ++i) {
        const Parameters alone = both([](auto options) { return options.over_all(true); }, x.select(1, i));
        BOOST_TEST(!alone.axis.has_value());
        for (const auto member :
             {&Parameters::scale, &Parameters::zero_point, &Parameters::low, &Parameters::high})
          BOOST_TEST((all.*member)[i].equal(alone.*member), name_of(method) << ", channel " << i);
      }
      const auto expected =
          torch::fake_quantize_per_channel_affine(x, all.scale, all.zero_point, 1, -128, 127);
      BOOST_TEST(all.apply(x).equal(expected));
    }
  }
}

BOOST_AUTO_TEST_CASE(has_the_same_bits_however_the_data_was_counted) {
  torch::manual_seed(5);
  const auto x = torch::randn({64, 3, 50}).relu() * torch::exp(torch::randn({64, 3, 50}));
  const Series whole{LogHistogram(LogHistogramOptions().over_all(true)),
                     Histogram(HistogramOptions(512).over_all(true)), Min(MinOptions().over_all(true)),
                     Max(MaxOptions().over_all(true))};
  const auto channels = Any(Series(LogHistogram(LogHistogramOptions().over({0, 2})),
                                   Min(MinOptions().over({0, 2})), Max(MaxOptions().over({0, 2}))));
  for (const Any& empty : {Any(whole), channels}) {
    Any at_once = empty.fresh();
    at_once.update(x);
    Any merged = empty.fresh();
    for (const auto& [from, to] : {std::pair(40, 64), std::pair(0, 7), std::pair(7, 40)}) {
      Any part = empty.fresh();
      part.update(x.slice(0, from, to));
      merged.merge(part);
    }
    Any one_by_one = empty.fresh();
    for (std::int64_t i = 63; i >= 0; --i) one_by_one.update(x.slice(0, i, i + 1));

    // Saved and restored, and by a recorder from four threads.
    torch::nn::Sequential model{torch::nn::Identity()};
    torchtap::recorders::ForwardOutput outputs(torchtap::recorders::RecorderOptions().reduction(empty));
    outputs.modules(model, torchtap::selectors::names("0"));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = thread; i < 64; i += 4) model->forward(x.slice(0, i, i + 1));
      });
    for (auto& thread : threads) thread.join();
    const TemporaryDirectory directory;
    outputs.save(directory / "ranges", torchtap::storage::SaveOptions().mkdir(true));
    const auto recording = torchtap::storage::load(directory / "ranges");
    const auto& saved = recording.at("0");

    for (const Method method : methods) {
      const QuantizationOptions options = QuantizationOptions().method(method);
      const Parameters expected = parameters(at_once.results(), options);
      BOOST_TEST(same(parameters(merged.results(), options), expected), name_of(method));
      BOOST_TEST(same(parameters(one_by_one.results(), options), expected), name_of(method));
      BOOST_TEST(same(parameters(to_results(saved.value()), options), expected), name_of(method));
      BOOST_TEST(same(parameters(restore(saved.state().at(0)).results(), options), expected),
                 name_of(method));
    }
  }
}

BOOST_AUTO_TEST_CASE(what_is_kept_does_not_grow_with_the_data) {
  const auto size = [](std::int64_t images) {
    torch::manual_seed(1);
    const auto batch = torch::randn({100, 64});
    Series counted{LogHistogram(LogHistogramOptions().over_all(true)),
                   Histogram(HistogramOptions(2048).over_all(true)), Min(MinOptions().over_all(true)),
                   Max(MaxOptions().over_all(true))};
    for (std::int64_t i = 0; i < images; i += 100) counted.update(batch);
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : counted.results()) bytes += static_cast<std::int64_t>(tensor.nbytes());
    BOOST_TEST(counted.count() == images * 64);
    return bytes;
  };
  BOOST_TEST(size(100) == size(100'000));
}

BOOST_AUTO_TEST_CASE(infinities_and_nan_are_left_out) {
  torch::manual_seed(2);
  const auto good = torch::randn({1000});
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto x = torch::cat({good, torch::tensor({nan, infinity, -infinity}, torch::kFloat)});
  for (const Method method : methods) {
    const QuantizationOptions options = QuantizationOptions().method(method).symmetric(true);
    const auto counts = [&](const at::Tensor& of) {
      return parameters(results_of(LogHistogram(LogHistogramOptions().over_all(true)), of), options);
    };
    BOOST_TEST(same(counts(x), counts(good)), name_of(method));
    // Min and Max are NaN and infinite here, and bound nothing.
    BOOST_TEST(
        same(parameters(results_of(Series(LogHistogram(LogHistogramOptions().over_all(true)),
                                          Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true))),
                                   x),
                        options),
             counts(good)),
        name_of(method));
    BOOST_TEST(
        same(parameters(results_of(Blocks(), x), options), parameters(results_of(Blocks(), good), options)),
        name_of(method));
  }
  const auto omitting = results_of(Series(Min(MinOptions().over_all(true).non_finite(NonFinite::omit)),
                                          Max(MaxOptions().over_all(true).non_finite(NonFinite::omit))),
                                   x);
  const Parameters exact = parameters(omitting, QuantizationOptions().method(Method::min_max));
  BOOST_TEST(exact.low.equal(good.min()));
  BOOST_TEST(exact.high.equal(good.max()));
  BOOST_CHECK_EXCEPTION(
      parameters(results_of(Series(Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true))), x),
                 QuantizationOptions().method(Method::min_max)),
      c10::ValueError, says({"quantization::parameters", "no finite value", "LogHistogram"}));
  BOOST_CHECK_EXCEPTION(parameters(results_of(LogHistogram(LogHistogramOptions().over({0})),
                                              torch::tensor({{1.0, nan}, {2.0, infinity}}))),
                        c10::ValueError, says({"no finite value", "channel 1"}));
}

/// In a wide bin an outlier may be anywhere, but Max says where it is.
BOOST_AUTO_TEST_CASE(the_least_squared_error_is_not_above_that_of_the_whole_range) {
  for (const std::int64_t n : {20, 100, 1000, 20000}) {
    for (const double outlier : {1e4, -1e4, 9000.0}) {
      torch::manual_seed(n);
      const at::Tensor x = at::cat({torch::randn({n}), torch::full({1}, outlier)});
      for (const Dtype dtype : dtypes) {
        for (const bool symmetric : {false, true}) {
          BOOST_TEST_CONTEXT(n << " and " << outlier << ", " << name_of(dtype) << symmetric) {
            const auto error = [&](const Results& results, Method method) {
              const auto options = QuantizationOptions().method(method).dtype(dtype).symmetric(symmetric);
              return parameters(results, options)
                  .apply(x)
                  .sub(x)
                  .to(at::kDouble)
                  .square()
                  .sum()
                  .item<double>();
            };
            const Results wide =
                results_of(Series(LogHistogram(LogHistogramOptions().over_all()),
                                  Min(MinOptions().over_all()), Max(MaxOptions().over_all())),
                           x);
            const double whole = error(wide, Method::min_max);
            BOOST_TEST(error(wide, Method::mse) <= 1.6 * whole + 0.01);
            BOOST_TEST(error(results_of(Blocks(), x), Method::mse) <= 1.6 * whole + 0.01);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_fixed_range_may_lack_only_what_is_clipped_anyway) {
  const auto x = torch::linspace(-1, 1, 1000);  // 10 values below -0.98, 10 above 0.98
  const auto narrow = results_of(Histogram(HistogramOptions(100, -0.98, 0.98).over_all(true)), x);
  for (const Method method : {Method::min_max, Method::mse, Method::entropy})
    BOOST_CHECK_EXCEPTION(parameters(narrow, QuantizationOptions().method(method)), c10::ValueError,
                          says({"quantization::parameters", "20 of 1000 beyond", std::string(name_of(method)),
                                "LogHistogram"}));
  const QuantizationOptions percent = QuantizationOptions().method(Method::percentile).symmetric(true);
  BOOST_CHECK_EXCEPTION(parameters(narrow, QuantizationOptions(percent).percentile(98.5)), c10::ValueError,
                        says({"20 of 1000"}));
  BOOST_TEST(close(parameters(narrow, QuantizationOptions(percent).percentile(95)).high, torch::tensor(0.95),
                   0.0, 0.02));
  BOOST_TEST(close(parameters(narrow, QuantizationOptions(percent).symmetric(false).percentile(95)).low,
                   torch::tensor(-0.95), 0.0, 0.02));
  // With Min and Max, the bounds are known without the histogram.
  const auto bounded = results_of(Series(Histogram(HistogramOptions(100, -0.98, 0.98).over_all(true)),
                                         Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true))),
                                  x);
  BOOST_TEST(parameters(bounded, QuantizationOptions().method(Method::min_max)).high.item<float>() == 1.0f);
}

BOOST_AUTO_TEST_CASE(says_what_is_missing_and_what_to_record) {
  const auto x = torch::randn({8, 3, 5});
  BOOST_CHECK_EXCEPTION(parameters(LogHistogram()), c10::ValueError,
                        says({"quantization::parameters", "nothing was recorded"}));
  BOOST_CHECK_EXCEPTION(parameters(results_of(Moments(), x)), c10::ValueError,
                        says({"expected a histogram for mse", "\"mean\"", "record LogHistogram"}));
  BOOST_CHECK_EXCEPTION(parameters(results_of(Moments(), x), QuantizationOptions().method(Method::min_max)),
                        c10::ValueError, says({"Min and Max", "Series(Min, Max)"}));
  BOOST_CHECK_EXCEPTION(parameters(results_of(LogHistogram(), x)), c10::ValueError,
                        says({"[8, 3, 5,", "over_all(true)"}));
  BOOST_CHECK_EXCEPTION(
      parameters(results_of(Series(Min(), Max()), x), QuantizationOptions().method(Method::min_max)),
      c10::ValueError, says({"[8, 3, 5]", "over_all(true)"}));
  BOOST_CHECK_EXCEPTION(
      parameters(results_of(Series(LogHistogram(LogHistogramOptions().over({0, 2})), Min(), Max()), x)),
      c10::ValueError, says({"3 channels", "same dimensions"}));
  const QuantizationOptions percentile = QuantizationOptions().method(Method::percentile);
  const auto good = results_of(LogHistogram(LogHistogramOptions().over_all(true)), x);
  for (const double wrong : {0.0, -1.0, 100.5, std::numeric_limits<double>::quiet_NaN(), infinity})
    BOOST_CHECK_EXCEPTION(parameters(good, QuantizationOptions(percentile).percentile(wrong)),
                          c10::ValueError, says({"(0, 100]"}));
  const auto everything = parameters(good, QuantizationOptions(percentile).percentile(100));
  BOOST_TEST(same(everything, parameters(good, QuantizationOptions().method(Method::min_max))));
}

BOOST_AUTO_TEST_CASE(refuses_results_that_are_damaged) {
  const auto good =
      results_of(Histogram(HistogramOptions(4, -1, 1).over_all(true)), torch::tensor({-0.9, 0.1, 0.2, 1.0}));
  const auto log =
      results_of(LogHistogram(LogHistogramOptions().over_all(true)), torch::tensor({-0.9, 0.0, 0.2, 1.0}));
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto with = [](Results results, const std::string& name, const at::Tensor& tensor) {
    results.set(name, tensor);
    return results;
  };
  for (const Results& damaged :
       {with(good, "counts", torch::tensor({1, -1, 2, 1})),
        with(good, "counts", torch::tensor({1.0, nan, 2.0, 1.0})),
        with(good, "counts", torch::tensor({1, 2, 1})),
        with(good, "counts", torch::zeros({0, 4}, torch::kLong)),
        with(good, "edges", torch::tensor({-1.0, 0.5, 0.0, 0.5, 1.0})),
        with(good, "edges", torch::tensor({-1.0, -0.5, 0.0, 0.5, infinity})),
        with(good, "edges", torch::tensor({-1.0, nan, 0.0, 0.5, 1.0})),
        with(good, "edges", torch::tensor(1.0)), with(good, "edges", torch::zeros({2, 5})),
        with(good, "underflow", torch::tensor(-3)), with(good, "overflow", torch::tensor({1, 2})),
        with(log, "low", torch::tensor({1.0})), with(log, "zeros", torch::tensor({1, 1})),
        with(log, "zeros", torch::tensor(-1)), Results{{"counts", torch::tensor({1, 2})}},
        Results{{"counts", torch::tensor(1)}}}) {
    for (const Method method : methods)
      BOOST_CHECK_EXCEPTION(parameters(damaged, QuantizationOptions().method(method)), c10::ValueError,
                            says({"quantization::parameters: "}));
  }
  BOOST_CHECK_EXCEPTION(parameters(with(good, "counts", torch::zeros({4}, torch::kLong))), c10::ValueError,
                        says({"no finite value"}));
}

BOOST_AUTO_TEST_CASE(a_range_of_equal_values_and_the_smallest_ones) {
  for (const double value : {0.0, 5.0, -5.0, 1e-30, -1e-40}) {
    const auto x = torch::full({7}, value);
    for (const Method method : methods) {
      for (const bool symmetric : {false, true}) {
        const Parameters found =
            parameters(results_of(Series(LogHistogram(LogHistogramOptions().over_all(true)),
                                         Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true))),
                                  x),
                       QuantizationOptions().method(method).symmetric(symmetric));
        BOOST_TEST(found.low.equal(x[0]), value << " " << name_of(method));
        BOOST_TEST(found.high.equal(x[0]), value << " " << name_of(method));
        BOOST_TEST(found.scale.item<float>() >= std::numeric_limits<float>::epsilon());
        BOOST_TEST(close(found.apply(x), x, 0.005, 1e-7));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_range_has_to_be_finite) {
  const auto tensor = [](double value) { return torch::tensor(value, torch::kDouble); };
  for (const auto& [low, high] :
       {std::pair(1.0, 0.0), std::pair(-infinity, 0.0), std::pair(0.0, infinity),
        std::pair(std::nan(""), 1.0), std::pair(0.0, 1e300), std::pair(-3e38, 3e38)})
    BOOST_CHECK_EXCEPTION(from_range(tensor(low), tensor(high), {}), c10::ValueError,
                          says({"quantization::from_range", "finite in float32"}));
  BOOST_CHECK_EXCEPTION(from_range(torch::tensor({0.0, 2.0}), torch::tensor({1.0, 1.0}), {}), c10::ValueError,
                        says({"channel 1", "[2, 1]"}));
  BOOST_CHECK_THROW(from_range(tensor(0), torch::tensor({1.0}), {}), c10::ValueError);
  BOOST_CHECK_THROW(from_range(torch::zeros({0}), torch::zeros({0}), {}), c10::ValueError);
  BOOST_CHECK_THROW(from_range(torch::zeros({1, 1}), torch::ones({1, 1}), {}), c10::ValueError);
  BOOST_CHECK_THROW(from_range({}, {}, {}), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(rounds_tensors_of_any_dtype_and_names_a_missing_axis) {
  torch::manual_seed(4);
  const auto x = torch::randn({3, 4, 5});
  for (const Dtype dtype : dtypes) {
    const Parameters whole =
        from_range(torch::tensor(-2.0), torch::tensor(3.0), QuantizationOptions().dtype(dtype));
    const double scale = whole.scale.item<double>();
    const auto zero = whole.zero_point.item<std::int64_t>();
    const auto expected =
        torch::fake_quantize_per_tensor_affine(x, scale, zero, whole.quant_min(), whole.quant_max());
    BOOST_TEST(whole.apply(x).equal(expected));
    BOOST_TEST(whole.apply(x.transpose(0, 2)).equal(expected.transpose(0, 2)));
    BOOST_TEST(whole.apply(x.to(torch::kDouble)).equal(expected.to(torch::kDouble)));
    BOOST_TEST(whole.apply(x.to(torch::kHalf)).scalar_type() == torch::kHalf);
    BOOST_TEST(whole.quant_max() - whole.quant_min() + 1 == (1 << bits(dtype)));
  }
  const auto numbers = torch::arange(5);
  const Parameters rows = from_range(torch::tensor({-1.0, 0.0, -2.0, 0.0}), torch::ones({4}), {});
  BOOST_TEST(rows.apply(numbers).is_same(numbers));
  BOOST_TEST(rows.apply(x).select(1, 3).equal(
      from_range(torch::tensor(0.0), torch::tensor(1.0), {}).apply(x.select(1, 3))));
  BOOST_CHECK_EXCEPTION(rows.apply(torch::ones({4})), c10::ValueError,
                        says({"Parameters::apply", "4 channels in dimension 1", "[4]"}));
  BOOST_CHECK_EXCEPTION(rows.apply(torch::ones({4, 5})), c10::ValueError, says({"[4, 5]"}));
  BOOST_CHECK_THROW(rows.apply({}), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_weight_has_a_symmetric_scale_for_each_channel) {
  torch::manual_seed(6);
  const auto weight = torch::randn({4, 3, 2, 2}).requires_grad_();
  for (const std::int64_t axis : {0, 1}) {
    const Parameters found = weight_parameters(weight, Dtype::int4, axis);
    BOOST_TEST(found.axis.value() == axis);
    BOOST_TEST(!found.scale.requires_grad());
    for (std::int64_t i = 0; i < weight.size(axis); ++i) {
      const auto one = weight.detach().select(axis, i);
      BOOST_TEST(found.scale[i].equal(one.abs().max() / 7.5));
      BOOST_TEST(found.zero_point[i].item<int>() == 0);
    }
  }
  BOOST_TEST(weight_parameters(torch::ones({3}), Dtype::int8).scale.numel() == 3);
  BOOST_CHECK_EXCEPTION(weight_parameters(weight, Dtype::int8, 4), c10::ValueError,
                        says({"weight_parameters", "dimension 4", "[4, 3, 2, 2]"}));
  BOOST_CHECK_THROW(weight_parameters({}, Dtype::int8), c10::ValueError);
  BOOST_CHECK_THROW(weight_parameters(torch::ones({}), Dtype::int8), c10::ValueError);
  BOOST_CHECK_THROW(weight_parameters(torch::ones({0, 3}), Dtype::int8), c10::ValueError);
  BOOST_CHECK_EXCEPTION(weight_parameters(torch::full({2, 2}, infinity), Dtype::int8), c10::ValueError,
                        says({"weight_parameters", "channel 0"}));
}

BOOST_AUTO_TEST_CASE(names_go_both_ways) {
  for (const Method method : methods) BOOST_TEST((method_of(name_of(method)) == method));
  for (const Dtype dtype : dtypes) BOOST_TEST((dtype_of(name_of(dtype)) == dtype));
  BOOST_CHECK_EXCEPTION(
      method_of("kl"), c10::ValueError,
      says({"quantization::method_of", R"("min_max", "percentile", "mse" and "entropy")", "\"kl\""}));
  BOOST_CHECK_EXCEPTION(dtype_of("fp8"), c10::ValueError, says({"\"int8\", \"uint8\" and \"int4\""}));
}

BOOST_AUTO_TEST_SUITE_END()
