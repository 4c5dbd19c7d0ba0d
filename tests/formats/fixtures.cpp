// Writes the files of every format.
#include "fixtures.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fcntl.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/shard.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/storage/spool.hpp>

namespace formats {
namespace {

namespace fs = std::filesystem;
namespace storage = torchtap::storage;
namespace detail = torchtap::storage::detail;
using namespace torchtap::reductions;
using torchtap::core::make_sink;
using torchtap::core::Value;

storage::EntryId id(const std::string& path) {
  return {path, {"alias of " + path}, "torch::nn::LinearImpl", "ForwardOutput"};
}

void write_value(const std::string& file) {
  at::Tensor shared = at::arange(4, at::kFloat);
  Value::Dict dtypes;
  for (const auto type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat,
                          at::kDouble, at::kBool, at::kBFloat16, at::kComplexFloat, at::kComplexDouble}) {
    dtypes.emplace_back(c10::toString(type), at::arange(3, at::kFloat).to(type));
  }
  const Value::Dict whole{{"dtypes", dtypes},
                          {"list", Value::List{shared, shared, Value(), Value::List{}}},
                          {"text", Value("caf\xc3\xa9")},
                          {"none", Value()},
                          {"empty", at::empty({0, 3})},
                          {"number", at::scalar_tensor(2.5)}};
  storage::save_value(file, whole);
}

std::vector<storage::Entry> entries_of(std::vector<Catalogued> catalogued) {
  std::vector<storage::Entry> entries;
  for (auto& [name, sink] : catalogued) {
    update(*sink);
    storage::Entry entry;
    static_cast<storage::EntryId&>(entry) = id(name);
    entry.samples = 5;
    entry.reduction = sink->describe();
    entry.value = results(*sink);
    entry.state.push_back(torchtap::core::save(*sink).value());
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// All reductions, one of them in two slots, and one that cannot be saved.
void write_reduced(const std::string& folder) {
  std::vector<storage::Entry> entries = entries_of(catalogue());
  storage::Entry slots = entries.front();
  slots.path = "slots";
  slots.value = Value::Dict{{"0", entries.front().value}, {"1", entries.front().value}};
  slots.state.push_back(slots.state.front());
  entries.push_back(std::move(slots));
  storage::Entry none;
  static_cast<storage::EntryId&>(none) = id("nothing");
  none.reduction = "Mean";
  entries.push_back(std::move(none));
  storage::save(folder, entries, storage::SaveOptions().mkdir(true));
}

void write_added(const std::string& folder) {
  storage::save(folder, entries_of(added()), storage::SaveOptions().mkdir(true));
}

void write_kept(const std::string& folder) {
  storage::Entry kept, slots, none;
  static_cast<storage::EntryId&>(kept) = id("kept");
  kept.samples = 5;
  kept.value = samples();
  static_cast<storage::EntryId&>(slots) = id("slots");
  slots.samples = 2;
  slots.value =
      Value::Dict{{"0", Value::List{samples()[0], samples()[1]}}, {"1", Value::List{Value(), at::ones({4})}}};
  static_cast<storage::EntryId&>(none) = id("nothing");
  storage::save(folder, {kept, slots, none}, storage::SaveOptions().mkdir(true));
}

void write_spooled(const std::string& folder) {
  storage::Spool spool(folder, storage::SpoolOptions().mkdir(true));
  auto& stacked = spool.add(id("stacked"));
  for (const auto& sample : samples()) stacked.append(sample);
  spool.flush();
  stacked.append(samples()[0]);
  auto& mixed = spool.add(id("mixed"));
  mixed.append(at::ones({2}));
  mixed.append({});
  mixed.append(at::ones({3, 1}, at::kLong));
  auto& slots = spool.add(id("slots"));
  for (std::int64_t slot = 0; slot < 2; ++slot) slots.append(samples()[0] + slot, slot);
  spool.add(id("nothing"));
  spool.close();
}

/// A recording of a killed program: one shard in the journal, one complete but not in it, and one that was
/// being filled.
void write_unfinished(const std::string& folder) {
  fs::create_directory(folder);
  auto place = std::make_shared<detail::ShardFolder>();
  place->call = "fixtures";
  place->path = folder;
  place->fd = torchtap::base::Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto fill = [](detail::Shard& shard, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      const at::Tensor sample = samples()[i];
      shard.write(at::kFloat, sample.data_ptr(), sample.nbytes());
    }
    shard.commit({detail::Run{true, at::kFloat, {2, 3}, static_cast<std::int64_t>(count)}});
  };
  const auto whole = [&](const std::string& name, std::size_t first, std::size_t count) {
    detail::Shard shard(place, name, -1);
    fill(shard, first, count);
    shard.complete();
    shard.place();
    return shard.info();
  };
  std::string journal = detail::journal_head("2024-05-31T12:00:00Z");
  journal += detail::journal_entry(0, id("cut off"));
  journal += detail::journal_open({0, "0-0", -1, "float32", {2, 3}, -1});
  journal += detail::journal_shard(0, whole("0-0", 0, 2));
  journal += detail::journal_open({0, "0-1", -1, "float32", {2, 3}, -1});
  whole("0-1", 2, 1);
  journal += detail::journal_open({0, "0-2", -1, "float32", {2, 3}, -1});
  detail::Shard part(place, "0-2", -1);
  fill(part, 3, 2);
  std::ofstream(folder + "/journal.jsonl", std::ios::binary) << journal;
}

/// A recording, and the journal of another one, in which something is missing.
void write_counted(const std::string& folder) {
  storage::Entry entry;
  static_cast<storage::EntryId&>(entry) = id("kept");
  entry.samples = 5;
  entry.value = samples();
  entry.not_recorded = missing();
  storage::save(folder, {entry}, storage::SaveOptions().mkdir(true));
  fs::create_directory(folder + "_unfinished");
  std::ofstream(folder + "_unfinished/journal.jsonl", std::ios::binary)
      << detail::journal_head("2024-05-31T12:00:00Z") << detail::journal_entry(0, id("cut off"))
      << detail::journal_not_recorded(0, missing());
}

torchtap::recorders::ForwardInput recorder(bool reduced) {
  torchtap::recorders::RecorderOptions options;
  if (reduced) {
    options.reduction(Series(
        Moments(), map([](const at::Tensor& x) { return x.abs(); }, Max()),
        torchtap::core::Fold([](const at::Tensor& a, const at::Tensor& b) { return at::minimum(a, b); })));
  }
  return torchtap::recorders::ForwardInput(std::move(options));
}

struct Recorded {
  explicit Recorded(bool reduced) : inputs(recorder(reduced)) { inputs.children(*model); }
  void run() {
    for (const auto& sample : samples()) model->forward(sample);
  }
  torch::nn::Sequential model{torch::nn::Identity()};
  torchtap::recorders::ForwardInput inputs;
};

}  // namespace

std::vector<at::Tensor> samples() {
  std::vector<at::Tensor> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back((at::arange(6, at::kFloat) + 6 * i).mul(i % 2 == 0 ? 1 : -1).reshape({2, 3}));
  }
  return all;
}

