// Reads the files of tests/formats/1/, which every later version has to read, and those of today.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/storage/spool.hpp>

#include "../support.hpp"
#include "fixtures.hpp"

namespace fs = std::filesystem;
namespace storage = torchtap::storage;
using torchtap::core::Value;
using torchtap_test::says;
using Folder = torchtap_test::TemporaryDirectory;

namespace {

const std::string kFixtures = TORCHTAP_TEST_FORMATS;

bool same(const at::Tensor& got, const at::Tensor& want) {
  return got.sizes() == want.sizes() && at::allclose(got.to(at::kDouble), want.to(at::kDouble), 1e-5, 1e-6);
}

/// The expected results of all reductions of `all`, computed without them, by entry and result.
std::map<std::string, std::map<std::string, at::Tensor>> expected(const std::vector<at::Tensor>& all) {
  const at::Tensor x = at::stack(all).to(at::kDouble);   // [n, 2, 3]
  const at::Tensor rows = at::cat(all).to(at::kDouble);  // [2n, 3]
  const auto n = static_cast<std::int64_t>(all.size());
  const at::Tensor mean = rows.mean(0);
  const at::Tensor centred = rows - mean;
  const at::Tensor variance = centred.pow(2).mean(0);
  const at::Tensor weights = at::pow(0.75, at::arange(n - 1, -1, -1, at::kDouble)).reshape({n, 1, 1});
  const at::Tensor counts = at::histc(rows, 6, -30, 30);
  const at::Tensor every = x.slice(0, 0, c10::nullopt, 2);
  const at::Tensor last = x.slice(0, n - 3);
  const at::Tensor every_last = every.slice(0, every.size(0) - 2);
  const auto [smallest, indices] = rows.topk(3, 0, /*largest=*/false);
  const double taken = static_cast<double>(rows.size(0));
  const at::Tensor zeros = at::zeros({3});
  const at::Tensor other = rows.square().slice(1, 0, 2);
  const at::Tensor centred_other = other - other.mean(0), cross = centred.t().mm(centred_other);
  const at::Tensor both = at::cat({centred, centred_other}, 1);
  const at::Tensor within = centred.t().mm(centred).norm() * centred_other.t().mm(centred_other).norm();
  return {
      {"Sum", {{"value", rows.sum(0)}, {"omitted", zeros}}},
      {"Mean", {{"value", x.mean()}}},
      {"Moments",
       {{"mean", mean}, {"variance", variance}, {"skewness", centred.pow(3).mean(0) / variance.pow(1.5)}}},
      {"Min", {{"value", rows.amin(0)}}},
      {"Max", {{"value", rows.amax(0)}}},
      {"AbsMax", {{"value", rows.abs().amax(0)}}},
      {"Norm", {{"value", rows.abs().pow(3).sum(0).pow(1.0 / 3)}}},
      {"Count",
       {{"rows", at::scalar_tensor(taken)},
        {"elements", at::scalar_tensor(3 * taken)},
        {"zeros", (rows == 0).sum()},
        {"nan", zeros.sum()},
        {"inf", zeros.sum()}}},
      {"First", {{"value", rows[0]}}},
      {"Last", {{"value", rows[-1]}}},
      {"EMA", {{"value", (x * weights).sum(0) / weights.sum()}}},
      {"Histogram", {{"counts", counts}}},
      {"Histogram, growing", {}},
      {"LogHistogram", {{"zeros", (rows == 0).sum(0)}, {"nan", zeros}}},
      {"Moments, order 2", {{"mean", mean}, {"variance", variance}}},
      {"Covariance, gathered", {{"mean", mean}, {"covariance", centred.t().mm(centred) / (taken - 1)}}},
      {"By",
       {{"label", at::tensor({0, 2})},
        {"label.count", at::full({2}, taken / 2)},
        {"label.left_out", at::scalar_tensor(0)},
        {"value", x.sum(0)}}},
      {"Where", {{"value", x.select(1, 0).sum(0)}, {"mask.left_out", at::scalar_tensor(taken / 2)}}},
      {"Joint",
       {{"mean", at::cat({mean, other.mean(0)})},
        {"covariance", both.t().mm(both) / (taken - 1)},
        {"other.start", at::scalar_tensor(3)}}},
      {"CrossCovariance",
       {{"mean", mean},
        {"variance", variance * taken / (taken - 1)},
        {"other.mean", other.mean(0)},
        {"covariance", cross / (taken - 1)}}},
      {"LinearCKA", {{"value", cross.norm().square() / within}}},
      {"LogHistogram, all", {{"zeros", (rows == 0).sum()}, {"positive_infinity", zeros.sum()}}},
      {"Blocks", {}},
      {"Quantiles", {{"quantiles", at::quantile(rows, at::tensor({0.25, 0.5}, at::kDouble), 0)}}},
      {"Covariance", {{"mean", mean}, {"covariance", centred.t().mm(centred) / (taken - 1)}}},
      {"Gram", {{"value", rows.t().mm(rows)}}},
      {"TopK", {{"values", smallest}, {"indices", indices}}},
      {"Reservoir", {}},
      {"Series", {{"mean.value", x.mean(0)}, {"max.value", x.amax(0)}, {"max_2.value", x.amax(0)}}},
      {"Every", {{"value", every.mean(0)}}},
      {"Over", {{"value", rows.sum(0)}}},
      {"Window", {{"value", last.mean(0)}}},
      {"nested",
       {{"every.value", every_last.amax(0)},
        {"over.min.value", rows.amin(0)},
        {"over.sum.value", rows.sum(0)}}},
      {"Named", {{"mean.value", mean}, {"max.value", rows.amax(0)}}},
      {"Named, one", {{"value", mean}}},
  };
}

void check_results(const std::string& name, const Value& got, const std::vector<at::Tensor>& all) {
  BOOST_TEST_CONTEXT(name) {
    const auto table = expected(all);
    const auto wanted = table.find(name);
    BOOST_REQUIRE(wanted != table.end());
    for (const auto& [key, want] : wanted->second) {
      // A single result is saved by itself.
      BOOST_TEST_CONTEXT(key) BOOST_TEST(same((got.is_tensor() ? got : got.at(key)).tensor(), want));
    }
    const at::Tensor rows = at::cat(all);
    if (name == "Histogram, growing") {
      // The reduction chooses the range; each bin has to count the values between its edges.
      const at::Tensor edges = got.at("edges").tensor(), counts = got.at("counts").tensor();
      BOOST_TEST(counts.sum().item<double>() == static_cast<double>(rows.numel()));
      for (std::int64_t i = 0; i < counts.size(0); ++i) {
        const bool end = i + 1 == counts.size(0);
        const auto above = rows.ge(edges[i].item<double>());
        const auto below = end ? rows.le(edges[i + 1].item<double>()) : rows.lt(edges[i + 1].item<double>());
        BOOST_TEST(counts[i].item<double>() == above.logical_and(below).sum().item<double>());
      }
    }
    if (name.find("LogHistogram") == 0) {
      // Each bin has to hold what lies between its ends, and on the one that is nearer to 0.
      const at::Tensor low = got.at("low").tensor(), high = got.at("high").tensor();
      const at::Tensor x = name == "LogHistogram" ? rows : rows.reshape({-1, 1});
      const at::Tensor counts = got.at("counts").tensor().reshape({x.size(1), -1});
      BOOST_TEST(at::equal(counts.sum() + got.at("zeros").tensor().sum(),
                           at::scalar_tensor(rows.numel(), at::kLong)));
      for (std::int64_t i = 0; i < low.size(0); ++i) {
        const bool negative = high[i].item<double>() <= 0;
        const auto above = negative ? x.gt(low[i].item<double>()) : x.ge(low[i].item<double>());
        const auto below = negative ? x.le(high[i].item<double>()) : x.lt(high[i].item<double>());
        BOOST_TEST(at::equal(counts.select(1, i), above.logical_and(below).logical_and(x.ne(0)).sum(0)));
      }
    }
    if (name == "Blocks") {  // of at most 4 blocks: of 5 and of 10 samples, 2 and 4 each
      const std::int64_t each = all.size() == 5 ? 2 : 4;
      const auto blocks =
          at::stack(all).to(at::kDouble).reshape({static_cast<std::int64_t>(all.size()), 6}).split(each);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const auto of_block = [&](const char* key) {
          return got.at(key).tensor()[static_cast<std::int64_t>(i)].item<double>();
        };
        BOOST_TEST(of_block("samples") == static_cast<double>(blocks[i].size(0)));
        BOOST_TEST(of_block("rows") == static_cast<double>(2 * blocks[i].size(0)));
        BOOST_TEST(of_block("sum") == blocks[i].sum().item<double>());
        BOOST_TEST(of_block("sum_squares") == blocks[i].square().sum().item<double>());
        BOOST_TEST(of_block("min") == blocks[i].min().item<double>());
        BOOST_TEST(of_block("zeros") == blocks[i].eq(0).sum().item<double>());
      }
      BOOST_TEST(got.at("counts").tensor().size(0) == static_cast<std::int64_t>(blocks.size()));
    }
    if (name == "Reservoir") {  // holds 20 rows: all of ten rows, or some of more
      const at::Tensor kept = got.at("samples").tensor(), places = got.at("indices").tensor();
      BOOST_TEST(kept.size(0) == std::min<std::int64_t>(20, rows.size(0)));
      BOOST_TEST(same(kept, rows.index_select(0, places)));
    }
  }
}

