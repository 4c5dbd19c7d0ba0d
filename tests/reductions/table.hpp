#pragma once

/// A table of checks for every reduction: properties that all of them share. Who includes it defines `cases`.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include <torchtap/reductions/reductions.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(table)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;

using Sinks = std::function<std::unique_ptr<core::Sink>()>;
using Oracle = std::function<core::Results(const at::Tensor& rows)>;

struct Case {
  std::string name;
  Sinks elementwise;  // one sample is one row
  Sinks over;         // over({0})
  Oracle oracle;      // expected results from all rows, [N, D] in float64
  bool complex = true;
  bool reals = true;   // false: skips bool and int
  bool shaped = true;  // false: takes any shape
};

inline std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.name;
}

template <class R, class Options>
Case make(std::string name, Options options, Oracle oracle, bool complex = true) {
  return {std::move(name), [options] { return core::make_sink(R(options)); },
          [options] { return core::make_sink(R(Options(options).over({0}))); }, std::move(oracle), complex};
}

/// The reductions to check.
const std::vector<Case>& cases();

/// The results of a `LogHistogram(3)` over rows, [N, D].
inline core::Results log_histogram_of(const at::Tensor& x) {
  // The ends of all bins, and those that have a value.
  std::vector<at::Tensor> ends{at::zeros({1}, at::kDouble)};
  for (int octave = -127; octave < 128; ++octave) {
    const at::Tensor inside = (at::arange(1, 9, at::kDouble) / 8 + (octave == -127 ? 0 : 1));
    ends.push_back(inside * std::ldexp(1.0, octave == -127 ? -126 : octave));
  }
  const at::Tensor above = at::cat(ends), edges = at::cat({-above.flip(0), above.slice(0, 1)});
  const at::Tensor magnitudes = at::bucketize(x.abs(), above, false, /*right=*/true).clamp_max(2040);
  const at::Tensor bins = at::where(x < 0, 2040 - magnitudes, 2039 + magnitudes);
  const at::Tensor wide = at::one_hot(bins, 4080).sum(0);
  // What is counted apart was put into the bins next to 0.
  const at::Tensor zeros = (x == 0).to(at::kLong).sum(0);
  wide.select(1, 2040).sub_(zeros);
  const at::Tensor used = (wide != 0).any(0).nonzero().squeeze(1);
  return core::Results{{"counts", wide.index_select(1, used)},
                       {"low", edges.index_select(0, used)},
                       {"high", edges.index_select(0, used + 1)},
                       {"zeros", zeros},
                       {"negative_infinity", at::isneginf(x).sum(0)},
                       {"positive_infinity", at::isposinf(x).sum(0)},
                       {"nan", x.isnan().sum(0)}};
}

namespace {

/// 64 rows of 5 features with a drifting mean, so that a wrong term between batches cannot cancel out.
at::Tensor drifting(at::ScalarType dtype = at::kDouble) {
  at::manual_seed(0);
  const auto rows = at::randn({64, 5}, at::kDouble) + at::arange(64, at::kDouble).unsqueeze(1) / 16 - 2;
  if (!at::isComplexType(dtype)) return rows.to(dtype);
  return at::complex(rows, at::randn({64, 5}, at::kDouble)).to(dtype);
}

void feed(core::Sink& sink, const at::Tensor& rows, std::int64_t batch) {
  for (const auto& part : rows.split(batch)) sink.update(part);
}

void check_state(const core::Results& got, const core::Results& want, double rtol = 1e-10) {
  for (const auto& [name, tensor] : want) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST_REQUIRE(got.contains(name));
      BOOST_TEST(close(got.at(name), tensor, rtol));
    }
  }
}

void check_same(const core::Results& got, const core::Results& want, double rtol = 1e-10) {
  BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
  check_state(got, want, rtol);
}

core::Results deep(const core::Results& state) {
  core::Results copy;
  for (const auto& [name, tensor] : state) copy.set(name, tensor.clone());
  return copy;
}

}  // namespace

BOOST_DATA_TEST_CASE(fresh_is_empty, bdata::make(cases())) {
  for (const auto& make_one : {sample.elementwise, sample.over}) {
    const auto one = make_one();
    BOOST_TEST(one->count() == 0);
    BOOST_TEST(one->results().empty());
    BOOST_TEST(!one->describe().empty());
    one->update(drifting());
    const auto fresh = one->fresh();
    BOOST_TEST(fresh->count() == 0);
    BOOST_TEST(fresh->results().empty());
    BOOST_TEST(fresh->describe() == one->describe());
    fresh->update(drifting());
    check_same(fresh->results(), one->results(), 0);
  }
}