torchtap::core::NotRecorded missing() {
  return {1, 2, 3, 4, "caf\xc3\xa9", 5, 7, 6};
}

void update(torchtap::core::Sink& sink) {
  const torchtap::core::Context named({{"label", at::tensor({0, 2})}, {"mask", at::arange(2).eq(0)}});
  for (const auto& sample : samples()) {
    const torchtap::core::Context beside("other", sample.square().slice(1, 0, 2));
    sink.update(sample);
  }
}

std::vector<Catalogued> catalogue() {
  const auto omit = NonFinite::omit;
  std::vector<Catalogued> all;
  const auto add = [&](const std::string& name, auto reduction) {
    all.push_back({name, make_sink(std::move(reduction))});
  };
  add("Sum", Sum(SumOptions().over({0}).non_finite(omit)));
  add("Mean", Mean(MeanOptions().over_all(true)));
  add("Moments", Moments(MomentsOptions().over({0}).unbiased(false)));
  add("Min", Min(MinOptions().over({0})));
  add("Max", Max(MaxOptions().over({0})));
  add("AbsMax", AbsMax(AbsMaxOptions().over({0})));
  add("Norm", Norm(NormOptions().p(3).over({0})));
  add("Count", Count(CountOptions().over({0})));
  add("First", First(FirstOptions().over({0})));
  add("Last", Last(LastOptions().over({0})));
  add("EMA", EMA(EMAOptions(0.75)));
  add("Histogram", Histogram(HistogramOptions(6, -30, 30).over_all(true)));
  add("Histogram, growing", Histogram(HistogramOptions(16).over_all(true)));
  add("Quantiles", Quantiles(QuantilesOptions().at({0.25, 0.5}).k(300).seed(9).over({0})));
  add("Covariance", Covariance(CovarianceOptions().over({0})));
  add("Gram", Gram(GramOptions().over({0})));
  add("TopK", TopK(TopKOptions(3).largest(false).over({0})));
  add("Reservoir", Reservoir(ReservoirOptions(20).seed(4).over({0})));
  add("Series", Series(Mean(), Max(), Max()));
  add("Every", every(2, Mean()));
  add("Over", over({0}, Sum()));
  add("Window", window(3, Mean()));
  add("nested", Series(every(2, window(2, Max())), over({0}, Series(Min(), Sum()))));
  add("Named", parse("mean,max,histogram:8:-30:30", ParseOptions().over({0})));
  add("Named, one", parse("mean", ParseOptions().over({0})));
  return all;
}

