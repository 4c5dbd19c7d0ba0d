#include "model.hpp"

#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <dlfcn.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/extend/zip_reader.hpp>

#include "files/files.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools {
namespace {

constexpr char kExport[] =
    " In Python, save the original model with torch.jit.trace(model, inputs).save(FILE).";

/// The kind of a file that is not TorchScript; "" if it may be TorchScript.
std::string what_else(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  char head[4] = {};
  stream.read(head, sizeof(head));
  const std::string start(head, sizeof(head));
  if (start ==
      "\x7f"
      "ELF") {
    return c10::str("is code compiled by AOTInductor: it has no modules to hook.", kExport);
  }
  if (start.substr(0, 2) != "PK") {
    return "is not a TorchScript file. If torch.save wrote it in the old format, it holds only weights; "
           "save the model with torch.jit.script(model).save(FILE).";
  }
  const auto file = base::InputFile::open("torchtap", path);
  const storage::extend::ZipReader zip(file);
  if (zip.has_folder("data/aotinductor")) {
    return c10::str(
        "is an AOTInductor package: compiled code, of which `torchtap list`, `torchtap record` and `torchtap "
        "report` see what was tapped when it was exported.",
        kExport);
  }
  if (zip.has("serialized_exported_program.json") || zip.has_folder("models/") || zip.has("archive_format")) {
    return c10::str(
        "is a package of torch.export: a flat graph without modules to hook, which LibTorch "
        "cannot run directly.",
        kExport);
  }
  if (zip.has("data.pkl") && !zip.has("constants.pkl") && !zip.has_folder("code/")) {
    return "is a file of torch.save, which holds data such as weights, but no code. Save the model with "
           "torch.jit.script(model).save(FILE); `torchtap show` shows files of tensors.";
  }
  return "";
}

/// Checks that the file exists and is not empty.
void check_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool recording = fs::exists(fs::path(path) / "manifest.json", ignored);
  TORCH_CHECK_VALUE(!fs::is_directory(path, ignored), "\"", path, "\" is a ",
                    recording ? "recording, to be read by torchtap show; a model is a file of "
                              : "directory; a model is a file of ",
                    "torch.jit.script or torch.jit.trace.");
  open_to_read(path);
  TORCH_CHECK_VALUE(!fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) != 0, "\"", path,
                    "\" is empty.");
}

class Arguments {
 public:
  Arguments(at::Device device, bool requires_grad) : device_(device), requires_grad_(requires_grad) {}

  /// Nothing if the value does not have that type.
  c10::optional<c10::IValue> convert(const core::Value& value, const c10::TypePtr& declared) const {
    const c10::Type& type = *declared;
    switch (type.kind()) {
      case c10::TypeKind::OptionalType:
        if (value.is_none()) return c10::IValue();
        return convert(value, type.expectRef<c10::OptionalType>().getElementType());
      case c10::TypeKind::TensorType:
      case c10::TypeKind::AnyType:
        if (!value.is_tensor()) return c10::nullopt;
        return tensor(value.tensor());
      case c10::TypeKind::IntType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::BoolType:
      case c10::TypeKind::NumberType:
        return number(value, type.kind());
      case c10::TypeKind::ListType:
        return list(value, type.expectRef<c10::ListType>().getElementType());
      case c10::TypeKind::TupleType:
        return tuple(value, type.expectRef<c10::TupleType>());
      case c10::TypeKind::DictType:
        return dict(value, type.expectRef<c10::DictType>());
      default:
        return c10::nullopt;
    }
  }

 private:
  c10::IValue tensor(const at::Tensor& given) const {
    at::Tensor tensor = given.to(device_);
    const bool can = at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
    if (requires_grad_ && can) tensor = tensor.detach().requires_grad_();
    return tensor;
  }
  static c10::optional<c10::IValue> number(const core::Value& value, c10::TypeKind kind) {
    if (!value.is_tensor() || value.tensor().numel() != 1) return c10::nullopt;
    const at::Scalar scalar = value.tensor().item();
    if (kind == c10::TypeKind::BoolType) return c10::IValue(scalar.toBool());
    const bool integral = scalar.isIntegral(/*includeBool=*/true);
    if (kind == c10::TypeKind::IntType && !integral) return c10::nullopt;
    return integral && kind != c10::TypeKind::FloatType ? c10::IValue(scalar.toLong())
                                                        : c10::IValue(scalar.toDouble());
  }
  c10::optional<c10::IValue> list(const core::Value& value, const c10::TypePtr& element) const {
    if (!value.is_list()) return c10::nullopt;
    c10::impl::GenericList list(element);
    for (const auto& item : value.list()) {
      auto converted = convert(item, element);
      if (!converted.has_value()) return c10::nullopt;
      list.push_back(std::move(*converted));
    }
    return c10::IValue(list);
  }
  c10::optional<c10::IValue> tuple(const core::Value& value, const c10::TupleType& type) const {
    if (!value.is_list() || value.list().size() != type.elements().size()) return c10::nullopt;
    std::vector<c10::IValue> elements;
    for (std::size_t i = 0; i < type.elements().size(); ++i) {
      auto converted = convert(value.list()[i], type.elements()[i]);
      if (!converted.has_value()) return c10::nullopt;
      elements.push_back(std::move(*converted));
    }
    return c10::IValue(c10::ivalue::Tuple::create(std::move(elements)));
  }
  c10::optional<c10::IValue> dict(const core::Value& value, const c10::DictType& type) const {
    if (!value.is_dict() || type.getKeyType()->kind() != c10::TypeKind::StringType) return c10::nullopt;
    c10::impl::GenericDict dict(type.getKeyType(), type.getValueType());
    for (const auto& [key, item] : value.dict()) {
      auto converted = convert(item, type.getValueType());
      if (!converted.has_value()) return c10::nullopt;
      dict.insert(key, std::move(*converted));
    }
    return c10::IValue(dict);
  }

