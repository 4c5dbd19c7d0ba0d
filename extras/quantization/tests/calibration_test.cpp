// Calibrations: from recordings, in files, for TensorRT and for PyTorch in Python.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

#include <torchtap/json/json.hpp>
#include <torchtap/quantization/calibration.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/version.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(calibration_test)

namespace tap = torchtap;
namespace nn = torch::nn;
namespace quantization = tap::quantization;
using namespace tap::reductions;
using quantization::calibrate;
using quantization::Calibration;
using quantization::Dtype;
using quantization::Method;
using quantization::Parameters;
using quantization::QuantizationOptions;
using quantization::QuantizedTensor;
using torchtap_test::contains;
using torchtap_test::error_of;
using torchtap_test::says;
using Folder = torchtap_test::TemporaryDirectory;

namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(a, b);
}

bool same(const Parameters& a, const Parameters& b) {
  return a.dtype == b.dtype && a.axis == b.axis && same(a.scale, b.scale) &&
         same(a.zero_point, b.zero_point) && same(a.low, b.low) && same(a.high, b.high);
}

bool same(const Calibration& a, const Calibration& b) {
  return a.method() == b.method() &&
         std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
           return x.path == y.path && x.type == y.type && x.input == y.input && x.slot == y.slot &&
                  x.weights == y.weights && same(x.parameters, y.parameters);
         });
}

LogHistogram whole() {
  return LogHistogram(LogHistogramOptions().over_all(true));
}

nn::Sequential network() {
  torch::manual_seed(1);
  nn::Sequential model({{"conv", nn::AnyModule(nn::Conv2d(1, 4, 3))},
                        {"relu", nn::AnyModule(nn::ReLU())},
                        {"flat", nn::AnyModule(nn::Flatten())},
                        {"fc", nn::AnyModule(nn::Linear(64, 3))}});
  model->eval();
  return model;
}

at::Tensor batch(int i) {
  torch::manual_seed(100 + i);
  return torch::randn({8, 1, 6, 6}) * (i + 1);
}

/// What each module of the network returns for all batches.
std::vector<at::Tensor> outputs(const nn::Sequential& model) {
  std::vector<at::Tensor> all;
  const torch::NoGradGuard guard;
  for (int i = 0; i < 3; ++i) {
    std::vector<at::Tensor> of{batch(i)};
    of.push_back(at::conv2d(of.back(), model->named_parameters()["conv.weight"],
                            model->named_parameters()["conv.bias"]));
    of.push_back(at::relu(of.back()));
    of.push_back(at::flatten(of.back(), 1));
    of.push_back(
        at::linear(of.back(), model->named_parameters()["fc.weight"], model->named_parameters()["fc.bias"]));
    for (std::size_t k = 0; k < of.size(); ++k) {
      if (i == 0) all.emplace_back();
      all[k] = i == 0 ? of[k] : at::cat({all[k], of[k]});
    }
  }
  return all;
}

const std::vector<std::string> kPaths{"conv", "relu", "flat", "fc"};

template <class Recorder, class R>
Recorder recorded(nn::Sequential& model, R reduction, bool all_tensors = false) {
  Recorder recorder(
      tap::recorders::RecorderOptions().reduction(std::move(reduction)).all_tensors(all_tensors));
  recorder.children(*model);
  for (int i = 0; i < 3; ++i) model->forward(batch(i));
  return recorder;
}

QuantizedTensor tensor(const std::string& path, double low, double high,
                       const QuantizationOptions& options = {}) {
  const auto one = [](double x) { return torch::tensor(x, torch::kFloat); };
  return {
      path, "Conv2d", false, 0, quantization::from_range(one(low), one(high), options), options.weights()};
}

