// Merging recordings: modules in any order, many parts, spools.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <boost/test/unit_test.hpp>

#include <fstream>

#include <torchtap/reductions/reductions.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/storage/spool.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(merging)

using namespace torchtap::storage;
using namespace torchtap::reductions;
using torchtap_test::says;
using Folder = torchtap_test::TemporaryDirectory;

namespace {

const auto kQuick = SaveOptions().mkdir(true).overwrite(true).sync(false);

Entry reduced(const std::string& path, int seed) {
  const auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  Series reduction{Moments(), Last(), Sum()};
  for (int i = 0; i < 3; ++i) reduction.update(at::randn({7}, generator) + 0.1 * seed);
  Entry entry;
  entry.path = path;
  entry.type = "Linear";
  entry.kind = "ForwardOutput";
  entry.samples = 3;
  entry.reduction = reduction.describe();
  entry.value = torchtap::core::to_value(reduction.results());
  entry.state.push_back(torchtap::core::save(reduction).value());
  return entry;
}

Entry kept(const std::string& path, const std::vector<at::Tensor>& samples) {
  Entry entry;
  entry.path = path;
  entry.kind = "ForwardOutput";
  entry.samples = static_cast<std::int64_t>(samples.size());
  entry.value = torchtap::core::Value(samples);
  return entry;
}

void merged(const std::vector<std::string>& parts, const std::string& directory, MergeOptions options = {}) {
  merge(parts, directory, restore, options.save(kQuick));
}

void check_same(const Recording& got, const Recording& want) {
  BOOST_TEST(got.paths() == want.paths(), boost::test_tools::per_element());
  for (const auto& entry : want) {
    const auto& other = got.at(entry.path());
    BOOST_TEST(other.samples() == entry.samples());
    BOOST_TEST((other.value() == entry.value()), entry.path());
    const auto a = other.state(), b = entry.state();
    BOOST_REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) BOOST_TEST(a[i].bytes == b[i].bytes);
  }
}

std::vector<at::Tensor> counted(int from, int to) {
  std::vector<at::Tensor> samples;
  for (int i = from; i < to; ++i) samples.push_back(at::full({i % 3 + 1}, static_cast<double>(i)));
  return samples;
}

/// A spooled recording of these samples, by path.
void spooled(const std::string& directory,
             const std::vector<std::pair<std::string, std::vector<at::Tensor>>>& all) {
  Spool spool(directory, SpoolOptions().mkdir(true).sync(false).shard_bytes(64));
  for (const auto& [path, samples] : all) {
    auto& stream = spool.add({path, {}, "Linear", "ForwardOutput"});
    for (const auto& sample : samples) stream.append(sample);
  }
  spool.close();
}

void check_samples(const RecordedEntry& entry, const std::vector<at::Tensor>& want) {
  const auto got = entry.tensors();
  BOOST_REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) BOOST_TEST(got[i].equal(want[i]));
}

}  // namespace

BOOST_AUTO_TEST_CASE(joins_modules_in_any_order) {
  const Folder folder;
  save(folder / "1", {reduced("a", 1), reduced("b", 2)}, kQuick);
  save(folder / "2", {reduced("b", 3), reduced("a", 4)}, kQuick);
  save(folder / "2-sorted", {reduced("a", 4), reduced("b", 3)}, kQuick);
  merged({folder / "1", folder / "2"}, folder / "got");
  merged({folder / "1", folder / "2-sorted"}, folder / "want");
  check_same(load(folder / "got"), load(folder / "want"));
}

BOOST_AUTO_TEST_CASE(adds_counts_up_and_keeps_the_words_beside_them) {
  const Folder folder;
  torchtap::core::NotRecorded some, more;
  some.left_out = 2;
  some.why_left_out = "no [3] fits [2]";
  more.dropped = 1;
  const std::string said = some.note();  // looks like a count
  BOOST_TEST(said == "2 of its samples were left out: no [3] fits [2]");
  const auto part = [&](const std::string& name, const torchtap::core::NotRecorded& counts,
                        const std::string& words) {
    Entry entry = kept("a", {at::ones({2})});
    entry.not_recorded = counts;
    entry.note = words;
    save(folder / name, {entry}, kQuick);
    return folder / name;
  };
  int made = 0;
  const auto note_of = [&](const std::vector<std::string>& parts) {
    const std::string place = folder / ("merged" + std::to_string(++made));
    merged(parts, place);
    const Recording once = load(place);
    // Counts are taken off the words before they are put in front again.
    merged({place}, place + "-again");
    const Recording again = load(place + "-again");
    BOOST_TEST(again.at(0).note() == once.at(0).note());
    BOOST_TEST((again.at(0).not_recorded() == once.at(0).not_recorded()));
    return once.at(0).note();
  };
  const std::string counts = part("counts", some, ""),
                    words = part("words", {}, "it runs in evaluation alone");
  const std::string both = part("both", some, "it runs in evaluation alone"), other = part("other", more, "");
  const std::string alike = part("alike", {}, said), twice = part("twice", some, said);
  const std::string longer = part("longer", some, said + " rows");
  const std::string none = part("none", {}, "");
  const std::string four = "4 of its samples were left out: no [3] fits [2]";
  const std::string dropped = "1 of its samples was dropped for lack of room.";
  const std::string alone = "it runs in evaluation alone";

  BOOST_TEST(note_of({none, none}) == "");
  BOOST_TEST(note_of({counts, none}) == said);
  BOOST_TEST(note_of({none, words}) == alone);
  BOOST_TEST(note_of({counts, counts}) == four);
  BOOST_TEST(note_of({counts, words}) == said + " " + alone);
  BOOST_TEST(note_of({both, counts}) == four + " " + alone);
  BOOST_TEST(note_of({both, both}) == four + " " + alone);
  BOOST_TEST(note_of({both, other}) == said + " " + dropped + " " + alone);
  BOOST_TEST(note_of({alike, none}) == said);
  BOOST_TEST(note_of({alike, counts}) == said + " " + said);
  BOOST_TEST(note_of({twice, counts}) == four + " " + said);
  BOOST_TEST(note_of({longer, counts}) == four + " " + said + " rows");
}

