// Saving and loading recordings.
#include <torchtap/base/disk.hpp>
#include <torchtap/storage/detail/recording_files.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(recording)

using namespace torchtap_test;
using torchtap::storage::Entry;
using torchtap::storage::in_memory;
using torchtap::storage::load;
using torchtap::storage::load_value;
using torchtap::storage::Recording;
using torchtap::storage::save;
using torchtap::storage::save_value;
using torchtap::storage::SaveOptions;

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

std::vector<Entry> sample() {
  std::vector<Entry> entries{
      entry("conv1", 2, Value(std::vector<at::Tensor>{at::ones({2, 3}), at::zeros({1, 3})})),
      entry("layer1.fc", 7,
            Value(Value::Dict{{"mean", Value(at::full({4}, 0.5))}, {"variance", Value(at::full({4}, 2.0))}}),
            "Moments"),
      entry("never", 0, Value()),
      entry("total", 3, Value(at::scalar_tensor(42.0, at::TensorOptions(at::kDouble))), "Sum"),
  };
  entries[1].aliases = {"shared.fc", "tied \"ключ\"\n"};
  return entries;
}

/// A recording whose tensors all hold `generation`.
std::vector<Entry> generation(std::int64_t generation) {
  std::vector<Entry> entries;
  for (int i = 0; i < 4; ++i) {
    entries.push_back(entry(c10::str("m", i, ".g", generation), generation + 1,
                            Value(at::full({20000}, generation, at::kLong)), "Sum"));
  }
  return entries;
}

/// The generation of a recording, if all of its tensors are of the same one; -1 if not.
std::int64_t generation_of(const Recording& recording) {
  if (recording.size() != 4) return -1;
  const std::int64_t number = recording.at(0).samples() - 1;
  for (int i = 0; i < 4; ++i) {
    const auto& part = recording.at(i);
    if (part.path() != c10::str("m", i, ".g", number) || part.samples() != number + 1) return -1;
    if (!part.tensor().equal(at::full({20000}, number, at::kLong))) return -1;
  }
  return number;
}

const std::vector<std::string> kFiles{"0.pt", "1.pt", "3.pt", "manifest.json"};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos, "no " << from << " in the manifest");
  return text.replace(at, from.size(), to);
}

}  // namespace

/// Also in a program whose locale writes "12.345".
BOOST_AUTO_TEST_CASE(names_of_shards_are_digits) {
  using torchtap::storage::detail::parse_shard_name;
  using torchtap::storage::detail::ShardName;
  for (const ShardName& name : {ShardName{12345, std::nullopt, 1000}, ShardName{0, 1234, 56789}}) {
    const auto read = parse_shard_name(name.stem() + ".pt");
    BOOST_TEST_REQUIRE(read.has_value(), name.stem());
    BOOST_TEST(read->entry == name.entry);
    BOOST_TEST((read->slot == name.slot));
    BOOST_TEST(read->number == name.number);
  }
}

