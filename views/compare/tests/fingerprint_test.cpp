#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/views/compare/difference.hpp>
#include <torchtap/views/compare/fingerprint.hpp>

#include "tests/support.hpp"

namespace {

using namespace torchtap::views::compare;
using torchtap_test::close;
using torchtap_test::contains;
using torchtap_test::error_of;

const at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf,         at::kBFloat16,
                                 at::kByte,  at::kChar,   at::kShort,        at::kInt,
                                 at::kLong,  at::kBool,   at::kComplexFloat, at::kComplexDouble};

at::Tensor random_of(at::IntArrayRef sizes, at::ScalarType type) {
  if (type == at::kBool) return at::rand(sizes) < 0.5;
  if (at::isComplexType(type)) return at::randn(sizes, type);
  if (at::isFloatingType(type)) return at::randn(sizes).to(type);
  const std::int64_t most = type == at::kByte || type == at::kChar ? 128
                            : type == at::kShort                   ? 1 << 15
                                                                   : 1 << 30;
  const at::Tensor x = at::randint(0, most, sizes, at::kLong);
  return (type == at::kLong   ? x * 12345678 - (most << 24)
          : type == at::kByte ? x * 2
                              : x - most / 2)
      .to(type);
}

/// The fingerprint by its definition, of tensors without NaN, one element after another.
struct Reference {
  std::uint64_t digest[2] = {};
  std::uint32_t words = 0, exclusive = 0, either = 0;
  std::uint64_t zeros = 0;
  double sum = 0, sum_sq = 0, least = INFINITY, greatest = -INFINITY;
  double sketch[64] = {};

  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  static std::uint64_t draw(std::uint64_t stream, std::uint64_t i) {
    return mix(stream * 0x9e3779b97f4a7c15u + i + 1);
  }

  explicit Reference(const at::Tensor& tensor) {
    const at::Tensor x = (tensor.is_complex() ? at::view_as_real(tensor) : tensor).contiguous();
    const std::size_t item = x.element_size(), n = static_cast<std::size_t>(x.numel());
    std::vector<std::uint8_t> bytes(n * item);
    if (n != 0) std::memcpy(bytes.data(), x.data_ptr(), bytes.size());
    for (std::size_t i = 0; i < bytes.size(); i += std::min<std::size_t>(item, 4)) {
      std::uint32_t element = 0;
      std::memcpy(&element, bytes.data() + i, std::min<std::size_t>(item, 4));
      words += element;
      exclusive ^= element;
      either |= element;
    }
    bytes.resize((bytes.size() + 255) / 256 * 256);
    std::vector<std::uint32_t> all(bytes.size() / 4);
    if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    for (std::size_t begin = 0, c = 0; begin < all.size(); begin += 1024, ++c) {
      const std::size_t size = std::min<std::size_t>(1024, all.size() - begin);
      std::uint64_t a = 0, b = 0;
      std::uint32_t in_block = 0;
      for (std::size_t i = 0; i < size; i += 2) {
        const std::uint32_t first = all[begin + i] + static_cast<std::uint32_t>(draw(1, i) >> 32);
        const std::uint32_t second = all[begin + i + 1] + static_cast<std::uint32_t>(draw(1, i + 1) >> 32);
        a += std::uint64_t{first} * second;
        b += (size / 16 - i / 16) * (std::uint64_t{first} * second);
        in_block += all[begin + i] + all[begin + i + 1];
      }
      digest[0] += mix(a + draw(3, c));
      digest[1] += mix(b + 0x9e3779b97f4a7c15u * in_block + draw(4, c));
    }
    std::uint64_t shape = static_cast<std::uint64_t>(tensor.scalar_type()) + 1;
    for (const std::int64_t s : tensor.sizes())
      shape = shape * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(s) + 1;
    digest[0] = mix(digest[0] ^ shape);
    digest[1] = mix(digest[1] + shape);
    const at::Tensor numbers = x.to(at::kDouble).flatten();
    const double* const v = numbers.data_ptr<double>();
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t turn = draw(5, i / 1024);
      const bool negative = draw(2, (i % 1024 + 64 * (turn >> 8 & 15)) % 1024) >> 63 != turn >> 63;
      sketch[(i + turn) % 64] += negative ? -v[i] : v[i];
      sum += v[i];
      sum_sq += v[i] * v[i];
      zeros += v[i] == 0 ? 1 : 0;
      least = std::min(least, v[i]);
      greatest = std::max(greatest, v[i]);
    }
  }
};

