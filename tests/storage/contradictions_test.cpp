// Files and manifests that contradict themselves or each other are errors, never wrong values.
#include <torchtap/base/crc32.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/storage/spool.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(contradictions)

using namespace torchtap_test;
using torchtap::storage::Entry;
using torchtap::storage::load;
using torchtap::storage::load_value;
using torchtap::storage::recover;
using torchtap::storage::save;
using torchtap::storage::save_value;
using torchtap::storage::SaveOptions;
using torchtap::storage::Spool;
using torchtap::storage::SpoolOptions;

namespace {

Entry entry(const std::string& path, std::int64_t samples, Value value, const std::string& reduction = "") {
  Entry entry;
  entry.path = path;
  entry.type = "torch::nn::LinearImpl";
  entry.kind = "ForwardOutput";
  entry.samples = samples;
  entry.reduction = reduction;
  entry.value = std::move(value);
  return entry;
}

/// A list, a dict, nothing and a tensor.
std::vector<Entry> sample() {
  return {
      entry("conv", 2, Value(std::vector<at::Tensor>{at::ones({2, 3}), at::zeros({1, 3})})),
      entry("fc", 7,
            Value(Value::Dict{{"mean", Value(at::full({4}, 0.5))}, {"variance", Value(at::full({4}, 2.0))}}),
            "Moments"),
      entry("never", 0, Value()),
      entry("total", 3, Value(at::arange(6, at::kInt).view({2, 3})), "Sum"),
  };
}

void spool_sample(const std::string& directory) {
  Spool spool(directory, SpoolOptions().mkdir(true).sync(false));
  auto& plain = spool.add(entry("conv", 0, Value()));
  auto& slots = spool.add(entry("lstm", 0, Value()));
  for (int i = 0; i < 5; ++i) {
    plain.append(at::full({3}, i));
    slots.append(at::full({2}, i), 0);
    slots.append(at::full({i + 1}, i), 1);
  }
  spool.finish();
}

/// `text` with the first `from` behind `anchor` replaced by `to`.
std::string replaced(std::string text, const std::string& anchor, const std::string& from,
                     const std::string& to) {
  const auto start = text.find(anchor);
  BOOST_REQUIRE_MESSAGE(start != std::string::npos, "no " << anchor);
  const auto at = text.find(from, start);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos, "no " << from << " behind " << anchor);
  return text.replace(at, from.size(), to);
}

struct Change {
  std::string anchor, from, to;
  std::vector<std::string> says;
};

/// With each of these changes of the manifest, `load` throws an error that names the manifest.
void check_load_refuses(const std::string& directory, const std::vector<Change>& changes) {
  const std::string manifest = directory + "/manifest.json", good = unchecked(read_bytes(manifest));
  for (const auto& change : changes) {
    write_bytes(manifest, replaced(good, change.anchor, change.from, change.to));
    auto parts = change.says;
    parts.push_back("manifest.json");
    BOOST_TEST_CONTEXT(change.from << " -> " << change.to) {
      BOOST_CHECK_EXCEPTION(load(directory), c10::ValueError, says(parts));
    }
  }
  write_bytes(manifest, good);
  for (const auto& part : load(directory)) part.value();
}

/// Each of these changes of the manifest is found when the file is read, and not before.
void check_value_refuses(const std::string& directory, std::int64_t index,
                         const std::vector<Change>& changes) {
  const std::string manifest = directory + "/manifest.json", good = unchecked(read_bytes(manifest));
  for (const auto& change : changes) {
    write_bytes(manifest, replaced(good, change.anchor, change.from, change.to));
    BOOST_TEST_CONTEXT(change.from << " -> " << change.to) {
      const auto recording = load(directory);
      BOOST_CHECK_EXCEPTION(recording.at(index).value(), c10::ValueError, says(change.says));
    }
  }
  write_bytes(manifest, good);
}

/// The offset of a record's entry in the central directory.
std::size_t central_entry(const std::string& bytes, const std::string& record) {
  std::size_t found = std::string::npos;
  for (auto at = bytes.find("PK\1\2"); at != std::string::npos; at = bytes.find("PK\1\2", at + 1)) {
    const std::size_t size = static_cast<unsigned char>(bytes[at + 28]);
    const std::string name = bytes.substr(at + 46, size);
    if (name.size() > record.size() && name.substr(name.size() - record.size()) == record) found = at;
  }
  BOOST_REQUIRE(found != std::string::npos);
  return found;
}

