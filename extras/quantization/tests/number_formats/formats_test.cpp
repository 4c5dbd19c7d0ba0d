// Tests Formats against casts that look each number up among all numbers of its format.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <tests/reductions/support.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include <torchtap/core/archive.hpp>
#include <torchtap/quantization/detail/exact_sum.hpp>
#include <torchtap/quantization/formats.hpp>
#include <torchtap/reductions/fast/kernels.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/storage/recording.hpp>

BOOST_AUTO_TEST_SUITE(number_formats)

using namespace torchtap;
using namespace torchtap::quantization;
using reductions::LogHistogram;
using reductions::LogHistogramOptions;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// All magnitudes of a format, ascending: index k is that of the code k, so that the even one of two
/// neighbours has an even index.
struct Numbers {
  std::vector<double> all;
  double least_normal;

  static Numbers of(int mantissa_bits, int bias, std::size_t codes) {
    Numbers numbers{{}, std::ldexp(1.0, 1 - bias)};
    const int step = 1 << mantissa_bits;
    for (std::size_t code = 0; code <= codes; ++code) {  // the last one is beyond the largest
      const int exponent = static_cast<int>(code) / step, mantissa = static_cast<int>(code) % step;
      numbers.all.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                          : std::ldexp(step + mantissa, exponent - bias - mantissa_bits));
    }

    return numbers;
  }

  /// The index of the number next to a magnitude; the last one is beyond the largest.
  std::size_t next(double magnitude) const {
    const auto above = std::lower_bound(all.begin(), all.end(), magnitude);
    if (above == all.end()) return all.size() - 1;
    const auto at = static_cast<std::size_t>(above - all.begin());
    if (*above == magnitude) return at;
    const double up = *above - magnitude, down = magnitude - all[at - 1];
    return up < down || (up == down && at % 2 == 0) ? at : at - 1;
  }
  double largest() const { return all[all.size() - 2]; }
};

const Numbers& numbers_of(const std::string& format) {
  static const std::map<std::string, Numbers> all = [] {
    std::map<std::string, Numbers> made;
    made["e4m3"] = made["mxfp8"] = Numbers::of(3, 7, 127);  // code 127 is NaN
    made["e5m2"] = made["mxfp8_e5m2"] = Numbers::of(2, 15, 124);
    made["bf16"] = Numbers::of(7, 127, 255 << 7);
    made["f16"] = Numbers::of(10, 15, 31 << 10);
    made["nvfp4"] = made["mxfp4"] = Numbers::of(1, 1, 8);
    Numbers& whole = made["int8"];
    for (int i = 0; i <= 128; ++i) whole.all.push_back(i);
    whole.least_normal = 0;
    return made;
  }();
  return all.at(format);
}

const std::vector<std::string> kUsual{"e4m3", "e5m2", "bf16", "f16", "int8", "mxfp8", "nvfp4"};
const std::vector<std::string> kAll{"e4m3",  "e5m2",  "bf16",       "f16",  "int8",
                                    "mxfp8", "nvfp4", "mxfp8_e5m2", "mxfp4"};

/// The error and the kind of each number of `x`, [rows, width], float64: what `Formats` counts.
struct Cast {
  at::Tensor error, underflow, subnormal, overflow;
};

