// Makes values of the nodes of a pickle.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/pickle_machine.hpp>
#include <torchtap/storage/detail/shape_summary.hpp>
#include <torchtap/storage/detail/unpickle.hpp>

namespace torchtap::storage::detail {
namespace {

/// The classes and functions that a file may name.
const std::unordered_set<std::string>& callables() {
  static const auto& names = *new const std::unordered_set<std::string>{
      // also when a program ends
      "collections.OrderedDict",
      "torch._utils._rebuild_tensor",
      "torch._utils._rebuild_tensor_v2",
      "torch._utils._rebuild_tensor_v3",
      "torch._utils._rebuild_parameter",
      "torch._utils._rebuild_parameter_with_state",
      "torch._tensor._rebuild_from_type_v2",
      "torch.nn.parameter.Parameter",
      "torch.nn.parameter.Buffer",
      "torch.Tensor",
      "torch.Size",
      "torch.jit._pickle.build_tensorlist",
      "torch.jit._pickle.build_intlist",
      "torch.jit._pickle.build_doublelist",
      "torch.jit._pickle.build_boollist",
      "torch.jit._pickle.restore_type_tag",
  };
  return names;
}

/// Whether a function puts a quantized or sparse tensor together.
bool takes_parts(const std::string& function) {
  return function == "torch._utils._rebuild_qtensor" || function == "torch.serialization._get_layout" ||
         function.compare(0, 28, "torch._utils._rebuild_sparse") == 0;
}

/// Interprets the names that a `.pt` file may use, and makes values of nodes.
class Unpickler : private PickleMachine {
 public:
  Unpickler(const base::InputFile& file, const ZipReader& records, const LoadOptions& options)
      : PickleMachine(file, records.read("data.pkl"), options.foreign()),
        records_(records),
        mmap_(options.mmap()),
        script_(records.has("constants.pkl") || records.has_folder("code/")) {}

  core::Value run() {
    // A few bytes in the file can refer to one list many times, and so claim any number of values.
    budget_ = 16 * size() + 1000;
    const Node* root = parse();
    std::string where;
    return value(*root, where, 0);
  }

 private:
  void spend(std::size_t amount = 1) {
    if (budget_ < amount) file().bad("it holds far more entries than its size can account for");
    budget_ -= amount;
  }

  // --- globals

  /// C++'s torch::save writes modules, optimizers, tensors and vectors as objects of one class without code,
  /// whose attributes are their parts. Every other object is of TorchScript, which has its own readers.
  Node& object_class(const std::string& module, const std::string& name) {
    const std::string mangled = "__torch__.___torch_mangle_";
    const bool number = module.compare(0, mangled.size(), mangled) == 0 &&
                        module.find_first_not_of("0123456789", mangled.size()) == std::string::npos;
    if (name != "Module" || !(module == "__torch__" || number)) {
      file().bad(
          "it is a TorchScript archive, as torch.jit.save writes them; load it with torch::jit::load, and "
          "save tensors with storage::save_value or torch.save");
    }
    Node& node = make(Kind::global);
    node.text = kObject;
    return node;
  }

  Node& global(const std::string& module, const std::string& name) override {
    if (script_ && module.compare(0, 9, "__torch__") == 0) return object_class(module, name);
    Node& node = make(Kind::global);
    node.text = module + "." + name;
    if (callables().count(node.text) != 0) return node;
    if (takes_foreign() && takes_parts(node.text)) return node;
    if (module == "torch" || module == "torch.cuda" || module == "torch.storage") {
      if (name == "UntypedStorage") {
        node.kind = Kind::storage;
        return node;
      }
      node.dtype = base::dtype_by_storage(takes_foreign() ? numbers_of(name) : name);
      if (node.dtype != nullptr) {
        node.kind = Kind::storage;
        return node;
      }
      node.dtype = base::dtype_by_name(name);
      if (module == "torch" && node.dtype != nullptr) return node;
    }
    if (takes_foreign()) return foreign(node.text);
    std::string advice = "save tensors, lists, tuples and dicts only";
    if (name.find("sparse") != std::string::npos) advice = "save the tensor's to_dense()";
    if (name == "_rebuild_qtensor" || name.compare(0, 2, "QI") == 0 || name.compare(0, 3, "QUI") == 0) {
      advice = "save the tensor's dequantize()";
    }
    if (module == "torch" && (name.compare(0, 4, "uint") == 0 || name.compare(0, 5, "float") == 0)) {
      advice = "LibTorch " TORCH_VERSION " has no such dtype: read the file with a newer one";
    }
    if (module.compare(0, 5, "numpy") == 0) advice = "save torch.from_numpy(array)";
    if (module.compare(0, 9, "__torch__") == 0) advice = "load TorchScript with torch::jit::load";
    bad("it holds " + node.text + ", which is not one of the few names that torchtap accepts; " + advice);
  }