BOOST_AUTO_TEST_CASE(a_recording_comes_back) {
  const TemporaryDirectory directory;
  save(directory / "rec", sample(), SaveOptions().mkdir(true));
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"rec"}),
             boost::test_tools::per_element());
  BOOST_TEST(names_in(directory / "rec") == kFiles, boost::test_tools::per_element());
  const Recording recording = load(directory / "rec");
  BOOST_TEST(recording.size() == 4u);
  BOOST_TEST(recording.created().size() == 20u);
  BOOST_TEST(recording.names() == (std::vector<std::string>{"conv1", "layer1.fc", "never", "total"}),
             boost::test_tools::per_element());
  const auto entries = sample();
  std::size_t i = 0;
  for (const auto& part : recording) {
    BOOST_TEST(part.index() == static_cast<std::int64_t>(i));
    BOOST_TEST(part.path() == entries[i].path);
    BOOST_TEST(part.aliases() == entries[i].aliases, boost::test_tools::per_element());
    BOOST_TEST(part.type() == entries[i].type);
    BOOST_TEST(part.kind() == "ForwardOutput");
    BOOST_TEST(part.samples() == entries[i].samples);
    BOOST_TEST(part.reduction() == entries[i].reduction);
    BOOST_TEST(same(part.value(), entries[i].value));
    ++i;
  }
  BOOST_TEST(recording.at("conv1").tensors().size() == 2u);
  BOOST_TEST(recording.at("conv1").shape() == (std::vector<std::int64_t>{-1, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(recording.at("conv1").dtype() == "float32");
  BOOST_TEST(recording.at("shared.fc").tensor("variance").equal(at::full({4}, 2.0)));
  BOOST_TEST(recording.at("shared.fc").keys() == (std::vector<std::string>{"mean", "variance"}),
             boost::test_tools::per_element());
  BOOST_TEST(recording.at(3).tensor().item<double>() == 42.0);
  BOOST_TEST(recording.at(3).file() == directory / "rec/3.pt");
  BOOST_TEST(recording.at(3).bytes() == static_cast<std::int64_t>(fs::file_size(directory / "rec/3.pt")));
  BOOST_TEST(recording.at("never").file().empty());
  BOOST_TEST(recording.at("never").value().is_none());
  BOOST_TEST(recording.at("never").tensors().empty());
  BOOST_CHECK_EXCEPTION(recording.at("never").tensor(), c10::ValueError, says({"\"never\"", "no samples"}));
  BOOST_CHECK_EXCEPTION(recording.at(1).tensor(), c10::TypeError, says({"\"layer1.fc\"", "tensor(key)"}));
  BOOST_CHECK_EXCEPTION(recording.at(1).tensor("median"), c10::IndexError,
                        says({"\"mean\" and \"variance\""}));
  BOOST_CHECK_EXCEPTION(recording.at("layer1.fd"), c10::IndexError, says({"layer1.fd", "\"layer1.fc\""}));
  BOOST_CHECK_EXCEPTION(recording.at(4), c10::IndexError, says({"4 entries"}));
  BOOST_CHECK_THROW(recording.at(-1), c10::IndexError);
}

BOOST_AUTO_TEST_CASE(python_reads_a_recording) {
  const TemporaryDirectory directory;
  save(directory / "rec", sample(), SaveOptions().mkdir(true));
  python(directory, R"(
import datetime, json, os, torch, zlib
data = open("rec/manifest.json", "rb").read()
manifest = json.loads(data)
assert int(manifest["crc32"], 16) == zlib.crc32(data[: data.rindex(b'"crc32": "')])
assert manifest["format"] == 1 and manifest["library"] and manifest["count"] == 4
datetime.datetime.strptime(manifest["created"], "%Y-%m-%dT%H:%M:%SZ")
a, b, never, total = manifest["entries"]
assert [e["index"] for e in manifest["entries"]] == [0, 1, 2, 3]
assert b["aliases"] == ["shared.fc", "tied \"ключ\"\n"] and b["keys"] == ["mean", "variance"] and b["number"] == 2
assert (a["holds"], a["number"], a["dtype"], a["shape"], a["samples"]) == ("list", 2, "float32", [-1, 3], 2)
assert (never["samples"], never["file"], never["bytes"], never["holds"]) == (0, "", 0, "none")
assert (total["dtype"], total["shape"], total["ragged"], total["reduction"]) == ("float64", [], False, "Sum")
for e in manifest["entries"]:
    if e["file"]:
        assert e["bytes"] == os.path.getsize("rec/" + e["file"])
        value = torch.load("rec/" + e["file"], weights_only=True)
        assert type(value).__name__.lower() == e["holds"], e
assert torch.load("rec/3.pt", weights_only=True).item() == 42
assert torch.equal(torch.load("rec/1.pt", weights_only=True)["variance"], torch.full((4,), 2.))
)");
}

BOOST_AUTO_TEST_CASE(a_single_file_is_a_recording_of_one) {
  const TemporaryDirectory directory;
  save_value(directory / "fc.pt", Value(std::vector<at::Tensor>{at::ones({2}), at::zeros({2})}));
  const Recording recording = load(directory / "fc.pt");
  BOOST_TEST(recording.size() == 1u);
  BOOST_TEST(recording.at("fc").samples() == 2);
  BOOST_TEST(recording.at(0).tensors()[0].equal(at::ones({2})));
  BOOST_TEST(recording.at(0).file() == directory / "fc.pt");
  BOOST_CHECK_EXCEPTION(load(directory / "missing"), c10::ValueError,
                        says({"missing", "no such file or directory"}));
  BOOST_CHECK_EXCEPTION(load(directory.path()), c10::ValueError, says({"no manifest.json"}));
}

BOOST_AUTO_TEST_CASE(values_in_memory_are_a_recording) {
  Entry list, dict, none;
  list.path = "layer";
  list.samples = 2;
  list.value = Value(std::vector<at::Tensor>{at::ones({2}), at::zeros({2})});
  dict.path = "weights";
  dict.samples = 1;
  dict.value = Value(Value::Dict{{"w", Value(at::arange(6).view({2, 3}))}});
  none.path = "idle";
  const Recording recording = in_memory({list, dict, none});
  BOOST_TEST(recording.paths() == (std::vector<std::string>{"layer", "weights", "idle"}));
  BOOST_TEST(recording.at("layer").bytes() == 16);
  BOOST_TEST(recording.at("layer").file().empty());
  std::vector<at::Tensor> samples;
  for (const at::Tensor& sample : recording.at("layer").each_tensor()) samples.push_back(sample);
  BOOST_TEST((Value(samples) == list.value));
  BOOST_TEST((recording.at("weights").value() == dict.value));
  BOOST_TEST(recording.at("weights").keys() == std::vector<std::string>{"w"});
  BOOST_TEST(recording.at("weights").shape() == (std::vector<std::int64_t>{2, 3}));
  BOOST_TEST(recording.at("idle").value().is_none());
  BOOST_TEST(recording.at("idle").tensors().empty());
}

BOOST_AUTO_TEST_CASE(empty_recordings_and_odd_values) {
  const TemporaryDirectory directory;
  save(directory / "none", {}, SaveOptions().mkdir(true));
  BOOST_TEST(load(directory / "none").empty());
  std::vector<Entry> entries{
      entry("undefined", 1, Value(at::Tensor())),
      entry("gaps", 2, Value(std::vector<at::Tensor>{at::Tensor(), at::ones({2})})),
      entry("ragged", 2, Value(std::vector<at::Tensor>{at::ones({2}), at::ones({2, 2}, at::kLong)})),
      entry("empty", 0, Value(Value::List{})),
      entry("empty", 1, Value(Value::List{}), "Odd"),
  };
  save(directory / "odd", entries, SaveOptions().mkdir(true).sync(false));
  const Recording recording = load(directory / "odd");
  BOOST_TEST(recording.at(0).value().is_none());
  BOOST_TEST(!recording.at(1).tensors()[0].defined());
  BOOST_TEST(recording.at(1).tensors()[1].equal(at::ones({2})));
  BOOST_TEST(recording.at(2).dtype() == "mixed");
  BOOST_TEST(recording.at(3).file().empty());
  BOOST_TEST(recording.at(4).value().is_list());
  BOOST_CHECK_EXCEPTION(recording.at("empty"), c10::IndexError, says({"entries 3 and 4", "ask by index"}));

  const auto refused = [&](const Entry& bad, const std::vector<std::string>& parts) {
    BOOST_CHECK_EXCEPTION(save(directory / "bad", {bad}, SaveOptions().mkdir(true)), c10::Error, says(parts));
    BOOST_TEST(!fs::exists(directory / "bad"));
  };
  refused(entry("m", -1, Value()), {"entry 0 (\"m\")", "-1 samples"});
  refused(entry("m", 0, Value(at::ones({1}))), {"0 samples", "a tensor"});
  refused(entry("m", 7, Value(std::vector<at::Tensor>{at::ones({1})})), {"7 samples", "a list of 1"});
  refused(entry("\xFF", 0, Value()), {"UTF-8"});
  refused(entry("m", 1, Value(at::eye(2).to_sparse())), {"entry 0 (\"m\")", "to_dense()"});
}

BOOST_AUTO_TEST_CASE(recordings_are_overwritten_only_when_asked_and_other_files_never) {
  const TemporaryDirectory directory;
  BOOST_CHECK_EXCEPTION(save(directory / "rec", sample()), c10::ValueError, says({"rec", "mkdir(true)"}));
  BOOST_CHECK_EXCEPTION(save(directory / "a/b", sample()), c10::ValueError, says({"mkdir(true)"}));
  BOOST_TEST(names_in(directory.path()).empty());
  fs::create_directory(directory / "rec");
  save(directory / "rec/", generation(1));  // an empty directory counts as missing
  BOOST_CHECK_EXCEPTION(save(directory / "rec", generation(2)), c10::ValueError,
                        says({"holds a recording already", "overwrite(true)"}));
  BOOST_TEST(generation_of(load(directory / "rec")) == 1);
  save(directory / "rec", sample(), SaveOptions().overwrite(true));
  BOOST_TEST(names_in(directory / "rec") == kFiles, boost::test_tools::per_element());

  write_bytes(directory / "rec/notes.txt", "mine");
  BOOST_CHECK_EXCEPTION(save(directory / "rec", generation(3), SaveOptions().overwrite(true)),
                        c10::ValueError, says({"\"notes.txt\"", "no part of a recording"}));
  BOOST_TEST(read_bytes(directory / "rec/notes.txt") == "mine");
  BOOST_TEST(load(directory / "rec").size() == 4u);
  fs::create_directory(directory / "photos");
  write_bytes(directory / "photos/0.pt", "mine");
  BOOST_CHECK_EXCEPTION(save(directory / "photos", sample(), SaveOptions().overwrite(true)), c10::ValueError,
                        says({"no manifest.json"}));
  BOOST_CHECK_EXCEPTION(save(directory / "photos/0.pt", sample(), SaveOptions().overwrite(true)),
                        c10::ValueError, says({"is a file"}));
  BOOST_CHECK_THROW(save(directory / "photos/0.pt/x", sample(), SaveOptions().mkdir(true)), c10::Error);
  BOOST_TEST(read_bytes(directory / "photos/0.pt") == "mine");
  BOOST_CHECK_EXCEPTION(save("/proc/torchtap/rec", sample(), SaveOptions().mkdir(true)), c10::Error,
                        says({"/proc/torchtap"}));
  BOOST_CHECK_THROW(save("", sample(), SaveOptions().mkdir(true)), c10::ValueError);
  BOOST_CHECK_THROW(save("/", sample(), SaveOptions().overwrite(true)), c10::ValueError);
  save(directory / "x/y/z", sample(), SaveOptions().mkdir(true));
  BOOST_TEST(load(directory / "x/y/z").size() == 4u);
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"photos", "rec", "x"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_loaded_recording_never_mixes_with_its_successor) {
  const TemporaryDirectory directory;
  save(directory / "rec", generation(1), SaveOptions().mkdir(true));
  const Recording old = load(directory / "rec");
  save(directory / "rec", generation(2), SaveOptions().overwrite(true));
  BOOST_CHECK_EXCEPTION(old.at(0).tensor(), c10::ValueError, says({"0.pt", "load it again"}));
  BOOST_TEST(generation_of(load(directory / "rec")) == 2);
  fs::rename(directory / "rec", directory / "moved");
  const Recording moved = load(directory / "moved");
  fs::rename(directory / "moved", directory / "again");  // the directory stays open under any name
  BOOST_TEST(generation_of(moved) == 2);
}

BOOST_AUTO_TEST_CASE(names_that_lead_outside_are_refused) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, sample(), SaveOptions().mkdir(true));
  save_value(directory / "secret.pt", Value(at::ones({1})));
  const std::string good = unchecked(read_bytes(rec + "/manifest.json"));
  for (const std::string name : {"../secret.pt", "..", ".", "/etc/passwd", "sub/0.pt", "..\\\\secret.pt"}) {
    write_bytes(rec + "/manifest.json", replaced(good, "\"0.pt\"", "\"" + name + "\""));
    BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says({"manifest.json", "not a plain name"}));
  }
  write_bytes(rec + "/manifest.json", good);
  fs::remove(rec + "/0.pt");
  fs::create_symlink(directory / "secret.pt", rec + "/0.pt");
  BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says({"0.pt", "symbolic link"}));
  fs::remove(rec + "/0.pt");
  BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says({"0.pt", "no such file"}));
  fs::create_directory(rec + "/0.pt");
  BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says({"0.pt", "is a directory"}));
  fs::remove(rec + "/0.pt");
  write_bytes(rec + "/0.pt", "short");
  BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says({"0.pt", "5 bytes"}));
}

