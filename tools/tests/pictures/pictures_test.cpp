// Colours, maps, histograms and text: pixels against what the values say.
#include "pictures/pictures.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tests/support.hpp"

using namespace torchtap_test;
using namespace torchtap::tools::pictures;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Colour pixel(const Image& image, std::size_t x, std::size_t y) {
  const std::uint8_t* const at = image.at(x, y);
  return {at[0], at[1], at[2]};
}

bool near(const Colour& a, const Colour& b, int tolerance) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (std::abs(a[i] - b[i]) > tolerance) return false;
  }
  return true;
}

}  // namespace

BOOST_AUTO_TEST_CASE(viridis_is_that_of_matplotlib) {  // whose table has these entries
  const std::map<int, Colour> table{{0, {68, 1, 84}},
                                    {64, {59, 82, 139}},
                                    {128, {33, 145, 140}},
                                    {192, {94, 201, 98}},
                                    {255, {253, 231, 37}}};
  for (const auto& [index, colour] : table) BOOST_TEST(near(viridis(index / 255.0), colour, 5), index);
}

BOOST_AUTO_TEST_CASE(colours_of_values) {
  const Palette positive{Range(0, 10)};
  BOOST_TEST((positive(0) == viridis(0)));
  BOOST_TEST((positive(10) == viridis(1)));
  BOOST_TEST((positive(-5) == viridis(0)));
  BOOST_TEST((positive(1e300) == viridis(1)));
  const Palette both{Range(-1, 4)};
  BOOST_TEST(both.low() == -4);  // 0 is white
  BOOST_TEST(near(both(0), {255, 255, 255}, 3));
  BOOST_TEST((both(-4)[2] == 178 && both(-4)[0] == 0));
  BOOST_TEST((both(4)[0] == 178 && both(4)[2] == 0));
  BOOST_TEST((both(std::nan("")) == kNan));
  BOOST_TEST((both(kInf) == kInfinite));
  BOOST_TEST((both(-kInf) == kInfinite));
  BOOST_CHECK_THROW(Range(1, 1), c10::ValueError);
  BOOST_CHECK_THROW(Range(0, kInf), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(ranges_grow_and_never_shrink) {
  Range range;
  BOOST_TEST(range.empty());
  at::Tensor values = at::arange(1000).to(at::kDouble);
  range.widen(values);
  BOOST_TEST(range.low() == 1);  // without the outermost thousandth
  BOOST_TEST(range.high() == 998);
  range.widen(at::full({10}, 5));
  BOOST_TEST(range.high() == 998);
  range.widen(at::full({10}, -3));
  BOOST_TEST(range.low() == -3);
  BOOST_TEST(range.diverges());
  range.widen(at::full({3}, std::nan("")));
  range.widen(at::full({3}, kInf));
  range.widen(at::empty({0}));
  BOOST_TEST(range.high() == 998);
  Range fixed(0, 1);
  fixed.widen(values);
  BOOST_TEST(fixed.high() == 1);
  Range complex;
  complex.widen(at::complex(at::full({4}, 3.0), at::full({4}, 4.0)));
  BOOST_TEST(complex.high() == 5);
}

BOOST_AUTO_TEST_CASE(maps_of_a_tensor) {
  BOOST_TEST(has_maps(at::zeros({2, 2})));
  BOOST_TEST(!has_maps(at::zeros({5})));
  BOOST_TEST(!has_maps(at::zeros({5, 1})));
  BOOST_TEST(!has_maps(at::zeros({0, 3, 3})));
  const at::Tensor batch = at::randn({3, 4, 5, 6});
  BOOST_TEST(at::equal(maps_of(batch, 2), batch[2]));
  BOOST_TEST(at::equal(maps_of(batch[1]), batch[1]));
  BOOST_TEST(at::equal(maps_of(batch[1][2]), batch[1].slice(0, 2, 3)));
  const at::Tensor volume = at::randn({2, 3, 4, 5, 6});
  BOOST_TEST(at::equal(maps_of(volume, 1), volume[1].reshape({12, 5, 6})));
  BOOST_CHECK_EXCEPTION(maps_of(batch, 3), c10::ValueError, says({"no sample 3 in a batch of 3"}));
  BOOST_CHECK_EXCEPTION(maps_of(at::zeros({3})), c10::ValueError, says({"has no maps"}));
}

BOOST_AUTO_TEST_CASE(maps_lie_side_by_side) {
  at::Tensor maps = at::arange(5 * 2 * 3).reshape({5, 2, 3}).to(at::kFloat);
  maps[1][0][1] = std::nan("");
  maps[2][1][2] = kInf;
  const Range range(0, 30);
  const Palette palette(range);
  std::size_t shown = 0;
  // 3 x 2 values a map, drawn as they are: 3 maps a row fill 11 pixels, and 2 rows 5.
  const Image image = draw_maps(maps, range, 11, 5, shown);
  BOOST_TEST(shown == 5U);
  BOOST_TEST(image.width == 11U);
  BOOST_TEST(image.height == 5U);
  std::set<std::pair<std::size_t, std::size_t>> drawn;
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t y = 0; y < 2; ++y) {
      for (std::size_t x = 0; x < 3; ++x) {
        const double value =
            maps[static_cast<std::int64_t>(i)][static_cast<std::int64_t>(y)][static_cast<std::int64_t>(x)]
                .item<double>();
        const std::pair<std::size_t, std::size_t> at{i % 3 * 4 + x, i / 3 * 3 + y};
        BOOST_TEST((pixel(image, at.first, at.second) == palette(value)), i << ' ' << y << ' ' << x);
        drawn.insert(at);
      }
    }
  }
  BOOST_TEST((pixel(image, 5, 0) == kNan));
  BOOST_TEST((pixel(image, 10, 1) == kInfinite));
  for (std::size_t y = 0; y < image.height; ++y) {
    for (std::size_t x = 0; x < image.width; ++x) {
      if (drawn.count({x, y}) == 0) BOOST_TEST((pixel(image, x, y) == kBackground));
    }
  }
}

