#include "exported_packages.hpp"

#include <fstream>
#include <iostream>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/extend/zip_reader.hpp>

#include "files/json.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

#if TORCHTAP_HAVE_EXPORTED
#include <torchtap/exported/exported.hpp>
#endif

namespace torchtap::tools {

bool is_package(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  char head[2] = {};
  stream.read(head, sizeof head);
  if (!stream.good() || head[0] != 'P' || head[1] != 'K') return false;
  try {
    const auto file = base::InputFile::open("torchtap", path);
    const storage::extend::ZipReader zip(file);
    // Without the folder around everything, which older versions do not write.
    return zip.has_folder("data/aotinductor/") || zip.has_folder("aotinductor/");
  } catch (const c10::Error&) {
    return false;  // damaged: its reader reports the error
  }
}

#if TORCHTAP_HAVE_EXPORTED

namespace {

std::string taps_of(const exported::TapInfo& tap) {
  std::string text = tap.inputs ? "inputs" : "";
  if (tap.outputs) text += text.empty() ? "outputs" : ", outputs";
  return tap.replaceable ? text + ", replaceable" : text;
}

void flatten(const core::Value& value, std::size_t input, at::Device device,
             std::vector<at::Tensor>& tensors) {
  if (value.is_tensor()) {
    tensors.push_back(value.tensor().to(device));
  } else if (value.is_list()) {
    for (const auto& part : value.list()) flatten(part, input, device, tensors);
  } else if (value.is_dict()) {
    for (const auto& [name, part] : value.dict()) flatten(part, input, device, tensors);
  } else {
    TORCH_CHECK_VALUE(false, "input ", input, " is ", value.describe(),
                      ", but a package takes tensors, and lists and dicts of them.");
  }
}

Json as_json(const exported::Model& model) {
  Json inputs = Json::array(), modules = Json::array();
  for (const auto& input : model.inputs()) {
    inputs.push_back({{"name", input.name}, {"dtype", input.dtype}, {"shape", input.shape}});
  }
  const auto taps = model.taps();
  const auto refs = model.modules().vector();
  for (std::size_t i = 0; i < refs.size(); ++i) {
    modules.push_back({{"index", refs[i].index()},
                       {"path", refs[i].path()},
                       {"aliases", refs[i].aliases()},
                       {"type", refs[i].type()},
                       {"qualified_type", refs[i].qualified_type()},
                       {"depth", refs[i].depth()},
                       {"calls", taps[i].calls},
                       {"inputs", taps[i].inputs},
                       {"outputs", taps[i].outputs},
                       {"replaceable", taps[i].replaceable}});
  }
  return {{"model", model.file()}, {"inputs", std::move(inputs)}, {"modules", std::move(modules)}};
}

void print_table(const exported::Model& model) {
  using Align = Table::Align;
  Table table({{"index", Align::right, 20},
               {"module", Align::left, Table::kAlways, 14},
               {"type", Align::left, 40, 7},
               {"calls", Align::right, 10},
               {"taps", Align::left, 30}});
  const auto taps = model.taps();
  const auto refs = model.modules().vector();
  for (std::size_t i = 0; i < refs.size(); ++i) {
    std::string name = refs[i].path().empty() ? "(root)" : refs[i].path();
    for (const auto& alias : refs[i].aliases()) name += " = " + alias;
    table.add({std::to_string(refs[i].index()), name, refs[i].type(), std::to_string(taps[i].calls),
               taps_of(taps[i])});
  }
  table.print(std::cout);
  std::cout << '\n';
  for (const auto& input : model.inputs()) {
    std::string shape;
    for (const auto& size : input.shape) shape += (shape.empty() ? "" : "x") + size;
    std::cout << "input    " << printable(input.name) << ' ' << printable(shape) << ' '
              << printable(input.dtype) << '\n';
  }
  std::cout << "tapped   " << counted(static_cast<std::int64_t>(refs.size()) - 1, "module") << '\n';
}

}  // namespace

struct Package::Impl {
  exported::Model model;
};

Package::Package(const std::string& path) : impl_(new Impl{exported::Model(path)}) {
  TORCH_CHECK_VALUE(
      impl_->model.tapped(), "\"", path,
      "\" has no taps: AOTInductor compiled it without, and of its modules only code is left. In Python, "
      "export it within torchtap.export.tapped(model) and compile it with torchtap.export.compile.");
}

std::vector<model::ModuleRef> Package::modules() const {
  return impl_->model.modules().vector();
}

std::vector<model::ModuleRef> Package::timed() const {
  std::vector<model::ModuleRef> timed;
  const auto taps = impl_->model.taps();
  std::size_t i = 0;
  for (const auto& module : modules()) {
    const exported::TapInfo& tap = taps[i++];
    if (tap.inputs && tap.outputs) timed.push_back(module);
  }
  return timed;
}

c10::IValue Package::call(const Batch& batch, at::Device device) const {
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < batch.size(); ++i) flatten(batch[i], i, device, inputs);
  return impl_->model.run(inputs);
}

void Package::list(bool json) const {
  if (json) {
    print(as_json(impl_->model));
  } else {
    print_table(impl_->model);
  }
}

#else

struct Package::Impl {};

Package::Package(const std::string& path) {
  TORCH_CHECK_VALUE(
      false, "\"", path,
      "\" is an AOTInductor package, and this torchtap was built without torchtap::exported, which needs "
      "LibTorch 2.6 or newer.");
}

std::vector<model::ModuleRef> Package::modules() const {
  return {};
}

std::vector<model::ModuleRef> Package::timed() const {
  return {};
}

c10::IValue Package::call(const Batch& /*batch*/, at::Device /*device*/) const {
  return {};
}

void Package::list(bool /*json*/) const {}

#endif

Package::~Package() = default;

}  // namespace torchtap::tools