bool same_bytes(const Fingerprint& a, const Fingerprint& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// Activations of two convolutions, a normalisation and an attention's softmax, as models have them.
std::vector<at::Tensor> activations() {
  at::manual_seed(5);
  std::vector<at::Tensor> all;
  for (int i = 0; i < 6; ++i) {
    at::Tensor x = at::rand({2, 3, 40 + 8 * i, 48});
    x = at::conv2d(x, at::randn({16, 3, 3, 3}) * 0.3, at::randn({16}) * 0.1);
    all.push_back(x);
    x = at::relu(x * (1 + at::randn({1, 16, 1, 1}) * 0.3));
    all.push_back(x);
    x = at::conv2d(x, at::randn({24, 16, 3, 3}) * 0.1, {}, 2);
    all.push_back(at::silu(x));
    const at::Tensor tokens = x.flatten(2).transpose(1, 2).contiguous();
    all.push_back(at::layer_norm(tokens, {24}));
    all.push_back(at::softmax(at::matmul(tokens, tokens.transpose(1, 2)), -1));
  }
  return all;
}

BOOST_AUTO_TEST_SUITE(fingerprints)

BOOST_AUTO_TEST_CASE(is_what_its_definition_says) {
  at::manual_seed(1);
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t n :
         {0, 1, 3, 31, 32, 33, 64, 65, 127, 1000, 1024, 1025, 2047, 2049, 4095, 4097, 9001}) {
      for (const bool positive : {false, true}) {  // padding with zeros is not the least element
        at::Tensor x = random_of({n}, type);
        if (positive && at::isFloatingType(type)) x = x.abs() + 1;
        const Fingerprint print = fingerprint(x);
        const Reference want(x);
        BOOST_TEST_CONTEXT(type << ", " << n) {
          BOOST_TEST(print.digest[0] == want.digest[0]);
          BOOST_TEST(print.digest[1] == want.digest[1]);
          BOOST_TEST(print.words == want.words);
          BOOST_TEST(print.exclusive == want.exclusive);
          BOOST_TEST(print.either == want.either);
          BOOST_TEST(print.zeros == want.zeros);
          BOOST_TEST(print.least == want.least);
          BOOST_TEST(print.greatest == want.greatest);
          BOOST_TEST(print.shape() == x.sizes());
          BOOST_TEST((print.scalar_type() == type));
          const double norm = std::sqrt(want.sum_sq);
          BOOST_TEST(std::abs(print.sum - want.sum) <= 1e-6 * norm * std::sqrt(n + 1.0));
          BOOST_TEST(std::abs(print.sum_sq - want.sum_sq) <= 1e-6 * want.sum_sq);
          for (int l = 0; l < 64; ++l) BOOST_TEST(std::abs(print.sketch[l] - want.sketch[l]) <= 1e-6 * norm);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(knows_where_numbers_are_not_finite) {
  const double kinds[] = {NAN, INFINITY, -INFINITY};
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    std::set<std::uint32_t> places;
    at::Tensor x = at::ones({3, 300000}, type);
    BOOST_TEST(fingerprint(x).places == 0U);
    for (const double kind : kinds) {
      for (const std::int64_t at : {0, 5, 299999}) {
        at::Tensor y = x.clone();
        y[2][at] = kind;
        places.insert(fingerprint(y).places);
        BOOST_TEST(fingerprint(y.t().contiguous().t()).places == fingerprint(y).places);
      }
    }
    BOOST_TEST(places.size() == 9U);
    BOOST_TEST(places.count(0) == 0U);
  }
  BOOST_TEST(fingerprint(at::full({2}, 1e200, at::kDouble)).places == 0U);  // which float32 does not hold
}

BOOST_AUTO_TEST_CASE(samples_are_elements_of_equal_parts) {
  const at::Tensor few = at::randn({4, 7});
  const Fingerprint print = fingerprint(few);
  for (int k = 0; k < 28; ++k) BOOST_TEST(print.samples[k] == few.flatten()[k].item<float>());
  for (int k = 28; k < 32; ++k) BOOST_TEST(print.samples[k] == 0);
  const Fingerprint many = fingerprint(at::arange(0, 100003, at::kInt));
  for (std::int64_t k = 0; k < 32; ++k) {
    BOOST_TEST(many.samples[k] >= static_cast<float>(k * 100003 / 32));
    BOOST_TEST(many.samples[k] < static_cast<float>((k + 1) * 100003 / 32));
  }
}

BOOST_AUTO_TEST_CASE(does_not_depend_on_strides) {
  at::manual_seed(2);
  std::mt19937 random(3);
  const auto below = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(1 + below(4)));
    for (auto& size : sizes) size = 1 + below(14);
    const at::ScalarType type = kTypes[static_cast<std::size_t>(below(12))];
    at::Tensor x = random_of(sizes, type);
    for (std::int64_t step = below(3) + 1; step > 0; --step) {
      const std::int64_t dim = below(x.dim());
      switch (below(5)) {
        case 0:
          x = x.transpose(dim, below(x.dim()));
          break;
        case 1:
          x = x.slice(dim, below(x.size(dim)), x.size(dim), 1 + below(3));
          break;
        case 2:
          if (x.dim() < 7)
            x = x.unsqueeze(0).expand([&] {
              auto wide = x.sizes().vec();
              wide.insert(wide.begin(), 1 + below(3));
              return wide;
            }());
          break;
        case 3:
          if (x.dim() == 4) x = x.contiguous(at::MemoryFormat::ChannelsLast);
          break;
        default:
          if (x.is_complex()) x = x.conj();
      }
    }
    BOOST_TEST_CONTEXT(type << x.sizes() << x.strides())
    BOOST_TEST(same_bytes(fingerprint(x), fingerprint(x.clone(at::MemoryFormat::Contiguous).resolve_conj())));
  }
  const at::Tensor large = at::randn({2, 40, 70, 60});  // several pieces
  const Fingerprint print = fingerprint(large);
  BOOST_TEST(same_bytes(print, fingerprint(large.contiguous(at::MemoryFormat::ChannelsLast))));
  BOOST_TEST(same_bytes(print, fingerprint(large.permute({3, 1, 0, 2}).contiguous().permute({2, 1, 3, 0}))));
  const at::Tensor complex = at::randn({30}, at::kComplexFloat);
  BOOST_TEST(
      same_bytes(fingerprint(at::imag(complex.conj())), fingerprint(-at::imag(complex))));  // a negated view
}

BOOST_AUTO_TEST_CASE(does_not_depend_on_threads) {
  const int before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::randn({1300001}, type);
    at::set_num_threads(1);
    const Fingerprint one = fingerprint(x);
    for (const int threads : {2, 3, 16}) {
      at::set_num_threads(threads);
      BOOST_TEST(same_bytes(one, fingerprint(x)));
    }
  }
  at::set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(tells_single_bits_and_swaps_apart) {
  at::manual_seed(4);
  std::mt19937 random(4);
  at::Tensor x = at::randn({700});
  auto* const bits = static_cast<std::uint32_t*>(x.data_ptr());
  const Fingerprint was = fingerprint(x);
  int missed = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const std::size_t i = random() % 700, j = random() % 700;
    const std::uint32_t bit = 1U << random() % 31;
    const std::uint32_t first = bits[i], second = bits[j];
    if (trial % 2 == 0) {
      bits[i] ^= bit;
    } else {
      std::swap(bits[i], bits[j]);
    }
    if (trial % 2 == 0 || first != second) {
      const Fingerprint is = fingerprint(x);
      if (is.digest[0] == was.digest[0] || is.digest[1] == was.digest[1] || same_bits(is, was)) ++missed;
    }
    bits[j] = second;
    bits[i] = first;
  }
  BOOST_TEST(missed == 0);
  BOOST_TEST(same_bits(was, fingerprint(x)));
  BOOST_TEST(!same_bits(was, fingerprint(x.view({7, 100}))));
  BOOST_TEST(!same_bits(was, fingerprint(x.view({1, 700}))));
  BOOST_TEST(!same_bits(was, fingerprint(x.view(at::kInt))));
  BOOST_TEST(!same_bits(was, fingerprint(x.to(at::kDouble))));
  const at::Tensor square = at::randn({20, 20});
  BOOST_TEST(!same_bits(fingerprint(square), fingerprint(square.t())));
}