/// One of each kind: per channel, an input, another slot, each dtype, no weights.
Calibration varied() {
  QuantizedTensor channels = tensor("stem.conv", -1, 1, QuantizationOptions().weights(Dtype::int4));
  channels.parameters =
      quantization::from_range(torch::tensor({-1.F, -0.25F, 1e-9F}), torch::tensor({0.5F, 3.1F, 2e-9F}),
                               QuantizationOptions().axis(1));
  QuantizedTensor in =
      tensor("caf\xc3\xa9 \"1\"", 0.1, 0.3, QuantizationOptions().dtype(Dtype::uint8).weights({}));
  in.input = true;
  QuantizedTensor state = tensor("lstm", -0.9, 0.7, QuantizationOptions().dtype(Dtype::int4).symmetric(true));
  state.slot = 2;
  return Calibration({channels, in, state, tensor("lstm", -1e30, 1e30)}, "entropy");
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_parameters_are_those_of_the_same_data_live_saved_and_merged) {
  nn::Sequential model = network();
  const auto all = outputs(model);
  const auto recorder = recorded<tap::recorders::ForwardOutput>(model, whole());
  const Folder folder;
  recorder.save(folder / "all", tap::storage::SaveOptions().mkdir(true));
  for (int part = 0; part < 2; ++part) {  // two processes
    tap::recorders::ForwardOutput one(tap::recorders::RecorderOptions().reduction(whole()));
    one.children(*model);
    for (int i = part; i < 3; i += 2) model->forward(batch(i));
    one.save(folder / std::to_string(part), tap::storage::SaveOptions().mkdir(true));
  }
  tap::storage::merge({folder / "0", folder / "1"}, folder / "merged", restore,
                      tap::storage::MergeOptions().save(tap::storage::SaveOptions().mkdir(true)));
  for (const Method method : {Method::min_max, Method::percentile, Method::mse, Method::entropy}) {
    const QuantizationOptions options =
        QuantizationOptions().method(method).dtype(Dtype::int8).symmetric(method == Method::entropy);
    const Calibration found = calibrate(tap::storage::load(folder / "all"), options);
    BOOST_TEST(found.size() == 4U);
    BOOST_TEST(found.method() == quantization::name_of(method));
    auto one = found.begin();
    for (std::size_t i = 0; i < 4; ++i, ++one) {
      LogHistogram histogram = whole();
      histogram.update(all[i + 1]);
      BOOST_TEST(one->path == kPaths[i]);
      BOOST_TEST(!one->input);
      BOOST_TEST(one->slot == 0);
      BOOST_TEST((one->weights == Dtype::int8));
      BOOST_TEST(same(one->parameters, quantization::parameters(histogram, options)));
    }
    BOOST_TEST(found.at("conv").type == "Conv2d");
    BOOST_TEST(same(found, calibrate(recorder.entries(), options)));
    BOOST_TEST(same(found, calibrate(tap::storage::load(folder / "merged"), options)));
  }
  const Calibration plain =
      calibrate(recorder.entries(), QuantizationOptions().weights({}).dtype(Dtype::uint8));
  for (const QuantizedTensor& one : plain) {
    BOOST_TEST(!one.weights);
    BOOST_TEST((one.parameters.dtype == Dtype::uint8));
  }
}