BOOST_AUTO_TEST_CASE(damaged_manifests_are_errors_and_never_crashes) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, sample(), SaveOptions().mkdir(true));
  const std::string good = unchecked(read_bytes(rec + "/manifest.json"));
  const auto fails = [&](const std::string& text, const std::vector<std::string>& parts) {
    write_bytes(rec + "/manifest.json", text);
    auto all = parts;
    all.push_back("manifest.json");
    BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says(all));
  };
  fails(replaced(good, "\"format\": 1", "\"format\": 7"), {"format 7; this one reads up to 2"});
  fails(replaced(good, "\"format\": 1", "\"format\": 0"), {"format 0"});
  fails(replaced(good, "\"format\": 1", "\"format\": \"one\""), {"damaged"});
  fails(replaced(good, "\"count\": 4", "\"count\": 5"), {"claims 5 entries and lists 4"});
  fails(replaced(good, "\"index\": 1", "\"index\": 0"), {"entry 1", "claims to be entry 0"});
  fails(replaced(good, "\"samples\": 7", "\"samples\": -7"), {"-7 samples"});
  fails(replaced(good, "\"samples\": 7", "\"samples\": 0"), {"0 samples and names a file"});
  fails(replaced(good, "\"samples\": 7", "\"samples\": 1e99"), {"damaged"});
  fails(replaced(good, "\"samples\": 0", "\"samples\": 1"), {"names no file"});
  fails(replaced(good, "\"1.pt\"", "\"0.pt\""), {"two entries name the file \"0.pt\""});
  fails(replaced(good, "\"entries\"", "\"entires\""), {"damaged"});
  fails("", {"damaged"});
  fails("{}", {"damaged"});
  fails("[]", {});
  fails("null", {});
  fails("hello", {"damaged"});
  fails(std::string(1000000, '['), {"nests deeper"});
  unsigned state = 99;
  const auto random = [&state](std::size_t below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::size_t>(state >> 8) % below;
  };
  std::size_t errors = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bad = good;
    for (std::size_t edits = 1 + random(3); edits > 0; --edits) {
      const std::size_t at = random(bad.size());
      if (random(3) == 0) {
        bad.erase(at, 1 + random(20));
      } else {
        bad[at] = "{}[]\":,-0129.eE\\/ntrufals\0\xFF"[random(27)];
      }
    }
    if (round % 4 == 0) bad.resize(random(good.size()));
    write_bytes(rec + "/manifest.json", bad);
    try {
      for (const auto& part : load(rec)) part.value();
    } catch (const c10::Error&) {
      ++errors;
    }
  }
  BOOST_TEST(errors > 1000u);
  write_bytes(rec + "/manifest.json", good);
  // A file that contradicts the manifest.
  fs::copy_file(rec + "/3.pt", rec + "/1.pt", fs::copy_options::overwrite_existing);
  const auto at = good.find("\"bytes\": ", good.find("\"1.pt\""));
  const auto end = good.find('\n', at);
  write_bytes(rec + "/manifest.json", good.substr(0, at) + "\"bytes\": " +
                                          std::to_string(fs::file_size(rec + "/1.pt")) + good.substr(end));
  BOOST_CHECK_EXCEPTION(load(rec).at(1).value(), c10::ValueError, says({"1.pt", "a tensor", "\"dict\""}));
}