/// The samples, and then all of them again.
std::vector<at::Tensor> twice() {
  auto all = formats::samples();
  const auto more = formats::samples();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void check_entries(const storage::Recording& recording, const std::vector<formats::Catalogued>& catalogue) {
  BOOST_TEST(recording.complete());
  for (std::size_t i = 0; i < catalogue.size(); ++i) {
    const auto& entry = recording.at(static_cast<std::int64_t>(i));
    BOOST_TEST(entry.path() == catalogue[i].name);
    BOOST_TEST(entry.aliases() == std::vector<std::string>{"alias of " + entry.path()});
    BOOST_TEST(entry.type() == "torch::nn::LinearImpl");
    BOOST_TEST(entry.kind() == "ForwardOutput");
    BOOST_TEST(entry.samples() == 5);
    BOOST_TEST(entry.reduction() == catalogue[i].sink->describe());
    check_results(entry.path(), entry.value(), formats::samples());
    const auto state = entry.state();
    BOOST_REQUIRE(state.size() == 1u);
    const auto sink = torchtap::core::make_sink(torchtap::reductions::restore(state[0]));
    BOOST_TEST(sink->describe() == catalogue[i].sink->describe());
    check_results(entry.path(), formats::results(*sink), formats::samples());
    // It continues with the same options.
    formats::update(*sink);
    check_results(entry.path(), formats::results(*sink), twice());
  }
}

void check_reduced(const std::string& folder) {
  const auto recording = storage::load(folder);
  const auto catalogue = formats::catalogue();
  BOOST_REQUIRE(recording.size() == catalogue.size() + 2);
  check_entries(recording, catalogue);
  BOOST_TEST(recording.at("slots").state().size() == 2u);
  BOOST_TEST((recording.at("slots").keys() == std::vector<std::string>{"0", "1"}));
  BOOST_TEST(recording.at("nothing").value().is_none());
}

void check_added(const std::string& folder) {
  const auto recording = storage::load(folder);
  const auto added = formats::added();
  BOOST_REQUIRE(recording.size() >= added.size());  // other tests read those of parts
  check_entries(recording, added);
}

void check_samples(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want) {
  BOOST_REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    BOOST_REQUIRE(got[i].defined() == want[i].defined());
    if (got[i].defined()) BOOST_TEST((got[i].dtype() == want[i].dtype() && at::equal(got[i], want[i])));
  }
}

