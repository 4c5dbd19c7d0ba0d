#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include <torchtap/base/error.hpp>
#include <torchtap/exported/detail/check_inputs.hpp>
#include <torchtap/exported/detail/tapped_run.hpp>
#include <torchtap/exported/model.hpp>

namespace torchtap::exported {
namespace {

using torch::inductor::AOTIModelPackageLoader;

/// The number of files in a zip archive, as its last record says; 0 if it has none.
int files_in(std::istream& archive) {
  constexpr std::streamoff kRecord = 22, kComment = 65535;  // without its comment, and the longest one
  archive.seekg(0, std::ios::end);
  const std::streamoff size = archive.tellg();
  archive.seekg(std::max<std::streamoff>(0, size - kRecord - kComment));
  const std::string end((std::istreambuf_iterator<char>(archive)), {});
  const std::size_t record = end.rfind("PK\5\6");
  if (record == std::string::npos || end.size() - record < kRecord) return 0;
  return static_cast<unsigned char>(end[record + 10]) + 256 * static_cast<unsigned char>(end[record + 11]);
}

/// Throws unless the file exists and is a zip archive of several files. LibTorch's loader gives less clear
/// errors, and that of 2.11 reads the names of two files without asking how many there are.
void check_file(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  char head[2] = {};
  stream.read(head, sizeof head);
  TORCH_CHECK_VALUE(stream.good(), "exported::Model: \"", file,
                    "\" cannot be read, or is empty; expected a package (.pt2) that "
                    "torchtap.export.compile made.");
  TORCH_CHECK_VALUE(head[0] == 'P' && head[1] == 'K', "exported::Model: \"", file,
                    "\" is not a package, because it is not a zip archive; expected a package (.pt2) that "
                    "torchtap.export.compile made.");
  TORCH_CHECK_VALUE(
      files_in(stream) > 1, "exported::Model: \"", file,
      "\" is not a package of AOTInductor, because its archive is damaged or has fewer than two files; "
      "expected a package (.pt2) that torchtap.export.compile made.");
}

/// Makes the symbols of the operator library, to which packages refer, global. A program that was itself
/// loaded at run time may have loaded the library locally.
void show_operators() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&detail::exchange_receiver), &info) == 0) return;
  ::dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);  // never closed
}

constexpr const char* kRemedy =
    ". Give the name of a model in the package, or compile it on this machine with torchtap.export.compile.";

std::unique_ptr<AOTIModelPackageLoader> load(const std::string& file, const std::string& name) {
  check_file(file);
  show_operators();
  try {
    return std::make_unique<AOTIModelPackageLoader>(file, name);
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, "exported::Model: cannot load \"", file, "\": ", error.what_without_backtrace(),
                      kRemedy);
  } catch (const std::exception& error) {
    TORCH_CHECK_VALUE(false, "exported::Model: cannot load \"", file, "\": ", error.what(), kRemedy);
  }
}

std::shared_ptr<detail::Package> list(const std::string& file, AOTIModelPackageLoader& loader) {
  const auto metadata = loader.get_metadata();
  const auto found = metadata.find("torchtap");
  detail::Listing listing;
  if (found != metadata.end()) listing = detail::parse_listing(found->second, file);
  return std::make_shared<detail::Package>(file, std::move(listing));
}

}  // namespace

struct Model::Impl {
  std::unique_ptr<AOTIModelPackageLoader> loader;
  std::shared_ptr<detail::Package> package;

  std::vector<at::Tensor> run_hooked(hooks::extend::Call& call, std::vector<at::Tensor> inputs, void* stream);
};

Model::Model(const std::string& file, const std::string& name) : impl_(std::make_unique<Impl>()) {
  impl_->loader = load(file, name);
  impl_->package = list(file, *impl_->loader);
}

Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

std::vector<at::Tensor> Model::run(const std::vector<at::Tensor>& inputs, void* stream) {
  detail::check_inputs(*impl_->package, inputs);
  hooks::extend::Gate& gate = impl_->package->root().torchtap_gate();
  if (!hooks::extend::is_idle(gate)) {
    hooks::extend::Call call(gate);
    if (!call.idle()) return impl_->run_hooked(call, inputs, stream);
  }
  const detail::Receiving none(nullptr);  // hides the receiver of a model whose hook calls this one
  return impl_->loader->run(inputs, stream);
}

std::vector<at::Tensor> Model::Impl::run_hooked(hooks::extend::Call& call, std::vector<at::Tensor> inputs,
                                                void* stream) {
  hooks::extend::CallTensors before;
  if (call.wants_inputs()) {
    for (at::Tensor& input : inputs) before.push_back(input);
    call.before(before);
    detail::check_inputs(*package, inputs);
  }
  std::vector<at::Tensor> outputs;
  detail::Run run(*package);
  try {
    const detail::Receiving receiving(&run);
    outputs = loader->run(inputs, stream);
  } catch (...) {
    run.rethrow();  // a hook's exception came first
    throw;
  }
  run.rethrow();
  if (call.wants_outputs()) {
    hooks::extend::CallTensors after;
    for (at::Tensor& output : outputs) after.push_back(output);
    call.after(after);
  }
  return outputs;
}

selectors::ModuleView Model::modules() const {
  return selectors::ModuleView(impl_->package->modules(/*children=*/false));
}

selectors::ModuleView Model::children() const {
  return selectors::ModuleView(impl_->package->modules(/*children=*/true));
}

bool Model::tapped() const noexcept {
  return impl_->package->tapped();
}

std::vector<TapInfo> Model::taps() const {
  std::vector<TapInfo> taps;
  for (const detail::Place& place : impl_->package->places()) {
    const detail::Tapped& module = place.module;
    taps.push_back({module.path, module.calls, module.inputs, module.outputs, module.replaceable});
  }
  return taps;
}

std::int64_t Model::calls(const std::string& path) const {
  const detail::Place* const place = path.empty() ? &impl_->package->root() : impl_->package->find(path);
  TORCH_CHECK_INDEX(place != nullptr, "exported::Model::calls: no module at \"", path, "\" was tapped in \"",
                    file(), "\"; modules() lists the tapped ones.");
  return place->module.calls;
}

std::vector<InputInfo> Model::inputs() const {
  std::vector<InputInfo> inputs;
  for (const auto& input : impl_->package->inputs()) inputs.push_back({input.name, input.dtype, input.shape});
  return inputs;
}

const std::string& Model::file() const& noexcept {
  return impl_->package->file();
}

std::unordered_map<std::string, std::string> Model::metadata() const {
  return impl_->loader->get_metadata();
}

AOTIModelPackageLoader& Model::loader() noexcept {
  return *impl_->loader;
}

}  // namespace torchtap::exported
