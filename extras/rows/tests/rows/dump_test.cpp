// Dumps of whole runs, against tensors that are kept by hand.
#include <range/v3/algorithm/count_if.hpp>
#include <range/v3/algorithm/lower_bound.hpp>
#include <range/v3/algorithm/max_element.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/reverse.hpp>
#include <range/v3/view/stride.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/transform.hpp>

#include <array>
#include <thread>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(dumps)

using namespace rows_test;

BOOST_AUTO_TEST_CASE(rows_are_those_kept_by_hand) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kChar}) {
    for (const std::int64_t shard_bytes : {std::int64_t{200}, std::int64_t{64} << 20}) {
      const Folder folder;
      Run run;
      {
        ForwardOutput dump(keeping(folder / "dump", spooling().shard_bytes(shard_bytes)));
        dump.attach(*run.net, "*");
        run.all_kinds(dtype);
        BOOST_TEST(dump.at("twice").events() == 24);
        BOOST_TEST(dump.at("twice").samples() == static_cast<std::int64_t>(run.kept["twice"].rows.size()));
        BOOST_TEST(dump.at("twice").left_out() == 0);
      }
      check_alike(folder / "dump", run);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_dump_is_continued) {
  const Folder folder;
  Run run;
  std::int64_t first_run = 0;
  for (int part = 0; part < 3; ++part) {
    run.forward_number = 0;
    ForwardOutput dump(keeping(folder / "dump", spooling().append(part > 0)));
    dump.attach(*run.net, "*");
    run.all_kinds();
  }
  check_alike(folder / "dump", run);
  const Rows rows(load(folder / "dump").at("first"));
  first_run = rows.where(0).run;
  BOOST_TEST(first_run > 0);
  BOOST_TEST(rows.where(-1).run != first_run);
}

static_assert(ranges::random_access_range<Rows> && ranges::sized_range<Rows> && ranges::view_<Rows>);

BOOST_AUTO_TEST_CASE(rows_are_a_range) {
  const Folder folder;
  Net net;
  {
    ForwardOutput dump(RecorderOptions().rows({0, 1}).spool(folder / "dump", spooling().shard_bytes(500)));
    dump.attach(*net, "first");
    for (std::int64_t i = 0; i < 10; ++i) net->forward(numbered(i * 12, 3, 4), false);
  }
  const auto recording = load(folder / "dump");
  const auto number = [](const at::Tensor& row) { return numbers_of(row.unsqueeze(0)).item<std::int64_t>(); };
  const Rows rows = recording.at("first").rows();
  BOOST_TEST(ranges::distance(rows) == 120);
  BOOST_TEST(ranges::count_if(rows, [&](const at::Tensor& row) { return number(row) % 5 == 0; }) == 24);
  BOOST_TEST((ranges::max_element(rows, {}, number) - rows.begin()) == 119);
  BOOST_TEST((ranges::lower_bound(rows, 77, {}, number) - rows.begin()) == 77);
  // Of a temporary, too: views keep the rows.
  const auto numbers =
      recording.at("first").rows() | ranges::views::stride(50) | ranges::views::transform(number);
  BOOST_TEST((numbers | ranges::to<std::vector>()) == (std::vector<std::int64_t>{0, 50, 100}),
             boost::test_tools::per_element());
  const auto last = recording.at("first").rows() | ranges::views::reverse | ranges::views::take(2);
  BOOST_TEST(number(*last.begin()) == 119);
  for (const auto& [i, row] : ranges::views::enumerate(rows))
    BOOST_TEST_REQUIRE(number(row) == static_cast<std::int64_t>(i));
  for (const auto& some : rows | ranges::views::chunk(50) | ranges::views::take(1))
    BOOST_TEST(at::stack(some | ranges::to<std::vector>()).equal(rows.slice(0, 50)));
  auto row = [&] { return recording.at("first").rows().begin(); }();  // it outlives its rows
  BOOST_TEST(number(row[5]) == 5);
  BOOST_TEST((Rows().empty() && Rows().begin() == Rows().end()));
}

BOOST_AUTO_TEST_SUITE_END()