void check_all(const std::string& folder) {
  // value.pt
  const Value value = storage::load_value(folder + "/value.pt");
  for (const auto& [name, item] : value.at("dtypes").dict()) {
    BOOST_TEST(c10::toString(item.tensor().scalar_type()) == name);
    const at::Tensor plain = item.tensor().is_complex() ? at::real(item.tensor()) : item.tensor();
    const at::Tensor want = item.tensor().scalar_type() == at::kBool ? at::arange(3).ne(0) : at::arange(3);
    BOOST_TEST(at::equal(plain.to(at::kLong), want.to(at::kLong)), name);
  }
  BOOST_TEST(value.at("dtypes").dict().size() == 12u);
  BOOST_TEST(value.at("list").list().size() == 4u);
  BOOST_TEST(at::equal(value.at("list").list()[1].tensor(), at::arange(4, at::kFloat)));
  BOOST_TEST(value.at("list").list()[2].is_none());
  BOOST_TEST(value.at("text").text() == "caf\xc3\xa9");
  BOOST_TEST(value.at("none").is_none());
  BOOST_TEST((value.at("empty").tensor().sizes() == at::IntArrayRef{0, 3}));
  BOOST_TEST(value.at("number").tensor().item<double>() == 2.5);

  check_reduced(folder + "/reduced");
  check_added(folder + "/added");

  const auto all = formats::samples();
  const auto kept = storage::load(folder + "/kept");
  check_samples(kept.at("kept").tensors(), all);
  BOOST_TEST(at::equal(kept.at("slots").value().at("1").list()[1].tensor(), at::ones({4})));
  BOOST_TEST(kept.at("nothing").samples() == 0);

  const auto spooled = storage::load(folder + "/spooled");
  BOOST_TEST(spooled.complete());
  auto stacked = all;
  stacked.push_back(all[0]);
  check_samples(spooled.at("stacked").tensors(), stacked);
  BOOST_TEST(spooled.at("stacked").shards().size() == 2u);
  check_samples(spooled.at("mixed").tensors(), {at::ones({2}), at::Tensor(), at::ones({3, 1}, at::kLong)});
  BOOST_TEST(at::equal(spooled.at("slots").value().at("1").list()[0].tensor(), all[0] + 1));
  BOOST_TEST(spooled.at("nothing").samples() == 0);

  const auto unfinished = storage::load(folder + "/unfinished");
  BOOST_TEST(!unfinished.complete());
  check_samples(unfinished.at("cut off").tensors(), {all[0], all[1]});
  Folder place;
  fs::copy(folder + "/unfinished", place / "recovered");
  const auto found = storage::recover(place / "recovered");
  BOOST_TEST(found.samples == 5);
  BOOST_TEST(found.salvaged == 2);
  check_samples(storage::load(place / "recovered").at("cut off").tensors(), all);

  check_samples(formats::restored(folder + "/kept.snapshot", false, false).tensors(), all);
  check_samples(formats::restored(folder + "/kept.snapshot", false, true).tensors(), twice());
  for (const bool more : {false, true}) {
    const Value reduced = formats::restored(folder + "/reduced.snapshot", true, more);
    const at::Tensor x = at::stack(more ? twice() : all);
    BOOST_TEST(same(reduced.at("moments.mean").tensor(), x.mean(0)));
    BOOST_TEST(same(reduced.at("moments.variance").tensor(), x.var(0)));
    BOOST_TEST(same(reduced.at("map.value").tensor(), x.abs().amax(0)));
    BOOST_TEST(same(reduced.at("callable.value").tensor(), x.amin(0)));
  }
}