BOOST_AUTO_TEST_CASE(inputs_bounds_channels_and_all_tensors) {
  nn::Sequential model = network();
  const auto all = outputs(model);
  const auto extrema = Series(Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true)));
  const auto check = [&](const Calibration& found) {
    std::size_t i = 0;
    for (const QuantizedTensor& one : found) {
      BOOST_TEST(one.input);
      BOOST_TEST(!one.weights);
      BOOST_TEST(same(one.parameters.low, all[i].min()));
      BOOST_TEST(same(one.parameters.high, all[i++].max()));
    }
    BOOST_TEST(i == 4U);
  };
  const QuantizationOptions options = QuantizationOptions().method(Method::min_max);
  check(calibrate(recorded<tap::recorders::ForwardPre>(model, extrema).entries(), options));
  check(calibrate(recorded<tap::recorders::ForwardInput>(model, extrema, true).entries(), options));
  // Both kinds at once are the same tensors.
  auto both = recorded<tap::recorders::ForwardPre>(model, extrema).entries();
  for (const auto& entry : recorded<tap::recorders::ForwardInput>(model, extrema).entries())
    both.push_back(entry);
  BOOST_TEST(
      contains(error_of([&] { calibrate(both, options); }), "the input 0 of \"conv\" (Conv2d) comes twice"));

  // Channels, of the first two modules.
  tap::recorders::ForwardOutput channels(tap::recorders::RecorderOptions().reduction(
      Series(Min(MinOptions().over({0, 2, 3})), Max(MaxOptions().over({0, 2, 3})))));
  channels.children(*model, tap::selectors::indices({0}));
  for (int i = 0; i < 3; ++i) model->forward(batch(i));
  const Calibration found = calibrate(channels.entries(), options);
  BOOST_TEST(same(found.at("conv").parameters.low, all[1].amin({0, 2, 3})));
  BOOST_TEST((found.at("conv").parameters.axis == std::optional<std::int64_t>(1)));

  // All outputs of a module, one of which no call has.
  nn::Sequential lstm{nn::LSTM(3, 2)};
  tap::recorders::ForwardOutput slots(tap::recorders::RecorderOptions().reduction(whole()).all_tensors(true));
  slots.children(*lstm);
  const at::Tensor x = torch::randn({4, 5, 3});
  lstm->forward<std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>>(x);
  const auto want = std::dynamic_pointer_cast<nn::LSTMImpl>(lstm->ptr(0))->forward(x);
  const std::vector<at::Tensor> wanted{std::get<0>(want), std::get<0>(std::get<1>(want)),
                                       std::get<1>(std::get<1>(want))};
  const Calibration three = calibrate(slots.entries());
  BOOST_TEST(three.size() == 3U);
  for (const QuantizedTensor& one : three) {
    LogHistogram histogram = whole();
    histogram.update(wanted.at(static_cast<std::size_t>(one.slot)).detach());
    BOOST_TEST(same(one.parameters, quantization::parameters(histogram)));
  }
}

BOOST_AUTO_TEST_CASE(entries_that_it_cannot_take_name_their_module) {
  nn::Sequential model = network();
  tap::recorders::ForwardOutput kept;
  kept.children(*model);
  model->forward(batch(0));
  BOOST_CHECK_EXCEPTION(
      calibrate(kept.entries()), c10::ValueError,
      says({"quantization::calibrate: \"conv\" (Conv2d) has samples that were kept", "LogHistogram"}));
  tap::recorders::BackwardOutput gradients(tap::recorders::RecorderOptions().reduction(whole()));
  gradients.children(*model);
  model->forward(batch(0)).sum().backward();
  BOOST_CHECK_EXCEPTION(calibrate(gradients.entries()), c10::ValueError,
                        says({"\"conv\"", "\"BackwardOutput\""}));
  const auto moments =
      recorded<tap::recorders::ForwardOutput>(model, Moments(MomentsOptions().over_all(true)));
  BOOST_CHECK_EXCEPTION(calibrate(moments.entries()), c10::ValueError,
                        says({"while calibrating the output 0 of \"conv\" (Conv2d)"}));
  // A mean is one tensor, and no distribution.
  const auto mean = recorded<tap::recorders::ForwardOutput>(model, Mean(MeanOptions().over_all(true)));
  BOOST_CHECK_EXCEPTION(calibrate(mean.entries()), c10::ValueError, says({"\"conv\"", "LogHistogram"}));
  // What never ran is left out.
  tap::recorders::ForwardOutput never(tap::recorders::RecorderOptions().reduction(whole()));
  never.children(*model);
  BOOST_TEST(calibrate(never.entries()).empty());
  BOOST_TEST(calibrate(std::vector<tap::storage::Entry>()).empty());
}

