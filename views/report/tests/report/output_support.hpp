#pragma once

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/report/measurements.hpp>
#include <torchtap/views/report/print.hpp>
#include <torchtap/views/report/save.hpp>

/// Measurements as a run of ResNet-18 gives them, and others that no run gives.
namespace torchtap_test {

namespace report = torchtap::views::report;
using report::Measurements;
using report::ModuleRow;

inline report::TensorInfo tensor(std::string name, std::vector<std::int64_t> shape) {
  report::TensorInfo info;
  info.name = std::move(name);
  info.bytes = 4;
  for (const std::int64_t size : shape) info.bytes *= size;
  info.shape = std::move(shape);
  return info;
}

inline report::Times times(double seconds, std::int64_t calls) {
  return {calls, 3 * seconds, 0.97 * seconds, seconds, 1.08 * seconds, seconds * static_cast<double>(calls)};
}

/// Builds a tree from its leaves on: sums go up, with a little time of its own in each module.
class Builder {
 public:
  static constexpr std::int64_t kBatch = 8;

  static ModuleRow leaf(const std::string& name, const std::string& type, std::int64_t parameters,
                        std::vector<std::int64_t> in, std::vector<std::int64_t> out, std::int64_t macs) {
    ModuleRow row;
    row.name = name;
    row.type = type;
    row.inputs = {tensor("0", in)};
    row.outputs = {tensor("0", out)};
    row.input_gradients = {tensor("0", std::move(in))};
    row.output_gradients = {tensor("0", std::move(out))};
    row.parameters = row.learnable_parameters = parameters;
    row.parameter_bytes = row.gradient_bytes = 4 * parameters;
    const std::int64_t bytes = row.inputs[0].bytes + row.outputs[0].bytes + row.parameter_bytes;
    const double seconds = static_cast<double>(macs) / 9e10 + static_cast<double>(bytes) / 2e10 + 1.7e-6;
    fill(row.forward, seconds, macs, bytes, row.outputs[0].bytes);
    fill(row.backward, 1.9 * seconds, 2 * macs, 2 * bytes, row.inputs[0].bytes);
    row.zero_fraction = type == "ReLU" ? 0.47 : 0.0;
    if (parameters > 0) row.gradient_norm = 0.02 * std::sqrt(static_cast<double>(parameters));
    return row;
  }
  static ModuleRow group(const std::string& name, const std::string& type, std::vector<ModuleRow> children) {
    ModuleRow row;
    row.name = name;
    row.type = type;
    row.inputs = children.front().inputs;
    row.outputs = children.back().outputs;
    row.forward.inclusive = row.forward.self = times(4e-6, kRepeats);
    row.backward.inclusive = row.backward.self = times(2e-6, kRepeats);
    for (const ModuleRow& child : children) {
      row.parameters += child.parameters;
      row.learnable_parameters += child.learnable_parameters;
      row.parameter_bytes += child.parameter_bytes;
      row.gradient_bytes += child.gradient_bytes;
      add(row.forward, child.forward);
      add(row.backward, child.backward);
    }
    row.children = std::move(children);
    return row;
  }
  /// Sets the paths below `row`.
  static void name_paths(ModuleRow& row, const std::string& path = "") {
    row.path = path;
    for (ModuleRow& child : row.children)
      name_paths(child, path.empty() ? child.name : path + "." + child.name);
  }

  static constexpr std::int64_t kRepeats = 20;

