#include "check.hpp"

#include <ATen/Functions.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/base/remove_folder.hpp>
#include <torchtap/quantization/calibration.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/storage/spool.hpp>
#ifdef TORCHTAP_HAVE_EXPLORER
#include <torchtap/views/explorer/detail/file_run.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>
#endif
#ifdef TORCHTAP_HAVE_MONITOR
#include <torchtap/views/monitor/detail/read_ring.hpp>
#endif
#include <torchtap/views/compare/operations.hpp>
#include <torchtap/views/report/report.hpp>
#include <torchtap/views/report/save.hpp>
#include <torchtap/views/stream/frame.hpp>
#include <torchtap/views/trace/history.hpp>

#include "commands.hpp"
#include "corpus.hpp"
#include "recordings/recordings.hpp"

namespace fuzz {
namespace {

namespace fs = std::filesystem;
namespace storage = torchtap::storage;
using torchtap::core::Value;

constexpr std::int64_t kSmall = 1 << 20;

/// Reads all bytes that a tensor can reach, so that the sanitizer reports out-of-bounds ones.
void touch(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  const auto* bytes = static_cast<const volatile char*>(tensor.data_ptr());
  const std::int64_t end = (last + 1) * static_cast<std::int64_t>(tensor.element_size());
  for (std::int64_t i = 0; i < end; i += i < kSmall ? 1 : 4096) (void)bytes[i];
  (void)bytes[end - 1];
}

class Checker {
 public:
  Checker(const Input& input, std::string folder, Random& random, bool honest,
          const std::set<std::string>& written)
      : input_(input), folder_(std::move(folder)), random_(random), honest_(honest), written_(written) {}

  void run() {
    if (input_.kind == "snapshot") return restore_snapshot(path());
    if (input_.kind == "file") return file();
    if (input_.kind == "trace") return trace();
    if (input_.kind == "report") return report();
    if (input_.kind == "calibration") return calibration();
    if (input_.kind == "frames") return frames();
    if (input_.kind == "prints") return prints();
    if (input_.kind == "run") return run_of_explorer();
    if (input_.kind == "ring") return ring();
    if (input_.kind == "tensors") return tensors();
    switch (random_.below(6)) {
      case 0:
        return recording(false);
      case 1:
        return recording(true);
      case 2:
        return recover();
      case 3:
        return append();
      case 4:
        return command({"merge", folder_, folder_, "--save", folder_ + "-out"});
      default: {
        static const char* const kFormats[] = {"npy", "safetensors", "csv"};
        return command({"convert", folder_, "--to", kFormats[random_.below(3)], "--save", folder_ + "-out"});
      }
    }
  }

 private:
  std::string path() const { return folder_ + "/" + input_.files.begin()->first; }

  void value(const Value& value, bool mapped) {
    each_tensor(value, [&](const at::Tensor& tensor) {
      touch(tensor);
      if (!honest_ || mapped || written_.count(fingerprint(tensor)) != 0) return;
      throw Broken{c10::str("a tensor of shape ", tensor.sizes(), " and dtype ", tensor.scalar_type(),
                            " came out that was never written")};
    });
  }

  void entry(const storage::RecordedEntry& part, bool mapped) {
    value(part.value(), mapped);
    for (const at::Tensor& sample : part.each_tensor()) {
      if (sample.defined()) touch(sample);
    }
    for (const auto& state : part.state()) {
      const auto sink = torchtap::core::make_sink(torchtap::reductions::restore(state));
      sink->results();
      sink->clone()->merge(*sink);
    }
  }

  void file() {
    const bool mapped = random_.once_in(3);
    const auto options = storage::LoadOptions().mmap(mapped);
    value(storage::load_value(path(), options), mapped);
    entry(storage::load(path(), options).at(0), mapped);
  }

  void trace() {
    std::ostringstream text;
    const auto history = torchtap::views::trace::History::load(folder_);
    text << history;
    for (const auto& node : history) {
      text << node;
      if (node.saved()) touch(node.tensor());
    }
  }

  void report() {
    std::ostringstream text;
    const auto results = torchtap::views::report::load(path());
    torchtap::views::report::print(text, results);
    text << torchtap::views::report::csv(results);
  }

  /// What is read can be used, and written and read again.
  void calibration() {
    using torchtap::quantization::Calibration;
    const auto found = Calibration::load(path());
    value(found.observers(), /*mapped=*/true);
    for (const auto& tensor : found) {
      const auto& parameters = tensor.parameters;
      for (const auto& numbers : {parameters.scale, parameters.zero_point, parameters.low, parameters.high})
        touch(numbers);
      if (!parameters.axis) parameters.apply(at::ones({2, 3}));
    }
    found.save(folder_ + "-out");
    if (Calibration::load(folder_ + "-out").json() != found.json())
      throw Broken{"a calibration that was written again is another one"};
  }