BOOST_AUTO_TEST_CASE(a_nan_is_a_nan_and_minus_zero_is_not_zero) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::ScalarType words = type == at::kFloat ? at::kInt : type == at::kDouble ? at::kLong : at::kShort;
    for (const std::int64_t n : {40, 5000}) {
      at::Tensor x = at::randn({n}).to(type), y = x.clone();
      x[3] = y[3] = std::nan("");
      x[n - 1] = y[n - 1] = -std::numeric_limits<double>::infinity();
      y.view(words)[3].bitwise_or_(5);
      BOOST_TEST(!x.view(words).equal(y.view(words)));
      const Fingerprint a = fingerprint(x), b = fingerprint(y);
      BOOST_TEST(same_bytes(a, b));
      BOOST_TEST(a.nans == 1U);
      BOOST_TEST(a.infinities == 1U);
      const at::Tensor finite = x.slice(0, 4, n - 1).to(at::kDouble);
      BOOST_TEST(
          a.sum_sq == at::cat({x.slice(0, 0, 3).to(at::kDouble), finite}).square().sum().item<double>(),
          boost::test_tools::tolerance(1e-6));
      BOOST_TEST(same_bits(a, fingerprint(x.slice(0, 0, n))));
    }
    const std::uint32_t only = fingerprint(at::full({1}, std::nan("")).to(type)).words;
    BOOST_TEST(only == (type == at::kHalf       ? 0x7e00U
                        : type == at::kBFloat16 ? 0x7fc0U
                        : type == at::kFloat    ? 0x7fc00000U
                                                : 0x7ff80000U));
    const at::Tensor zero = at::zeros({1}).to(type);
    BOOST_TEST(!same_bits(fingerprint(zero), fingerprint(-zero)));
    BOOST_TEST(fingerprint(-zero).zeros == 1U);
    BOOST_TEST(!std::signbit(fingerprint(-zero).least));
  }
  const Fingerprint none = fingerprint(at::full({70}, std::nan("")));
  BOOST_TEST(none.nans == 70U);
  BOOST_TEST(none.least == std::numeric_limits<double>::infinity());
  BOOST_TEST(none.sum_sq == 0);
}