BOOST_AUTO_TEST_CASE(tensors_without_a_finite_value_are_left_out_and_named) {
  const auto entry = [](const std::string& path, const at::Tensor& x) {
    tap::storage::Entry one;
    one.path = path;
    one.type = "Conv2d";
    one.kind = "ForwardOutput";
    one.samples = 1;
    LogHistogram reduction = whole();
    reduction.update(x);
    one.reduction = reduction.describe();
    one.value = tap::core::to_value(reduction.results());
    return one;
  };
  const std::vector<tap::storage::Entry> all{entry("good", torch::ones({2, 3})),
                                             entry("empty", torch::ones({0, 3})),
                                             entry("bad", torch::full({2}, NAN))};
  for (const Method method : {Method::min_max, Method::percentile, Method::mse, Method::entropy}) {
    const Calibration found = calibrate(all, QuantizationOptions().method(method));
    BOOST_TEST(found.size() == 1);
    BOOST_TEST(found.at("good").path == "good");
    BOOST_TEST(found.left_out() == (std::vector<std::string>{"the output 0 of \"empty\" (Conv2d)",
                                                             "the output 0 of \"bad\" (Conv2d)"}));
  }
  BOOST_CHECK_EXCEPTION(calibrate({all[1], all[2]}), c10::ValueError,
                        says({"no finite value in the output 0 of \"empty\"", "nor in any other"}));
}

BOOST_AUTO_TEST_CASE(a_tensor_by_its_path) {
  QuantizedTensor in = tensor("a", 0, 1), second = tensor("b", 0, 1), only = tensor("c.conv", 0, 1);
  in.input = only.input = true;
  second.slot = 1;
  const Calibration found({in, tensor("a", -1, 1), second, only});
  BOOST_TEST(!found.at("a").input);
  BOOST_TEST(found.at("c.conv").input);
  BOOST_CHECK_EXCEPTION(found.at("b"), c10::IndexError, says({"Calibration::at", "\"b\"", "4 tensors"}));
  BOOST_CHECK_EXCEPTION(found.at("conv"), c10::IndexError, says({"\"c.conv\""}));
  BOOST_TEST(Calibration({in}).at("a").path == "a");
  BOOST_CHECK_EXCEPTION(Calibration({in, in}), c10::ValueError,
                        says({"the input 0 of \"a\" (Conv2d) comes twice"}));
}

BOOST_AUTO_TEST_CASE(a_file_is_read_as_it_was_written) {
  const Folder folder;
  const Calibration written = varied();
  written.save(folder / "int8.json");
  BOOST_TEST(content(folder / "int8.json") == written.json());
  BOOST_TEST(same(Calibration::load(folder / "int8.json"), written));
  BOOST_TEST(Calibration::load(folder / "int8.json").json() == written.json());
  // As another reader sees it.
  const tap::json::Json json = tap::json::parse(written.json());
  BOOST_TEST(json["format"] == 1);
  BOOST_TEST(json["library"] == TORCHTAP_VERSION);
  BOOST_TEST(json["method"] == "entropy");
  const auto& tensors = json["tensors"];
  BOOST_TEST(tensors.size() == 4U);
  BOOST_TEST(tensors[0]["weights"] == "int4");
  BOOST_TEST(tensors[0]["axis"] == 1);
  BOOST_TEST(tensors[0]["high"][1].get<double>() == double{3.1F});
  BOOST_TEST(tensors[1]["path"] == "caf\xc3\xa9 \"1\"");
  BOOST_TEST(tensors[1]["kind"] == "input");
  BOOST_TEST(!tensors[1].contains("axis"));
  BOOST_TEST(tensors[2]["slot"] == 2);
  Calibration().save(folder / "empty.json");
  BOOST_TEST(Calibration::load(folder / "empty.json").empty());
  // Of scales at the ends of float32.
  QuantizedTensor least = tensor("least", -1, 1);
  least.parameters.scale.fill_(std::numeric_limits<float>::denorm_min());
  least.parameters.high.fill_(std::numeric_limits<float>::max());
  Calibration({least}).save(folder / "least.json");
  BOOST_TEST(same(Calibration::load(folder / "least.json"), Calibration({least})));

  BOOST_CHECK_EXCEPTION(Calibration({tensor("\xff", 0, 1)}).json(), c10::ValueError,
                        says({"path", "not UTF-8"}));
  BOOST_CHECK_EXCEPTION(written.save(folder / "none/int8.json"), c10::ValueError,
                        says({"Calibration::save", "none"}));
  {
    const c10::InferenceMode mode;
    BOOST_TEST(!Calibration::load(folder / "int8.json").at("lstm").parameters.scale.is_inference());
  }
}