BOOST_DATA_TEST_CASE(elementwise_equals_the_composition, bdata::make(cases())) {
  const auto rows = drifting();
  const auto one = sample.elementwise();
  for (const auto& row : rows.unbind(0)) one->update(row);
  BOOST_TEST(one->count() == 64);
  check_state(one->results(), sample.oracle(rows));
}

BOOST_DATA_TEST_CASE(one_sample, bdata::make(cases())) {
  const auto rows = drifting().narrow(0, 3, 1);
  for (const bool over : {false, true}) {
    const auto one = over ? sample.over() : sample.elementwise();
    one->update(over ? rows : rows[0]);
    BOOST_TEST(one->count() == 1);
    check_state(one->results(), sample.oracle(rows));
  }
}

BOOST_DATA_TEST_CASE(split_invariance, bdata::make(cases()) * bdata::make({1, 3, 8, 64}), one_case, batch) {
  const auto rows = drifting();
  const auto one = one_case.over();
  feed(*one, rows, batch);
  BOOST_TEST(one->count() == 64);
  check_state(one->results(), one_case.oracle(rows));
}

BOOST_DATA_TEST_CASE(merge_is_one_stream, bdata::make(cases()) * bdata::xrange(0, 65), one_case, split) {
  const auto rows = drifting();
  for (const bool over : {false, true}) {
    const auto left = over ? one_case.over() : one_case.elementwise();
    const auto right = left->clone();
    const auto put = [&](core::Sink& sink, const at::Tensor& part) {
      if (over) {
        feed(sink, part, 5);
      } else {
        for (const auto& row : part.unbind(0)) sink.update(row);
      }
    };
    if (split > 0) put(*left, rows.narrow(0, 0, split));
    if (split < 64) put(*right, rows.narrow(0, split, 64 - split));
    const auto before = deep(right->results());
    left->merge(*right);
    BOOST_TEST(left->count() == 64);
    check_state(left->results(), one_case.oracle(rows));
    // The other is unchanged, and the merged one is independent of it.
    const auto merged = deep(left->results());
    check_same(right->results(), before, 0);
    put(*right, rows.narrow(0, 0, 7) * 3);
    check_same(left->results(), merged, 0);
    put(*left, rows.narrow(0, 0, 7) * 2);
    check_state(left->results(), one_case.oracle(at::cat({rows, rows.narrow(0, 0, 7) * 2})));
  }
}

BOOST_DATA_TEST_CASE(merge_with_itself, bdata::make(cases())) {
  const auto rows = drifting().narrow(0, 0, 20);
  const auto one = sample.over();
  one->update(rows);
  one->merge(*one);
  BOOST_TEST(one->count() == 40);
  check_state(one->results(), sample.oracle(at::cat({rows, rows})));
}

BOOST_DATA_TEST_CASE(a_wrong_sample_changes_nothing, bdata::make(cases())) {
  for (const bool over : {false, true}) {
    const auto one = over ? sample.over() : sample.elementwise();
    const auto rows = drifting();
    one->update(over ? rows : rows[0]);
    one->update(over ? rows : rows[1]);
    const auto before = deep(one->results());
    const auto count = one->count();
    const auto nothing_changed = [&] {
      BOOST_TEST(one->count() == count);
      check_same(one->results(), before, 0);
    };
    if (sample.shaped) {
      if (sample.name != "Over a callable") {  // it broadcasts
        BOOST_CHECK_EXCEPTION(one->update(over ? at::ones({3, 4}) : at::ones({4})), c10::ValueError,
                              [](const c10::Error& error) {
                                const std::string text = error.what_without_backtrace();
                                return text.find("[5]") != std::string::npos &&
                                       text.find("4]") != std::string::npos;
                              });
        nothing_changed();
        auto other = over ? sample.over() : sample.elementwise();
        other->update(at::ones({4, 4}));
        BOOST_CHECK_THROW(one->merge(*other), c10::ValueError);
        nothing_changed();
      }
    }
    if (over) {
      BOOST_CHECK_THROW(one->update(at::ones({})), c10::ValueError);
      nothing_changed();
    }
    if (sample.name.find("callable") == std::string::npos && sample.name != "Map") {
      BOOST_CHECK_THROW(one->update(at::Tensor()), c10::TypeError);
      BOOST_CHECK_THROW(one->update(at::eye(5).to_sparse()), c10::TypeError);
      BOOST_CHECK_THROW(one->update(at::quantize_per_tensor(at::ones({5, 5}), 0.1, 0, at::kQInt8)),
                        c10::TypeError);
      if (!sample.complex)
        BOOST_CHECK_THROW(
            one->update(over ? at::ones({5, 5}, at::kComplexFloat) : at::ones({5}, at::kComplexFloat)),
            c10::TypeError);
      nothing_changed();
      const auto other = reductions::over({0}, reductions::over({0}, Sum()));
      BOOST_CHECK_THROW(one->merge(*core::make_sink(other)), c10::TypeError);
      nothing_changed();
    }
    if (sample.name != "Over" && sample.name != "Over a callable" && sample.name != "Blocks") {
      const auto other = over ? sample.elementwise() : sample.over();
      other->update(over ? rows[0] : rows);
      if (sample.name != "Map" && sample.name != "Series")
        BOOST_CHECK_THROW(one->merge(*other), c10::ValueError);
    }
    nothing_changed();
  }
}