Cast cast(const std::string& format, const at::Tensor& sample, double given = 1) {
  const at::Tensor x = sample.to(at::kFloat).contiguous();
  const std::int64_t width = x.dim() == 0 ? 1 : x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
  Cast result;
  for (auto* tensor : {&result.error, &result.underflow, &result.subnormal, &result.overflow})
    *tensor = at::zeros(x.sizes(), at::kDouble);
  const Numbers& numbers = numbers_of(format);
  const auto finite = [](float number) { return std::isfinite(number) ? std::abs(number) : 0.0F; };
  float most = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) most = std::max(most, finite(x.data_ptr<float>()[i]));
  const std::int64_t block = format.compare(0, 2, "mx") == 0 ? 32 : format == "nvfp4" ? 16 : width;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t begin = 0; begin < width; begin += block) {
      const std::int64_t n = std::min(block, width - begin), first = row * width + begin;
      const float* const from = x.data_ptr<float>() + first;
      float largest = 0;
      for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, finite(from[i]));
      double scale = given;
      if (format.compare(0, 2, "mx") == 0) {
        const int exponent = largest == 0 ? -127 : std::ilogb(largest) - std::ilogb(numbers.largest());
        scale = std::ldexp(1.0, std::max(exponent, -127));
      } else if (format == "nvfp4") {
        const float encode = most == 0 ? 1 : std::min(2688 / most, std::numeric_limits<float>::max());
        const Numbers& scales = numbers_of("e4m3");
        const float wanted = largest / 6 * encode;
        const auto found = std::min(scales.next(static_cast<double>(wanted)), scales.all.size() - 2);
        scale = static_cast<double>(static_cast<float>(scales.all[found]) * (1 / encode));
      }
      for (std::int64_t i = 0; i < n; ++i) {
        const double magnitude = static_cast<double>(finite(from[i]));
        if (magnitude == 0) continue;
        const double scaled =
            scale == 0 ? 0
                       : static_cast<double>(finite(from[i]) * std::min(1 / static_cast<float>(scale),
                                                                        std::numeric_limits<float>::max()));
        const std::size_t at = numbers.next(scaled);
        const double rounded = std::min(numbers.all[at], numbers.largest());
        result.error.data_ptr<double>()[first + i] =
            magnitude - static_cast<double>(static_cast<float>(rounded) * static_cast<float>(scale));
        result.underflow.data_ptr<double>()[first + i] = at == 0;
        result.subnormal.data_ptr<double>()[first + i] = at != 0 && numbers.all[at] < numbers.least_normal;
        result.overflow.data_ptr<double>()[first + i] = at == numbers.all.size() - 1;
      }
    }
  }
  return result;
}

/// All elements of `x`, or over `dims`.
at::Tensor sum(const at::Tensor& x, const std::vector<std::int64_t>& over, bool all) {
  if (all) return x.sum();
  return over.empty() ? x : x.sum(over);
}

/// Checks the results of samples, of which nothing but `over` and `all` is folded.
void check(const Formats& got, const std::vector<at::Tensor>& samples, const std::vector<std::int64_t>& over,
           bool all, const std::map<std::string, double>& scales = {}) {
  const core::Results results = got.results();
  at::Tensor finite, squares, zeros, nan;
  const auto add = [&](at::Tensor& to, const at::Tensor& x) {
    const at::Tensor part = sum(x.to(at::kDouble), over, all);
    to = to.defined() ? to + part : part;
  };
  for (const auto& sample : samples) {
    const at::Tensor x = sample.to(at::kFloat);
    add(finite, x.isfinite());
    add(nan, x.isnan());
    add(zeros, x == 0);
    add(squares, at::where(x.isfinite(), x, at::zeros({})).to(at::kDouble).square());
  }
  BOOST_TEST(results.at("zeros").to(at::kDouble).equal(zeros));
  BOOST_TEST(results.at("nan").to(at::kDouble).equal(nan));
  BOOST_TEST(close(results.at("mean_square"), squares / finite, 1e-6, 0));
  for (const auto& format : got.formats()) {
    BOOST_TEST_CONTEXT(format) {
      at::Tensor error, underflow, subnormal, overflow;
      for (const auto& sample : samples) {
        const Cast one = cast(format, sample, scales.count(format) == 0 ? 1 : scales.at(format));
        add(error, one.error.square());
        add(underflow, one.underflow);
        add(subnormal, one.subnormal);
        add(overflow, one.overflow);
      }
      const auto share = [&](const char* name) { return results.at(format + "." + name); };
      BOOST_TEST(close(share("underflow") * finite, underflow, 1e-12, 1e-9));
      BOOST_TEST(close(share("subnormal") * finite, subnormal, 1e-12, 1e-9));
      BOOST_TEST(close(share("overflow") * finite, overflow, 1e-12, 1e-9));
      BOOST_TEST(close(share("mse"), error / finite, 1e-6, 0));
      BOOST_TEST(close(share("sqnr"), 10 * at::log10(squares / error), 1e-6, 1e-6));
    }
  }
}

