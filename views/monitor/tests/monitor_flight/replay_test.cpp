// Incidents: what is in their folders, and whether a replay gives the same bits.
#include <boost/test/unit_test.hpp>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cmath>
#include <map>

#include <torchtap/model/walk.hpp>
#include <torchtap/storage/recording.hpp>

#include "flight.hpp"

namespace torchtap_test {
namespace {
/// What the program is told of every disk.
struct Disk {
  std::uint64_t size, free;
};
Disk pretended = {std::uint64_t{1} << 40, std::uint64_t{1} << 39};
}  // namespace
}  // namespace torchtap_test

// Instead of libc's: how full this machine's disk is must not decide.
extern "C" int statvfs(const char*, struct statvfs* disk) noexcept {
  *disk = {};
  disk->f_frsize = 4096;
  disk->f_blocks = torchtap_test::pretended.size / 4096;
  disk->f_bfree = disk->f_bavail = torchtap_test::pretended.free / 4096;
  return 0;
}

namespace torchtap_test {
namespace {

using monitor::Replayed;
using monitor::ReplayOptions;
using parts::FlightRecorder;
using parts::IncidentContent;

/// Convolution, batch norm, dropout, and a NaN for inputs of large sums.
struct NoisyImpl : torch::nn::Module {
  NoisyImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    drop = register_module("drop", torch::nn::Dropout(0.5));
    head = register_module("head", torch::nn::Linear(8, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor pooled = at::relu(norm(conv(x))).mean({2, 3});
    return head(drop(pooled)) + at::log(1000 - x.sum());
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Noisy);

/// Two tensors in, several out, and a number that is no tensor.
struct PairImpl : torch::nn::Module {
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& a, const at::Tensor& mask) {
    const at::Tensor kept = a.masked_fill(mask, 0);
    return {kept * 2, {kept.to(at::kHalf), at::Tensor(), kept.argmax(0)}};
  }
  at::Tensor scaled(const at::Tensor& a, double by) { return a * by; }
};
TORCH_MODULE(Pair);

/// Calls the model as a monitor sees it.
template <class Call>
void record(FlightRecorder& ring, std::int64_t number, std::vector<at::Tensor> inputs, bool training,
            const Call& call) {
  ring.begin(number, Given(inputs), training);
  auto result = call();
  ring.end(number, parts::outcome_of(torchtap::hooks::tensors_in(result)));
}

std::string incident_of(const Place& place, const FlightRecorder& ring, IncidentContent content = {}) {
  content.forwards = ring.forwards();
  if (content.reason.empty()) content.reason = "requested";
  return parts::write_incident(place.incidents, 16, content);
}

std::vector<std::string> said_by(const std::function<void(const ReplayOptions&)>& run) {
  std::vector<std::string> notes;
  ReplayOptions options;
  options.note = [&](const std::string& note) { notes.push_back(note); };
  run(options);
  return notes;
}

BOOST_AUTO_TEST_SUITE(monitor_incidents)

BOOST_AUTO_TEST_CASE(a_training_with_dropout_and_batch_norm_gives_the_same_bits) {
  for (const bool training : {true, false}) {
    const Place place;
    torch::manual_seed(1);
    Noisy net;
    FlightRecorder ring(place.rings, 1 << 22, place.incidents, "noisy");
    net->train(training);
    for (std::int64_t i = 0; i < 4; ++i) {
      torch::manual_seed(100 + i);
      if (i == 2) at::randn({5});
      const at::Tensor x = at::randn({4, 3, 8, 8}) + (i == 3 ? 10 : 0);
      const at::NoGradGuard no_grad;
      record(ring, i, {x}, training, [&] { return net->forward(x); });
    }
    const std::string incident = incident_of(place, ring);
    const at::Tensor mean = net->norm->running_mean.clone();
    net->train(!training);
    net->drop->train(training);
    torch::manual_seed(5);
    const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
    const auto replayed = monitor::replay(incident, *net);
    BOOST_TEST_REQUIRE(replayed.size() == 4U);
    for (const Replayed& one : replayed) {
      BOOST_TEST_CONTEXT("forward " << one.forward << (training ? " of a training" : "")) {
        BOOST_TEST(one.same_bits);
        BOOST_TEST(one.error == "");
        BOOST_TEST(one.returned);
        BOOST_TEST(one.inputs == "[4,3,8,8] f32");
        BOOST_TEST(one.outputs == "[4,5] f32");
        BOOST_TEST(one.difference == 0);
        BOOST_TEST(one.nan == (one.forward == 3 ? 20 : 0));
        BOOST_TEST(one.nan == one.nan_recorded);
      }
    }
    // All that the replay changed is as it was.
    BOOST_TEST(at::detail::getDefaultCPUGenerator().get_state().equal(state));
    BOOST_TEST(net->norm->running_mean.equal(mean));
    BOOST_TEST((net->is_training() != training && net->norm->is_training() != training &&
                net->drop->is_training() == training));
    BOOST_TEST(torch::GradMode::is_enabled());
  }
}

BOOST_AUTO_TEST_CASE(other_bits_are_found) {
  const Place place;
  Noisy net;
  net->eval();
  FlightRecorder ring(place.rings, 1 << 22, place.incidents, "noisy");
  const at::Tensor x = at::randn({1, 3, 8, 8});
  record(ring, 0, {x}, false, [&] { return net->forward(x); });
  IncidentContent content;
  content.modules = torchtap::model::walk_modules(*net);
  content.type = content.modules.front().type();
  const std::string incident = incident_of(place, ring, content);
  BOOST_TEST(said_by([&](const auto& options) {
               BOOST_TEST(monitor::replay(incident, *net, options).at(0).same_bits);
             }).empty());
  {
    const at::NoGradGuard no_grad;
    net->head->bias[0] += 1e-6;
  }
  const auto notes = said_by([&](const auto& options) {
    const Replayed one = monitor::replay(incident, *net, options).at(0);
    BOOST_TEST(!one.same_bits);
    BOOST_TEST((one.difference > 0 && one.difference < 1e-5));
  });
  BOOST_TEST_REQUIRE(notes.size() == 1U);
  BOOST_TEST(notes[0] == "the model's parameters are others than those recorded");
  const auto other = said_by([&](const auto& options) {
    torch::nn::Sequential model(torch::nn::Conv2d(3, 2, 3));
    BOOST_TEST(!monitor::replay(incident, *model, options).at(0).same_bits);
  });
  BOOST_TEST_REQUIRE(other.size() == 2U);
  BOOST_TEST(other[0] == "the model is a Sequential; a Noisy was recorded");
}

BOOST_AUTO_TEST_CASE(several_inputs_and_outputs_of_all_kinds) {
  const Place place;
  Pair net;
  FlightRecorder ring(place.rings, 1 << 22, place.incidents, "pair");
  const at::Tensor wide = at::randn({16, 12});
  const std::vector<at::Tensor> views = {wide,
                                         wide.t(),
                                         wide.slice(0, 1, 9, 2).slice(1, 0, 5),
                                         wide.slice(1, 0, 1).expand({16, 7}),
                                         at::empty({3, 0}).sum(1, true),
                                         at::randn({2, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast)};
  for (std::size_t i = 0; i < views.size(); ++i)
    record(ring, static_cast<std::int64_t>(i), {views[i], views[i].gt(0.5)}, true,
           [&] { return net->forward(views[i], views[i].gt(0.5)); });
  ring.begin(90, Given({views[0]}), true);
  {
    const at::Tensor scaled = net->scaled(views[0], 3);
    ring.end(90, parts::outcome_of(Given({scaled})));
  }
  ring.begin(91, Given({wide, wide.gt(0), wide}), true);  // does not return
  const std::string incident = incident_of(place, ring);
  const auto replayed = monitor::replay(incident, *net);
  BOOST_TEST_REQUIRE(replayed.size() == views.size() + 2);
  for (std::size_t i = 0; i < views.size(); ++i) {
    BOOST_TEST_CONTEXT(i) {
      BOOST_TEST(replayed[i].same_bits);
      BOOST_TEST(replayed[i].error == "");
    }
  }
  BOOST_TEST(replayed[0].inputs == "[16,12] f32, [16,12] bool");
  BOOST_TEST(replayed[0].outputs == "[16,12] f32, [16,12] f16, [12] i64");
  BOOST_TEST(contains(replayed[views.size()].error, "does not take 1 tensors; pass a function"));
  const Replayed& last = replayed.back();
  BOOST_TEST((!last.returned && !last.same_bits && std::isnan(last.difference)));
  BOOST_TEST(contains(last.error, "does not take 3 tensors"));
  ReplayOptions from;
  from.from = 90;
  std::vector<std::vector<std::int64_t>> strides;
  const auto by_hand = monitor::replay(
      incident, *net,
      [&](const std::vector<at::Tensor>& inputs) {
        return std::vector<at::Tensor>{net->scaled(inputs[0], 3)};
      },
      from);
  BOOST_TEST_REQUIRE(by_hand.size() == 2U);
  BOOST_TEST(by_hand[0].same_bits);
  // Inputs have the strides that they had.
  monitor::replay(incident, *net, [&](const std::vector<at::Tensor>& inputs) {
    strides.push_back(inputs[0].strides().vec());
    return std::vector<at::Tensor>();
  });
  for (std::size_t i = 0; i < views.size(); ++i) BOOST_TEST((strides[i] == views[i].strides().vec()));
  from.from = 92;
  BOOST_CHECK_EXCEPTION(monitor::replay(incident, *net, from), c10::ValueError,
                        says({"no forward from 92 on", "its last one is 91"}));
}

BOOST_AUTO_TEST_CASE(threads_and_modes_are_those_recorded) {
  const Place place;
  torch::nn::Sequential net(torch::nn::Linear(64, 64));
  FlightRecorder ring(place.rings, 1 << 20, place.incidents, "net");
  const int before = at::get_num_threads();
  const at::Tensor x = at::randn({4, 64});
  at::set_num_threads(1);
  record(ring, 0, {x}, false, [&] { return net->forward(x); });
  at::set_num_threads(2);
  {
    const c10::InferenceMode inference;
    record(ring, 1, {x}, false, [&] { return net->forward(x); });
  }
  {
    const at::NoGradGuard no_grad;
    record(ring, 2, {x}, false, [&] { return net->forward(x); });
  }
  at::set_num_threads(3);
  const std::string incident = incident_of(place, ring);
  std::vector<std::string> seen;
  const auto replayed = monitor::replay(incident, *net, [&](const std::vector<at::Tensor>& inputs) {
    seen.push_back(c10::str(at::get_num_threads(), c10::InferenceMode::is_enabled() ? " inference" : "",
                            c10::GradMode::is_enabled() ? " grad" : ""));
    return std::vector<at::Tensor>{net->forward(inputs[0])};
  });
  BOOST_TEST((seen == std::vector<std::string>{"1 grad", "2 inference", "2"}));
  for (const Replayed& one : replayed) BOOST_TEST(one.same_bits);
  BOOST_TEST(at::get_num_threads() == 3);
  at::set_num_threads(before);
}

/// A TorchScript model whose forward is this.
torch::jit::Module script(const std::string& forward) {
  torch::jit::Module module("Scripted");
  module.define(forward);
  return module;
}

BOOST_AUTO_TEST_CASE(script_models_get_their_arguments_by_type) {
  const Place place;
  const at::Tensor a = at::randn({3}), b = at::randn({4});
  const std::map<std::string, std::vector<c10::IValue>> models = {
      {"def forward(self, x):\n  return x * 2\n", {a}},
      {"def forward(self, x, scale: float = 2.5, name: Optional[str] = None):\n  return x * scale\n", {a}},
      {"def forward(self, x, y: Optional[Tensor]):\n  return x * (0 if y is None else 1)\n",
       {a, c10::IValue()}},
      {"def forward(self, x, y: Optional[Tensor]):\n  return x.sum() if y is None else x.sum() + y\n",
       {a, b}},
      {"def forward(self, x, more: List[Tensor], y):\n  return x, more[::-1], y\n",
       {a, c10::List<at::Tensor>({a, b, a}), b}},
      {"def forward(self, x: Tuple[Tensor, Tuple[Tensor, Tensor]]):\n  return x[1][0] * 2, {'k': x[0]}\n",
       {c10::ivalue::Tuple::create({a, c10::ivalue::Tuple::create({b, a})})}},
      {"def forward(self, x: List[Tuple[Tensor, Tensor]]):\n  return x[0][1], len(x)\n", {[&] {
         c10::List<std::tuple<at::Tensor, at::Tensor>> list;
         list.push_back({a, b});
         list.push_back({b, a});
         return list;
       }()}},
      {"def forward(self):\n  return torch.ones([2])\n", {}}};
  for (const auto& [source, arguments] : models) {
    BOOST_TEST_CONTEXT(source) {
      FlightRecorder ring(place.rings, 1 << 20, place.incidents, "script");
      auto model = script(source);
      std::vector<c10::IValue> given = arguments;
      torchtap::hooks::detail::CallTensors found;
      for (c10::IValue& value : given) torchtap::hooks::detail::collect(value, found);
      // Where the type of an argument that is None says that it might be a tensor, hooks keep its slot.
      if (arguments.size() == 2 && arguments[1].isNone()) found.push_absent();
      ring.begin(0, found, false);
      c10::IValue result = model.forward(arguments);
      ring.end(0, parts::outcome_of(torchtap::hooks::tensors_in(result)));
      const auto replayed = monitor::replay(incident_of(place, ring), model);
      BOOST_TEST_REQUIRE(replayed.size() == 1U);
      BOOST_TEST(replayed[0].error == "");
      BOOST_TEST(replayed[0].same_bits);
    }
  }
  FlightRecorder ring(place.rings, 1 << 20, place.incidents, "script");
  record(ring, 0, {a}, false, [&] { return a * 2; });
  const std::string incident = incident_of(place, ring);
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"def forward(self, x, by: float):\n  return x * by\n", "\"by\" is a float, which is not recorded"},
      {"def forward(self, x: Dict[str, Tensor]):\n  return x['a']\n", "\"x\" is a Dict(str, Tensor)"},
      {"def forward(self, x: List[Tensor], y: List[Tensor]):\n  return x[0]\n",
       "several arguments are lists"},
      {"def forward(self, x, y):\n  return x\n", "1 tensors were recorded, which do not make the arguments"}};
  for (const auto& [source, words] : refused) {
    auto model = script(source);
    const Replayed one = monitor::replay(incident, model).at(0);
    BOOST_TEST(contains(one.error, words), one.error);
    const auto by_hand = monitor::replay(incident, model, [](const std::vector<at::Tensor>& inputs) {
      return std::vector<at::Tensor>{inputs[0] * 2};
    });
    BOOST_TEST(by_hand.at(0).same_bits);
  }
  auto model = script("def forward(self, x):\n  return x\n");
  BOOST_CHECK_EXCEPTION(monitor::replay(incident, model, {}, "other"), c10::ValueError,
                        says({"no method \"other\""}));
}

BOOST_AUTO_TEST_CASE(parameters_of_a_training_are_kept_and_used) {
  const Place place;
  Noisy net;
  FlightRecorder ring(place.rings, 1 << 22, place.incidents, "noisy");
  const at::Tensor x = at::randn({4, 3, 8, 8});
  record(ring, 0, {x}, true, [&] { return net->forward(x); });
  IncidentContent content;
  content.modules = torchtap::model::walk_modules(*net);
  content.type = content.modules.front().type();
  content.training = true;
  const std::string incident = incident_of(place, ring, content);
  Noisy other;  // of other random parameters
  const at::Tensor weight = other->conv->weight.detach().clone();
  BOOST_TEST(monitor::replay(incident, *other).at(0).same_bits);
  BOOST_TEST(other->conv->weight.equal(weight));
  const auto saved = torchtap::storage::load_value(incident + "/parameters.pt");
  BOOST_TEST(saved.at("conv.weight").tensor().equal(net->conv->weight));
  Pair stranger;
  torch::nn::Sequential wrong(torch::nn::Linear(3, 3));
  BOOST_CHECK_EXCEPTION(monitor::replay(incident, *wrong), c10::ValueError,
                        says({"another model", "has no", "0.weight"}));
}

BOOST_AUTO_TEST_CASE(the_folder_has_what_is_known) {
  const Place place;
  Noisy net;
  net->eval();
  FlightRecorder ring(place.rings, 1 << 22, place.incidents, "noisy");
  const at::Tensor x = at::randn({2, 3, 4, 4});
  for (std::int64_t i = 0; i < 3; ++i) record(ring, i, {x + i}, false, [&] { return net->forward(x + i); });
  torchtap::storage::Entry entry;
  entry.kind = "ForwardOutput";
  entry.samples = 1;
  entry.value = at::ones({2});
  torchtap::storage::save(place.directory / "reference", {entry},
                          torchtap::storage::SaveOptions().mkdir(true));
  IncidentContent content;
  content.reason = "non/finite ";
  content.model = "noisy";
  content.rules = "dead_relu = off\n";
  content.reference = place.directory / "reference";
  content.windows = {"{\"window\":3}"};
  content.modules = torchtap::model::walk_modules(*net);
  content.type = content.modules.front().type();
  content.alarms.emplace_back().finding.rule = "nonfinite";
  content.write_statistics = [&](const std::string& folder) { torchtap::storage::save(folder, {entry}); };
  const std::string incident = incident_of(place, ring, content);
  const std::string name = fs::path(incident).filename().string();
  BOOST_TEST(parts::is_incident_name(name));
  BOOST_TEST(contains(name, "-0001-non-finite-"));
  for (const char* file :
       {"incident.json", "forwards.jsonl", "windows.jsonl", "rules.txt", "random_states.pt"})
    BOOST_TEST(fs::is_regular_file(incident + "/" + file));
  for (const char* folder : {"inputs", "statistics", "reference"})
    BOOST_TEST(torchtap::storage::load(incident + "/" + folder).size() == 1U);
  const std::string json = bytes_of(incident + "/incident.json");
  for (const char* part : {"\"format\":1", "\"reason\":\"non/finite \"", "\"type\":\"Noisy\"",
                           "\"rule\":\"nonfinite\"", "\"inputs\":true", "\"forwards\":3"})
    BOOST_TEST(contains(json, part), part << " in " << json);
  const auto slots = torchtap::storage::load(incident + "/inputs").at(0).value();
  BOOST_TEST(slots.at("0").at(2).tensor().equal(x + 2));
  BOOST_TEST(bytes_of(incident + "/rules.txt") == content.rules);
  // Nobody else can read any of it.
  struct stat status {};
  for (const auto& entry_of : fs::recursive_directory_iterator(place.incidents)) {
    BOOST_TEST_REQUIRE(::lstat(entry_of.path().c_str(), &status) == 0);
    BOOST_TEST((status.st_mode & 0777) == (S_ISDIR(status.st_mode) ? 0700U : 0600U));
  }
  // The next one has the next number.
  BOOST_TEST(contains(incident_of(place, ring), "-0002-requested"));
}

BOOST_AUTO_TEST_CASE(without_inputs_nothing_of_them_is_in_the_folder) {
  const Place place;
  Noisy net;
  FlightRecorder ring(place.rings, 1 << 22, place.incidents, "noisy");
  const at::Tensor x = at::full({1, 3, 4, 4}, 1234.5678);
  record(ring, 0, {x}, true, [&] { return net->forward(x); });
  IncidentContent content;
  content.inputs = false;
  const std::string incident = incident_of(place, ring, content);
  const float number = 1234.5678F;
  const std::string marker(reinterpret_cast<const char*>(&number), sizeof number);
  BOOST_TEST(contains(bytes_of(ring.file()), marker));  // this ring was made with inputs
  for (const auto& entry : fs::recursive_directory_iterator(incident))
    if (entry.is_regular_file()) BOOST_TEST(!contains(bytes_of(entry.path().string()), marker));
  BOOST_CHECK_EXCEPTION(monitor::replay(incident, *net), c10::ValueError,
                        says({"holds no inputs", "input 0 was not kept: left out"}));
}

BOOST_AUTO_TEST_CASE(the_oldest_go_and_the_young_stay) {
  const Place place;
  FlightRecorder ring(place.rings, 1 << 16, place.incidents, "model");
  const auto write = [&](std::int64_t keep) {
    IncidentContent content;
    content.reason = "requested";
    return parts::write_incident(place.incidents, keep, content);
  };
  std::vector<std::string> all;
  for (int i = 0; i < 4; ++i) all.push_back(write(2));
  for (const std::string& incident : all) BOOST_TEST(fs::exists(incident));  // none is an hour old
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const std::string& incident : all) fs::last_write_time(incident, old);
  fs::create_directory(place.incidents + "/.incident-abcdef");  // of a process that was killed
  fs::last_write_time(place.incidents + "/.incident-abcdef", old);
  fs::create_directory(place.incidents + "/of-the-user");
  fs::last_write_time(place.incidents + "/of-the-user", old);
  all.push_back(write(2));
  for (int i = 0; i < 5; ++i) BOOST_TEST(fs::exists(all[static_cast<std::size_t>(i)]) == (i >= 3));
  BOOST_TEST(!fs::exists(place.incidents + "/.incident-abcdef"));
  BOOST_TEST(fs::exists(place.incidents + "/of-the-user"));
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_left_as_it_is) {
  const Place place;
  IncidentContent content;
  content.reason = "drift";
  const auto write = [&] { return parts::write_incident(place.incidents, 2, content); };
  const Disk before = pretended;
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  pretended = {8 * kGiB, kGiB / 2};
  BOOST_CHECK_EXCEPTION(
      write(), c10::Error,
      says({"views::monitor::Monitor: writes no incident to \"", place.incidents.c_str(),
            "512 MiB are free, and 819 MiB have to be. Make room there, or give another folder"}));
  pretended = {4096 * kGiB, kGiB - 4096};
  BOOST_CHECK_EXCEPTION(write(), c10::Error, says({"1023 MiB are free, and 1024 MiB have to be"}));
  BOOST_TEST(fs::is_empty(place.incidents));
  pretended = {8 * kGiB, kGiB};
  BOOST_TEST(fs::exists(write()));
  pretended = {4096 * kGiB, kGiB};  // a thousandth, but room for many incidents
  BOOST_TEST(fs::exists(write()));

  // What is written has room, too: inputs, and of a model in training its parameters.
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  torch::nn::Linear model(torch::nn::LinearOptions(1024, 256).bias(false));
  content.modules = torchtap::model::walk_modules(*model);
  content.forwards.emplace_back().inputs = {at::zeros({4, 1 << 20}, at::kByte)};
  content.forwards.back().why_not = {""};
  content.forwards.back().strides = {{}};
  pretended = {4096 * kGiB, kGiB + 4 * kMiB};
  BOOST_TEST(fs::exists(write()));
  content.training = true;
  BOOST_CHECK_EXCEPTION(write(), c10::Error, says({"1028 MiB are free, and 1029 MiB have to be"}));
  content.parameters.values.emplace_back("weight", model->weight.detach().to(at::kDouble));
  BOOST_CHECK_EXCEPTION(write(), c10::Error, says({"1028 MiB are free, and 1030 MiB have to be"}));
  pretended.free += 2 * kMiB;
  BOOST_TEST(fs::exists(write()));
  content.inputs = false;
  pretended.free -= 4 * kMiB;
  BOOST_TEST(fs::exists(write()));
  pretended = before;
}

BOOST_AUTO_TEST_CASE(a_failed_write_leaves_nothing) {
  const Place place;
  IncidentContent content;
  content.reason = "drift";
  content.write_statistics = [](const std::string&) { TORCH_CHECK(false, "no statistics"); };
  BOOST_CHECK_EXCEPTION(parts::write_incident(place.incidents, 2, content), c10::Error,
                        says({"no statistics"}));
  BOOST_TEST(fs::is_empty(place.incidents));
  fs::create_directory_symlink(place.incidents, place.directory / "link");
  BOOST_CHECK_EXCEPTION(parts::write_incident(place.directory / "link/", 2, content), c10::ValueError,
                        says({"is a symbolic link"}));
}

BOOST_AUTO_TEST_CASE(damaged_incidents_are_errors) {
  const Place place;
  Pair net;
  FlightRecorder ring(place.rings, 1 << 20, place.incidents, "pair");
  const at::Tensor x = at::randn({3});
  record(ring, 0, {x, x.gt(0)}, true, [&] { return net->forward(x, x.gt(0)); });
  const std::string incident = incident_of(place, ring);
  BOOST_TEST(monitor::replay(incident, *net).at(0).same_bits);
  const auto error = [&](const std::string& file, const std::string& bytes) {
    const std::string path = incident + "/" + file, before = bytes_of(path);
    write_bytes(path, bytes);
    const std::string text = error_of([&] { monitor::replay(incident, *net); });
    write_bytes(path, before);
    return text;
  };
  BOOST_TEST(contains(error("incident.json", "{\"format\":2}"), "written by a newer torchtap (format 2"));
  BOOST_TEST(contains(error("incident.json", "[]"), "is no incident of a monitor"));
  BOOST_TEST(contains(error("forwards.jsonl", "x\n"), "a line of forwards.jsonl is no JSON object"));
  BOOST_TEST(contains(error("forwards.jsonl", ""), "in slot 0"));
  BOOST_TEST(error("random_states.pt", "PK") != "");
  // A generator's state that would read beyond its own numbers.
  auto states = torchtap::storage::load_value(incident + "/random_states.pt").tensor();
  at::Tensor bad = states.clone();
  for (std::int64_t i = 8; i < 24; ++i) bad[0][i] = i % 8 < 2 ? 2 : 0;
  torchtap::storage::save_value(place.directory / "bad.pt", bad);
  const std::string good_bytes = bytes_of(incident + "/random_states.pt");
  write_bytes(incident + "/random_states.pt", bytes_of(place.directory / "bad.pt"));
  BOOST_CHECK_EXCEPTION(monitor::replay(incident, *net), c10::ValueError,
                        says({"are not the state of a generator"}));
  write_bytes(incident + "/random_states.pt", good_bytes);
  BOOST_TEST(monitor::replay(incident, *net).at(0).same_bits);
  BOOST_CHECK_EXCEPTION(monitor::replay(place.directory / "none", *net), c10::ValueError,
                        says({"it is no folder"}));
  BOOST_CHECK_EXCEPTION(monitor::replay(place.incidents, *net), c10::ValueError,
                        says({"it has no incident.json"}));
}

/// 2 x, as tests/formats/write/monitor.cpp has it.
void check_written(const std::vector<Replayed>& all) {
  BOOST_TEST_REQUIRE(all.size() == 3U);
  for (const Replayed& one : all) {
    BOOST_TEST(one.error == "");
    BOOST_TEST(one.returned == (one.forward != 90002));
    BOOST_TEST(one.same_bits == one.returned);
    BOOST_TEST(one.inputs == "[3,2] f32, [4] bool, none");
    BOOST_TEST(one.nan == (one.forward == 90001 ? 1 : 0));
  }
}

BOOST_AUTO_TEST_CASE(files_as_they_were_first_written_are_read) {
  const std::string formats = TORCHTAP_TEST_FORMATS "/1/";
  torch::nn::Identity model;
  const monitor::Forward twice = [](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{inputs[0] * 2};
  };
  check_written(monitor::replay(formats + "incident", *model, twice));
  const auto ring = parts::read_ring(bytes_of(formats + "ring"), "ring");
  BOOST_TEST(ring.damage == "");
  BOOST_TEST(ring.model == "written");
  BOOST_TEST((ring.windows == std::vector<std::string>{"{\"window\":0}"}));
  const Place place;
  fs::create_directory(place.incidents);
  fs::copy_file(formats + "ring", place.incidents + "/ring-1-0");
  const auto made = monitor::recover_incidents(place.incidents);
  BOOST_TEST_REQUIRE(made.size() == 1U);
  check_written(monitor::replay(made[0], *model, twice));
  const auto all = monitor::incidents_in(place.incidents);
  BOOST_TEST_REQUIRE(all.size() == 1U);
  BOOST_TEST((all[0].folder == made[0] && all[0].reason == "crash" && all[0].model == "written" &&
              all[0].forwards == 3 && all[0].inputs && all[0].error.empty()));
}

BOOST_AUTO_TEST_CASE(digests_are_xxh64_of_dtypes_sizes_and_bytes) {
  // By xxhsum -H64, of nothing; and of
  // struct.pack("<3q3f", 6, 1, 3, 1, 2, 3).
  BOOST_TEST(parts::outcome_of(std::vector<at::Tensor>()).digest == 0xef46db3751d8e999);
  const at::Tensor x = at::tensor({1.F, 2.F, 3.F});
  BOOST_TEST(parts::outcome_of(std::vector<at::Tensor>{x}).digest == 0xd40d981dd5a17c13);
  BOOST_TEST(parts::outcome_of(std::vector<at::Tensor>{at::Tensor(), x}).digest ==
             parts::outcome_of(std::vector<at::Tensor>{x}).digest);
  const at::Tensor wide = at::stack({x, x * 4, x * 7}, 1);
  BOOST_TEST(parts::outcome_of(std::vector<at::Tensor>{wide.select(1, 0)}).digest ==
             parts::outcome_of(std::vector<at::Tensor>{x}).digest);
  // Another sign, shape or dtype is another digest.
  for (const at::Tensor& other : {-x, x.view({3, 1}), x.view(at::kInt)})
    BOOST_TEST(parts::outcome_of(std::vector<at::Tensor>{other}).digest !=
               parts::outcome_of(std::vector<at::Tensor>{x}).digest);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor values = at::arange(20000).remainder(7).to(dtype);
    values.slice(0, 0, 9000, 3).fill_(NAN);
    values[9001] = INFINITY;
    values[9002] = -INFINITY;
    const auto outcome = parts::outcome_of(std::vector<at::Tensor>{values});
    BOOST_TEST((outcome.nan == 3000 && outcome.inf == 2));
    const at::Tensor finite = values.masked_select(values.to(at::kDouble).isfinite()).to(at::kDouble);
    BOOST_TEST(outcome.sum == finite.sum().item<double>());
    BOOST_TEST(outcome.magnitude == finite.abs().sum().item<double>());
  }
  BOOST_TEST(parts::outcome_of(std::vector<at::Tensor>{at::randn({4}, at::kComplexFloat) * NAN}).nan == 8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace torchtap_test
