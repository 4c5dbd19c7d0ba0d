// Event files, read by a parser in Python that knows the formats alone; it counts the values itself.
#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/base/crc32.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/views/tensorboard/event_file.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(event_file)

using namespace torchtap_test;
using torchtap::reductions::LogHistogram;
using torchtap::reductions::LogHistogramOptions;
namespace tensorboard = torchtap::views::tensorboard;

namespace {

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

/// Values whose bins are hard: edges of either sign, the smallest and the largest numbers, zeros of both
/// signs.
std::vector<std::pair<std::string, at::Tensor>> samples() {
  constexpr double kTiny = std::numeric_limits<float>::denorm_min(),
                   kLargest = std::numeric_limits<float>::max();
  at::manual_seed(3);
  const at::Tensor edges =
      at::tensor({-4., -2., -1.125, -1., -.5, -0., 0., .5, 1., 1.125, 2., 4.}, at::kDouble);
  return {{"normal", at::randn({4096}, at::kDouble)},
          {"relu", at::randn({4096}).relu()},
          {"negative", -at::rand({1000}) - 0.25},
          {"edges", edges},
          {"edges of float", at::cat({edges, edges * 3, at::nextafter(edges, edges - 1)}).to(at::kFloat)},
          {"zeros", at::zeros({12})},
          {"tiny", at::tensor({-kTiny, kTiny, 0., 0., -1e-300, 1e-300}, at::kDouble)},
          {"tiny without zeros", at::tensor({-kTiny, kTiny, 2 * kTiny}, at::kDouble)},
          {"tiny and zeros", at::tensor({kTiny, 0.}, at::kDouble)},
          {"large", at::tensor({-kLargest, kLargest, 1.}, at::kDouble)},
          {"one", at::full({1}, 2.5)}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(crc32c_has_the_values_of_its_standard) {
  using torchtap::base::crc32c;
  const std::string digits = "123456789";
  BOOST_TEST(crc32c(0, digits.data(), digits.size()) == 0xE3069283u);
  BOOST_TEST(crc32c(0, nullptr, 0) == 0u);
  // RFC 3720, B.4.
  BOOST_TEST(crc32c(0, std::string(32, '\0').data(), 32) == 0x8A9136AAu);
  BOOST_TEST(crc32c(0, std::string(32, '\xff').data(), 32) == 0x62A8AB43u);
  std::string counting;
  for (int i = 0; i < 32; ++i) counting += static_cast<char>(i);
  BOOST_TEST(crc32c(crc32c(0, counting.data(), 7), counting.data() + 7, 25) == 0x46DD794Eu);
}

BOOST_AUTO_TEST_CASE(a_parser_of_the_formats_finds_what_was_written) {
  const TemporaryDirectory directory;
  std::ofstream truth(directory / "truth");
  truth << std::hexfloat;
  tensorboard::EventFile file(directory / "runs/a");
  std::int64_t step = 0;
  for (const auto& [name, sample] : samples()) {
    LogHistogram histogram(LogHistogramOptions(3).over_all(true));
    histogram.update(sample);
    auto value = tensorboard::histogram_of(numbers(histogram.low()), numbers(histogram.high()),
                                           numbers(histogram.counts()),
                                           static_cast<double>(histogram.zeros().item<std::int64_t>()));
    const auto values = numbers(sample);
    value.min = *std::min_element(values.begin(), values.end());
    value.max = *std::max_element(values.begin(), values.end());
    for (const double one : values) value.sum += one, value.sum_squares += one * one;
    file.histogram("layer/" + name, step, value, 1700000000.5);
    truth << "histogram\tlayer/" << name << '\t' << step++ << '\t' << 1700000000.5;
    for (const double one : values) truth << '\t' << one;
    truth << '\n';
  }
  file.histogram("nothing", step, tensorboard::histogram_of({}, {}, {}, 0), 3);
  truth << "histogram\tnothing\t" << step++ << '\t' << 3. << '\n';
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {0., 0.1, -1e30, std::nan(""), kInfinity, -kInfinity}) {
    file.scalar("loss", step, value, 12.25);
    truth << "scalar\tloss\t" << step << '\t' << 12.25 << '\t' << value << '\n';
    step = step == 13 ? -1 : (std::int64_t{1} << 40) + step;
  }
  file.scalar("of no \xff letter", 1, 1, 1);
  truth << "scalar\tof no \\377 letter\t1\t" << 1. << '\t' << 1. << '\n';
  truth.close();
  BOOST_TEST(contains(file.file(), directory / "runs/a/events.out.tfevents."));
  file.flush();
  BOOST_TEST(script("event_file.py", "\"" + file.file() + "\" \"" + directory / "truth" + "\""));

  // The parser sees a bit that is wrong.
  std::fstream damaged(file.file(), std::ios::in | std::ios::out | std::ios::binary);
  damaged.seekg(300);
  const char byte = static_cast<char>(damaged.get() ^ 4);
  damaged.seekp(300);
  damaged.put(byte).flush();
  BOOST_TEST(
      !script("event_file.py", "\"" + file.file() + "\" \"" + directory / "truth" + "\" 2> /dev/null"));
}

BOOST_AUTO_TEST_CASE(files_of_one_process_have_names_of_their_own) {
  const TemporaryDirectory directory;
  const tensorboard::EventFile a(directory.path()), b(directory.path());
  BOOST_TEST(a.file() != b.file());
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_is_an_error) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "file") << "no folder";
  BOOST_CHECK_EXCEPTION(tensorboard::EventFile(directory / "file/runs"), c10::Error,
                        says({"views::tensorboard::EventFile", directory / "file/runs"}));
  BOOST_CHECK_EXCEPTION(tensorboard::histogram_of({1}, {2, 3}, {4}, 0), c10::ValueError,
                        says({"1 lower ends, 2 upper ends and 1 counts"}));
  tensorboard::EventFile file(directory / "runs");
  tensorboard::HistogramValue value;
  value.limits = {1};
  BOOST_CHECK_EXCEPTION(file.histogram("a", 0, value), c10::ValueError, says({"1 limits and 0 counts"}));
}

BOOST_AUTO_TEST_SUITE_END()