BOOST_AUTO_TEST_CASE(small_maps_are_magnified_and_large_ones_averaged) {
  std::size_t shown = 0;
  const Range range(0, 3);
  const Palette palette(range);
  const Image large = draw_maps(at::arange(4).reshape({1, 2, 2}), range, 40, 40, shown);
  BOOST_TEST(large.width >= 38U);
  BOOST_TEST(large.height == large.width);
  BOOST_TEST((pixel(large, 0, 0) == palette(0)));
  BOOST_TEST((pixel(large, large.width - 1, 0) == palette(1)));
  BOOST_TEST((pixel(large, 0, large.height - 1) == palette(2)));
  BOOST_TEST((pixel(large, large.width - 1, large.height - 1) == palette(3)));
  at::Tensor checks = at::zeros({1, 64, 64});
  checks.slice(1, 0, 64, 2).fill_(3);  // every other row: the mean of any pair is 1.5
  const Image small = draw_maps(checks, range, 32, 32, shown);
  BOOST_TEST(small.width <= 32U);
  for (std::size_t y = 0; y < small.height; ++y) BOOST_TEST((pixel(small, 3, y) == palette(1.5)));
  const Image some = draw_maps(at::zeros({1000, 8, 8}), range, 60, 30, shown);
  BOOST_TEST(shown < 1000U);
  BOOST_TEST((some.width <= 60U && some.height <= 30U));
}

BOOST_AUTO_TEST_CASE(histograms_grow_with_time) {
  HistogramOverTime histogram;
  for (int i = 0; i < 10; ++i) histogram.add(at::full({100}, i < 5 ? 0.15 : 0.85));
  const Image image = histogram.draw(Range(0, 1), 100, 10);
  // Bright where the values were: the second row from below on the left, the second from above on the right.
  for (std::size_t x = 0; x < 100; ++x) {
    for (std::size_t y = 0; y < 10; ++y) {
      const bool there = y == (x < 50 ? 8U : 1U);
      BOOST_TEST((pixel(image, x, y) == viridis(there ? 1 : 0)), x << ' ' << y);
    }
  }
  histogram.add(at::full({3}, std::nan("")));
  histogram.add(at::full({3}, -kInf));
  const Image marked = histogram.draw(Range(0, 1), 120, 10);
  BOOST_TEST((pixel(marked, 105, 0) == kNan));
  BOOST_TEST((pixel(marked, 115, 9) == kInfinite));
  BOOST_TEST((pixel(marked, 95, 0) != kNan));
}

BOOST_AUTO_TEST_CASE(long_histograms_keep_the_course_of_time) {
  HistogramOverTime histogram;
  constexpr int kTensors = 5000;  // more than there are columns
  for (int i = 0; i < kTensors; ++i) histogram.add(at::full({8}, static_cast<double>(i)));
  const Image image = histogram.draw(Range(0, kTensors), 100, 100);
  for (std::size_t x = 5; x < 95; x += 10) {
    std::size_t brightest = 0;
    for (std::size_t y = 1; y < 100; ++y) {
      if (pixel(image, x, y)[0] > pixel(image, x, brightest)[0]) brightest = y;
    }
    const double expected = 99.5 - static_cast<double>(x);  // the diagonal
    BOOST_TEST(std::abs(static_cast<double>(brightest) - expected) < 6, x << ": " << brightest);
  }
}

BOOST_AUTO_TEST_CASE(letters_differ_and_stay_inside) {
  std::set<std::vector<std::uint8_t>> letters;
  for (char letter = ' '; letter <= '~'; ++letter) {
    Image image(kCharacterWidth, kCharacterHeight);
    draw_text(image, 0, 0, std::string(1, letter));
    BOOST_TEST(letters.insert(image.rgb).second, letter);
    for (std::size_t y = 0; y < kCharacterHeight; ++y) BOOST_TEST((pixel(image, 5, y) == kBackground));
  }
  Image small(10, 4);
  draw_text(small, 7, 2, "WWW\u00e4\n", kForeground, 3);  // cut off
  Image one(12, 8), two(12, 8);
  draw_text(one, 0, 0, "\u2026?");
  draw_text(two, 0, 0, "??");
  BOOST_TEST((one.rgb == two.rgb));
}

BOOST_AUTO_TEST_CASE(pictures_are_pasted_and_cut_off) {
  Image image(4, 3);
  image.paste(Image(2, 2, {1, 2, 3}), 3, 2);
  image.paste(Image(2, 2, {1, 2, 3}), 9, 9);
  BOOST_TEST((pixel(image, 3, 2) == Colour{1, 2, 3}));
  BOOST_TEST((pixel(image, 2, 2) == kBackground));
}