  /// The storage of the numbers in that of a quantized tensor.
  static std::string numbers_of(const std::string& storage) {
    return storage == "QInt8Storage"    ? "CharStorage"
           : storage == "QUInt8Storage" ? "ByteStorage"
           : storage == "QInt32Storage" ? "IntStorage"
                                        : storage;
  }

  static const std::vector<Node*>& sequence(const Unpickler& self, const Node& node) {
    if (node.kind != Kind::tuple && node.kind != Kind::list) self.damaged();
    return node.items;
  }

  Node& call(const Node& function, const Node& arguments) override { return call(function, arguments, 0); }

  Node& call(const Node& function, const Node& arguments, int depth) {
    if (function.kind == Kind::foreign) return foreign(function.text);
    if (function.kind != Kind::global || function.dtype != nullptr || depth > kMaxDepth) damaged();
    if (arguments.kind != Kind::tuple) damaged();
    const auto& items = arguments.items;
    const std::string& name = function.text;
    const auto at_least = [&](std::size_t count) {
      if (items.size() < count) bad(name + " is given " + std::to_string(items.size()) + " arguments");
    };
    if (name == kObject) {
      Node& object = make(Kind::dict);
      object.text = kObject;
      return object;
    }
    if (name == "collections.OrderedDict") {
      Node& dict = make(Kind::dict);
      if (items.empty()) return dict;
      for (const Node* pair : sequence(*this, *items[0])) {
        const auto& entry = sequence(*this, *pair);
        if (entry.size() != 2) damaged();
        spend();
        dict.items.insert(dict.items.end(), entry.begin(), entry.end());
      }
      return dict;
    }
    at_least(1);
    if (name == "torch._tensor._rebuild_from_type_v2") {  // (function, type, arguments, attributes)
      at_least(3);
      if (items[1]->kind != Kind::global && items[1]->kind != Kind::foreign) damaged();
      return call(*items[0], *items[2], depth + 1);
    }
    if (name == "torch._utils._rebuild_tensor") {
      at_least(4);
      return tensor(*items[0], *items[1], *items[2], *items[3], nullptr, nullptr);
    }
    if (name == "torch._utils._rebuild_tensor_v2") {
      at_least(4);
      return tensor(*items[0], *items[1], *items[2], *items[3], nullptr,
                    items.size() > 6 ? items[6] : nullptr);
    }
    if (name == "torch._utils._rebuild_tensor_v3") {
      at_least(7);
      if (items[6]->kind != Kind::global || items[6]->dtype == nullptr) damaged();
      return tensor(*items[0], *items[1], *items[2], *items[3], items[6]->dtype,
                    items.size() > 7 ? items[7] : nullptr);
    }
    if (takes_parts(name)) return made_of_parts(name, items);
    if (name == "torch.Size" || name.compare(0, 17, "torch.jit._pickle") == 0) return *items[0];
    const bool of_parts = items[0]->kind == Kind::dict && takes_foreign();
    if (items[0]->kind != Kind::tensor && items[0]->kind != Kind::foreign && !of_parts) damaged();
    return *items[0];  // parameters and buffers
  }

  /// A tensor that a `Value` for files cannot be: the dict of its parts.
  Node& made_of_parts(const std::string& name, const std::vector<Node*>& items) {
    if (name == "torch.serialization._get_layout") return *items[0];
    std::vector<Node*> parts{&make(Kind::string)};
    if (name != "torch._utils._rebuild_qtensor") {  // (layout, parts)
      if (items.size() < 2) damaged();
      parts.front()->text = items[0]->text;
      const auto& data = sequence(*this, *items[1]);
      parts.insert(parts.end(), data.begin(), data.end());
      if (items[0]->text == "torch.sparse_coo") return named({"layout", "indices", "values", "size"}, parts);
      return named({"layout", "compressed_indices", "plain_indices", "values", "size"}, parts);
    }
    if (items.size() < 5) damaged();  // (storage, offset, size, strides, (scheme, scale, zero point, axis))
    if (items[0]->kind == Kind::foreign) return foreign(name);
    const auto& scheme = sequence(*this, *items[4]);
    if (scheme.size() < 3) damaged();
    parts.front()->text = scheme[0]->text;
    parts.push_back(&tensor(*items[0], *items[1], *items[2], *items[3], nullptr, nullptr));
    parts.insert(parts.end(), scheme.begin() + 1, scheme.end());
    if (scheme.size() == 3) return named({"scheme", "int_repr", "scale", "zero_point"}, parts);
    return named({"scheme", "int_repr", "scale", "zero_point", "axis"}, parts);
  }