/// Formats for samples whose last dimension is kept, which have no blocks.
const std::vector<std::string> kPlain{"e4m3", "e5m2", "bf16", "f16", "int8"};

Formats whole(const std::vector<std::string>& formats = kAll) {
  return Formats(FormatsOptions(formats).over_all(true));
}

/// Rounding up and down, ties, both ends, and the numbers next to them.
at::Tensor critical() {
  std::vector<float> values;
  for (const auto& format : kUsual) {
    const auto& all = numbers_of(format).all;
    const std::size_t step = all.size() > 1000 ? all.size() / 251 : 1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % step != 0 && i > 40 && i + 40 < all.size()) continue;
      std::vector<double> some{all[i]};
      if (i + 1 < all.size()) some.push_back((all[i] + all[i + 1]) / 2);
      for (const double value : some) {
        const auto number = static_cast<float>(value);
        if (!std::isfinite(number)) continue;
        for (const float one : {number, std::nextafter(number, 0.0F), std::nextafter(number, 1e30F)}) {
          values.push_back(one);
          values.push_back(-one);
        }
      }
    }
  }
  return at::tensor(values, at::kFloat);
}

auto says(const char* text) {
  return
      [text](const c10::Error& error) { return std::string(error.what()).find(text) != std::string::npos; };
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_million_random_numbers) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({1000, 1000}) * at::exp(at::randn({1000, 1000}) * 3);
  Formats got = whole();
  got.update(x);
  check(got, {x}, {}, true);
}

BOOST_AUTO_TEST_CASE(all_numbers_ties_and_ends) {
  const at::Tensor x = critical();
  Formats got = whole({"e4m3", "e5m2", "bf16", "f16", "int8"});
  got.update(x);
  check(got, {x}, {}, true);
  // One at a time: a wrong count of one could hide a wrong count of another.
  Formats each(FormatsOptions(std::vector<std::string>{"e4m3", "e5m2", "bf16", "f16", "int8"}));
  each.update(x);
  check(each, {x}, {}, false);
}

BOOST_AUTO_TEST_CASE(instruction_sets_compute_the_same_bits) {
  at::manual_seed(2);
  const at::Tensor x = at::cat({at::randn({70, 93}).reshape({-1}), critical()});
  std::vector<core::Results> all;
  const std::int64_t sets = reductions::detail::instruction_sets();
  std::vector<std::int64_t> each{0};
  for (std::int64_t bit = 1; bit > 0 && bit <= sets; bit <<= 1) {
    if ((sets & bit) != 0) each.push_back(bit);
  }
  for (const std::int64_t set : each) {
    reductions::detail::use_instruction_sets(set);
    Formats got = whole();
    got.update(x);
    got.update(x.slice(0, 0, 93 * 70).reshape({70, 93}));
    all.push_back(got.results());
  }
  reductions::detail::use_instruction_sets(0);
  for (const auto& one : all) BOOST_TEST((one == all.front()));
}

// Rows of a width that is no multiple of blocks, wide rows, short rows, one number.
BOOST_DATA_TEST_CASE(widths,
                     bdata::make({1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 64, 100, 257, 511, 512, 513, 1300}),
                     width) {
  at::manual_seed(width);
  const at::Tensor x = at::randn({9, width}) * at::exp(at::randn({9, 1}) * 4);
  for (const bool all : {true, false}) {
    Formats got(all ? FormatsOptions(kAll).over_all(true) : FormatsOptions(kAll).over({1}));
    got.update(x);
    got.update(x * 0.01);
    check(got, {x, x * 0.01}, {1}, all);
  }
}