 private:
  static void fill(report::Direction& direction, double seconds, std::int64_t macs, std::int64_t bytes,
                   std::int64_t kept) {
    direction.inclusive = direction.self = times(seconds, kRepeats);
    direction.work = direction.self_work = {macs, bytes, 1};
    direction.memory = {kept, kept + kept / 4, 2};
  }
  static void add(report::Direction& to, const report::Direction& from) {
    to.inclusive.first += from.inclusive.first;
    to.inclusive.min += from.inclusive.min;
    to.inclusive.median += from.inclusive.median;
    to.inclusive.p90 += from.inclusive.p90;
    to.inclusive.total += from.inclusive.total;
    to.memory.peak = std::max(to.memory.peak, to.memory.kept + from.memory.peak);
    to.memory.kept += from.memory.kept;
    to.memory.allocations += from.memory.allocations;
    to.work.macs += from.work.macs;
    to.work.bytes += from.work.bytes;
    to.work.operations += from.work.operations;
  }
};

inline ModuleRow conv(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t size,
                      std::int64_t from, std::int64_t to) {
  constexpr std::int64_t batch = Builder::kBatch;
  return Builder::leaf(name, "Conv2d", in * out * size * size, {batch, in, from, from}, {batch, out, to, to},
                       batch * in * out * size * size * to * to);
}

inline ModuleRow same(const std::string& name, const std::string& type, std::int64_t channels,
                      std::int64_t side, std::int64_t parameters = 0) {
  const std::vector<std::int64_t> shape{Builder::kBatch, channels, side, side};
  return Builder::leaf(name, type, parameters, shape, shape, 0);
}

inline ModuleRow basic_block(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t from,
                             std::int64_t to) {
  std::vector<ModuleRow> parts{conv("conv1", in, out, 3, from, to),
                               same("bn1", "BatchNorm2d", out, to, 2 * out), same("relu", "ReLU", out, to),
                               conv("conv2", out, out, 3, to, to),
                               same("bn2", "BatchNorm2d", out, to, 2 * out)};
  if (in != out) {
    parts.push_back(
        Builder::group("downsample", "Sequential",
                       {conv("0", in, out, 1, from, to), same("1", "BatchNorm2d", out, to, 2 * out)}));
  }
  return Builder::group(name, "BasicBlock", std::move(parts));
}

/// ResNet-18 for 8x3x224x224: true shapes, parameters and MACs; times and memory are made up.
inline Measurements resnet18() {
  std::vector<ModuleRow> parts{conv("conv1", 3, 64, 7, 224, 112), same("bn1", "BatchNorm2d", 64, 112, 128),
                               same("relu", "ReLU", 64, 112)};
  parts.push_back(Builder::leaf("maxpool", "MaxPool2d", 0, {8, 64, 112, 112}, {8, 64, 56, 56}, 0));
  for (int layer = 0; layer < 4; ++layer) {
    const std::int64_t out = 64 << layer, in = layer == 0 ? 64 : out / 2, to = 56 >> layer;
    parts.push_back(Builder::group(
        "layer" + std::to_string(layer + 1), "Sequential",
        {basic_block("0", in, out, layer == 0 ? to : 2 * to, to), basic_block("1", out, out, to, to)}));
  }
  parts.push_back(Builder::leaf("avgpool", "AdaptiveAvgPool2d", 0, {8, 512, 7, 7}, {8, 512, 1, 1}, 0));
  parts.push_back(Builder::leaf("fc", "Linear", 513000, {8, 512}, {8, 1000}, 8 * 512 * 1000));
  Measurements results;
  results.root = Builder::group("", "ResNet", std::move(parts));
  Builder::name_paths(results.root);
  results.root.buffer_bytes = 38560;
  results.repeats = Builder::kRepeats;
  results.warmup = 3;
  results.seconds = 9.4;
  results.own_seconds = 0.012;
  results.forward_memory = {172700000, 182100000, 122};
  results.backward_memory = {46800000, 190300000, 241};
  results.outside_forward = {0, 3211264, 1};
  results.outside_forward_seconds = 3.1e-5;
  results.notes = {"oneDNN's scratch memory is not LibTorch's, and is not counted."};
  return results;
}

/// Values that are not finite, marks, and all kinds of relations.
inline Measurements troubled() {
  Measurements results = resnet18();
  auto& layer4 = results.root.children[7];
  layer4.children[1].children[1].marks = {"nonfinite"};
  layer4.children[1].children[1].forward.out = {3, 1};
  layer4.children[1].marks = {"nonfinite"};
  layer4.children[0].children[2].marks = {"dead_relu"};
  layer4.children[0].children[2].mark_sentences = {"output: 100 % of 25,088 values are zero"};
  layer4.children[0].children[2].zero_fraction = 1;
  results.root.children[5].children[0].children[0].marks = {"exploding_gradient"};
  results.root.children[5].children[0].children[0].gradient_norm = std::numeric_limits<double>::infinity();
  ModuleRow aux;
  aux.name = aux.path = "aux";
  aux.type = "InceptionAux";
  aux.marks = {"never_ran"};
  aux.reachable = false;
  results.root.children.push_back(aux);
  results.root.children[1].aliases = {"norm", "layer9.norm"};
  results.findings = {
      {report::Role::source, "weight", "layer4.1.bn1", 0, false, {1, 0}, {"weight: 1 of 512 NaN"}},
      {report::Role::producer,
       "aten::batch_norm",
       "layer4.1.bn1",
       0,
       false,
       {3, 1},
       {"input: 8x512x7x7, -3.2 to 4.1", "running_var: 512, 0 to 1"}},
      {report::Role::propagator, "aten::relu_", "layer4.1.relu", 0, false, {3, 0}, {}},
      {report::Role::absorber, "aten::max_pool2d", "", 2, true, {0, 0}, {}}};
  results.not_counted = {{"my::attention", "layer3.1", 4}, {"aten::special_bessel_j0", "", 1}};
  return results;
}

/// Names that would break a table, a document or a page.
inline const std::vector<std::string>& nasty_names() {
  static const std::vector<std::string> names{"<script>alert(1)</script>",
                                              "</script><b>",
                                              "<!--",
                                              "a\"quoted\" 'name', with; commas",
                                              "line\nbreak\r\ttab",
                                              "\033[2J\033[31mred",
                                              "卷积层一",
                                              "cafe\u0301",
                                              "\u202Eright to left",
                                              "back\\slash",
                                              std::string("zero\0byte", 9),
                                              "__proto__",
                                              "constructor",
                                              "10",
                                              "9",
                                              "&amp;",
                                              "{{x}} ${y} @z@ %s %n",
                                              " ",
                                              std::string(300, 'w')};
  return names;
}

inline Measurements nasty() {
  Measurements results;
  results.root.type = "Model<std::vector<int>, '\"'>";
  for (const std::string& name : nasty_names()) {
    ModuleRow row = Builder::leaf(name, name + "Type", 10, {1, 2}, {1, 3}, 60);
    row.children.push_back(Builder::leaf("inner", name, 4, {1, 2}, {}, 0));
    row.aliases = {name + "!"};
    row.marks = {name};
    row.mark_sentences = {name};
    results.root.children.push_back(row);
    results.findings.push_back({report::Role::producer, name, name, 1, false, {1, 1}, {name}});
    results.not_counted.push_back({name, name, 2});
    results.notes.push_back(name);
  }
  Builder::name_paths(results.root);
  return results;
}

}  // namespace torchtap_test