BOOST_AUTO_TEST_CASE(damaged_files_are_refused_with_the_place) {
  const Folder folder;
  const std::string good = varied().json();
  const auto fails = [&](const std::string& text, std::vector<std::string> parts) {
    std::ofstream(folder / "int8.json", std::ios::binary) << text;
    BOOST_TEST_INFO("expected: " << parts.front());
    parts.insert(parts.end(), {"quantization::Calibration::load: ", folder / "int8.json"});
    BOOST_CHECK_EXCEPTION(Calibration::load(folder / "int8.json"), c10::ValueError, says(std::move(parts)));
  };
  fails("", {"not JSON, from byte 0 on"});
  fails("[]", {"it should be an object and is an array"});
  fails(good.substr(0, good.size() / 2), {"not JSON"});
  fails(with(good, "caf\xc3\xa9", "caf\xc3"), {"not JSON"});
  fails("{}", {"it has no \"format\""});
  fails(std::string(200000, '['), {"JSON nested deeper than"});
  fails(with(good, "\"format\": 1", "\"format\": 2"),
        {"it was written by a newer torchtap (format 2; this one reads up to 1)", "update torchtap"});
  // Of a newer file nothing else is looked at.
  fails("{\"format\": 99, \"tensors\": 3}",
        {"written by a newer torchtap (format 99; this one reads up to 1)"});
  fails(with(good, "\"format\": 1", "\"format\": 0"), {"it has format 0"});
  fails(with(good, "\"format\": 1", "\"format\": 1.5"), {"format should be a whole number"});
  fails(with(good, "\"tensors\": [", "\"tensors\": 3, \"rest\": ["), {"tensors should be an array"});
  fails(with(good, "\"tensors\": [", "\"tensors\": [3, "), {"tensors[0] should be an object"});
  fails(with(good, "\"method\": \"entropy\"", "\"method\": null"), {"method should be a text"});
  fails(with(good, "\"path\": \"lstm\"", "\"path\": []"), {"tensors[2].path should be a text"});
  fails(with(good, "\"kind\": \"input\"", "\"kind\": \"weight\""),
        {"tensors[1].kind should be \"input\" or \"output\""});
  fails(with(good, "\"slot\": 2", "\"slot\": -1"), {"tensors[2].slot should be 0 or more"});
  fails(with(good, "\"slot\": 2", "\"slot\": 0"), {"the output 0 of \"lstm\" (Conv2d) comes twice"});
  fails(with(good, "\"dtype\": \"uint8\"", "\"dtype\": \"int16\""), {"int16", "uint8"});
  fails(with(good, "\"weights\": \"int4\"", "\"weights\": \"int5\""), {"int5"});
  fails(with(good, "\"axis\": 1,", ""), {"tensors[0].scale should be"});
  fails(with(good, "\"axis\": 1", "\"axis\": \"1\""), {"tensors[0].axis should be a whole number"});
  fails(with(good, "\"dtype\": \"uint8\"", "\"dtype\": \"uint8\", \"axis\": 0"),
        {"tensors[1].scale should be"});
  for (const char* scale :
       {"0", "-1", "1e39", "1e-50", "\"1\"", "null", "[[1]]", "{}", "[]", "[1, 2]", "true"})
    fails(with(good, "\"scale\": [", "\"scale\": " + std::string(scale) + ", \"rest\": ["), {"tensors[0]."});
  for (const char* point : {"[-129, 0, 0]", "[128, 0, 0]", "[0, 0.5, 0]", "[0, 0]", "[0, 0, 0, 0]", "3"})
    fails(with(good, "\"zero_point\": [", "\"zero_point\": " + std::string(point) + ", \"rest\": ["),
          {"tensors[0].zero_point"});
  fails(with(good, "\"low\": [-1.0", "\"low\": [0.75"), {"tensors[0].low should be at most high"});
  fails(with(good, "\"high\": [", "\"high\": null, \"rest\": ["), {"tensors[0].high should be"});
  fails(with(good, "\"high\": [", "\"rest\": ["), {"tensors[0] has no \"high\""});
  BOOST_CHECK_EXCEPTION(Calibration::load(folder / "none.json"), c10::ValueError,
                        says({"Calibration::load", "none.json"}));
  // Fields of a later version are passed over.
  std::ofstream(folder / "more.json") << with(good, "\"slot\": 2", "\"slot\": 2, \"more\": {\"a\": [1]}");
  BOOST_TEST(same(Calibration::load(folder / "more.json"), varied()));
}