BOOST_AUTO_TEST_CASE(kept_elements) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({3, 5, 4, 37});
  for (const std::vector<std::int64_t>& over : std::vector<std::vector<std::int64_t>>{
           {0}, {3}, {0, 2, 3}, {0, 1, 2}, {1, 2}, {0, 3}, {1}, {2, 3}, {1, 3}, {-1, 0}, {0, 1, 2, 3}, {}}) {
    BOOST_TEST_CONTEXT(at::IntArrayRef(over)) {
      const bool blocks =
          std::any_of(over.begin(), over.end(), [](auto dim) { return dim == 3 || dim == -1; });
      Formats got(FormatsOptions(blocks ? kAll : kPlain).over(over));
      got.update(x);
      check(got, {x}, over, false);
    }
  }
}

BOOST_AUTO_TEST_CASE(scales) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({40, 33});
  const std::map<std::string, double> scales{{"int8", static_cast<double>(0.03F)}, {"e4m3", 0.125}};
  for (const bool all : {true, false}) {
    FormatsOptions options({"e4m3", "int8"});
    options.scale("int8", 0.03).scale("e4m3", 0.125);
    Formats got(all ? options.over_all(true) : options.over({0}));
    got.update(x);
    const core::Results results = got.results();
    check(got, {x}, {0}, all, scales);
    BOOST_TEST(close(results.at("int8.scale") * 127, results.at("abs_max").to(at::kDouble), 1e-12, 0));
    BOOST_TEST(close(results.at("e4m3.scale") * 448, results.at("abs_max").to(at::kDouble), 1e-12, 0));
  }
  BOOST_TEST(Formats(FormatsOptions({"int8", "e4m3"}).scale("int8", 0.5).over({0})).describe() ==
             "Formats(int8 / 0.5, e4m3, over=[0])");
}

// Squares of such numbers leave the range of float32.
BOOST_DATA_TEST_CASE(magnitudes, bdata::make({1e-44, 1e-38, 1e-30, 1e-13, 1e-9, 1e12, 1e19, 1e30, 1e38}),
                     size) {
  at::manual_seed(5);
  const at::Tensor x = (at::randn({50, 45}).clamp(-3, 3) * size).to(at::kFloat);
  for (const bool all : {true, false}) {
    // Of the blocks of denormal numbers some scales are denormal.
    const bool blocks = size > 1e-30;
    const std::vector<std::string> formats(kAll.begin(), blocks ? kAll.end() : kAll.begin() + 5);
    Formats got(all ? FormatsOptions(formats).over_all(true) : FormatsOptions(formats).over({1}));
    got.update(x);
    check(got, {x}, {1}, all);
  }
}

BOOST_AUTO_TEST_CASE(numbers_of_all_sizes_in_one_chunk) {
  std::vector<float> values;
  for (int exponent = -149; exponent < 128; ++exponent) values.push_back(std::ldexp(1.3F, exponent));
  const at::Tensor x = at::tensor(values, at::kFloat);
  Formats got = whole({"e4m3", "e5m2", "bf16", "f16", "int8"});
  got.update(x);
  check(got, {x}, {}, true);
}

BOOST_AUTO_TEST_CASE(numbers_of_all_sizes_have_small_and_large_scales) {
  for (const double scale : {0x1p-60, 0x1p-40, 0x1p-10, 0x1p40, 0x1p60}) {
    for (int exponent = -126; exponent < 128; ++exponent) {  // each in a chunk of its own
      const at::Tensor x = at::full({40}, std::ldexp(1.3, exponent), at::kFloat);
      const double value = x[0].item<double>(), scaled = value / scale;
      if (scaled > 3e38 || scaled < 1e-37) continue;
      Formats got(FormatsOptions({"bf16"}).scale("bf16", scale).over_all(true));
      got.update(x);
      const at::Tensor rounded = at::scalar_tensor(scaled, at::kFloat).to(at::kBFloat16);
      const double error = std::pow(value - rounded.item<double>() * scale, 2);
      BOOST_TEST(std::abs(got.results().at("bf16.mse").item<double>() - error) <= 1e-6 * error,
                 scale << ' ' << exponent);
    }
  }
}