std::vector<Catalogued> added() {
  std::vector<Catalogued> all;
  all.push_back({"LogHistogram", make_sink(LogHistogram(LogHistogramOptions(2).over({0})))});
  all.push_back({"LogHistogram, all", make_sink(LogHistogram(LogHistogramOptions().over_all(true)))});
  all.push_back(
      {"Moments, order 2", make_sink(Moments(MomentsOptions().order(2).unbiased(false).over({0})))});
  all.push_back({"Covariance, gathered", make_sink(Covariance(CovarianceOptions().over({0})))});
  all.push_back({"By", make_sink(by("label", Sum(SumOptions().over({0}))))});
  all.push_back({"Where", make_sink(where("mask", Sum(SumOptions().over({0}))))});
  all.push_back({"Joint", make_sink(joint("other", Covariance(CovarianceOptions().over({0}))))});
  all.push_back({"CrossCovariance", make_sink(CrossCovariance("other"))});
  all.push_back({"LinearCKA", make_sink(LinearCKA("other"))});
  all.push_back({"Blocks", make_sink(Blocks(4))});
  return all;
}

Value results(const torchtap::core::Sink& sink) {
  return torchtap::core::to_value(sink.results());
}

void write_fixtures(const std::string& folder) {
  write_value(folder + "/value.pt");
  write_reduced(folder + "/reduced");
  write_added(folder + "/added");
  write_kept(folder + "/kept");
  write_spooled(folder + "/spooled");
  write_unfinished(folder + "/unfinished");
  for (const bool reduced : {false, true}) {
    Recorded recorded(reduced);
    recorded.run();
    recorded.inputs.snapshot(folder + (reduced ? "/reduced.snapshot" : "/kept.snapshot"));
    if (!reduced) continue;
    recorded.model->forward(at::ones({7}));
    recorded.inputs.snapshot(folder + "/counted.snapshot");
  }
  write_counted(folder + "/counted");
}

std::pair<std::int64_t, std::string> restored_left_out(const std::string& file) {
  Recorded recorded(true);
  recorded.inputs.restore(file);
  return {recorded.inputs[0].left_out(), recorded.inputs[0].note()};
}

Value restored(const std::string& file, bool reduced, bool one_more) {
  Recorded recorded(reduced);
  recorded.inputs.restore(file);
  if (one_more) recorded.run();
  return recorded.inputs[0].value();
}

}  // namespace formats
