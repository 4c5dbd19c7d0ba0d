// Tests how Blocks joins samples, beyond what the table of all reductions tests.

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(blocks_of_samples)

using namespace torchtap;
using namespace torchtap::reductions;

namespace {

/// The i-th sample of a stream: i + 1 rows of the number i.
at::Tensor sample(std::int64_t i) {
  return at::full({i + 1, 2}, static_cast<double>(i));
}

Blocks of_stream(std::int64_t begin, std::int64_t end, std::int64_t most) {
  Blocks blocks(most);
  for (std::int64_t i = begin; i < end; ++i) blocks.update(sample(i));
  return blocks;
}

/// Whether the blocks are these runs of the stream: "samples", "rows", "zeros", "min", "max", "sum" and
/// counts of each.
void check_runs(const Blocks& blocks, const std::vector<std::pair<std::int64_t, std::int64_t>>& runs) {
  const core::Results results = blocks.results();
  BOOST_REQUIRE(results.at("samples").size(0) == static_cast<std::int64_t>(runs.size()));
  for (std::size_t k = 0; k < runs.size(); ++k) {
    std::vector<at::Tensor> of_run;
    for (std::int64_t i = runs[k].first; i < runs[k].second; ++i) of_run.push_back(sample(i));
    const at::Tensor x = at::cat(of_run);
    const auto of_block = [&](const char* name) {
      return results.at(name)[static_cast<std::int64_t>(k)].item<double>();
    };
    BOOST_TEST(of_block("samples") == static_cast<double>(of_run.size()));
    BOOST_TEST(of_block("rows") == static_cast<double>(x.size(0)));
    BOOST_TEST(of_block("zeros") == x.eq(0).sum().item<double>());
    BOOST_TEST(of_block("min") == x.min().item<double>());
    BOOST_TEST(of_block("max") == x.max().item<double>());
    BOOST_TEST(of_block("sum") == x.sum().item<double>());
    BOOST_TEST(of_block("sum_squares") == x.square().sum().item<double>());
    LogHistogram all(LogHistogramOptions().over_all(true));
    all.update(x);
    const at::Tensor counts = results.at("counts")[static_cast<std::int64_t>(k)];
    const at::Tensor used = counts.nonzero().squeeze(1);
    BOOST_TEST(counts.index_select(0, used).equal(all.counts()));
    BOOST_TEST(results.at("low").index_select(0, used).equal(all.low()));
    BOOST_TEST(results.at("high").index_select(0, used).equal(all.high()));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(blocks_double_when_there_are_more_than_the_most) {
  check_runs(of_stream(0, 4, 4), {{0, 1}, {1, 2}, {2, 3}, {3, 4}});
  check_runs(of_stream(0, 5, 4), {{0, 2}, {2, 4}, {4, 5}});
  check_runs(of_stream(0, 8, 4), {{0, 2}, {2, 4}, {4, 6}, {6, 8}});
  check_runs(of_stream(0, 9, 4), {{0, 4}, {4, 8}, {8, 9}});
  check_runs(of_stream(0, 70, 4), {{0, 32}, {32, 64}, {64, 70}});
  BOOST_TEST(of_stream(0, 70, 4).count() == 70);
}

BOOST_AUTO_TEST_CASE(merging_appends_blocks_of_one_size) {
  Blocks blocks = of_stream(0, 3, 4);
  blocks.merge(of_stream(3, 4, 4));
  check_runs(blocks, {{0, 1}, {1, 2}, {2, 3}, {3, 4}});
  blocks.merge(of_stream(4, 5, 4));
  check_runs(blocks, {{0, 2}, {2, 4}, {4, 5}});
  blocks.merge(of_stream(5, 15, 4));  // whose blocks are 4, 4 and 2 samples
  check_runs(blocks, {{0, 5}, {5, 13}, {13, 15}});
  BOOST_TEST(blocks.count() == 15);
  blocks.update(sample(15));  // into the last one, which has room
  check_runs(blocks, {{0, 5}, {5, 13}, {13, 16}});
  Blocks empty(4);
  empty.merge(blocks);
  check_runs(empty, {{0, 5}, {5, 13}, {13, 16}});
  BOOST_CHECK_THROW(blocks.merge(Blocks(8)), c10::ValueError);
  BOOST_TEST(blocks.count() == 16);
}

BOOST_AUTO_TEST_CASE(the_number_of_blocks_is_even) {
  for (const std::int64_t most : {-2, 0, 1, 3}) BOOST_CHECK_THROW(Blocks{most}, c10::ValueError);
  BOOST_CHECK_THROW(parse("blocks:5"), c10::ValueError);
  BOOST_CHECK_THROW(parse("blocks", ParseOptions().over({0})), c10::ValueError);
  BOOST_TEST(parse("blocks:8", ParseOptions().over_all(true)).describe() == "Blocks(8)");
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_is_counted_apart) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  Blocks blocks;
  blocks.update(at::tensor({1.0, nan, inf, -inf, -inf, 0.0, -0.0}));
  blocks.update(at::tensor({nan, nan}));
  const core::Results results = blocks.results();
  const auto is = [&](const char* name, std::vector<double> want) {
    const at::Tensor got = results.at(name).to(at::kDouble);
    BOOST_TEST(at::allclose(got, at::tensor(want, at::kDouble), 0, 0, /*equal_nan=*/true), name);
  };
  is("nan", {1, 2});
  is("positive_infinity", {1, 0});
  is("negative_infinity", {2, 0});
  is("zeros", {2, 0});
  is("min", {0, nan});
  is("max", {1, nan});
  is("sum", {1, 0});
  is("sum_squares", {1, 0});
  BOOST_TEST(results.at("counts").equal(at::tensor({1, 0}, at::kLong).unsqueeze(1)));
}

BOOST_AUTO_TEST_CASE(samples_that_kernels_do_not_read_give_the_same) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({50, 40}).mul(3);
  Blocks plain, other;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    plain.update(x.to(dtype));
    other.update(by_operations(x.to(dtype)));
  }
  plain.update(at::zeros({3, 4}, at::kDouble));
  other.update(at::_efficientzerotensor({3, 4}, at::TensorOptions().dtype(at::kDouble)));
  for (const auto& [name, tensor] : plain.results()) {
    BOOST_TEST(close(other.results().at(name), tensor, 1e-6), name);
  }
}

BOOST_AUTO_TEST_CASE(a_state_that_contradicts_itself_is_an_error) {
  const auto bytes_of = [](const Blocks& blocks) {
    std::stringstream stream;
    core::OutputArchive archive(stream);
    archive(blocks);
    return stream.str();
  };
  const std::string sound = bytes_of(of_stream(0, 5, 4));
  int refused = 0;
  for (std::size_t i = 5; i < sound.size(); ++i) {
    std::string bytes = sound;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x80);
    std::stringstream stream(bytes);
    core::InputArchive archive(stream);
    Blocks blocks;
    try {
      archive(blocks);
      (void)blocks.results();
    } catch (const std::exception&) {
      ++refused;
    }
  }
  BOOST_TEST(refused > 50);
}

BOOST_AUTO_TEST_SUITE_END()