// Each bit of a manifest in turn.
BOOST_AUTO_TEST_CASE(a_flipped_bit_of_a_manifest_is_found) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, sample(), SaveOptions().mkdir(true));
  const std::string good = read_bytes(rec + "/manifest.json");
  const auto describe = [&] {
    const auto recording = load(rec);
    std::string all = recording.library() + recording.created();
    for (const auto& entry : recording) {
      all += c10::str("\n", entry.path(), entry.aliases(), entry.type(), entry.kind(), entry.samples(),
                      entry.reduction(), entry.note(), entry.dtype(), entry.shape(), entry.file());
    }
    return all;
  };
  const std::string right = describe();
  std::size_t refused = 0, wrong = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    write_bytes(rec + "/manifest.json", bad);
    try {
      wrong += describe() == right ? 0 : 1;
    } catch (const c10::Error&) {
      ++refused;
    }
  }
  BOOST_TEST(wrong == 0u);
  BOOST_TEST(refused > 8 * good.size() - 200);  // all but those of the field's name, and blanks
  write_bytes(rec + "/manifest.json", replaced(good, "\"created\": \"2", "\"created\": \"3"));
  BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says({"manifest.json", "checksum", "edited", "crc32"}));
  write_bytes(rec + "/manifest.json", unchecked(read_bytes(rec + "/manifest.json")));
  BOOST_TEST(load(rec).created().front() == '3');
}