/// What is missing among samples.
void check_counted(const std::string& folder) {
  BOOST_TEST((storage::load(folder + "/counted").at("kept").not_recorded() == formats::missing()));
  BOOST_TEST(
      (storage::load(folder + "/counted_unfinished").at("cut off").not_recorded() == formats::missing()));
  const auto [left_out, note] = formats::restored_left_out(folder + "/counted.snapshot");
  BOOST_TEST(left_out == 1);
  BOOST_TEST(note.find("1 of its samples was left out: ") == 0u, note);
  BOOST_TEST(formats::restored_left_out(folder + "/reduced.snapshot").first == 0);
}

std::string read_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(formats_suite)

BOOST_AUTO_TEST_CASE(files_of_format_1_are_read) {
  check_all(kFixtures + "/1");
  check_counted(kFixtures + "/1");
}

BOOST_AUTO_TEST_CASE(files_that_another_processor_wrote_are_read) {
  check_all(kFixtures + "/arm64");
  check_counted(kFixtures + "/arm64");
}

BOOST_AUTO_TEST_CASE(files_that_are_written_today_are_read_alike) {
  Folder folder;
  formats::write_fixtures(folder.path());
  check_all(folder.path());
  check_counted(folder.path());
}

BOOST_AUTO_TEST_CASE(a_finished_recording_of_reductions_is_complete) {
  for (const char* const name : {"reduced", "kept", "checked", "spooled"}) {
    const auto found = storage::recover(kFixtures + "/1/" + name, storage::RecoverOptions().repair(false));
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(found.finished);
      BOOST_TEST(found.missing.empty());
    }
  }
  // A byte of a tensor is damaged.
  Folder folder;
  fs::copy(kFixtures + "/1/reduced", folder / "damaged", fs::copy_options::recursive);
  std::string bytes = read_bytes(folder / "damaged/0.pt");
  bytes[128] = static_cast<char>(bytes[128] ^ 1);
  write_bytes(folder / "damaged/0.pt", bytes);
  const auto found = storage::recover(folder / "damaged", storage::RecoverOptions().repair(false));
  BOOST_REQUIRE(found.missing.size() == 1u);
  BOOST_TEST(found.missing[0].find("checksum") != std::string::npos, found.missing[0]);
}