  at::Device device_;
  bool requires_grad_;
};

/// The remedy if the code uses operators or classes that no library has registered yet; else "".
std::string missing_library(const std::string& message) {
  static const std::regex op("Unknown builtin op: ([^\\s]+?)\\.?(\\s|$)");
  static const std::regex object("__torch__\\.torch\\.classes\\.(\\w+\\.\\w+)");
  std::smatch found;
  const bool is_op = std::regex_search(message, found, op);
  if (!is_op && !std::regex_search(message, found, object)) return "";
  const std::string name = found[1];
  std::string advice = c10::str("it uses the ", is_op ? "operator " : "class ", name,
                                ", which LibTorch does not provide; load its library with --library FILE");
  if (name.compare(0, 11, "torchvision") == 0) {
    advice += ": libtorchvision.so, or _C*.so in the folder of Python's torchvision";
  }
  return advice + ".\n";
}

void load_library(const std::string& file) {
  // RTLD_LAZY, as a Python extension module refers to an interpreter that is not there. RTLD_GLOBAL, as the
  // next library may use its operators. Never closed: its registrations stay.
  const bool loaded = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL) != nullptr;
  TORCH_CHECK_VALUE(
      loaded, "--library: cannot load \"", file, "\": ", ::dlerror(),
      file.find('/') == std::string::npos
          ? "; write ./FILE for a file in this folder, otherwise the linker's search path is used."
          : ".");
}

}  // namespace

void add_library_option(CLI::App& command) {
  command
      .add_option_function<std::vector<std::string>>(
          "--library",
          [](const std::vector<std::string>& files) {
            for (const auto& file : files) load_library(file);
          },
          "A shared library with operators that the model uses, such as torchvision's; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

torch::jit::Module load_model(const std::string& path, at::Device device) {
  check_file(path);
  const std::string other = what_else(path);
  TORCH_CHECK_VALUE(other.empty(), "\"", path, "\" ", other);
  try {
    return torch::jit::load(path, device);
  } catch (const std::exception& error) {
    const std::string text = message_of(error);
    C10_THROW_ERROR(ValueError, c10::str("\"", path, "\" cannot be loaded: ", missing_library(text), text));
  }
}

torch::jit::Method find_method(const torch::jit::Module& model, const std::string& method) {
  const auto found = model.find_method(method);
  std::vector<std::string> names;
  for (const auto& other : model.get_methods()) names.push_back(other.name());
  TORCH_CHECK_VALUE(found.has_value(), "the model has no method \"", method, "\"; it has ",
                    names.empty() ? "none, so it cannot be run" : base::quoted(names), ".");
  return *found;
}

std::vector<c10::IValue> copies(const std::vector<c10::IValue>& arguments) {
  std::vector<c10::IValue> copied;
  copied.reserve(arguments.size());
  for (const c10::IValue& argument : arguments) copied.push_back(argument.deepcopy());
  return copied;
}

std::vector<c10::IValue> to_arguments(const torch::jit::Module& model, const std::string& method,
                                      const Batch& batch, at::Device device, bool requires_grad) {
  const auto& schema = find_method(model, method).function().getSchema();
  const auto& declared = schema.arguments();  // self is the first
  const Arguments arguments(device, requires_grad);
  const bool takes_a_list = declared.size() == 2 && declared[1].type()->kind() == c10::TypeKind::ListType;
  if (takes_a_list && (batch.size() != 1 || !batch[0].is_list())) {
    if (auto list = arguments.convert(core::Value(batch), declared[1].type())) return {*list};
  }
  TORCH_CHECK_VALUE(batch.size() < declared.size(), "the model is called with ", batch.size(),
                    " inputs, but takes ", declared.size() - 1, ": ", schema);
  std::vector<c10::IValue> converted;
  for (std::size_t i = 1; i < declared.size(); ++i) {
    const auto& argument = declared[i];
    if (i > batch.size()) {
      TORCH_CHECK_VALUE(argument.default_value().has_value(), "the model is called with ", batch.size(),
                        " inputs, but none is for \"", argument.name(), "\" (", argument.type()->str(),
                        "): ", schema);
      continue;
    }
    auto value = arguments.convert(batch[i - 1], argument.type());
    TORCH_CHECK_VALUE(value.has_value(), "input ", i - 1, " is ", batch[i - 1].describe(), ", but \"",
                      argument.name(), "\" is a ", argument.type()->str(), ": ", schema);
    converted.push_back(std::move(*value));
  }
  return converted;
}

}  // namespace torchtap::tools
