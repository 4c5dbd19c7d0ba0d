#include "corpus.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fcntl.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include <torchtap/base/remove_folder.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/shard.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/storage/spool.hpp>
#include <torchtap/views/frames/frame.hpp>

#include "check.hpp"
#include "files/npy.hpp"

namespace fuzz {
namespace {

namespace fs = std::filesystem;
namespace storage = torchtap::storage;
namespace detail = torchtap::storage::detail;
using torchtap::core::Value;

constexpr const char* kCreated = "2024-05-31T12:00:00Z";

storage::Entry entry(const std::string& path, std::int64_t samples, Value value) {
  storage::Entry entry;
  entry.path = path;
  entry.type = "torch::nn::LinearImpl";
  entry.kind = "ForwardOutput";
  entry.samples = samples;
  entry.value = std::move(value);
  return entry;
}

storage::Entry reduced(const std::string& path, std::unique_ptr<torchtap::core::Sink> sink) {
  const torchtap::core::Context named({{"key", at::tensor({0, 5, -1})},
                                       {"mask", at::arange(3).ne(1)},
                                       {"other", at::arange(6, at::kFloat).view({3, 2})}});
  for (int i = 0; i < 4; ++i) sink->update(at::arange(3, at::kFloat) + i);
  storage::Entry result = entry(path, 4, torchtap::core::to_value(sink->results()));
  result.reduction = sink->describe();
  result.state.push_back(torchtap::core::save(*sink).value());
  return result;
}

/// The i-th sample; all differ.
at::Tensor sample(int i) {
  return at::arange(3, at::kFloat) + 1000 * i;
}

/// The recording of a killed program: a shard in the journal, one not yet in the journal, an unfinished one,
/// and an entry by slots.
Files cut_off(const std::string& folder) {
  fs::create_directory(folder);
  auto place = std::make_shared<detail::ShardFolder>();
  place->call = "corpus";
  place->path = folder;
  place->fd = torchtap::base::Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int next = 0;
  const auto fill = [&](detail::Shard& shard, int count) {
    detail::Run run;
    run.sizes = {3};
    run.count = count;
    for (int i = 0; i < count; ++i) {
      const at::Tensor one = sample(next++);
      shard.write(at::kFloat, one.data_ptr(), one.nbytes());
    }
    shard.commit({run});
  };
  const auto whole = [&](const std::string& name, std::int64_t slot, int count) {
    detail::Shard shard(place, name, slot);
    fill(shard, count);
    shard.complete();
    shard.place();
    return shard.info();
  };
  std::string journal = detail::journal_head(kCreated);
  journal += detail::journal_entry(0, {"conv", {"alias"}, "Conv2d", "ForwardOutput"});
  journal += detail::journal_entry(1, {"lstm", {}, "LSTM", "ForwardOutput"});
  const auto open = [&](std::int64_t of, const std::string& name, std::int64_t slot) {
    journal += detail::journal_open({of, name, slot, "float32", {3}, -1});
  };
  open(0, "0-0", -1);
  journal += detail::journal_shard(0, whole("0-0", -1, 4));
  open(0, "0-1", -1);
  whole("0-1", -1, 3);
  open(0, "0-2", -1);
  detail::Shard part(place, "0-2", -1);
  fill(part, 5);
  for (std::int64_t slot = 0; slot < 2; ++slot) {
    const std::string name = detail::ShardName{1, slot, 0}.stem();
    open(1, name, slot);
    journal += detail::journal_shard(1, whole(name, slot, 2));
  }
  std::ofstream(folder + "/journal.jsonl", std::ios::binary) << journal;
  return read_folder(folder);
}

/// A file of tensors of several dtypes, among them one that LibTorch lacks, one of bytes, one of no elements.
std::string weights() {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("none":{"dtype":"F64","shape":[0,4],"data_offsets":[24,24]},)"
                             R"("count":{"dtype":"U16","shape":[2,1],"data_offsets":[24,28]},)"
                             R"("half":{"dtype":"BF16","shape":[],"data_offsets":[28,30]},)"
                             R"("flags":{"dtype":"BOOL","shape":[5],"data_offsets":[30,35]}}  )";
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(35, '\x3c');
}

/// A run whose modules were given, and returned, the tensors and fingerprints in the frames of `prints`.
std::string run_of(const std::string& prints) {
  namespace frames = torchtap::views::frames;
  using frames::Kind;
  std::string run;
  const auto add = [&](frames::Frame frame, Kind kind, const std::string& path, const char* type) {
    frame.kind = kind, frame.path = path, frame.type = type;
    const std::size_t at = run.size();
    run.resize(at + frames::frame_bytes(frame));
    frames::write_header(frame, &run[at]);
    std::memcpy(&run[at + frames::header_bytes(frame)], frame.data, frame.data_bytes);
  };
  std::map<std::string, std::uint64_t> calls;
  frames::Frame frame;
  for (std::size_t at = 0; at < prints.size(); at += frames::frame_length(&prints[at], prints.size() - at)) {
    frame = frames::read_frame(&prints[at], prints.size() - at);
    const std::string path = "block." + std::string(frame.path);
    frame.sample = calls[path]++;
    if (at == 0) add(frame, Kind::forward_input, "", "Net");
    add(frame, Kind::parameter, path + ".weight" + std::to_string(frame.sample), "Linear");
    add(frame, Kind::forward_input, path, "Linear");
    add(frame, Kind::operation_argument, path, "aten::linear");
    add(frame, Kind::operation_result, path, "aten::linear");
    add(frame, Kind::forward_output, path, "Linear");
  }
  frame.sample = 0;
  add(frame, Kind::forward_output, "", "Net");
  return run;
}

}  // namespace

Files read_folder(const std::string& path) {
  Files files;
  for (const auto& file : fs::directory_iterator(path)) {
    std::ifstream stream(file.path(), std::ios::binary);
    files[file.path().filename().string()] = std::string(std::istreambuf_iterator<char>(stream), {});
  }
  return files;
}

void write_folder(const std::string& path, const Files& files) {
  torchtap::base::remove_folder(path);
  fs::create_directory(path);
  for (const auto& [name, bytes] : files) std::ofstream(path + "/" + name, std::ios::binary) << bytes;
}

Corpus make_corpus(const std::string& folder) {
  Corpus corpus;
  const auto add_from = [&](const std::string& place, const std::string& kind, const std::string& name) {
    const std::string path = place + "/" + name;
    Input input{name, kind, {}};
    if (kind == "recording" || kind == "trace") {
      input.files = read_folder(path);
    } else {
      std::ifstream stream(path, std::ios::binary);
      input.files[name] = std::string(std::istreambuf_iterator<char>(stream), {});
    }
    auto manifest = input.files.find("manifest.json");
    if (manifest != input.files.end()) {  // replace the time of day; what is edited has no checksum
      static const std::regex created("\"created\": \"[^\"]*\"");
      manifest->second =
          std::regex_replace(manifest->second, created, std::string("\"created\": \"") + kCreated + "\"");
      static const std::regex checksum(",\\s*\"crc32\": \"[^\"]*\"");
      manifest->second = std::regex_replace(manifest->second, checksum, "");
    }
    corpus.inputs.push_back(std::move(input));
  };
  const auto add = [&](const std::string& kind, const std::string& name) { add_from(folder, kind, name); };
  const auto options = storage::SaveOptions().mkdir(true).sync(false);

  torchtap::tools::write_npy(folder + "/array.npy", at::arange(24, at::kInt).view({2, 3, 4}));
  add("tensors", "array.npy");
  corpus.inputs.push_back({"weights", "tensors", {{"weights.safetensors", weights()}}});

  const Value list(std::vector<at::Tensor>{sample(0), at::Tensor(), at::ones({2, 2}, at::kLong)});
  const Value dict(Value::Dict{{"mean", Value(sample(1))},
                               {"0", Value(at::ones({}, at::kBool))},
                               {"list", list},
                               {"half", Value(at::ones({5}, at::kHalf))}});
  storage::save_value(folder + "/tensor.pt", Value(at::arange(24, at::kInt).view({2, 3, 4})), options);
  storage::save_value(folder + "/list.pt", list, options);
  storage::save_value(folder + "/dict.pt", dict, options);
  for (const auto* name : {"tensor.pt", "list.pt", "dict.pt"}) add("file", name);

  using namespace torchtap::reductions;
  std::vector<storage::Entry> entries{
      entry("kept", 2, Value(std::vector<at::Tensor>{sample(2), sample(3)})),
      entry("never", 0, Value()),
      entry("set", 1, dict),
  };
  const std::string names =
      "sum,mean,moments,min,abs_max,norm:3,count,first,last,ema,histogram:4:-2:2,histogram:4,quantiles,"
      "covariance,gram,top_k:2";
  entries.push_back(reduced("named", torchtap::core::make_sink(parse(names))));
  entries.push_back(reduced("reservoir", torchtap::core::make_sink(Reservoir(ReservoirOptions(2)))));
  entries.push_back(reduced("window", torchtap::core::make_sink(window(2, Max{}))));
  entries.push_back(reduced("every", torchtap::core::make_sink(every(2, Series(Mean{}, Sum{})))));
  entries.push_back(
      reduced("grouped", torchtap::core::make_sink(by("key", where("mask", Sum(SumOptions().over({0})))))));
  entries.push_back(reduced(
      "dense", torchtap::core::make_sink(by("key", 8, every(2, Any(Count(CountOptions().over({0}))))))));
  entries.push_back(reduced("beside", torchtap::core::make_sink(parse(
                                          "joint(other, covariance), cross_covariance(other), cka(other)",
                                          ParseOptions().over({0})))));
  storage::save(folder + "/reduced", entries, options);
  add("recording", "reduced");

  {
    storage::Spool spool(folder + "/spooled", storage::SpoolOptions().mkdir(true).sync(false));
    auto& plain = spool.add(entry("conv", 0, Value()));
    auto& slots = spool.add(entry("lstm", 0, Value()));
    for (int i = 0; i < 4; ++i) {
      plain.append(sample(i));
      slots.append(at::full({2}, i), 0);
      slots.append(i == 2 ? at::Tensor() : at::full({i + 1}, i, at::kLong), 1);
    }
    spool.finish();
  }
  fs::remove(folder + "/spooled/journal.jsonl");
  add("recording", "spooled");
  cut_off(folder + "/cut");
  add("recording", "cut");

  write_snapshot(folder + "/snapshot");
  add("snapshot", "snapshot");
  // Of views: as they were first written.
  for (const auto& [kind, name] : {std::pair{"trace", "trace"},
                                   {"report", "report.json"},
                                   {"calibration", "int8.json"},
                                   {"frames", "frames.bin"},
                                   {"prints", "fingerprints.prints"}}) {
    add_from(TORCHTAP_TEST_FORMATS "/1", kind, name);
  }
  std::string& prints = corpus.inputs.back().files.begin()->second;
  prints = run_of(prints);
  std::ofstream(folder + "/fingerprints.prints", std::ios::binary) << prints;  // to compare it with
#ifdef TORCHTAP_HAVE_MONITOR
  add_from(TORCHTAP_TEST_FORMATS "/1", "ring", "ring");
  {  // without what no frame came to
    std::string& ring = corpus.inputs.back().files.begin()->second;
    const std::size_t end = ring.find_last_not_of('\0') + 1;
    const std::uint64_t capacity = (end - 8192 + 63) / 64 * 64;
    ring.resize(8192 + capacity);
    std::memcpy(&ring[8], &capacity, sizeof capacity);
  }
#endif
#ifdef TORCHTAP_HAVE_EXPLORER
  add_from(TORCHTAP_TEST_FORMATS "/1/run/explorer", "run", "run.tapx");
#endif

  for (int i = 0; i < 100; ++i) corpus.written.insert(fingerprint(sample(i)));
  for (const auto& input : corpus.inputs) {
    if (input.kind != "file" && input.kind != "recording") continue;
    const auto recording = storage::load(folder + "/" + input.name);
    for (const auto& part : recording) {
      each_tensor(part.value(),
                  [&](const at::Tensor& tensor) { corpus.written.insert(fingerprint(tensor)); });
    }
  }
  return corpus;
}

}  // namespace fuzz