BOOST_AUTO_TEST_CASE(the_cache_for_tensorrt) {
  const QuantizationOptions symmetric = QuantizationOptions().symmetric(true);
  QuantizedTensor in = tensor("conv1", -1, 1, symmetric), second = tensor("lstm", -1, 1, symmetric),
                  root = tensor("", -1, 1, symmetric);
  in.input = root.input = true;
  second.slot = 1;
  in.parameters.scale.fill_(0.5);
  second.parameters.scale.fill_(1);
  root.parameters.scale.fill_(0.007876);  // 0x3c010a57 by Python's struct
  const Calibration found({root, in, tensor("conv1", -127.5, 100, symmetric), second});
  BOOST_TEST(found.tensorrt_cache() ==
             "TRT-8601-EntropyCalibration2\ninput: 3c010a57\nconv1.input: 3f000000\nconv1: 3f800000\n"
             "lstm.output.1: 3f800000\n");
  BOOST_TEST(Calibration().tensorrt_cache("TRT-10300-MinMaxCalibration") == "TRT-10300-MinMaxCalibration\n");
  const auto fails = [](const QuantizedTensor& one, const std::string& part) {
    BOOST_CHECK_EXCEPTION(Calibration({one}).tensorrt_cache(), c10::ValueError,
                          says({"Calibration::tensorrt_cache", "the output 0 of", part, "symmetric(true)"}));
  };
  fails(tensor("a", -1, 2), "zero points -43 to -43");
  fails(tensor("a", -1, 1, QuantizationOptions().symmetric(true).dtype(Dtype::int4)), "int4");
  fails(*varied().begin(), "a scale for each channel");
}

BOOST_AUTO_TEST_CASE(observers_are_named_as_in_python) {
  QuantizedTensor image = tensor("", -0.5, 0.75), in = tensor("fc", 0, 1), second = tensor("fc", 0, 2);
  image.input = in.input = true;
  second.slot = 1;
  const Calibration found({image, in, second, tensor("body.conv", -1, 2)});
  const auto state = found.observers().dict();
  BOOST_TEST(state.size() == 4U);
  BOOST_TEST(state[0].first == "quant.activation_post_process.min_val");
  BOOST_TEST(state[3].first == "body.conv.activation_post_process.max_val");
  BOOST_TEST(same(state[0].second.tensor(), torch::tensor(-0.5F)));
  BOOST_TEST(same(state[3].second.tensor(), torch::tensor(2.F)));
}