  void frames() {
    const std::string& bytes = input_.files.begin()->second;
    for (std::size_t at = 0; at < bytes.size();) {
      // A copy of what is left, so that the sanitizer sees what is read behind it.
      const std::string rest = bytes.substr(at);
      const auto frame = torchtap::views::stream::read_frame(rest.data(), rest.size());
      const volatile char* const data = static_cast<const char*>(frame.data);
      for (std::uint64_t i = 0; i < frame.data_bytes; ++i) (void)data[i];
      at += torchtap::views::stream::frame_length(rest.data(), rest.size());
    }
  }

  /// The damaged run and the whole one, either as A.
  void prints() {
    namespace compare = torchtap::views::compare;
    const auto damaged = compare::Run::read(path());
    const auto whole = compare::Run::read(folder_ + "/../" + input_.name);
    for (const auto& record : damaged.records()) {
      if (!damaged.print(record)) damaged.reason(record);
    }
    const bool first = random_.once_in(2);
    const compare::Run &a = first ? damaged : whole, &b = first ? whole : damaged;
    for (const auto& finding : compare::judge(a, b, compare::pair_up(a, b)).suspects) {
      compare::first_operation({a, finding.path, finding.sample}, {b, finding.path_b, finding.sample_b});
    }
  }

  void tensors() {
    const auto layers = torchtap::tools::open_layers(random_.once_in(2) ? path() : folder_);
    value(torchtap::tools::by_name(layers).all.at(0).entry.value(), /*mapped=*/true);
  }

  void run_of_explorer() {
#ifdef TORCHTAP_HAVE_EXPLORER
    namespace parts = torchtap::views::explorer::detail;
    fs::create_directory(folder_ + "/explorer");
    fs::rename(path(), folder_ + "/explorer/run.tapx");
    parts::FileRun run(folder_, 8);
    parts::series_json(run);
    parts::scalars_json(run, -1);
    parts::health_json(run);
    parts::columns_bytes(run, {});
    run.zoom(0, 0, 100);
#endif
  }

  void ring() {
#ifdef TORCHTAP_HAVE_MONITOR
    const auto content = torchtap::views::monitor::detail::read_ring(input_.files.begin()->second, path());
    for (const auto& forward : content.forwards) {
      for (const at::Tensor& input : forward.inputs) {
        if (input.defined()) touch(input);
      }
    }
    TORCH_CHECK(content.damage.empty(), content.damage);
#endif
  }

  void recording(bool mapped) {
    const auto recording = storage::load(folder_, storage::LoadOptions().mmap(mapped));
    bool failed = false;
    for (const auto& part : recording) {  // a damaged entry must not hide the others
      try {
        entry(part, mapped);
      } catch (const std::exception&) {
        failed = true;
      }
    }
    TORCH_CHECK(!failed, "an entry is damaged");
  }

  void recover() {
    const bool journal = fs::exists(folder_ + "/journal.jsonl");
    storage::recover(folder_, storage::RecoverOptions().repair(false).verify(random_.once_in(2)));
    const auto found = storage::recover(folder_);
    if (!journal) return;
    try {
      const auto recording = storage::load(folder_);
      std::int64_t samples = 0;
      for (const auto& part : recording) {
        samples += part.samples();
        value(part.value(), false);
      }
      if (!recording.complete()) throw Broken{"what was recovered is not complete"};
      if (samples != found.samples) {
        throw Broken{c10::str("recover found ", found.samples, " samples and load ", samples)};
      }
    } catch (const std::exception& error) {
      throw Broken{std::string("what was recovered cannot be loaded: ") + error.what()};
    }
  }

  void append() {
    {
      storage::Spool spool(folder_, storage::SpoolOptions().append(true).sync(false));
      storage::Entry entry;
      entry.path = "conv";
      entry.type = "Conv2d";
      entry.kind = "ForwardOutput";
      spool.add(entry).append(at::arange(3, at::kFloat));
      spool.close();
    }
    for (const auto& part : storage::load(folder_)) value(part.value(), false);
  }

  void command(std::vector<std::string> arguments) {
    CLI::App app;
    torchtap::tools::add_merge(app);
    torchtap::tools::add_convert(app);
    std::reverse(arguments.begin(), arguments.end());  // the order that CLI11 expects
    app.parse(std::move(arguments));
  }

  const Input& input_;
  const std::string folder_;
  Random& random_;
  const bool honest_;
  const std::set<std::string>& written_;
};

}  // namespace

std::string fingerprint(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.resolve_conj().resolve_neg().contiguous();
  std::string text = c10::str(tensor.scalar_type(), tensor.sizes(), ":");
  text.append(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  return text;
}

void each_tensor(const Value& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.is_tensor() && value.tensor().defined()) visit(value.tensor());
  if (value.is_list()) {
    for (const auto& item : value.list()) each_tensor(item, visit);
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict()) each_tensor(item, visit);
  }
}

bool check(const Input& input, const std::string& folder, Random& random, bool honest,
           const std::set<std::string>& written) {
  torchtap::base::remove_folder(folder + "-out");
  try {
    Checker(input, folder, random, honest, written).run();
    return true;
  } catch (const std::exception&) {  // includes c10::Error
    return false;
  }
}

}  // namespace fuzz