BOOST_AUTO_TEST_CASE(sums_neither_overflow_nor_vanish) {
  at::manual_seed(6);
  for (const double factor : {1e30, 1e-30}) {
    const at::Tensor x = at::randn({3000}) * factor;
    const Reference want(x);
    const Fingerprint print = fingerprint(x);
    BOOST_TEST(print.sum_sq == want.sum_sq, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(relative_error(print, fingerprint(x * 1.5)) == 1 / 3.0, boost::test_tools::tolerance(0.4));
    BOOST_TEST(log_scale(print, fingerprint(x * 1.5)) == std::log(1.5), boost::test_tools::tolerance(1e-5));
  }
}

BOOST_AUTO_TEST_CASE(estimates_errors_of_activations) {
  const auto norm = [](const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); };
  const auto error = [&](const at::Tensor& a, const at::Tensor& b) {
    return norm(a.to(at::kDouble) - b.to(at::kDouble)) / std::max(norm(a), norm(b));
  };
  int all = 0, good = 0;
  for (const at::Tensor& a : activations()) {
    at::Tensor channel = a.clone(), border = a.clone(), one = a.clone();
    channel.select(1, 5).mul_(1.1).add_(0.1);
    border.select(-1, 0).mul_(0.5).add_(0.01);
    for (const at::Tensor& b :
         {a.to(at::kBFloat16).to(at::kFloat), a + 1e-6 * at::randn_like(a), channel, border, a * 1.0001}) {
      const double ratio = relative_error(fingerprint(a), fingerprint(b)) / error(a, b);
      ++all;
      if (ratio > 1 / 1.5 && ratio < 1.5) ++good;
    }
    one.flatten()[a.numel() / 3] += 1;
    BOOST_TEST(relative_error(fingerprint(a), fingerprint(one)) == error(a, one),
               boost::test_tools::tolerance(1e-5));
    BOOST_TEST(std::abs(log_scale(fingerprint(a), fingerprint(a * 1.0001)) - 1e-4) < 1e-6);
  }
  BOOST_TEST(all == 150);
  BOOST_TEST(good >= 149);
  for (std::int64_t n = 1; n <= 64; ++n) {
    const at::Tensor a = at::randn({n}), b = a + 0.01 * at::randn({n});
    BOOST_TEST(relative_error(fingerprint(a), fingerprint(b)) == error(a, b),
               boost::test_tools::tolerance(1e-6));
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_compared_differs_infinitely) {
  const at::Tensor a = at::randn({100});
  at::Tensor b = a.clone();
  b[7] = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  BOOST_TEST(relative_error(fingerprint(a), fingerprint(b)) == infinity);
  BOOST_TEST(relative_error(fingerprint(a), fingerprint(a.slice(0, 1))) == infinity);
  BOOST_TEST(in_words(fingerprint(a), fingerprint(b)) == "A has 0 NaN, B has 1");
  BOOST_TEST(in_words(fingerprint(a), fingerprint(a.slice(0, 1))) == "[100] in A, [99] in B");
  const Fingerprint zero = fingerprint(at::zeros({100})), some = fingerprint(a);
  BOOST_TEST(relative_error(zero, zero) == 0);
  BOOST_TEST(relative_error(zero, some) == 1, boost::test_tools::tolerance(0.4));
  BOOST_TEST(log_scale(zero, zero) == 0);
  BOOST_TEST(log_scale(some, zero) == -infinity);
  BOOST_TEST(in_words(zero, some) == "A is all zeros");
  BOOST_TEST(in_words(zero, zero).empty());
}

BOOST_AUTO_TEST_CASE(finds_the_same_values_in_another_order) {
  at::manual_seed(7);
  for (const at::ScalarType type : kTypes) {
    for (int trial = 0; trial < 20; ++trial) {
      const at::Tensor a = random_of({300 + 17 * trial}, type);
      const at::Tensor b = a.index_select(0, at::randperm(a.numel()));
      const Fingerprint x = fingerprint(a), y = fingerprint(b);
      BOOST_TEST(x.words == y.words);
      BOOST_TEST(x.exclusive == y.exclusive);
      BOOST_TEST(in_words(x, y) == "the same values in another order");
    }
  }
  const std::string exactly = "the same values in another order",
                    nearly = "the same values up to rounding, in another order";
  const at::Tensor weight = at::randn({64, 32, 3, 3});
  const auto words = [&](const at::Tensor& other) {
    return in_words(fingerprint(weight), fingerprint(other));
  };
  BOOST_TEST(contains(words(weight.transpose(0, 1)), exactly + ", such as A.transpose(0, 1)"));
  BOOST_TEST(contains(words(weight.transpose(2, 3)), exactly + ", such as A.transpose(2, 3)"));
  BOOST_TEST(contains(words(weight.flip(1)), exactly));
  BOOST_TEST(words(weight.permute({1, 0, 2, 3}) * (1 + 1e-7 * at::randn({32, 64, 3, 3}))) == nearly);
  BOOST_TEST(words(weight.flip(0).to(at::kDouble)) == nearly);
  BOOST_TEST(words(weight).empty());
  BOOST_TEST(words(weight.flatten()) == "the same values, [64, 32, 3, 3] in A, [18432] in B");
  for (const at::ScalarType type : {at::kFloat, at::kComplexFloat}) {  // all elements are known
    const at::Tensor small = random_of({2, 2, 3}, type);
    const auto order = in_words(fingerprint(small), fingerprint(small.permute({1, 2, 0})));
    BOOST_TEST(order == exactly + ": B = A.permute(1, 2, 0)");
    BOOST_TEST(in_words(fingerprint(small), fingerprint(small.flip(0))) == exactly);
  }
  std::vector<Fingerprint> prints;
  for (int i = 0; i < 460; ++i)
    prints.push_back(fingerprint(i % 2 == 0 ? at::rand({500}) : at::randn({500}).relu()));
  int said = 0;
  for (std::size_t i = 0; i < prints.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) said += in_words(prints[i], prints[j]).empty() ? 0 : 1;
  }
  BOOST_TEST(said == 0);
}