BOOST_AUTO_TEST_CASE(asks_before_it_joins_other_modules) {
  const Folder folder;
  save(folder / "1", {reduced("stage1", 1), reduced("shared", 2)}, kQuick);
  save(folder / "2", {reduced("shared", 3), reduced("stage2", 4)}, kQuick);
  BOOST_CHECK_EXCEPTION(merged({folder / "1", folder / "2"}, folder / "all"), c10::ValueError,
                        says({"stage1", "stage2", "all_modules", "entry 0", "entry 1"}));
  merged({folder / "1", folder / "2"}, folder / "all", MergeOptions().all_modules(true));
  const Recording all = load(folder / "all");
  BOOST_TEST(all.paths() == (std::vector<std::string>{"stage1", "shared", "stage2"}),
             boost::test_tools::per_element());
  BOOST_TEST(all.at("shared").samples() == 6);
  BOOST_TEST((all.at("stage2").value() == reduced("stage2", 4).value));
}

BOOST_AUTO_TEST_CASE(has_the_same_bits_in_rounds) {
  const Folder folder;
  std::vector<std::string> parts;
  for (int i = 0; i < 11; ++i) {
    parts.push_back(folder / std::to_string(i));
    save(parts.back(), {reduced("a", i), kept("k", counted(2 * i, 2 * i + 2))}, kQuick);
  }
  merged(parts, folder / "want");
  for (const std::int64_t at_once : {2, 3, 4, 10, 11}) {
    std::size_t calls = 0, announced = 0;
    merged(parts, folder / "got", MergeOptions().at_once(at_once).on_entry([&](std::size_t count) {
      ++calls;
      announced = count;
    }));
    check_same(load(folder / "got"), load(folder / "want"));
    BOOST_TEST(calls == announced);
    check_samples(load(folder / "got").at("k"), counted(0, 22));
  }
  std::size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    left += entry.path().filename().string().front() == '.' ? 1U : 0U;
  }
  BOOST_TEST(left == 0U);
  BOOST_CHECK_THROW(merged(parts, folder / "x", MergeOptions().at_once(1)), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(leaves_what_was_there_if_a_later_round_fails) {
  const Folder folder;
  std::vector<std::string> parts;
  for (int i = 0; i < 6; ++i) {
    parts.push_back(folder / std::to_string(i));
    save(parts.back(), {reduced(i == 5 ? "other" : "a", i)}, kQuick);
  }
  save(folder / "got", {reduced("old", 1)}, kQuick);
  BOOST_CHECK_THROW(merged(parts, folder / "got", MergeOptions().at_once(2)), c10::ValueError);
  BOOST_TEST(load(folder / "got").paths() == std::vector<std::string>{"old"},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(copies_the_shards_of_spools) {
  const Folder folder;
  spooled(folder / "1", {{"a", counted(0, 40)}, {"b", counted(100, 105)}});
  spooled(folder / "2", {{"b", counted(105, 130)}, {"a", counted(40, 41)}});
  spooled(folder / "3", {{"a", {}}, {"b", {}}});
  merged({folder / "1", folder / "2", folder / "3"}, folder / "all");
  const Recording all = load(folder / "all");
  check_samples(all.at("a"), counted(0, 41));
  check_samples(all.at("b"), counted(100, 130));
  BOOST_TEST(all.at("a").samples() == 41);
  BOOST_TEST(all.at("a").shards().size() ==
             load(folder / "1").at("a").shards().size() + load(folder / "2").at("a").shards().size());
  // Merged recordings merge again, and with those that one file holds.
  save(folder / "4", {kept("a", counted(41, 44)), kept("b", {})}, kQuick);
  merged({folder / "all", folder / "4", folder / "1"}, folder / "more", MergeOptions().at_once(2));
  auto want = counted(0, 44);
  for (const auto& sample : counted(0, 40)) want.push_back(sample);
  check_samples(load(folder / "more").at("a"), want);
}

BOOST_AUTO_TEST_SUITE_END()