/// observers.py runs the same data through the same model in Python, with torch.ao's observers.
BOOST_AUTO_TEST_CASE(python_gets_the_scales_of_its_own_observers) {
  const Folder folder;
  nn::Sequential model = network();
  const auto all = outputs(model);
  using tap::core::Value;
  tap::storage::save_value(folder / "data.pt",
                           Value::Dict{{"images", at::cat({batch(0), batch(1), batch(2)})},
                                       {"conv.weight", model->named_parameters()["conv.weight"].detach()},
                                       {"conv.bias", model->named_parameters()["conv.bias"].detach()},
                                       {"fc.weight", model->named_parameters()["fc.weight"].detach()},
                                       {"fc.bias", model->named_parameters()["fc.bias"].detach()}});
  const auto over = [&](bool channels) {
    const std::vector<std::int64_t> rows{0, 2, 3};
    const auto minima = channels ? MinOptions().over(rows) : MinOptions().over_all(true);
    const auto maxima = channels ? MaxOptions().over(rows) : MaxOptions().over_all(true);
    return tap::recorders::RecorderOptions().reduction(Series(Min(minima), Max(maxima)));
  };
  tap::recorders::ForwardOutput whole_outputs(over(false)), by_channel(over(true));
  tap::recorders::ForwardPre inputs(over(false));
  whole_outputs.children(*model);
  by_channel.children(*model, tap::selectors::indices({0}));
  inputs.modules(*model, tap::selectors::indices({0}));
  for (int i = 0; i < 3; ++i) model->forward(batch(i));
  for (const bool symmetric : {false, true}) {
    const QuantizationOptions options =
        QuantizationOptions().method(Method::min_max).dtype(Dtype::uint8).symmetric(symmetric);
    auto entries = whole_outputs.entries();
    entries.push_back(inputs.entries().at(0));
    const std::string name = symmetric ? "symmetric" : "affine";
    for (const bool channels : {false, true}) {
      const Calibration found = calibrate(channels ? by_channel.entries() : entries, options);
      const std::string file = folder / (name + (channels ? ".channels" : ""));
      found.save(file + ".json");
      tap::storage::save_value(file + ".pt", found.observers());
    }
  }
  const std::string command =
      std::string(TORCHTAP_TEST_PYTHON) + " " + TORCHTAP_TEST_QUANTIZATION + "/observers.py " + folder.path();
  BOOST_TEST(std::system(command.c_str()) == 0);
}

BOOST_AUTO_TEST_CASE(a_file_of_before_is_read) {
  const Calibration found = Calibration::load(TORCHTAP_TEST_FORMATS "/1/int8.json");
  BOOST_TEST(found.method() == "mse");
  BOOST_TEST(found.size() == 3U);
  BOOST_TEST(found.at("").input);
  BOOST_TEST(found.at("conv").type == "Conv2d");
  BOOST_TEST((found.at("conv").weights == Dtype::int4));
  BOOST_TEST((found.at("conv").parameters.axis == std::optional<std::int64_t>(1)));
  BOOST_TEST(same(found.at("conv").parameters.scale, torch::tensor({0.5F, 0.0078125F})));
  BOOST_TEST(same(found.at("conv").parameters.zero_point, torch::tensor({-128, -12}, torch::kInt)));
  BOOST_TEST((found.at("").parameters.dtype == Dtype::uint8));
  BOOST_TEST(same(found.at("").parameters.high, torch::tensor(1.F)));
  const QuantizedTensor& last = *(found.end() - 1);
  BOOST_TEST(last.path == "lstm");
  BOOST_TEST(last.slot == 2);
  // All of it was read: written again, it is the same text but for the version.
  const std::string text = content(TORCHTAP_TEST_FORMATS "/1/int8.json");
  BOOST_TEST(with(found.json(), "\"" TORCHTAP_VERSION "\"", "\"0.1.0\"") == text);
}

BOOST_AUTO_TEST_SUITE_END()