BOOST_AUTO_TEST_CASE(finds_a_line) {
  at::manual_seed(8);
  for (const std::int64_t n : {10, 700, 70001}) {
    const at::Tensor a = at::rand({n});
    BOOST_TEST(in_words(fingerprint(a), fingerprint(2 * a - 1)) == "B = 2 A - 1");
    BOOST_TEST(in_words(fingerprint(a), fingerprint(a / 256)) == "B = 0.00390625 A");
    BOOST_TEST(in_words(fingerprint(a), fingerprint(a + 3)) == "B = A + 3");
  }
  at::Tensor a = at::rand({70001}), b = a / 255;
  b.slice(0, 0, 30000) *= 1.5;  // no line
  BOOST_TEST(in_words(fingerprint(a), fingerprint(b)).empty());
}

BOOST_AUTO_TEST_CASE(counts_few_that_differ) {
  at::manual_seed(9);
  const at::Tensor a = at::randn({50000});
  for (const std::int64_t few : {1, 4, 8}) {
    at::Tensor b = a.clone();
    b.index_put_({at::randperm(50000).slice(0, 0, few)}, 9.0);
    const auto words = in_words(fingerprint(a), fingerprint(b));
    if (few == 1) BOOST_TEST(words == "one of 50000 values differs");
    if (few == 1) continue;
    BOOST_TEST_REQUIRE((words.rfind("about ", 0) == 0 && contains(words, " of 50000 values differ")), words);
    BOOST_TEST(std::abs(std::stol(words.substr(6)) - few) <= few / 4);
  }
}