  Node& named(const std::vector<const char*>& names, const std::vector<Node*>& parts) {
    if (parts.size() < names.size()) damaged();
    Node& dict = make(Kind::dict);
    for (std::size_t i = 0; i < names.size(); ++i) {
      Node& key = make(Kind::string);
      key.text = names[i];
      dict.items.insert(dict.items.end(), {&key, parts[i]});
    }
    return dict;
  }

  // --- tensors

  Node& persistent(const Node& id) override {
    if (id.kind != Kind::tuple || id.items.size() < 5) damaged();
    const auto& items = id.items;
    if (items[1]->kind == Kind::foreign) return *items[1];  // the storage of a quantized tensor
    if (items[0]->kind != Kind::string || items[0]->text != "storage" || items[1]->kind != Kind::storage ||
        items[1]->tensor.defined() || items[2]->kind != Kind::string || items[4]->kind != Kind::integer) {
      damaged();
    }
    const std::string& key = items[2]->text;
    at::Tensor& bytes = storages_[key];
    if (!bytes.defined()) {
      const std::string record = "data/" + key;
      const auto size = static_cast<std::int64_t>(records_.size(record));
      if (auto mapped = mmap_ ? records_.map(record) : nullptr) {
        void* start = mapped.get();
        bytes = at::from_blob(
            start, {size}, [mapped](void*) {}, at::TensorOptions(at::kByte));
      } else {
        bytes = at::empty({size}, at::TensorOptions(at::kByte));
        records_.read(record, bytes.data_ptr());
      }
    }
    Node& node = make(Kind::storage);
    node.dtype = items[1]->dtype;
    node.integer = items[4]->integer;
    node.tensor = bytes;
    const auto element =
        node.dtype == nullptr ? 1 : static_cast<std::int64_t>(c10::elementSize(node.dtype->type));
    if (node.integer < 0 || node.integer > bytes.numel() / element) {
      bad("the storage \"" + key + "\" claims " + std::to_string(node.integer) + " elements in " +
          std::to_string(bytes.numel()) + " bytes");
    }
    return node;
  }

  std::vector<std::int64_t> integers(const Node& node) const {
    std::vector<std::int64_t> numbers;
    for (const Node* item : sequence(*this, node)) {
      if (item->kind != Kind::integer || item->integer < 0) damaged();
      numbers.push_back(item->integer);
    }
    return numbers;
  }

  bool flag(const Node& metadata, const char* name) const {
    for (std::size_t i = 0; i + 1 < metadata.items.size(); i += 2) {
      const Node& key = *metadata.items[i];
      if (key.kind == Kind::string && key.text == name) return metadata.items[i + 1]->integer != 0;
    }
    return false;
  }

  Node& tensor(const Node& storage, const Node& offset, const Node& size, const Node& stride,
               const base::Dtype* dtype, const Node* metadata) {
    if (storage.kind != Kind::storage || !storage.tensor.defined() || offset.kind != Kind::integer) damaged();
    if (dtype == nullptr) dtype = storage.dtype;
    if (dtype == nullptr) bad("it holds a tensor without a dtype");
    const auto sizes = integers(size);
    const auto strides = integers(stride);
    std::int64_t elements = storage.integer;
    if (storage.dtype == nullptr) elements /= static_cast<std::int64_t>(c10::elementSize(dtype->type));
    if (storage.dtype != nullptr && storage.dtype != dtype) damaged();
    bool fits = sizes.size() == strides.size() && sizes.size() <= 64 && offset.integer >= 0 &&
                offset.integer <= elements;
    bool empty = false;
    std::int64_t last = offset.integer, count = 1;
    for (std::size_t i = 0; fits && i < sizes.size(); ++i) {
      std::int64_t step = 0;
      empty = empty || sizes[i] == 0;
      const std::int64_t extent = std::max<std::int64_t>(sizes[i], 1);
      // The number of bytes must fit into an int64, too.
      fits = !__builtin_mul_overflow(count, extent, &count) && count <= INT64_MAX / 16 &&
             !__builtin_mul_overflow(extent - 1, strides[i], &step) &&
             !__builtin_add_overflow(last, step, &last);
    }
    if (!fits || (!empty && last >= elements)) {
      bad(c10::str("it claims a tensor of shape ", shown(sizes), ", strides ", shown(strides), " and offset ",
                   offset.integer, " in a storage of ", elements, " elements"));
    }
    at::Tensor tensor = at::empty({0}, at::TensorOptions(dtype->type));
    tensor.set_(storage.tensor.storage(), offset.integer, sizes, strides);
    if (metadata != nullptr && metadata->kind == Kind::dict) {
      if (flag(*metadata, "conj") && tensor.is_complex()) tensor = tensor.conj();
      if (flag(*metadata, "neg")) tensor = tensor._neg_view();
    }
    Node& node = make(Kind::tensor);
    node.tensor = std::move(tensor);
    return node;
  }