BOOST_DATA_TEST_CASE(an_empty_batch_changes_nothing, bdata::make(cases())) {
  const auto one = sample.over();
  one->update(at::empty({0, 5}, at::kDouble));
  BOOST_TEST(one->count() == 0);
  BOOST_TEST(one->results().empty());
  one->update(at::empty({0, 4}, at::kDouble));  // does not fix the shape
  const auto rows = drifting();
  one->update(rows);
  one->update(at::empty({0, 5}, at::kDouble));
  BOOST_TEST(one->count() == 64);
  check_state(one->results(), sample.oracle(rows));
}

BOOST_DATA_TEST_CASE(tensors_without_dimensions_and_without_elements, bdata::make(cases())) {
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{}, {0}, {3, 0, 2}}) {
    const auto one = sample.elementwise();
    at::manual_seed(1);
    const auto first = at::randn(shape, at::kDouble);
    const auto second = at::randn(shape, at::kDouble);
    one->update(first);
    one->update(second);
    BOOST_TEST(one->count() == 2);
    const auto all = at::stack({first, second}).reshape({2, first.numel()});
    if (first.numel() == 0) {
      BOOST_TEST(!one->results().empty());
    } else {
      for (const auto& [name, tensor] : sample.oracle(all)) {
        BOOST_TEST_CONTEXT(name) {
          const auto got = one->results().at(name);
          BOOST_TEST(close(got.reshape(-1), tensor.reshape(-1), 1e-10));
        }
      }
    }
    auto other = one->clone();
    one->merge(*other);
    BOOST_TEST(one->count() == 4);
  }
}

BOOST_DATA_TEST_CASE(dtypes,
                     bdata::make(cases()) *
                         bdata::make({at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                                      at::kByte, at::kBool, at::kComplexFloat, at::kComplexDouble}),
                     one_case, dtype) {
  if (at::isComplexType(dtype) && !one_case.complex) return;
  if (dtype == at::kBool && one_case.name == "Map") return;  // abs() does not support bool
  if (dtype == at::kBool && one_case.name == "Over a callable") return;
  const bool callable = one_case.name.find("callable") != std::string::npos;
  if (callable && (dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kByte))
    return;  // depends on the callable
  if (one_case.name == "Map" && (dtype == at::kHalf || dtype == at::kBFloat16)) return;
  auto rows = dtype == at::kByte ? (drifting() * 3).abs().to(dtype) : drifting(dtype);
  const auto exact = rows.to(at::isComplexType(dtype) ? at::kComplexDouble : at::kDouble);
  const auto one = one_case.over();
  feed(*one, rows, 6);
  const auto each = one_case.elementwise();
  for (const auto& row : rows.unbind(0)) each->update(row);
  const double rtol =
      dtype == at::kFloat || dtype == at::kComplexFloat || dtype == at::kHalf || dtype == at::kBFloat16
          ? 1e-5
          : 1e-10;
  check_state(one->results(), one_case.oracle(exact), rtol);
  check_state(each->results(), one_case.oracle(exact), rtol);
}

BOOST_DATA_TEST_CASE(non_contiguous, bdata::make(cases())) {
  const auto rows = drifting();
  const auto one = sample.over();
  one->update(rows.t().contiguous().t().narrow(0, 0, 30));
  one->update(at::stack({rows, rows * 0 - 99}, 2).select(2, 0).narrow(0, 30, 34));
  check_state(one->results(), sample.oracle(rows));
  const auto each = sample.elementwise();
  const auto transposed = rows.t().contiguous();
  for (std::int64_t i = 0; i < 64; ++i) each->update(transposed.select(1, i));
  check_state(each->results(), sample.oracle(rows));
  if (sample.complex) {
    const auto complex = drifting(at::kComplexDouble);
    const auto conjugate = sample.elementwise();
    for (const auto& row : complex.unbind(0)) conjugate->update(row.conj());
    check_state(conjugate->results(), sample.oracle(complex.conj().resolve_conj()));
  }
  const auto negative = sample.elementwise();  // the imaginary part of a conjugate has a lazy negation
  const auto complex = drifting(at::kComplexDouble);
  for (const auto& row : complex.unbind(0)) negative->update(at::imag(row.conj()));
  check_state(negative->results(), sample.oracle(at::imag(complex).neg().contiguous()));
}