BOOST_AUTO_TEST_CASE(sees_rounding_to_shorter_numbers) {
  const at::Tensor a = at::randn({5000});
  for (const auto& [type, name] : {std::make_pair(at::kBFloat16, "bfloat16"), {at::kHalf, "float16"}}) {
    const Fingerprint is = fingerprint(a), rounded = fingerprint(a.to(type).to(at::kFloat));
    BOOST_TEST(in_words(is, rounded) == c10::str("B is rounded to ", name));
    BOOST_TEST(in_words(rounded, is) == c10::str("A is rounded to ", name));
    BOOST_TEST(in_words(is, fingerprint(a.to(type))).empty());
  }
}

BOOST_AUTO_TEST_CASE(reads_quantized_tensors_as_their_numbers) {
  const at::Tensor a = at::quantize_per_tensor(at::randn({9, 31}), 0.05, 3, at::kQInt8);
  const Fingerprint print = fingerprint(a), numbers = fingerprint(a.dequantize());
  BOOST_TEST((print.scalar_type() == at::kQInt8));
  BOOST_TEST(print.words == numbers.words);
  BOOST_TEST(relative_error(print, numbers) == 0);
  BOOST_TEST(!same_bits(print, numbers));
}

BOOST_AUTO_TEST_CASE(reads_dtypes_that_newer_versions_of_libtorch_have) {
  const at::Tensor bytes = at::arange(1, 257).to(at::kByte).repeat({9});
  for (const char* name : {"float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz",
                           "float8_e8m0fnu", "uint16", "uint32", "uint64"}) {
    const auto type = torchtap::base::dtype_of_text(name);
    if (!type) continue;
    const at::Tensor x = bytes.view(*type), wide = x.to(at::kDouble),
                     finite = wide.masked_select(wide.isfinite());
    const Fingerprint print = fingerprint(x);
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(print.sum_sq == finite.square().sum().item<double>(), boost::test_tools::tolerance(1e-6));
      BOOST_TEST(print.nans == static_cast<std::uint64_t>(wide.isnan().sum().item<std::int64_t>()));
      BOOST_TEST(print.infinities == static_cast<std::uint64_t>(wide.isinf().sum().item<std::int64_t>()));
      BOOST_TEST(print.least == finite.min().item<double>());
      BOOST_TEST(print.greatest == finite.max().item<double>());
      if (x.element_size() == 1) BOOST_TEST(print.words == fingerprint(bytes).words);
      BOOST_TEST(!same_bits(print, fingerprint(bytes)));
    }
  }
}