BOOST_AUTO_TEST_CASE(results_of_a_part_that_is_not_linked_are_read) {
  const auto recording = storage::load(kFixtures + "/1/added");
  const auto& entry = recording.at("Formats");
  BOOST_TEST(entry.value().at("zeros").tensor().numel() == 3);
  BOOST_CHECK_EXCEPTION(
      torchtap::reductions::restore(entry.state().front()), c10::ValueError,
      says({"Formats is a reduction of the component quantization", "link torchtap::quantization"}));
}

BOOST_AUTO_TEST_CASE(a_newer_state_says_so) {
  // Every state begins with a version, and so does each part of a nested one.
  for (const char* const name : {"added", "reduced"}) {
    for (const auto& entry : storage::load(kFixtures + "/1/" + name)) {
      if (entry.samples() == 0) continue;
      auto state = entry.state().front();
      if (state.recipe == "Formats") continue;  // of a part
      BOOST_TEST_CONTEXT(state.recipe) {
        BOOST_REQUIRE((state.bytes[1] == 1 || state.bytes[1] == 2));
        BOOST_REQUIRE(state.bytes.substr(2, 3) == std::string(3, '\0'));
        state.bytes[1] = 7;
        const std::string outer = state.recipe.substr(0, state.recipe.find('('));
        BOOST_CHECK_EXCEPTION(torchtap::reductions::restore(state), c10::ValueError,
                              says({"state of " + outer, "newer torchtap (version 7; this one reads up to ",
                                    "update torchtap"}));
      }
    }
  }
  const auto recording = storage::load(kFixtures + "/1/reduced");
  auto inner = recording.at("Series").state().front();
  inner.bytes[5] = 9;  // of its first member
  BOOST_CHECK_EXCEPTION(torchtap::reductions::restore(inner), c10::ValueError,
                        says({"state of Mean", "version 9"}));
  inner.bytes[5] = 0;
  BOOST_CHECK_EXCEPTION(torchtap::reductions::restore(inner), c10::ValueError,
                        says({"version 0", "damaged"}));
}