void zero(std::string& bytes, std::size_t at) {
  bytes.replace(at, 4, std::string(4, '\0'));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_manifest_that_contradicts_itself_is_not_loaded) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, sample(), SaveOptions().mkdir(true));
  const std::string fc = "\"path\": \"fc\"", conv = "\"path\": \"conv\"", total = "\"path\": \"total\"",
                    never = "\"path\": \"never\"";
  check_load_refuses(
      rec, {
               {fc, "\"samples\": 7", "\"samples\": 4611686018427387904", {"\"fc\"", "4611686018427387904"}},
               {conv, "\"samples\": 2", "\"samples\": 7", {"\"conv\"", "7 samples", "list of 2"}},
               {fc, "\"number\": 2", "\"number\": 3", {"\"fc\"", "3 tensors"}},
               {total, "\"number\": 1", "\"number\": 1000000000000", {"\"total\"", "1000000000000 tensors"}},
               {total, "\"number\": 1", "\"number\": -1", {"\"total\"", "-1"}},
               {conv, "\"number\": 2", "\"number\": 1000000000000", {"\"conv\"", "1000000000000 tensors"}},
               {never, "\"number\": 0", "\"number\": 1", {"\"never\"", "names no file"}},
               {never, "\"bytes\": 0", "\"bytes\": 100", {"\"never\"", "names no file"}},
               {fc, "\"variance\"", "\"mean\"", {"\"fc\"", "a key twice"}},
               {fc, "\"holds\": \"dict\"", "\"holds\": \"list\"", {"\"fc\"", "keys"}},
               {fc, "\"holds\": \"dict\"", "\"holds\": \"set\"", {"\"fc\"", "\"set\""}},
               {total, "2,\n", "-5,\n", {"\"total\"", "-5"}},
               {total, "2,\n", "-1,\n", {"\"total\"", "several shapes"}},
               {total, "2,\n", "4611686018427387904,\n", {"\"total\"", "4611686018427387904"}},
               {total, "2,\n", "4294967296,\n 4294967296,\n", {"\"total\"", "4294967296"}},
               {total, "2,\n", "2000,\n", {"\"total\"", "2000", "bytes"}},
               {total, "\"dtype\": \"int32\"", "\"dtype\": \"mixed\"", {"\"total\"", "dtypes"}},
               {total, "\"dtype\": \"int32\"", "\"dtype\": \"\"", {"\"total\"", "no dtype"}},
               {total, "\"ragged\": false", "\"ragged\": true", {"\"total\"", "shape"}},
               {total, "\"3.pt\"", "\"1.pt\"", {"two entries name the file \"1.pt\""}},
           });
}

BOOST_AUTO_TEST_CASE(a_shape_of_a_million_dimensions_makes_no_long_message) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, sample(), SaveOptions().mkdir(true));
  std::string ones;
  for (int i = 0; i < 1000000; ++i) ones += "1,";
  const std::string text = unchecked(read_bytes(rec + "/manifest.json"));
  write_bytes(rec + "/manifest.json",
              replaced(text, "\"path\": \"total\"", "2,\n", ones + "4611686018427387904,\n"));
  BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, [](const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    return message.size() < 1000 && message.find("1000002 dimensions") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(a_value_that_contradicts_the_manifest_is_an_error) {
  const auto two = [](const std::string& n) {
    const std::string next = ",\n   ";
    return "\"samples\": " + n + next + "\"reduction\": \"\"" + next + "\"holds\": \"list\"" + next +
           "\"number\": " + n;
  };
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, sample(), SaveOptions().mkdir(true));
  const std::string fc = "\"path\": \"fc\"", conv = "\"path\": \"conv\"", total = "\"path\": \"total\"";
  check_value_refuses(rec, 0,
                      {
                          {conv, two("2"), two("3"), {"0.pt", "\"number\""}},
                          {conv, "-1,\n", "2,\n", {"0.pt", "\"shape\""}},
                          {conv, "\"dtype\": \"float32\"", "\"dtype\": \"mixed\"", {"0.pt", "\"dtype\""}},
                      });
  check_value_refuses(rec, 1, {{fc, "\"variance\"", "\"median\"", {"1.pt", "\"keys\""}}});
  check_value_refuses(
      rec, 3,
      {
          {total, "\"dtype\": \"int32\"", "\"dtype\": \"int64\"", {"3.pt", "a tensor", "\"dtype\""}},
          {total, "\"dtype\": \"int32\"", "\"dtype\": \"banana\"", {"3.pt", "\"dtype\""}},
          {total, "2,\n", "6,\n", {"3.pt", "\"shape\""}},
      });
}