BOOST_AUTO_TEST_CASE(a_state_is_kept_beside_the_value) {
  const TemporaryDirectory directory;
  auto entries = sample();
  const std::string bytes("\0any\xff bytes\0", 12);
  entries[1].state = {{"Moments", bytes}};
  entries[0].state = {{"A", "1"}, {"B", ""}};
  save(directory / "recording", entries, SaveOptions().mkdir(true));
  const auto recording = load(directory / "recording");
  BOOST_TEST(recording.at(0).state().size() == 2);
  BOOST_TEST(recording.at(0).state()[1].recipe == "B");
  BOOST_TEST(recording.at(0).state()[1].bytes.empty());
  BOOST_TEST(recording.at(1).state().at(0).recipe == "Moments");
  BOOST_TEST(recording.at(1).state().at(0).bytes == bytes);
  BOOST_TEST(recording.at(2).state().empty());
  BOOST_TEST(recording.at(3).state().empty());
  for (std::int64_t i = 0; i < 4; ++i) {
    BOOST_TEST(same(recording.at(i).value(), entries[static_cast<std::size_t>(i)].value));
  }
  BOOST_TEST(load(directory / "recording/1.pt").at(0).state().size() == 1);
  python(directory, R"(
import torch
value = torch.load("recording/1.pt", weights_only=True)
assert list(value) == ["mean", "variance"] and torch.equal(value["variance"], torch.full((4,), 2.0)), value
)");
  // Damage is an error, also of a name in the directory of records.
  const std::string good = read_bytes(directory / "recording/1.pt");
  std::size_t silent = 0;
  for (std::size_t bit = 0; bit < 8 * std::strlen("archive/torchtap/0/recipe"); ++bit) {
    std::string bad = good;
    char& byte = bad[bad.rfind("archive/torchtap/0/recipe") + bit / 8];
    byte = static_cast<char>(byte ^ (1 << bit % 8));
    write_bytes(directory / "recording/1.pt", bad);
    try {
      silent += load(directory / "recording").at(1).state().empty() ? 1 : 0;
    } catch (const c10::Error&) {
    }
  }
  BOOST_TEST(silent == 0u);
  std::string file = good;
  file[file.find("any")] = 'A';
  write_bytes(directory / "recording/1.pt", file);
  BOOST_CHECK_THROW(load(directory / "recording").at(1).state(), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(entries_may_be_made_one_at_a_time) {
  const TemporaryDirectory directory;
  const auto entries = sample();
  std::vector<std::size_t> asked;
  const auto make = [&](std::size_t i) {
    asked.push_back(i);
    return entries[i];
  };
  save(directory / "recording", entries.size(), make, SaveOptions().mkdir(true));
  BOOST_TEST(asked == (std::vector<std::size_t>{0, 1, 2, 3}), boost::test_tools::per_element());
  const auto recording = load(directory / "recording");
  BOOST_TEST(recording.size() == entries.size());
  for (const auto& entry : recording) {
    BOOST_TEST(same(entry.value(), entries[static_cast<std::size_t>(entry.index())].value));
  }
  // An error on the way leaves no file.
  const auto fail = [&](std::size_t i) -> Entry {
    if (i == 2) throw std::runtime_error("no more");
    return entries[i];
  };
  BOOST_CHECK_THROW(save(directory / "other/recording", 4, fail, SaveOptions().mkdir(true)),
                    std::runtime_error);
  BOOST_CHECK_THROW(save(directory / "recording", 4, fail, SaveOptions().overwrite(true)),
                    std::runtime_error);
  BOOST_TEST(names_in(directory.path()) == std::vector<std::string>{"recording"},
             boost::test_tools::per_element());
  BOOST_TEST(load(directory / "recording").size() == 4);
}

// These files are never written again, because users have such files on their disks.
BOOST_AUTO_TEST_CASE(recordings_of_format_1_stay_readable) {
  const auto recording = load(TORCHTAP_TEST_FIXTURES "/format_1");
  const at::Tensor ramp = at::arange(6, at::kFloat).view({2, 3});
  BOOST_TEST(recording.size() == 4);
  BOOST_TEST(same(recording.at("layer1.conv").tensor(), ramp));
  BOOST_TEST(recording.at("alias.conv").samples() == 3);
  BOOST_TEST(recording.at(0).reduction() == "Mean");
  BOOST_TEST(recording.at(0).state().empty());
  BOOST_TEST(
      same(recording.at("head").value(), Value(Value::List{Value(ramp), Value(at::ones({4}, at::kLong))})));
  BOOST_TEST(same(recording.at("norm").value(),
                  Value(Value::Dict{{"mean", Value(ramp[0])}, {"variance", Value(ramp[1])}})));
  BOOST_TEST(recording.at("norm").type() == "BatchNorm2d");
  BOOST_TEST(recording.at("never").value().is_none());
}

BOOST_AUTO_TEST_CASE(parts_of_a_temporary_recording_outlive_it) {
  using torchtap::storage::RecordedEntry;
  static_assert(std::is_same_v<decltype(std::declval<Recording>().at(0)), RecordedEntry>);
  static_assert(std::is_same_v<decltype(std::declval<RecordedEntry>().keys()), std::vector<std::string>>);
  static_assert(std::is_same_v<decltype(std::declval<RecordedEntry>().shape()), std::vector<std::int64_t>>);
  static_assert(!std::is_reference_v<decltype(std::declval<RecordedEntry>().id())>);
  static_assert(std::is_reference_v<decltype(std::declval<const RecordedEntry&>().keys())>);
  const TemporaryDirectory directory;
  save(directory / "analysis", sample(), SaveOptions().mkdir(true));
  std::string keys, aliases;
  for (const auto& key : load(directory / "analysis").at("layer1.fc").keys()) keys += key + " ";
  for (const auto& alias : load(directory / "analysis").at(1).aliases()) aliases += alias + " ";
  BOOST_TEST(keys == "mean variance ");
  BOOST_TEST(aliases == "shared.fc tied \"ключ\"\n ");
  for (const auto& [key, value] : load(directory / "analysis").at(1).value().dict()) {
    BOOST_TEST(value.tensor().numel() == 4);
  }
}

BOOST_AUTO_TEST_SUITE_END()