BOOST_AUTO_TEST_CASE(numbers_beyond_float32_are_infinities_also_for_the_scales_of_samples) {
  at::manual_seed(7);
  at::Tensor x = at::randn({20, 40}, at::kDouble);
  x[3][5] = 1e300;
  x[7][9] = -1e39;
  x[2][2] = 3.40282348e38;  // not beyond
  for (const at::Tensor& sample :
       {x, x.narrow(0, 3, 1), x.narrow(0, 4, 2), at::full({3}, 1e300, at::kDouble)}) {
    Formats got = whole(), floats = whole();
    got.update(sample);
    floats.update(sample.to(at::kFloat));
    for (const auto& [name, value] : floats.results()) {
      const at::Tensor& other = got.results().at(name);
      BOOST_TEST((other.equal(value) || (other.isnan().item<bool>() && value.isnan().item<bool>())), name);
    }
  }
}

BOOST_AUTO_TEST_CASE(non_finite_numbers_are_apart) {
  at::manual_seed(6);
  at::Tensor x = at::randn({30, 40});
  x[0][3] = kNaN;
  x[1][0] = kInf;
  x[29][39] = -kInf;
  x[4] = kNaN;
  for (const bool all : {true, false}) {
    Formats got(all ? FormatsOptions(kAll).over_all(true) : FormatsOptions(kAll).over({1}));
    got.update(x);
    if (all) {
      check(got, {x}, {1}, all);
      BOOST_TEST(got.results().at("infinities").item<std::int64_t>() == 2);
    } else {
      BOOST_TEST(got.results().at("e4m3.mse").isnan().equal(at::arange(30) == 4));
      BOOST_TEST(got.results().at("nan")[4].item<std::int64_t>() == 40);
    }
  }
}

BOOST_AUTO_TEST_CASE(special_samples) {
  Formats none = whole();
  BOOST_TEST(none.results().empty());
  none.update(at::zeros({0, 5}));
  BOOST_TEST(none.results().empty());
  none.update(at::zeros({3, 50}));
  BOOST_TEST(none.results().at("zeros").item<std::int64_t>() == 150);
  for (const auto& format : kAll) {
    BOOST_TEST(none.results().at(format + ".underflow").item<double>() == 0);
    BOOST_TEST(none.results().at(format + ".mse").item<double>() == 0);
    BOOST_TEST(std::isnan(none.results().at(format + ".sqnr").item<double>()));
  }
  for (const at::Tensor& x : {at::full({700}, 0.3), at::full({}, -5.3), at::full({1, 1}, 1e-3)}) {
    Formats got = whole();
    got.update(x);
    check(got, {x}, {}, true);
  }
  Formats exact = whole({"bf16"});
  exact.update(at::randn({100}).to(at::kBFloat16));
  BOOST_TEST(exact.results().at("bf16.sqnr").item<double>() == kInf);
  Formats empty(FormatsOptions(kPlain).over({0}));
  empty.update(at::zeros({4, 0}));
  BOOST_TEST(empty.results().at("zeros").numel() == 0);
}

BOOST_AUTO_TEST_CASE(dtypes_and_layouts) {
  at::manual_seed(7);
  const at::Tensor base = at::randn({20, 6, 35}) * 90;
  for (const auto dtype : {at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
                           at::kByte, at::kBool}) {
    const at::Tensor x = base.to(dtype);
    for (const at::Tensor& sample : {x, x.transpose(0, 2), x.slice(2, 1, 33, 3)}) {
      BOOST_TEST_CONTEXT(dtype << ' ' << sample.sizes()) {
        Formats all = whole(), each(FormatsOptions(kAll).over({0, 2})),
                last(FormatsOptions(kPlain).over({0}));
        all.update(sample);
        all.update(sample);
        each.update(sample);
        last.update(sample);
        check(all, {sample, sample}, {}, true);
        check(each, {sample}, {0, 2}, false);
        check(last, {sample}, {0}, false);
      }
    }
  }
  const at::Tensor negative = at::_neg_view(base);
  Formats viewed = whole(), plain = whole();
  viewed.update(negative);
  plain.update(-base);
  BOOST_TEST((viewed.results() == plain.results()));
}