BOOST_AUTO_TEST_CASE(leaves_the_tensor_alone) {
  at::Tensor a = at::randn({10, 10}).requires_grad_();
  const auto version = a._version();
  fingerprint(a);
  fingerprint(a * 2);
  BOOST_TEST(a._version() == version);
  BOOST_TEST(!a.grad().defined());
  const Fingerprint zero = fingerprint(at::_efficientzerotensor({3}, at::kFloat));
  BOOST_TEST(same_bits(zero, fingerprint(at::zeros({3}))));
}

BOOST_AUTO_TEST_CASE(says_why_there_is_none) {
  BOOST_TEST(contains(error_of([] { fingerprint(at::Tensor()); }), "undefined"));
  BOOST_TEST(contains(error_of([] { fingerprint(at::ones({2, 2}).to_sparse()); }), "sparse"));
  BOOST_TEST(contains(error_of([] { fingerprint(at::empty({2}, at::TensorOptions(at::kMeta))); }), "meta"));
  BOOST_TEST(contains(error_of([] { fingerprint(at::ones({1, 1, 1, 1, 1, 1, 1, 1, 1})); }), "8 dimensions"));
  BOOST_TEST(contains(
      error_of([] {
        fingerprint(at::_nested_tensor_from_mask(at::ones({2, 3, 4}), at::ones({2, 3}).to(at::kBool)));
      }),
      "nested"));
}

BOOST_AUTO_TEST_CASE(is_the_same_from_c) {
  for (const at::ScalarType type : kTypes) {
    const at::Tensor x = random_of({6, 50}, type);
    Fingerprint made;
    BOOST_TEST(torchtap_fingerprint(x.data_ptr(), static_cast<int>(type), 2, x.sizes().data(), &made) == 0);
    BOOST_TEST(same_bytes(made, fingerprint(x)));
  }
  const std::int64_t size = 1;
  const float one = 1;
  Fingerprint made;
  BOOST_TEST(torchtap_fingerprint(&one, 250, 1, &size, &made) == 1);
  BOOST_TEST(torchtap_fingerprint(&one, 6, 9, &size, &made) == 1);
  BOOST_TEST(torchtap_fingerprint(&one, -1, 1, &size, &made) == 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
