// Dumps of whole runs, against tensors that are kept by hand.
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

BOOST_AUTO_TEST_SUITE_END()