// Any order and division gives the same bits.
BOOST_AUTO_TEST_CASE(merging) {
  at::manual_seed(8);
  std::vector<at::Tensor> samples;
  for (int i = 0; i < 12; ++i) samples.push_back(at::randn({4, 50}) * std::exp(i - 6.0));
  for (const bool all : {true, false}) {
    const auto make = [&] {
      return Formats(all ? FormatsOptions(kAll).over_all(true) : FormatsOptions(kAll).over({1}));
    };
    Formats once = make();
    for (const auto& sample : samples) once.update(sample);
    std::mt19937 random(1);
    for (int i = 0; i < 5; ++i) {
      std::shuffle(samples.begin(), samples.end(), random);
      std::vector<Formats> parts(3, make());
      for (std::size_t j = 0; j < samples.size(); ++j) parts[random() % 3].update(samples[j]);
      Formats merged = make();
      for (const auto& part : parts) merged.merge(part);
      BOOST_TEST((merged.results() == once.results()));
    }
  }
  BOOST_CHECK_THROW(whole().merge(whole({"e4m3"})), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(threads) {
  at::manual_seed(9);
  const at::Tensor x = at::randn({64, 20, 300});
  const int before = at::get_num_threads();
  for (const std::vector<std::int64_t>& over :
       std::vector<std::vector<std::int64_t>>{{0, 1, 2}, {0, 2}, {2}, {1, 2}}) {
    std::vector<core::Results> all;
    for (const int threads : {1, 4}) {
      at::set_num_threads(threads);
      Formats got(FormatsOptions().over(over));
      got.update(x);
      all.push_back(got.results());
    }
    BOOST_TEST((all[0] == all[1]));
  }
  at::set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(archives) {
  at::manual_seed(10);
  Formats saved(FormatsOptions({"nvfp4", "int8"}).scale("int8", 0.1).over({1}));
  saved.update(at::randn({5, 20}));
  std::stringstream stream;
  {
    core::OutputArchive out(stream);
    out(saved);
  }
  Formats loaded;
  core::InputArchive in(stream);
  in(loaded);
  BOOST_TEST(loaded.describe() == saved.describe());
  BOOST_TEST((loaded.results() == saved.results()));
  const at::Tensor more = at::randn({5, 20});
  loaded.update(more);
  saved.update(more);
  BOOST_TEST((loaded.results() == saved.results()));
}

// Text and files name it, alone and inside of others.
BOOST_AUTO_TEST_CASE(names) {
  const auto same = [](const reductions::Any& got, const Formats& want) {
    BOOST_TEST(core::make_sink(got)->describe() == core::make_sink(want)->describe());
  };
  const auto rows = reductions::ParseOptions().over({0, 1});
  same(reductions::parse("formats", rows), Formats(FormatsOptions().over({0, 1})));
  same(reductions::parse("formats:e4m3:mxfp4", rows),
       Formats(FormatsOptions({"e4m3", "mxfp4"}).over({0, 1})));
  const auto entries = reductions::catalogue();
  const auto is = [](const auto& entry) { return entry.name == "Formats"; };
  BOOST_TEST(std::count_if(entries.begin(), entries.end(), is) == 1);
  const Formats one = whole({"int8", "nvfp4"}), plain(FormatsOptions(kPlain).over({0}));
  for (const auto& sink : {core::make_sink(one), core::make_sink(plain),
                           core::make_sink(reductions::Series(one, reductions::Moments())),
                           core::make_sink(reductions::every(2, one))}) {
    for (int i = 0; i < 3; ++i) sink->update(at::randn({3, 50}));
    const auto saved = core::save(*sink);
    BOOST_REQUIRE(saved.has_value());
    const auto loaded = core::make_sink(reductions::restore(*saved));
    BOOST_TEST(loaded->describe() == sink->describe());
    BOOST_TEST((loaded->results() == sink->results()));
    const at::Tensor more = at::randn({3, 50});
    loaded->update(more);
    sink->update(more);
    BOOST_TEST((loaded->results() == sink->results()));
  }
}

// In one pass with others it counts the same as alone.
BOOST_AUTO_TEST_CASE(one_pass) {
  at::manual_seed(12);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool all : {true, false}) {
      const auto make = [&](auto options) { return all ? options.over_all(true) : options.over({1}); };
      Formats alone(make(FormatsOptions(kAll)));
      reductions::Series together(alone, reductions::Moments(make(reductions::MomentsOptions())),
                                  LogHistogram(make(LogHistogramOptions())));
      for (int i = 0; i < 3; ++i) {
        const at::Tensor x = at::randn({6, 70}).to(dtype);
        alone.update(x);
        together.update(x);
      }
      const core::Results results = together.results();
      for (const auto& [name, tensor] : alone.results())
        BOOST_TEST(results.at("formats." + name).equal(tensor), name);
    }
  }
}

// A file of the first version, with a state that was counted along rows.
BOOST_AUTO_TEST_CASE(a_file) {
  const auto recording = storage::load(std::string(TORCHTAP_TEST_FORMATS) + "/1/added");
  const auto& entry = recording.at("Formats");
  const auto sink = core::make_sink(reductions::restore(entry.state().at(0)));
  BOOST_TEST(sink->describe() == "Formats(int8 / 2, nvfp4, over=[0])");
  BOOST_TEST(entry.reduction() == sink->describe());
  const core::Results results = sink->results();
  BOOST_TEST(results.at("int8.mse").numel() == 3);
  for (const auto& [name, tensor] : results)
    BOOST_TEST((entry.value().at(name).tensor().equal(tensor) || tensor.isnan().any().item<bool>()), name);
  const auto other = core::make_sink(reductions::restore(entry.state().at(0)));
  sink->merge(*other);
  for (const char* const name : {"int8.mse", "nvfp4.mse", "mean_square", "nvfp4.underflow"})
    BOOST_TEST(sink->results().at(name).equal(results.at(name)), name);
  auto newer = entry.state().at(0);
  newer.bytes[1] = 7;
  BOOST_CHECK_EXCEPTION(reductions::restore(newer), c10::ValueError, says("newer torchtap (version 7"));
}

BOOST_AUTO_TEST_CASE(mistakes) {
  BOOST_CHECK_EXCEPTION(Formats(FormatsOptions(std::vector<std::string>{"fp8"})), c10::ValueError,
                        says("\"fp8\" is no format; there are e4m3, e5m2"));
  BOOST_CHECK_EXCEPTION(Formats(FormatsOptions({"e4m3", "e4m3"})), c10::ValueError, says("there twice"));
  BOOST_CHECK_EXCEPTION(Formats(FormatsOptions(std::vector<std::string>{})), c10::ValueError,
                        says("at least one"));
  BOOST_CHECK_EXCEPTION(Formats(FormatsOptions().scale("nvfp4", 2)), c10::ValueError,
                        says("each block itself"));
  BOOST_CHECK_EXCEPTION(Formats(FormatsOptions().scale("int4", 2)), c10::ValueError,
                        says("not among the formats"));
  BOOST_CHECK_EXCEPTION(Formats(FormatsOptions().scale("int8", 0)), c10::ValueError, says("2^-60 to 2^60"));
  BOOST_CHECK_THROW(whole().update(at::randn({3}).to(at::kComplexFloat)), c10::TypeError);
  Formats kept(FormatsOptions({"e4m3", "mxfp8"}).over({0}));
  const auto says_what_helps = says("Formats(e4m3, mxfp8, over=[0]): blocks lie along the last dimension");
  BOOST_CHECK_EXCEPTION(kept.update(at::randn({3, 4})), c10::ValueError, says_what_helps);
  BOOST_CHECK_EXCEPTION(kept.check(at::randn({3, 4})), c10::ValueError, says_what_helps);
  BOOST_TEST(kept.count() == 0);
  BOOST_CHECK_EXCEPTION(format_cost("nvfp4", {}), c10::ValueError, says("has blocks"));
  BOOST_CHECK_EXCEPTION(format_cost("int8", {}), c10::ValueError, says("results of a LogHistogram"));
}

// What a histogram tells, against what is counted.
BOOST_AUTO_TEST_CASE(histograms) {
  at::manual_seed(11);
  for (const double size : {1e-4, 1.0, 300.0}) {
    const at::Tensor x = at::randn({100000}) * size;
    LogHistogram histogram(LogHistogramOptions().over_all(true));
    histogram.update(x);
    const core::Results bins = histogram.results();
    for (const std::string format : {"e4m3", "e5m2", "bf16", "f16", "int8"}) {
      for (const double scale : {1.0, 0.01}) {
        BOOST_TEST_CONTEXT(format << " / " << scale << " of " << size) {
          Formats exact(FormatsOptions({format}).scale(format, scale).over_all(true));
          exact.update(x);
          const core::Results want = exact.results();
          const FormatCost got = format_cost(format, bins, scale);
          const auto value = [&](const char* name) { return want.at(format + "." + name).item<double>(); };
          BOOST_TEST(std::abs(got.underflow - value("underflow")) <= got.bound + 1e-12);
          BOOST_TEST(std::abs(got.subnormal - value("subnormal")) <= got.bound + 1e-12);
          BOOST_TEST(std::abs(got.overflow - value("overflow")) <= got.bound + 1e-12);
          BOOST_TEST(std::abs(got.sqnr - value("sqnr")) < 0.3);
        }
      }
    }
    // No scale near it is better by more than a little.
    for (const std::string format : {"e4m3", "int8"}) {
      const auto sqnr = [&](double scale) {
        Formats exact(FormatsOptions({format}).scale(format, scale).over_all(true));
        exact.update(x);
        return exact.results().at(format + ".sqnr").item<double>();
      };
      const double best = best_scale(format, bins),
                   largest = x.abs().max().item<double>() / (format == "int8" ? 127 : 448);
      BOOST_TEST(best <= 1.2 * largest);
      for (int i = -2; i <= 24; ++i) {
        BOOST_TEST(sqnr(best) >= sqnr(largest * std::exp2(-i / 4.0)) - 0.5);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(exact_sums) {
  using quantization::detail::ExactSum;
  std::mt19937 random(3);
  std::vector<double> numbers;
  for (int i = 0; i < 1000; ++i)
    numbers.push_back(std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 500) - 300));
  std::vector<std::int32_t> first(ExactSum::kDigits), second(ExactSum::kDigits), third(ExactSum::kDigits);
  for (const double number : numbers) ExactSum::add(first.data(), number);
  std::shuffle(numbers.begin(), numbers.end(), random);
  long double sum = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ExactSum::add(i % 3 == 0 ? second.data() : third.data(), numbers[i]);
    sum += static_cast<long double>(numbers[i]);
  }
  ExactSum::merge(second.data(), third.data());
  BOOST_TEST(first == second, boost::test_tools::per_element());
  BOOST_TEST(std::abs(ExactSum::value(first.data()) / static_cast<double>(sum) - 1) < 1e-15);
  // A carry through all digits.
  std::vector<std::int32_t> full(ExactSum::kDigits, -1);
  full.back() = 0;
  ExactSum::add(full.data(), 0x1p-352);
  BOOST_TEST(full.front() == 0);
  BOOST_TEST(full.back() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