BOOST_AUTO_TEST_CASE(shards_that_contradict_their_entry_are_not_loaded) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  spool_sample(rec);
  BOOST_REQUIRE(fs::exists(rec + "/1.1-0.pt"));
  const std::string conv = "\"path\": \"conv\"", lstm = "\"path\": \"lstm\"", shard = "\"0-0.pt\"",
                    second = "\"1.1-0.pt\"";
  check_load_refuses(
      rec,
      {
          {conv, "\"samples\": 5", "\"samples\": 6", {"\"conv\"", "\"samples\""}},
          {conv, "\"number\": 5", "\"number\": 6", {"\"conv\"", "\"number\""}},
          {conv, "\"reduction\": \"\"", "\"reduction\": \"Sum\"", {"\"conv\"", "\"reduction\""}},
          {conv, "\"dropped\": 0", "\"dropped\": -1", {"\"conv\"", "-1"}},
          {lstm, "\"1\"", "\"2\"", {"\"lstm\"", "\"keys\""}},
          {lstm, "\"holds\": \"dict\"", "\"holds\": \"list\"", {"\"lstm\"", "\"holds\""}},
          {second, "\"slot\": 1", "\"slot\": 1099511627776", {"1.1-0.pt", "1099511627776"}},
          {second, "\"slot\": 1", "\"slot\": 0", {"1.1-0.pt", "slot 0"}},
          {shard, "\"samples\": 5", "\"samples\": 4611686018427387904", {"0-0.pt", "4611686018427387904"}},
          {shard, "\"samples\": 5", "\"samples\": 1000000", {"0-0.pt", "1000000"}},
          {shard, "\"holds\": \"tensor\"", "\"holds\": \"dict\"", {"0-0.pt", "\"dict\""}},
          {shard, "\"bytes\": ", "\"bytes\": 9", {"\"conv\"", "\"bytes\""}},
          {conv, shard, "\"1.0-0.pt\"", {"1.0-0.pt", "entry 0"}},
          {conv, shard, "\"../0-0.pt\"", {"not the name of a shard"}},
          {conv, shard, "\"0-0.part\"", {"not the name of a shard"}},
          {conv, shard, "\"manifest.json\"", {"not the name of a shard"}},
      });
  // The description of the shard is consistent, but the file is another one.
  std::string manifest = unchecked(read_bytes(rec + "/manifest.json"));
  for (int i = 0; i < 2; ++i) {
    manifest = replaced(manifest, conv, "\"dtype\": \"int64\"", "\"dtype\": \"float64\"");
  }
  write_bytes(rec + "/manifest.json", manifest);
  const auto recording = load(rec);
  BOOST_CHECK_EXCEPTION(recording.at("conv").value(), c10::ValueError,
                        says({"0-0.pt", "another dtype or shape"}));
  BOOST_TEST(recording.at("lstm").value().at("1").list().size() == 5u);
}

