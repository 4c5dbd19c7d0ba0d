// Tests properties of single statistics; table_test.cpp tests those that all share.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <reductions/support.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/reductions/reductions.hpp>

BOOST_AUTO_TEST_SUITE(statistics_tests)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;
using torchtap_test::says;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor numbers(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

/// 40 x 4 with NaN and Inf sprinkled in; column 3 is never finite.
at::Tensor spoiled() {
  at::manual_seed(2);
  auto x = at::randn({40, 4}, at::kDouble) + at::arange(40, at::kDouble).unsqueeze(1) / 10;
  x[0][0] = kNaN;
  x[7][0] = kInf;
  x[39][1] = -kInf;
  x[12][1] = kNaN;
  x.select(1, 3).fill_(kNaN);
  return x;
}

/// The finite values of one column.
at::Tensor finite(const at::Tensor& column) {
  return column.masked_select(column.isfinite());
}

template <class R>
R fed(R reduction, const at::Tensor& rows, std::int64_t batch) {
  for (const auto& part : rows.split(batch)) reduction.update(part);
  return reduction;
}

/// Checks that `omit` equals the reduction of each column without its non-finite values, also after merging
/// and splitting.
template <class R, class Options>
void check_omit(Options options, const char* result) {
  options.over({0}).non_finite(NonFinite::omit);
  const auto x = spoiled();
  for (const std::int64_t batch : {1, 7, 40}) {
    R one = fed(R(options), x.narrow(0, 0, 23), batch);
    one.merge(fed(R(options), x.narrow(0, 23, 17), batch));
    BOOST_TEST(one.count() == 40);
    BOOST_TEST(one.omitted().equal(at::tensor({2, 2, 0, 40}, at::kLong)));
    BOOST_TEST(one.results().at("omitted").equal(one.omitted()));
    for (std::int64_t i = 0; i < 3; ++i) {
      const R want = fed(R(Options(options).non_finite(NonFinite::raise)), finite(x.select(1, i)), 40);
      BOOST_TEST(close(one.results().at(result).select(-1, i), want.results().at(result), 1e-12));
    }
  }
  R each{Options(options).over({})};
  for (const auto& row : x.unbind(0)) each.update(row);
  BOOST_TEST(each.omitted().equal(at::tensor({2, 2, 0, 40}, at::kLong)));
  BOOST_TEST(close(each.results().at(result), fed(R(options), x, 40).results().at(result), 1e-12));
}

template <class R, class Options>
void check_raise(Options options) {
  options.over({0}).non_finite(NonFinite::raise);
  R one{options};
  one.update(at::ones({3, 4}));
  const auto before = one.results();
  BOOST_CHECK_EXCEPTION(one.update(spoiled()), c10::ValueError, says({"42 NaN", "2 Inf", "[40, 4]", "omit"}));
  BOOST_CHECK_THROW(one.check(spoiled()), c10::ValueError);
  BOOST_TEST(one.count() == 3);
  for (const auto& [name, tensor] : one.results()) BOOST_TEST(close(tensor, before.at(name), 0.0));
  one.update(at::ones({3, 4}, at::kLong));
  BOOST_TEST(one.count() == 6);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(non_finite)

BOOST_AUTO_TEST_CASE(omit_leaves_out_and_counts) {
  check_omit<Sum>(SumOptions(), "value");
  check_omit<Mean>(MeanOptions(), "value");
  for (const auto* result : {"mean", "variance", "skewness", "kurtosis"}) {
    check_omit<Moments>(MomentsOptions(), result);
  }
  check_omit<Min>(MinOptions(), "value");
  check_omit<Max>(MaxOptions(), "value");
  check_omit<AbsMax>(AbsMaxOptions(), "value");
  check_omit<Norm>(NormOptions(), "value");
}

BOOST_AUTO_TEST_CASE(omitting_everything_leaves_nan_or_nothing) {
  const auto x = spoiled().select(1, 3);
  const auto options = [](auto wanted) { return wanted.over_all(true).non_finite(NonFinite::omit); };
  BOOST_TEST(fed(Sum(options(SumOptions())), x, 40).value().item<double>() == 0.0);
  BOOST_TEST(std::isnan(fed(Mean(options(MeanOptions())), x, 40).value().item<double>()));
  BOOST_TEST(std::isnan(fed(Moments(options(MomentsOptions())), x, 40).mean().item<double>()));
  BOOST_TEST(std::isnan(fed(Moments(options(MomentsOptions())), x, 40).variance().item<double>()));
  BOOST_TEST(std::isnan(fed(Min(options(MinOptions())), x, 40).value().item<double>()));
  BOOST_TEST(std::isnan(fed(Max(options(MaxOptions())), x, 40).value().item<double>()));
  // Elements without values so far must accept later ones.
  auto mean = fed(Moments(options(MomentsOptions())), x, 40);
  mean.update(numbers({1, 2, 6}));
  BOOST_TEST(mean.mean().item<double>() == 3.0);
  BOOST_TEST(mean.variance().item<double>() == 7.0);
}

BOOST_AUTO_TEST_CASE(raise_names_how_many) {
  check_raise<Sum>(SumOptions());
  check_raise<Mean>(MeanOptions());
  check_raise<Moments>(MomentsOptions());
  check_raise<Min>(MinOptions());
  check_raise<Max>(MaxOptions());
  check_raise<AbsMax>(AbsMaxOptions());
  check_raise<Norm>(NormOptions());
}

BOOST_DATA_TEST_CASE(propagate_is_what_torch_does, bdata::make({1, 7, 40}), batch) {
  for (const double bad : {kNaN, kInf, -kInf}) {
    auto x = spoiled().narrow(1, 2, 1).clone();
    x[11][0] = bad;
    BOOST_TEST(close(fed(Sum(SumOptions().over({0})), x, batch).value(), x.sum(0), 1e-12));
    BOOST_TEST(close(fed(Mean(MeanOptions().over({0})), x, batch).value(), x.mean(0), 1e-12));
    const Moments moments = fed(Moments(MomentsOptions().over({0})), x, batch);
    BOOST_TEST(close(moments.mean(), x.mean(0), 1e-12));
    BOOST_TEST(close(moments.variance(), x.var(0, true), 1e-12));
    BOOST_TEST(std::isnan(moments.skewness().item<double>()));
    BOOST_TEST(std::isnan(moments.kurtosis().item<double>()));
    BOOST_TEST(close(fed(Min(MinOptions().over({0})), x, batch).value(), x.amin(0), 1e-12));
    BOOST_TEST(close(fed(Max(MaxOptions().over({0})), x, batch).value(), x.amax(0), 1e-12));
    BOOST_TEST(close(fed(Norm(NormOptions().over({0})), x, batch).value(), x.norm(2, {0}), 1e-12));
    BOOST_TEST(close(fed(Mean(), x.view(-1), 40).value(), x.view(-1), 1e-12));
  }
  BOOST_TEST(Sum(SumOptions()).fresh().describe() == "Sum");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(folding)

BOOST_AUTO_TEST_CASE(dimensions_are_the_users_choice) {
  at::manual_seed(3);
  const auto a = at::randn({4, 3, 5, 6}, at::kDouble);
  const auto b = at::randn({2, 3, 7, 1}, at::kDouble);
  const auto rows =
      at::cat({a.permute({0, 2, 3, 1}).reshape({-1, 3}), b.permute({0, 2, 3, 1}).reshape({-1, 3})});
  for (const auto& dims : std::vector<std::vector<std::int64_t>>{{0, 2, 3}, {-1, 0, -2}}) {
    Moments moments{MomentsOptions().over(dims)};
    Last last{LastOptions().over(dims)};
    for (const auto& batch : {a, b}) {
      moments.update(batch);
      last.update(batch);
    }
    BOOST_TEST(moments.count() == rows.size(0));
    BOOST_TEST(close(moments.mean(), rows.mean(0), 1e-12));
    BOOST_TEST(close(moments.variance(), rows.var(0, true), 1e-12));
    BOOST_TEST(close(last.value(), rows[-1], 0.0));
  }
}

BOOST_AUTO_TEST_CASE(over_all_leaves_no_dimensions) {
  at::manual_seed(4);
  const auto a = at::randn({4, 3}, at::kDouble), b = at::randn({7}, at::kDouble),
             c = at::randn({}, at::kDouble);
  const auto every = at::cat({a.view(-1), b, c.view(-1)});
  Moments moments{MomentsOptions().over_all(true).unbiased(false)};
  for (const auto& sample : {a, b, c}) {
    moments.update(sample);
  }
  BOOST_TEST(moments.count() == 20);
  BOOST_TEST(close(moments.variance(), every.var(false), 1e-12));
}

BOOST_AUTO_TEST_CASE(wrong_dimensions_are_explained) {
  BOOST_CHECK_EXCEPTION(Sum(SumOptions().over({0}).over_all(true)), c10::ValueError, says({"Sum", "both"}));
  BOOST_CHECK_EXCEPTION(Sum(SumOptions().over({0, -2})).update(at::ones({2, 3})), c10::ValueError,
                        says({"Sum::update", "[0, -2]", "twice"}));
  BOOST_CHECK_EXCEPTION(Sum(SumOptions().over({2})).update(at::ones({2, 3})), c10::ValueError,
                        says({"Sum::update", "dimension 2", "[2, 3]"}));
  Sum sum;
  BOOST_CHECK_EXCEPTION(sum.value(), c10::ValueError, says({"Sum::value", "no samples"}));
  sum.update(at::ones({2, 3}));
  BOOST_CHECK_EXCEPTION(sum.update(at::ones({2, 4})), c10::ValueError,
                        says({"Sum::update", "[2, 4]", "[2, 3]", "1 so far", "over(dims)"}));
  Sum other(SumOptions().over({1}).non_finite(NonFinite::omit));
  BOOST_CHECK_EXCEPTION(sum.merge(other), c10::ValueError,
                        says({"Sum(over=[1], non_finite=omit)", "into Sum;"}));
  other = Sum();
  other.update(at::ones({3}));
  BOOST_CHECK_EXCEPTION(sum.merge(other), c10::ValueError, says({"of shape [3]", "of shape [2, 3]"}));
  BOOST_CHECK_EXCEPTION(Min().update(at::ones({2}, at::kComplexFloat)), c10::TypeError,
                        says({"ComplexFloat", "abs"}));
}

BOOST_AUTO_TEST_CASE(a_stream_of_several_dtypes_is_promoted) {
  const auto half = at::full({3}, 0.5, at::kHalf), whole = at::full({3}, 7, at::kLong),
             real = at::full({3}, 0.1, at::kDouble);
  Sum sum;
  Mean mean;
  Max max;
  Last last;
  for (const auto& sample : {whole, half, real}) {
    sum.update(sample);
    mean.update(sample);
    max.update(sample);
    last.update(sample);
  }
  BOOST_TEST(close(sum.value(), at::full({3}, 7.6, at::kDouble), 1e-12));
  BOOST_TEST(close(mean.value(), at::full({3}, 7.6 / 3, at::kDouble), 1e-12));
  BOOST_TEST(close(max.value(), at::full({3}, 7.0), 0.0));
  BOOST_TEST(close(last.value(), real, 0.0));
  BOOST_TEST(close(Sum(sum).value(), sum.value(), 0.0));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(statistics)

BOOST_AUTO_TEST_CASE(the_dtypes_that_results_have) {
  const auto of = [](auto reduction, at::ScalarType dtype) {
    reduction.update(at::ones({2}, dtype));
    reduction.update(at::ones({2}, dtype));
    return reduction.results().begin()->second.scalar_type();
  };
  BOOST_CHECK(of(Sum(), at::kFloat) == at::kFloat);
  BOOST_CHECK(of(Sum(), at::kHalf) == at::kFloat);
  BOOST_CHECK(of(Sum(), at::kByte) == at::kLong);
  BOOST_CHECK(of(Sum(), at::kBool) == at::kLong);
  BOOST_CHECK(of(Sum(), at::kComplexFloat) == at::kComplexFloat);
  BOOST_CHECK(of(Mean(), at::kFloat) == at::kFloat);
  BOOST_CHECK(of(Mean(), at::kBFloat16) == at::kFloat);
  BOOST_CHECK(of(Mean(), at::kLong) == at::kDouble);
  BOOST_CHECK(of(Moments(), at::kFloat) == at::kDouble);
  BOOST_CHECK(of(Min(), at::kHalf) == at::kHalf);
  BOOST_CHECK(of(Max(), at::kChar) == at::kChar);
  BOOST_CHECK(of(AbsMax(), at::kChar) == at::kLong);
  BOOST_CHECK(of(AbsMax(), at::kComplexFloat) == at::kFloat);
  BOOST_CHECK(of(Norm(), at::kComplexDouble) == at::kDouble);
  BOOST_CHECK(of(Norm(), at::kHalf) == at::kFloat);
  BOOST_CHECK(of(First(), at::kBFloat16) == at::kBFloat16);
}

BOOST_AUTO_TEST_CASE(long_sums_do_not_lose_small_samples) {
  Sum whole;
  Mean mean;
  for (int i = 0; i < 3000; ++i) {
    whole.update(at::full({2}, 100, at::kByte));  // sums to 300000: beyond uint8 and half
    mean.update(at::full({2}, 0.1F));
  }
  BOOST_TEST(whole.value().equal(at::full({2}, 300000, at::kLong)));
  Mean big;
  big.update(at::full({2}, 1e8F));
  for (int i = 0; i < 99; ++i) big.update(at::ones({2}));
  BOOST_TEST(close(big.value(), at::full({2}, (1e8 + 99) / 100), 1e-7));
  BOOST_TEST(close(mean.value(), at::full({2}, 0.1F), 1e-7));
}

BOOST_AUTO_TEST_CASE(sum_takes_the_short_way_and_the_long_one_alike) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t size : {1, 15, 16, 17, 100, 4095, 4096, 70000}) {
      at::manual_seed(size);
      const auto x = at::randn({3, size}, dtype);
      Sum sum;
      Mean mean;
      auto want = at::zeros({size}, dtype);
      for (const auto& row : x.unbind(0)) {
        sum.update(row);
        mean.update(row);
        want.add_(row);
      }
      BOOST_TEST(sum.value().equal(want));
      BOOST_TEST(close(mean.value(), x.to(at::kDouble).mean(0), 1e-6));
      BOOST_TEST(sum.count() == 3);
    }
  }
  // Tensors that only look plain must not take the fast path.
  Sum sum;
  sum.update(at::ones({4}));
  sum.update(at::_efficientzerotensor({4}, at::TensorOptions().dtype(at::kFloat)));
  sum.update(at::ones({4}).as_strided({4}, {0}));
  BOOST_TEST(sum.value().equal(at::full({4}, 2.0F)));
  BOOST_CHECK_THROW(sum.update(at::ones({2, 2})), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(an_offset_does_not_spoil_a_variance) {
  at::manual_seed(6);
  const auto x = at::randn({5000, 3}, at::kDouble);
  for (const double offset : {1e3, 1e6}) {
    const auto shifted = x + offset;
    Moments each;
    for (const auto& row : shifted.unbind(0)) each.update(row);
    const auto batched = fed(Moments(MomentsOptions().over({0})), shifted, 64);
    for (const auto& moments : {each, batched}) {
      BOOST_TEST(close(moments.variance(), x.var(0, true), offset * 1e-14 + 1e-12));
      BOOST_TEST(close(moments.kurtosis(), fed(Moments(MomentsOptions().over({0})), x, 5000).kurtosis(),
                       offset * 1e-12));
    }
  }
  Moments constant;
  for (int i = 0; i < 100; ++i) constant.update(at::full({2}, 1000.1F));
  BOOST_TEST(constant.variance().equal(at::zeros({2}, at::kDouble)));
  const auto floats = fed(Moments(MomentsOptions().over({0})), (x + 1000).to(at::kFloat), 100);
  BOOST_TEST(close(floats.variance(), (x + 1000).to(at::kFloat).to(at::kDouble).var(0, true), 1e-10));
}

/// The bound of the header: 2^-52 times the offset in deviations, in one update, many, or merged.
BOOST_AUTO_TEST_CASE(a_large_offset_leaves_a_variance_within_its_bound) {
  at::manual_seed(7);
  for (const double offset : {1e6, 1e9, 1e11, 1e13}) {
    const at::Tensor x = at::randn({4000}, at::kDouble) + offset;
    const double want = (x - offset).var().item<double>();  // exact differences
    for (const std::int64_t rows : {1, 40, 4000}) {
      const auto all = MomentsOptions().over_all(true);
      Moments merged(all);
      for (const at::Tensor& part : x.split(rows)) merged.merge(fed(Moments(all), part, rows));
      const auto each = fed(Moments(MomentsOptions().order(2)), x.unsqueeze(1).reshape({-1, rows}), 1);
      BOOST_TEST_CONTEXT(offset << ' ' << rows) {
        for (const at::Tensor& got : {fed(Moments(all), x, rows).variance(), merged.variance()})
          BOOST_TEST(std::abs(got.item<double>() / want - 1) < 0x1p-52 * offset);
        if (rows == 1) {
          BOOST_TEST(std::abs(each.variance().reshape({}).item<double>() / want - 1) < 0x1p-52 * offset);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(complex_moments_have_no_skewness) {
  Moments moments{MomentsOptions().over({0})};
  at::manual_seed(0);
  const auto x = at::randn({9, 2}, at::kComplexDouble);
  moments.update(x);
  BOOST_TEST(close(moments.variance(), x.var(0, true), 1e-12));
  BOOST_TEST(!moments.results().contains("skewness"));
  BOOST_CHECK_EXCEPTION(moments.kurtosis(), c10::TypeError, says({"kurtosis", "complex"}));
  BOOST_CHECK_THROW(moments.update(at::ones({9, 2})), c10::ValueError);
  BOOST_TEST(moments.count() == 9);
  BOOST_CHECK_THROW(moments.check(at::ones({9, 2})), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_series_takes_no_part_of_a_sample_of_another_kind) {
  Series series{Sum(), Moments()};
  series.update(at::ones({3}));
  BOOST_CHECK_THROW(series.update(at::ones({3}, at::kComplexFloat)), c10::ValueError);
  BOOST_TEST(series.get<Sum>().count() == 1);
  BOOST_TEST(series.get<Moments>().count() == 1);
}

BOOST_AUTO_TEST_CASE(extrema_begin_at_the_first_sample) {
  const auto x = numbers({-5, -3, -9});
  BOOST_TEST(fed(Max(MaxOptions().over_all(true)), x, 1).value().item<double>() == -3);
  BOOST_TEST(fed(Min(MinOptions().over_all(true)), -x, 1).value().item<double>() == 3);
  AbsMax abs;
  abs.update(at::tensor({-128, 5}, at::kChar));
  BOOST_TEST(abs.value().equal(at::tensor({128, 5}, at::kLong)));
  for (const auto& [dtype, size] :
       {std::pair(at::kComplexFloat, 1e30), std::pair(at::kComplexDouble, 1e300)}) {
    for (const std::int64_t numel : {1, 9, 40}) {  // the squares overflow
      const at::Tensor z =
          at::full({numel}, c10::complex<double>(3 * size, -4 * size), at::TensorOptions().dtype(dtype));
      const double got = fed(AbsMax(AbsMaxOptions().over_all(true)), z, numel).value().item<double>();
      BOOST_TEST(got == 5 * size, boost::test_tools::tolerance(1e-6));
    }
  }
}

BOOST_AUTO_TEST_CASE(norm_of_any_order) {
  const auto x = numbers({3, -4, 12});
  const auto norm = [&](double p) {
    return fed(Norm(NormOptions().p(p).over_all(true)), x, 1).value().item<double>();
  };
  BOOST_TEST(norm(1) == 19.0);
  BOOST_TEST(norm(2) == 13.0);
  BOOST_TEST(norm(kInf) == 12.0);
  BOOST_TEST(norm(0.5) == x.norm(0.5).item<double>(), boost::test_tools::tolerance(1e-12));
  Norm large{NormOptions().over_all(true)};
  large.update(at::full({4}, 1e30F));  // the squares overflow a float
  BOOST_TEST(close(large.value(), at::scalar_tensor(2e30F), 1e-6));
  for (const double p : {0.0, -1.0, kNaN}) BOOST_CHECK_THROW(Norm(NormOptions().p(p)), c10::ValueError);
  BOOST_CHECK_THROW(Norm().merge(Norm(NormOptions().p(3))), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(count_takes_all) {
  Count count;
  count.update(numbers({kNaN, kInf, -kInf, 0, 2}));
  count.update(at::zeros({2, 3}, at::kBool));
  count.update(at::ones({2}, at::kComplexFloat));
  BOOST_TEST(count.rows() == 3);
  BOOST_TEST(count.elements() == 13);
  BOOST_TEST(count.nan().item<std::int64_t>() == 1);
  BOOST_TEST(count.inf().item<std::int64_t>() == 2);
  BOOST_TEST(count.zeros().item<std::int64_t>() == 7);
  for (const auto& [name, tensor] : count.results())
    BOOST_CHECK(tensor.dim() == 0 && tensor.scalar_type() == at::kLong);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_counted_is_not_counted_in_part) {
  Count count;
  BOOST_CHECK_THROW(count.update(at::ones({4}, at::TensorOptions().device(at::kMeta))), c10::Error);
  BOOST_TEST(count.rows() == 0);
  BOOST_TEST(count.elements() == 0);
}

BOOST_AUTO_TEST_CASE(what_is_its_value_can_be_assigned) {
  const auto value = at::full({2}, 8.0, at::kDouble);
  const auto next = at::full({2}, 2.0, at::kDouble);
  const auto go_on = [&](auto reduction) {
    for (int i = 0; i < 4; ++i) reduction.update(at::full({2}, 5.0 + i));
    reduction.assign(value);
    BOOST_TEST(close(reduction.value(), value, 1e-12));
    BOOST_TEST(reduction.count() == 4);
    BOOST_CHECK_THROW(reduction.assign(at::ones({3})), c10::ValueError);
    reduction.update(next);
    return reduction.value()[0].template item<double>();
  };
  BOOST_TEST(go_on(Sum()) == 10.0);
  BOOST_TEST(go_on(Min()) == 2.0);
  BOOST_TEST(go_on(Max()) == 8.0);
  BOOST_TEST(go_on(AbsMax()) == 8.0);
  BOOST_TEST(go_on(First()) == 8.0);
  BOOST_TEST(go_on(Last()) == 2.0);
  BOOST_TEST(core::make_sink(Sum())->assign(value));
  BOOST_TEST(!core::make_sink(Mean())->assign(value));
  Sum empty;
  empty.assign(value);
  BOOST_TEST(empty.count() == 1);
  BOOST_TEST(!empty.results().empty());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