BOOST_DATA_TEST_CASE(gradients_and_inference_mode, bdata::make(cases())) {
  const auto rows = drifting();
  const auto leaf = rows.clone().requires_grad_(true);
  const auto one = sample.over();
  feed(*one, leaf * 1, 9);
  for (const auto& [name, tensor] : one->results()) BOOST_TEST(!tensor.requires_grad());
  check_state(one->results(), sample.oracle(rows));
  BOOST_TEST(!leaf.grad().defined());

  // Started in inference mode and continued outside, and the other way round.
  const auto mixed = sample.over();
  std::unique_ptr<core::Sink> copy;
  {
    const c10::InferenceMode inference;
    feed(*mixed, rows.narrow(0, 0, 10) * 1, 3);
    copy = mixed->clone();
  }
  feed(*mixed, rows.narrow(0, 10, 30), 7);
  {
    const c10::InferenceMode inference;
    feed(*mixed, rows.narrow(0, 40, 24) * 1, 7);
  }
  check_state(mixed->results(), sample.oracle(rows));
  feed(*copy, rows.narrow(0, 10, 54), 7);
  check_state(copy->results(), sample.oracle(rows));
}

BOOST_DATA_TEST_CASE(global_generator_is_untouched, bdata::make(cases())) {
  const auto rows = drifting();
  at::manual_seed(5);
  const auto want = at::randn({8});
  at::manual_seed(5);
  const auto one = sample.over();
  feed(*one, rows, 3);
  one->merge(*one->clone());
  (void)one->results();
  BOOST_TEST(at::randn({8}).equal(want));
}

BOOST_DATA_TEST_CASE(copies_and_results_never_change, bdata::make(cases())) {
  const auto rows = drifting();
  for (const bool over : {false, true}) {
    const auto one = over ? sample.over() : sample.elementwise();
    const auto put = [&](core::Sink& sink, std::int64_t i) {
      sink.update(over ? rows.narrow(0, i, 4) : rows[i]);
    };
    for (std::int64_t i = 0; i < 6; ++i) put(*one, i);
    const auto state = one->results();
    const auto want = deep(state);
    const auto copy = one->clone();
    for (std::int64_t i = 6; i < 20; ++i) put(*one, i);
    check_same(state, want, 0);
    check_same(copy->results(), want, 0);
    for (const auto& [name, tensor] : copy->results()) at::Tensor(tensor).zero_();  // copies
    check_same(copy->results(), want, 0);
    auto changing = rows[0].clone();  // the state must not change with the sample
    const auto kept = sample.elementwise();
    kept->update(changing);
    const auto first = deep(kept->results());
    changing.fill_(1e3);
    check_same(kept->results(), first, 0);
  }
}

BOOST_DATA_TEST_CASE(saved_and_loaded_goes_on, bdata::make(cases()) * bdata::make({0, 1, 20, 64}), one_case,
                     split) {
  const auto rows = drifting();
  for (const bool over : {false, true}) {
    const auto one = over ? one_case.over() : one_case.elementwise();
    const auto put = [&](core::Sink& sink, std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; ++i) sink.update(over ? rows.narrow(0, i, 1) : rows[i]);
    };
    put(*one, 0, split);
    std::stringstream stream;
    {
      core::OutputArchive archive(stream);
      one->save(archive);
    }
    const auto loaded = over ? one_case.over() : one_case.elementwise();
    if (split == 20) put(*loaded, 3, 8);  // loading replaces the previous state
    core::InputArchive archive(stream);
    loaded->load(archive);
    BOOST_TEST(loaded->count() == one->count());
    BOOST_TEST(loaded->describe() == one->describe());
    check_same(loaded->results(), one->results(), 0);
    put(*one, split, 64);
    put(*loaded, split, 64);
    check_same(loaded->results(), one->results(), 0);
    check_state(loaded->results(), one_case.oracle(rows));
  }
}

BOOST_DATA_TEST_CASE(a_cut_archive_is_an_error, bdata::make(cases())) {
  const auto one = sample.over();
  one->update(drifting());
  std::stringstream stream;
  {
    core::OutputArchive archive(stream);
    one->save(archive);
  }
  const std::string bytes = stream.str();
  const auto before = deep(one->results());
  for (const double share : {0.1, 0.5, 0.95}) {
    std::stringstream cut(
        bytes.substr(0, static_cast<std::size_t>(static_cast<double>(bytes.size()) * share)));
    core::InputArchive archive(cut);
    BOOST_CHECK_THROW(one->load(archive), std::exception);
    check_same(one->results(), before, 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