  // --- values

  core::Value value(const Node& node, std::string& where, int depth) {
    if (depth > kMaxDepth) {
      file().bad("it nests deeper than " + std::to_string(kMaxDepth) + " lists and dicts, or holds itself");
    }
    spend();
    const std::size_t length = where.size();
    switch (node.kind) {
      case Kind::none:
        return core::Value();
      case Kind::boolean:
        return core::Value(at::scalar_tensor(node.integer != 0, at::TensorOptions(at::kBool)));
      case Kind::integer:
        return core::Value(at::scalar_tensor(node.integer, at::TensorOptions(at::kLong)));
      case Kind::real:
        return core::Value(at::scalar_tensor(node.real, at::TensorOptions(at::kDouble)));
      case Kind::tensor:
        return core::Value(node.tensor);
      case Kind::tuple:
      case Kind::list: {
        core::Value::List list;
        list.reserve(node.items.size());
        for (std::size_t i = 0; i < node.items.size(); ++i) {
          where += "[" + std::to_string(i) + "]";
          list.push_back(value(*node.items[i], where, depth + 1));
          where.resize(length);
        }
        return core::Value(std::move(list));
      }
      case Kind::dict:
        if (node.text == kObject) {
          static const auto& none = *new const Node;
          return dict(node.items.empty() ? none : *node.items[0], where, depth);
        }
        return dict(node, where, depth);
      case Kind::string:
        spend(node.text.size());  // a file may refer to one text many times
        return core::Value(node.text);
      default:
        if (takes_foreign() && !where.empty()) {
          const bool named = node.kind == Kind::foreign || node.kind == Kind::global;
          spend(node.text.size());
          return core::Value("<" + (named ? node.text : std::string(kind_name(node.kind))) + ">");
        }
        file().bad(
            "it holds " + std::string(kind_name(node.kind)) + (where.empty() ? "" : " at " + where) +
            "; torchtap reads tensors, numbers, texts, None, and lists, tuples and dicts of them. Save "
            "it without that entry");
    }
  }

  core::Value dict(const Node& node, std::string& where, int depth) {
    const std::size_t length = where.size();
    core::Value::Dict dict;
    std::unordered_map<std::string, std::pair<std::size_t, Kind>> places;
    for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const Node& key = *node.items[i];
      if (key.kind != Kind::string && key.kind != Kind::integer && !takes_foreign()) {
        file().bad("it holds a dict" + (where.empty() ? "" : " at " + where) + " with " +
                   kind_name(key.kind) + " for a key; torchtap reads dicts with str or int keys");
      }
      const std::string name = key.kind == Kind::string    ? key.text
                               : key.kind == Kind::integer ? std::to_string(key.integer)
                                                           : "<" + std::string(kind_name(key.kind)) + ">";
      spend(name.size());
      where += "[\"" + name + "\"]";
      core::Value item = value(*node.items[i + 1], where, depth + 1);
      where.resize(length);
      const auto [place, fresh] = places.emplace(name, std::make_pair(dict.size(), key.kind));
      if (fresh) {
        dict.emplace_back(name, std::move(item));
      } else if (place->second.second != key.kind) {
        file().bad("it holds a dict" + (where.empty() ? "" : " at " + where) + " with the int " + name +
                   " and the str \"" + name + "\" for keys, which torchtap cannot tell apart; rename one");
      } else {
        dict[place->second.first].second = std::move(item);  // as in Python, the last one wins
      }
    }
    return core::Value(std::move(dict));
  }

  const ZipReader& records_;
  const bool mmap_, script_;
  std::size_t budget_ = 0;
  std::unordered_map<std::string, at::Tensor> storages_;
};

}  // namespace

core::Value unpickle(const base::InputFile& file, const ZipReader& records, const LoadOptions& options) {
  return Unpickler(file, records, options).run();
}

}  // namespace torchtap::storage::detail
