// Files of a newer format, as a newer torchtap may write them: an error that says so, and nothing is changed.
#include <cstdio>
#include <map>

#include <torchtap/base/crc32.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/storage/spool.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(newer_formats)

using namespace torchtap_test;
using namespace torchtap::storage;

namespace {

std::uint32_t sum(const std::string& bytes) {
  return torchtap::base::crc32(0, bytes.data(), bytes.size());
}

/// All files of a directory.
std::map<std::string, std::string> files(const std::string& directory) {
  std::map<std::string, std::string> all;
  for (const auto& file : fs::directory_iterator(directory)) {
    all[file.path().filename().string()] = read_bytes(file.path().string());
  }
  return all;
}

auto newer(const std::string& what) {
  return says({what, "newer torchtap", "update torchtap"});
}

/// A recording as a killed program leaves it: a shard for each of 6 samples, and a journal.
void write_unfinished(const TemporaryDirectory& directory, const std::string& name) {
  Spool spool(directory / "rec", SpoolOptions().mkdir(true).sync(false).overwrite(true).shard_bytes(24));
  EntryId id;
  id.path = "conv";
  id.type = "torch::nn::Conv2dImpl";
  id.kind = "ForwardOutput";
  auto& stream = spool.add(id);
  for (int i = 0; i < 6; ++i) stream.append(at::full({3}, i));
  spool.flush();
  torchtap::base::remove_folder(directory / name);
  fs::copy(directory / "rec", directory / name);
}

/// Makes the format of what torchtap adds to a `.pt` file a 2.
void make_newer_pt(const std::string& file) {
  std::string bytes = read_bytes(file);
  const auto replace = [&](const std::string& from, const std::string& to) {
    int found = 0;
    for (auto at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + to.size())) {
      bytes.replace(at, from.size(), to);
      ++found;
    }
    return found;
  };
  const auto little_endian = [](std::uint32_t number) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>((number >> (8 * i)) & 0xFF);
    return bytes;
  };
  const auto at = bytes.find("1\n", bytes.find("torchtap/format"));
  BOOST_REQUIRE(at != std::string::npos);
  bytes[at] = '2';
  BOOST_REQUIRE(replace(little_endian(sum("1\n")), little_endian(sum("2\n"))) > 0);
  write_bytes(file, bytes);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_journal) {
  const TemporaryDirectory directory;
  write_unfinished(directory, "cut");
  const std::string cut = directory / "cut";
  const std::string journal = read_bytes(cut + "/journal.jsonl");
  const auto end = journal.find('\n');
  BOOST_REQUIRE(end != std::string::npos);
  std::string head = journal.substr(9, end - 9);
  const auto at = head.find("\"format\": ");
  BOOST_REQUIRE(at != std::string::npos);
  head.replace(at, head.find(',', at) - at, "\"format\": 7");
  char line[16];
  std::snprintf(line, sizeof line, "%08x ", sum(head));
  write_bytes(cut + "/journal.jsonl", line + head + journal.substr(end));
  const auto before = files(cut);

  BOOST_CHECK_EXCEPTION(load(cut), c10::ValueError, newer("format 7"));
  for (const bool repair : {false, true}) {
    BOOST_CHECK_EXCEPTION(recover(cut, RecoverOptions().repair(repair)), c10::ValueError, newer("format 7"));
  }
  BOOST_CHECK_EXCEPTION(Spool(cut, SpoolOptions().append(true).sync(false)), c10::ValueError,
                        newer("format 7"));
  BOOST_CHECK((files(cut) == before));

  // With a journal that this torchtap knows, everything is there.
  write_bytes(cut + "/journal.jsonl", journal);
  recover(cut);
  BOOST_TEST(load(cut).at("conv").samples() == 6);
}

BOOST_AUTO_TEST_CASE(a_value) {
  const TemporaryDirectory directory;
  Entry entry;
  entry.path = "conv";
  entry.type = "torch::nn::Conv2dImpl";
  entry.kind = "ForwardOutput";
  entry.samples = 1;
  entry.value = Value(std::vector<at::Tensor>{at::ones({3})});
  const std::string rec = directory / "rec";
  save(rec, {entry}, SaveOptions().mkdir(true));
  make_newer_pt(rec + "/0.pt");
  const auto before = files(rec);
  BOOST_CHECK_EXCEPTION(load_value(rec + "/0.pt"), c10::ValueError, newer("format 2"));
  BOOST_CHECK_EXCEPTION(load(rec).at("conv").value(), c10::ValueError, newer("format 2"));
  BOOST_CHECK_EXCEPTION(load(rec).at("conv").state(), c10::ValueError, newer("format 2"));
  BOOST_CHECK_EXCEPTION(recover(rec), c10::ValueError, newer("format 2"));
  BOOST_CHECK_EXCEPTION(
      merge(
          {rec, rec}, directory / "merged",
          [](const torchtap::core::SavedSink&) -> std::unique_ptr<torchtap::core::Sink> { return nullptr; },
          MergeOptions().save(SaveOptions().mkdir(true))),
      c10::ValueError, newer("format 2"));
  BOOST_CHECK((files(rec) == before));
  BOOST_TEST(!fs::exists(directory / "merged"));
}

BOOST_AUTO_TEST_CASE(a_shard) {
  const TemporaryDirectory directory;
  // One that the journal names, and one that it does not; before either, one that is damaged.
  for (const std::string shard : {"0-1.pt", "0-9.pt"}) {
    BOOST_TEST_CONTEXT(shard) {
      write_unfinished(directory, "cut");
      const std::string cut = directory / "cut";
      BOOST_REQUIRE(fs::exists(cut + "/0-1.pt"));
      BOOST_REQUIRE(!fs::exists(cut + "/0-9.pt"));
      if (shard == "0-9.pt") fs::copy_file(cut + "/0-1.pt", cut + "/0-9.pt");
      make_newer_pt(cut + "/" + shard);
      write_bytes(cut + "/0-0.pt", std::string(fs::file_size(cut + "/0-0.pt"), 'x'));
      const auto before = files(cut);
      BOOST_CHECK_EXCEPTION(recover(cut), c10::ValueError, newer("format 2"));
      BOOST_CHECK_EXCEPTION(Spool(cut, SpoolOptions().append(true).sync(false)), c10::ValueError,
                            newer("format 2"));
      BOOST_CHECK((files(cut) == before));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