// Lines of a journal have checksums, so only a faulty program writes such lines. They are ignored, and
// complete shards are kept.
BOOST_AUTO_TEST_CASE(impossible_journals_are_refused_and_complete_samples_recovered) {
  namespace detail = torchtap::storage::detail;
  const auto line = [](const std::string& json) {
    char sum[16];
    std::snprintf(sum, sizeof sum, "%08x ", torchtap::base::crc32(0, json.data(), json.size()));
    return sum + json + "\n";
  };
  const auto open = [](const std::string& shape, const std::string& name = "0-1") {
    return R"({"open": {"entry": 0,"name": ")" + name + R"(","slot": -1,"dtype": "float32","shape": [)" +
           shape + R"(],"stacked": -1}})";
  };
  const auto shard = [](const std::string& file, const std::string& samples) {
    return R"({"shard": {"entry": 0,"shard": {"file": ")" + file + R"(","slot": -1,"samples": )" + samples +
           R"(,"bytes": 700,"holds": "tensor","dtype": "float32","shape": [3],"ragged": false}}})";
  };
  for (const std::string& bad :
       {open("-3"), open("4294967296, 4294967296"), open("4611686018427387905, 4"), open("3", "../0-1"),
        open("3", "1-1"), shard("0-1.pt", "4611686018427387904"), shard("../0-1.pt", "5"),
        shard("0-0.pt", "5"), shard("1-1.pt", "5"),
        std::string(R"({"entry": {"entry": 9000000,"path": "x","aliases": [],"type": "T","kind": "K"}})")}) {
    BOOST_TEST_CONTEXT(bad) {
      const TemporaryDirectory directory;
      const std::string rec = directory / "rec";
      {
        Spool spool(rec, SpoolOptions().mkdir(true).sync(false));
        auto& stream = spool.add(entry("conv", 0, Value()));
        for (int i = 0; i < 5; ++i) stream.append(at::full({3}, i));
        spool.flush();
        fs::copy(rec, directory / "copy");
      }
      const std::string copy = directory / "copy";
      BOOST_REQUIRE(fs::exists(copy + "/journal.jsonl"));
      BOOST_REQUIRE(!fs::exists(copy + "/manifest.json"));
      write_bytes(copy + "/0-1.part", std::string(1000, 'x'));
      write_bytes(copy + "/journal.jsonl", read_bytes(copy + "/journal.jsonl") + line(bad));
      BOOST_CHECK_THROW(load(copy), c10::ValueError);
      const auto found = recover(copy);
      BOOST_TEST(found.samples == 5);
      BOOST_TEST(!found.missing.empty());
      BOOST_TEST(found.entries == 1);
      const auto samples = load(copy).at("conv").tensors();
      BOOST_REQUIRE(samples.size() == 5u);
      for (int i = 0; i < 5; ++i) {
        BOOST_TEST(same(samples[static_cast<std::size_t>(i)], at::full({3}, i)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_zeroed_checksum_is_read_from_its_other_place) {
  const TemporaryDirectory directory;
  // Our files have a second checksum before the data, those of torch.save behind them.
  save_value(directory / "ours.pt", Value(at::arange(100)));
  python(directory, "import torch\ntorch.save(torch.arange(100), 'theirs.pt')\n");
  for (const std::string name : {"ours.pt", "theirs.pt"}) {
    BOOST_TEST_CONTEXT(name) {
      std::string bytes = read_bytes(directory / name);
      const std::size_t central = central_entry(bytes, "/data/0");
      std::uint32_t header = 0;
      std::memcpy(&header, &bytes[central + 42], 4);
      zero(bytes, central + 16);
      write_bytes(directory / name, bytes);
      BOOST_TEST(load_value(directory / name).tensor().equal(at::arange(100)));
      std::string damaged = bytes;
      const std::string number("\x2a\0\0\0\0\0\0\0", 8);  // 42
      const auto at = damaged.find(number, header);
      BOOST_REQUIRE(at != std::string::npos);
      damaged[at] = 43;
      write_bytes(directory / name, damaged);
      BOOST_CHECK_EXCEPTION(load_value(directory / name), c10::ValueError, says({name, "checksum"}));
      // Without any checksum, nothing is compared.
      zero(damaged, header + 14);
      const auto behind = damaged.find("PK\7\10", header);
      if (behind != std::string::npos) zero(damaged, behind + 4);
      write_bytes(directory / name, damaged);
      BOOST_TEST(load_value(directory / name).tensor()[42].item<std::int64_t>() == 43);
    }
  }
}

// A few bytes may hold a view of any size.
BOOST_AUTO_TEST_CASE(an_expanded_tensor_loads_as_a_view_and_not_as_a_recording) {
  const TemporaryDirectory directory;
  python(directory,
         "import torch\ntorch.save(torch.ones(1).expand(2**28), 'view.pt')\n"
         "torch.save(torch.ones(1, 3).expand(2**28, 3), 'shard.pt')\n");
  const at::Tensor view = load_value(directory / "view.pt").tensor();
  BOOST_TEST(view.numel() == 1 << 28);
  BOOST_TEST(view.storage().nbytes() < 100u);
  BOOST_TEST(load(directory / "view.pt").at(0).tensor().stride(0) == 0);

  const std::string rec = directory / "rec";
  save(rec, {entry("fc", 3, Value(at::ones({4})), "Sum")}, SaveOptions().mkdir(true));
  std::string manifest = unchecked(read_bytes(rec + "/manifest.json"));
  const auto size_of = [&](const std::string& file) {
    return std::to_string(fs::file_size(directory / file));
  };
  fs::copy_file(directory / "view.pt", rec + "/0.pt", fs::copy_options::overwrite_existing);
  const auto at = manifest.find("\"bytes\": ");
  manifest.replace(at, manifest.find('\n', at) - at, "\"bytes\": " + size_of("view.pt"));
  write_bytes(rec + "/manifest.json", replaced(manifest, "\"shape\"", "4\n", "268435456\n"));
  BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says({"\"fc\"", "268435456", "bytes"}));

  // A shard that the journal does not list is adopted as it is.
  {
    Spool spool(directory / "spooled", SpoolOptions().mkdir(true).sync(false));
    auto& stream = spool.add(entry("conv", 0, Value()));
    stream.append(at::zeros({3}));
    spool.flush();
    fs::copy(directory / "spooled", directory / "copy");
  }
  fs::copy_file(directory / "shard.pt", directory / "copy/0-1.pt");
  const auto found = recover(directory / "copy");
  BOOST_TEST(found.samples == 1);
  BOOST_REQUIRE(found.missing.size() == 1u);
  BOOST_TEST(found.missing[0].find("0-1.pt") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