BOOST_AUTO_TEST_CASE(newer_files_say_so_and_are_left_alone) {
  Folder folder;
  const auto copy = [&](const std::string& name) {
    torchtap::base::remove_folder(folder / name);
    fs::copy(kFixtures + "/1/" + name, folder / name, fs::copy_options::recursive);
    return folder / name;
  };
  const auto replace = [](const std::string& file, const std::string& from, const std::string& to) {
    std::string bytes = read_bytes(file);
    const auto at = bytes.find(from);
    BOOST_REQUIRE(at != std::string::npos);
    write_bytes(file, bytes.replace(at, from.size(), to));
  };
  const auto newer = [](const std::string& what) {
    return says({what, "newer torchtap", "update torchtap"});
  };

  replace(copy("spooled") + "/manifest.json", "\"format\": 2", "\"format\": 3");
  BOOST_CHECK_EXCEPTION(storage::load(folder / "spooled"), c10::ValueError, newer("format 3"));
  BOOST_CHECK_EXCEPTION(storage::recover(folder / "spooled"), c10::ValueError, newer("format 3"));

  // A snapshot: its format is the number behind the eight bytes of its magic.
  std::string snapshot = read_bytes(kFixtures + "/1/kept.snapshot");
  snapshot[8] = 3;
  write_bytes(folder / "snapshot", snapshot);
  BOOST_CHECK_EXCEPTION(formats::restored(folder / "snapshot", false, false), c10::ValueError,
                        newer("format 3"));
  snapshot.replace(0, 8, "tapsnap2");
  write_bytes(folder / "snapshot", snapshot);
  BOOST_CHECK_EXCEPTION(formats::restored(folder / "snapshot", false, false), c10::ValueError,
                        says({"before 0.1.0"}));
}

BOOST_AUTO_TEST_CASE(recordings_are_merged_by_their_states) {
  Folder folder;
  storage::merge({kFixtures + "/1/kept", kFixtures + "/1/kept"}, folder / "kept",
                 torchtap::reductions::restore,
                 storage::MergeOptions().save(storage::SaveOptions().mkdir(true)));
  check_samples(storage::load(folder / "kept").at("kept").tensors(), twice());

  // Parts of two processors, each first in turn: kept samples, and the states of reductions.
  for (const auto& [first, second] : {std::pair("/1/", "/arm64/"), std::pair("/arm64/", "/1/")}) {
    Folder both;
    for (const std::string name : {"kept", "spooled"}) {
      storage::merge({kFixtures + first + name, kFixtures + second + name}, both / name,
                     torchtap::reductions::restore,
                     storage::MergeOptions().save(storage::SaveOptions().mkdir(true)));
    }
    check_samples(storage::load(both / "kept").at("kept").tensors(), twice());
    auto stacked = formats::samples();
    stacked.push_back(stacked[0]);
    const auto once = stacked;
    stacked.insert(stacked.end(), once.begin(), once.end());
    check_samples(storage::load(both / "spooled").at("stacked").tensors(), stacked);
    const auto mine = storage::load(kFixtures + first + "reduced");
    const auto theirs = storage::load(kFixtures + second + "reduced");
    for (const auto& entry : mine) {
      const auto state = entry.state();
      if (state.size() != 1) continue;
      BOOST_TEST_CONTEXT(entry.path()) {
        const auto sink = torchtap::core::make_sink(torchtap::reductions::restore(state[0]));
        const auto other =
            torchtap::core::make_sink(torchtap::reductions::restore(theirs.at(entry.path()).state()[0]));
        if (!sink->commutative()) continue;  // some cannot be merged behind five samples
        sink->merge(*other);
        check_results(entry.path(), formats::results(*sink), twice());
      }
    }
  }

  // Every(2) of five samples cannot be merged: an error that leaves nothing behind.
  std::size_t entries = 0;
  const auto options =
      storage::MergeOptions().save(storage::SaveOptions().mkdir(true)).on_entry([&](std::size_t count) {
        entries = count;
      });
  BOOST_CHECK_EXCEPTION(storage::merge({kFixtures + "/1/reduced", kFixtures + "/1/reduced"},
                                       folder / "reduced", torchtap::reductions::restore, options),
                        c10::ValueError, says({"Every::merge", "while merging entry"}));
  BOOST_TEST(entries == formats::catalogue().size() + 2);
  BOOST_TEST(!fs::exists(folder / "reduced"));
  BOOST_CHECK_EXCEPTION(storage::merge({kFixtures + "/1/reduced", kFixtures + "/1/kept"}, folder / "reduced",
                                       torchtap::reductions::restore, options),
                        c10::ValueError, says({"merge", "(\"slots\") has the reduction"}));
  BOOST_CHECK_THROW(storage::merge({}, folder / "reduced", torchtap::reductions::restore, options),
                    c10::ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
