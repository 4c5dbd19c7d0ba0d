#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/pickle.hpp>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "torchtap writes tensors as they lie in memory, and its files are little-endian");

namespace torchtap::storage::detail {
namespace {

/// A dtype by its three names: c10's, Python's, and that of the typed storage in files (none for the dtypes
/// that came after typed storages; `_rebuild_tensor_v3` names the dtype itself).
struct DtypeName {
  const char* c10;
  const char* python;
  const char* storage;
};

constexpr DtypeName kDtypes[] = {
    {"Byte", "uint8", "ByteStorage"},
    {"Char", "int8", "CharStorage"},
    {"Short", "int16", "ShortStorage"},
    {"Int", "int32", "IntStorage"},
    {"Long", "int64", "LongStorage"},
    {"Half", "float16", "HalfStorage"},
    {"Float", "float32", "FloatStorage"},
    {"Double", "float64", "DoubleStorage"},
    {"Bool", "bool", "BoolStorage"},
    {"BFloat16", "bfloat16", "BFloat16Storage"},
    {"ComplexFloat", "complex64", "ComplexFloatStorage"},
    {"ComplexDouble", "complex128", "ComplexDoubleStorage"},
    {"ComplexHalf", "complex32", nullptr},
    {"UInt16", "uint16", nullptr},
    {"UInt32", "uint32", nullptr},
    {"UInt64", "uint64", nullptr},
    {"Float8_e5m2", "float8_e5m2", nullptr},
    {"Float8_e4m3fn", "float8_e4m3fn", nullptr},
    {"Float8_e5m2fnuz", "float8_e5m2fnuz", nullptr},
    {"Float8_e4m3fnuz", "float8_e4m3fnuz", nullptr},
    {"Float8_e8m0fnu", "float8_e8m0fnu", nullptr},
};

struct Dtype {
  c10::ScalarType type;
  const DtypeName* names;
};

/// The dtypes of the table that this LibTorch has.
const std::vector<Dtype>& dtypes() {
  static const std::vector<Dtype> known = [] {
    std::vector<Dtype> found;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
      const auto type = static_cast<c10::ScalarType>(i);
      const std::string name = c10::toString(type);
      for (const auto& names : kDtypes) {
        if (name == names.c10) found.push_back({type, &names});
      }
    }
    return found;
  }();
  return known;
}

template <class Predicate>
const Dtype* find_dtype(Predicate predicate) {
  const auto found = std::find_if(dtypes().begin(), dtypes().end(), predicate);
  return found == dtypes().end() ? nullptr : &*found;
}

const Dtype* by_type(c10::ScalarType type) {
  return find_dtype([&](const Dtype& dtype) { return dtype.type == type; });
}

/// A place inside a value, for messages: `[3]["mean"]`.
std::string key_at(const std::string& where, const std::string& key) {
  return where + "[\"" + key + "\"]";
}
std::string index_at(const std::string& where, std::size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

bool has_plain_bytes(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_meta() &&
         !tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::NestedTensor) && tensor.has_storage();
}

void check(const std::string& call, const std::string& where, const core::Value& value, int depth) {
  TORCH_CHECK_VALUE(depth <= kMaxDepth, call, ": ", where.substr(0, 60), "… nests deeper than ", kMaxDepth,
                    " lists and dicts; keep it flatter.");
  switch (value.kind()) {
    case core::Value::Kind::none:
      return;
    case core::Value::Kind::tensor: {
      const at::Tensor& tensor = value.tensor();
      if (!tensor.defined()) return;
      TORCH_CHECK_TYPE(has_plain_bytes(tensor), call, ": ", where, " is a tensor of layout ", tensor.layout(),
                       ", dtype ", tensor.scalar_type(), " and device ", tensor.device(),
                       ", which has no plain bytes to save; convert it first, e.g. with to_dense() or "
                       "dequantize().");
      TORCH_CHECK_TYPE(
          by_type(tensor.scalar_type()) != nullptr, call, ": ", where, " is a tensor of dtype ",
          tensor.scalar_type(),
          ", which torch.load has no plain form for; convert it first, e.g. with to(at::kFloat).");
      return;
    }
    case core::Value::Kind::list:
      for (std::size_t i = 0; i < value.list().size(); ++i)
        check(call, index_at(where, i), value.list()[i], depth + 1);
      return;
    case core::Value::Kind::dict: {
      std::unordered_set<std::string> seen;
      for (const auto& [key, item] : value.dict()) {
        TORCH_CHECK_VALUE(is_utf8(key), call, ": ", where, " has a key that is not UTF-8; rename it.");
        TORCH_CHECK_VALUE(seen.insert(key).second, call, ": ", where, " has two entries called \"", key,
                          "\", and a Python dict holds one of each name; rename one.");
        check(call, key_at(where, key), item, depth + 1);
      }
      return;
    }
    case core::Value::Kind::text:
      TORCH_CHECK_VALUE(is_utf8(value.text()), call, ": ", where, " is a text that is not UTF-8.");
      return;
  }
}

// --- writing
// ---------------------------------------------------------------------------------------------------

/// Writes the dozen opcodes that a value needs, the ones that every reader of `.pt` files knows: Python's
/// weights_only unpickler since 1.13 and C++'s `torch::pickle_load`.
class Pickler {
 public:
  using Store = std::function<void(const std::string&, const void*, std::size_t)>;
  explicit Pickler(const Store& store) : store_(store) {}

  std::string run(const core::Value& value) {
    out_ = "\x80\x02";
    write(value);
    out_ += '.';
    return std::move(out_);
  }

  std::string run(const std::vector<StoredRun>& runs, bool stacked) {
    out_ = "\x80\x02";
    if (stacked) {
      const StoredRun& run = runs.front();
      std::vector<std::int64_t> sizes{run.count};
      sizes.insert(sizes.end(), run.sizes.begin(), run.sizes.end());
      view(*by_type(run.dtype), run.key, run.storage_elements, run.offset, sizes);
    } else {
      out_ += "](";
      for (const StoredRun& run : runs) {
        std::int64_t size = 1;
        for (const auto extent : run.sizes) size *= extent;
        for (std::int64_t i = 0; i < run.count; ++i) {
          if (run.defined) {
            view(*by_type(run.dtype), run.key, run.storage_elements, run.offset + i * size, run.sizes);
          } else {
            out_ += 'N';
          }
        }
      }
      out_ += 'e';
    }
    out_ += '.';
    return std::move(out_);
  }

 private:
  void write(const core::Value& value) {
    switch (value.kind()) {
      case core::Value::Kind::none:
        out_ += 'N';
        return;
      case core::Value::Kind::tensor:
        write(value.tensor());
        return;
      case core::Value::Kind::list:
        out_ += ']';
        if (value.list().empty()) return;
        out_ += '(';
        for (const auto& item : value.list()) write(item);
        out_ += 'e';
        return;
      case core::Value::Kind::dict:
        out_ += '}';
        if (value.dict().empty()) return;
        out_ += '(';
        for (const auto& [key, item] : value.dict()) {
          text(key);
          write(item);
        }
        out_ += 'u';
        return;
      case core::Value::Kind::text:
        text(value.text());
        return;
    }
  }

  // Which view of which storage a tensor is. Both are alive until the end: the value holds them.
  using Identity = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                              int, bool, bool>;

  void write(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      out_ += 'N';
      return;
    }
    const Dtype& dtype = *by_type(tensor.scalar_type());
    const Identity identity{tensor.storage().unsafeGetStorageImpl(),
                            tensor.storage_offset(),
                            tensor.sizes().vec(),
                            tensor.strides().vec(),
                            static_cast<int>(dtype.type),
                            tensor.is_conj(),
                            tensor.is_neg()};
    auto known = keys_.find(identity);
    if (known == keys_.end()) {
      // Only the tensor's own elements, in order: a view must not drag its storage along, and a reader must
      // not have to know about lazy conjugation.
      at::Tensor plain = tensor.detach();
      if (plain._is_zerotensor()) plain = plain.clone();
      plain = plain.resolve_conj().resolve_neg().to(at::kCPU).contiguous();
      const std::string key = std::to_string(keys_.size());
      store_("data/" + key, plain.data_ptr(), plain.nbytes());
      known = keys_.emplace(identity, key).first;
    }
    view(dtype, known->second, tensor.numel(), 0, tensor.sizes());
  }

  /// A contiguous tensor of `sizes` from `offset` on in a storage of `elements`.
  void view(const Dtype& dtype, const std::string& key, std::int64_t elements, std::int64_t offset,
            c10::IntArrayRef sizes) {
    const bool typed = dtype.names->storage != nullptr;
    global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    out_ += '(';  // the arguments
    out_ += '(';  // the persistent id of the storage
    shared("storage");
    if (typed) {
      global("torch", dtype.names->storage);
    } else {
      global("torch.storage", "UntypedStorage");
    }
    text(key);
    shared("cpu");
    integer(elements * (typed ? 1 : static_cast<std::int64_t>(c10::elementSize(dtype.type))));
    out_ += "tQ";
    integer(offset);
    out_ += '(';
    for (const auto size : sizes) integer(size);
    out_ += "t(";
    std::vector<std::int64_t> strides(sizes.size());
    std::int64_t stride = 1;
    for (std::size_t i = strides.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= std::max<std::int64_t>(sizes[i], 1);
    }
    for (const auto step : strides) integer(step);
    out_ += 't';
    out_ += '\x89';  // requires no gradient
    global("collections", "OrderedDict");
    out_ += ")R";  // no hooks
    if (!typed) global("torch", dtype.names->python);
    out_ += "tR";
  }

  void integer(std::int64_t value) {
    if (value >= 0 && value <= 0xFF) {
      out_ += 'K';
      little(static_cast<std::uint64_t>(value), 1);
    } else if (value >= 0 && value <= 0xFFFF) {
      out_ += 'M';
      little(static_cast<std::uint64_t>(value), 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      out_ += 'J';
      little(static_cast<std::uint64_t>(value), 4);
    } else {  // always eight bytes: C++'s reader wants no other number
      out_ += "\x8a\x08";
      little(static_cast<std::uint64_t>(value), 8);
    }
  }

  void little(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) out_ += static_cast<char>((value >> (8 * i)) & 0xFF);
  }

  void text(const std::string& value) {
    out_ += 'X';
    little(value.size(), 4);
    out_ += value;
  }

  /// Writes something once and refers to it from then on.
  template <class Write>
  void memo(const std::string& name, Write write) {
    const auto [entry, fresh] = memo_.emplace(name, memo_.size());
    if (fresh) {
      write();
      out_ += 'q';
    } else {
      out_ += 'h';
    }
    little(entry->second, 1);  // a few names and three dozen dtypes at most
  }

  void shared(const std::string& value) {
    memo(value, [&] { text(value); });
  }

  void global(const std::string& module, const std::string& name) {
    const std::string full = module + "\n" + name + "\n";
    memo(full, [&] { out_ += "c" + full; });
  }

  const Store& store_;
  std::string out_;
  std::unordered_map<std::string, std::uint64_t> memo_;
  std::map<Identity, std::string> keys_;
};

// --- reading
// ---------------------------------------------------------------------------------------------------

/// What stands on the stack. The unpickler owns all of them, so that a file can tie no knot that leaks.
struct Node {
  enum class Kind {
    mark,
    none,
    boolean,
    integer,
    real,
    string,
    bytes,
    tuple,
    list,
    dict,
    global,
    storage,
    tensor
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also a boolean, and how many elements a storage has
  double real = 0;
  std::string text;              // also the name of a global
  std::vector<Node*> items;      // of a dict: key, value, key, value …
  at::Tensor tensor;             // of a storage: its bytes
  const Dtype* dtype = nullptr;  // of a storage, null if it is untyped; of a global, if it is a dtype
};

const char* kind_name(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::mark:
      return "a mark";
    case Node::Kind::none:
      return "None";
    case Node::Kind::boolean:
      return "a bool";
    case Node::Kind::integer:
      return "an int";
    case Node::Kind::real:
      return "a float";
    case Node::Kind::string:
      return "a str";
    case Node::Kind::bytes:
      return "bytes";
    case Node::Kind::tuple:
      return "a tuple";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::dict:
      return "a dict";
    case Node::Kind::global:
      return "a class or function";
    case Node::Kind::storage:
      return "a storage";
    case Node::Kind::tensor:
      return "a tensor";
  }
  return "?";
}

const std::unordered_set<std::string>& callables() {
  static const std::unordered_set<std::string> names{
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

class Unpickler {
 public:
  Unpickler(const InputFile& file, const ZipReader& records, bool mmap)
      : file_(file), records_(records), mmap_(mmap), bytes_(records.read("data.pkl")) {}

  core::Value run() {
    // A list that holds one list many times is a few bytes in the file and as many values as you like here.
    budget_ = 16 * bytes_.size() + 1000;
    const Node* root = parse();
    std::string where;
    return value(*root, where, 0);
  }

 private:
  using Kind = Node::Kind;

  [[noreturn]] void bad(const std::string& reason) const {
    file_.bad(reason + " (at byte " + std::to_string(op_at_) + " of data.pkl)");
  }
  [[noreturn]] void damaged() const { bad("its pickle is damaged"); }

  void spend(std::size_t amount = 1) {
    if (budget_ < amount) file_.bad("it holds far more entries than its size can account for");
    budget_ -= amount;
  }

  // --- bytes

  const char* take(std::uint64_t size) {
    if (size > bytes_.size() - at_) bad("its pickle ends too early; it is damaged");
    const char* bytes = bytes_.data() + at_;
    at_ += static_cast<std::size_t>(size);
    return bytes;
  }
  std::uint64_t little(int size) {
    const char* bytes = take(static_cast<std::uint64_t>(size));
    std::uint64_t value = 0;
    for (int i = 0; i < size; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    return value;
  }
  std::string text(std::uint64_t size) {
    const char* bytes = take(size);
    return std::string(bytes, static_cast<std::size_t>(size));
  }
  std::string line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string::npos) bad("its pickle ends too early; it is damaged");
    const std::string line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }
  std::int64_t integer_of(std::uint64_t size) {
    if (size > 8) bad("it holds an integer of more than 64 bits");
    const char* bytes = take(size);
    std::uint64_t value = 0;
    for (std::uint64_t i = 0; i < size; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    if (size > 0 && size < 8 && (bytes[size - 1] & 0x80) != 0) value |= ~std::uint64_t{0} << (8 * size);
    return static_cast<std::int64_t>(value);
  }

  // --- the stack

  Node& make(Kind kind) {
    Node& node = nodes_.emplace_back();
    node.kind = kind;
    return node;
  }
  void push(Node& node) { stack_.push_back(&node); }
  void push_integer(std::int64_t value) {
    Node& node = make(Kind::integer);
    node.integer = value;
    push(node);
  }
  void push_text(Kind kind, std::string text) {
    Node& node = make(kind);
    node.text = std::move(text);
    push(node);
  }
  Node& top() {
    if (stack_.empty() || stack_.back()->kind == Kind::mark) damaged();
    return *stack_.back();
  }
  Node& pop() {
    Node& node = top();
    stack_.pop_back();
    return node;
  }
  std::vector<Node*> pop_to_mark() {
    std::size_t mark = stack_.size();
    while (mark > 0 && stack_[mark - 1]->kind != Kind::mark) --mark;
    if (mark == 0) damaged();
    std::vector<Node*> items(stack_.begin() + static_cast<std::ptrdiff_t>(mark), stack_.end());
    stack_.resize(mark - 1);
    return items;
  }
  void push_tuple(std::size_t size) {
    Node& tuple = make(Kind::tuple);
    tuple.items.resize(size);
    for (std::size_t i = size; i-- > 0;) tuple.items[i] = &pop();
    push(tuple);
  }
  void extend(const std::vector<Node*>& items, Kind kind) {
    Node& container = top();
    if (container.kind != kind || (kind == Kind::dict && items.size() % 2 != 0)) damaged();
    container.items.insert(container.items.end(), items.begin(), items.end());
  }
  void memoize(std::uint64_t index) { memo_[index] = &top(); }
  void recall(std::uint64_t index) {
    const auto entry = memo_.find(index);
    if (entry == memo_.end()) damaged();
    push(*entry->second);
  }

  Node* parse() {
    while (true) {
      op_at_ = at_;
      const auto op = static_cast<unsigned char>(*take(1));
      switch (op) {
        case 0x80:  // PROTO
          if (little(1) > 5) bad("its pickle protocol is newer than 5");
          break;
        case 0x95:  // FRAME: the pieces are all here already
          little(8);
          break;
        case '.': {
          Node& root = pop();
          if (!stack_.empty()) damaged();
          return &root;
        }
        case '(':
          push(make(Kind::mark));
          break;
        case '0':
          if (stack_.empty()) damaged();
          stack_.pop_back();
          break;
        case '1':
          pop_to_mark();
          break;
        case '2':
          push(top());
          break;
        case 'N':
          push(none_);
          break;
        case 0x88:
        case 0x89: {
          Node& node = make(Kind::boolean);
          node.integer = op == 0x88 ? 1 : 0;
          push(node);
          break;
        }
        case 'K':
          push_integer(static_cast<std::int64_t>(little(1)));
          break;
        case 'M':
          push_integer(static_cast<std::int64_t>(little(2)));
          break;
        case 'J':
          push_integer(integer_of(4));
          break;
        case 0x8a:  // LONG1
          push_integer(integer_of(little(1)));
          break;
        case 0x8b:  // LONG4
          push_integer(integer_of(little(4)));
          break;
        case 'G': {  // BINFLOAT, the only big-endian one
          const char* bytes = take(8);
          std::uint64_t bits = 0;
          for (int i = 0; i < 8; ++i) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
          Node& node = make(Kind::real);
          std::memcpy(&node.real, &bits, sizeof bits);
          push(node);
          break;
        }
        case 'X':
        case 'T':  // BINSTRING
          push_text(Kind::string, text(little(4)));
          break;
        case 'U':   // SHORT_BINSTRING
        case 0x8c:  // SHORT_BINUNICODE
          push_text(Kind::string, text(little(1)));
          break;
        case 0x8d:
          push_text(Kind::string, text(little(8)));
          break;
        case 'B':
          push_text(Kind::bytes, text(little(4)));
          break;
        case 'C':
          push_text(Kind::bytes, text(little(1)));
          break;
        case 0x8e:
          push_text(Kind::bytes, text(little(8)));
          break;
        case ')':
          push_tuple(0);
          break;
        case 0x85:
        case 0x86:
        case 0x87:
          push_tuple(op - 0x84u);
          break;
        case 't':
        case 'l':
        case 'd': {
          auto items = pop_to_mark();
          if (op == 'd' && items.size() % 2 != 0) damaged();
          Node& node = make(op == 't' ? Kind::tuple : op == 'l' ? Kind::list : Kind::dict);
          node.items = std::move(items);
          push(node);
          break;
        }
        case ']':
          push(make(Kind::list));
          break;
        case '}':
          push(make(Kind::dict));
          break;
        case 'a': {
          Node& item = pop();
          extend({&item}, Kind::list);
          break;
        }
        case 'e':
          extend(pop_to_mark(), Kind::list);
          break;
        case 's': {
          Node& item = pop();
          Node& key = pop();
          extend({&key, &item}, Kind::dict);
          break;
        }
        case 'u':
          extend(pop_to_mark(), Kind::dict);
          break;
        case 'q':
          memoize(little(1));
          break;
        case 'r':
          memoize(little(4));
          break;
        case 0x94:
          memoize(memo_.size());
          break;
        case 'h':
          recall(little(1));
          break;
        case 'j':
          recall(little(4));
          break;
        case 'c': {
          const std::string module = line();
          push(global(module, line()));
          break;
        }
        case 0x93: {  // STACK_GLOBAL
          const Node& name = pop();
          const Node& module = pop();
          if (name.kind != Kind::string || module.kind != Kind::string) damaged();
          push(global(module.text, name.text));
          break;
        }
        case 'R':
        case 0x81: {  // NEWOBJ: of the classes on the list, the same as calling them
          const Node& arguments = pop();
          const Node& function = pop();
          push(call(function, arguments, 0));
          break;
        }
        case 'b': {  // attributes, such as the _metadata of a state_dict
          pop();
          if (top().kind != Kind::dict) bad("it sets attributes of " + std::string(kind_name(top().kind)));
          break;
        }
        case 'Q':
          push(storage(pop()));
          break;
        default: {
          static const char digits[] = "0123456789abcdef";
          bad(std::string("its pickle has the opcode 0x") + digits[op >> 4] + digits[op & 15] +
              ", which torch.save does not need for tensors, lists and dicts");
        }
      }
    }
  }

  // --- globals

  Node& global(const std::string& module, const std::string& name) {
    Node& node = make(Kind::global);
    node.text = module + "." + name;
    if (callables().count(node.text) != 0) return node;
    if (module == "torch" || module == "torch.cuda" || module == "torch.storage") {
      if (name == "UntypedStorage") {
        node.kind = Kind::storage;
        return node;
      }
      node.dtype = find_dtype([&](const Dtype& dtype) {
        return dtype.names->storage != nullptr && name == dtype.names->storage;
      });
      if (node.dtype != nullptr) {
        node.kind = Kind::storage;
        return node;
      }
      node.dtype = find_dtype([&](const Dtype& dtype) { return name == dtype.names->python; });
      if (module == "torch" && node.dtype != nullptr) return node;
    }
    std::string advice = "save tensors, lists, tuples and dicts only";
    if (name.find("sparse") != std::string::npos) advice = "save the tensor's to_dense()";
    if (name == "_rebuild_qtensor" || name.compare(0, 2, "QI") == 0 || name.compare(0, 3, "QUI") == 0) {
      advice = "save the tensor's dequantize()";
    }
    if (module.compare(0, 5, "numpy") == 0) advice = "save torch.from_numpy(array)";
    if (module.compare(0, 9, "__torch__") == 0) advice = "load TorchScript with torch::jit::load";
    bad("it holds " + node.text + ", which is not one of the few names that torchtap accepts; " + advice);
  }

  static const std::vector<Node*>& sequence(const Unpickler& self, const Node& node) {
    if (node.kind != Kind::tuple && node.kind != Kind::list) self.damaged();
    return node.items;
  }

  Node& call(const Node& function, const Node& arguments, int depth) {
    if (function.kind != Kind::global || function.dtype != nullptr || depth > kMaxDepth) damaged();
    if (arguments.kind != Kind::tuple) damaged();
    const auto& items = arguments.items;
    const std::string& name = function.text;
    const auto at_least = [&](std::size_t count) {
      if (items.size() < count) bad(name + " is given " + std::to_string(items.size()) + " arguments");
    };
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
      if (items[1]->kind != Kind::global) damaged();
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
    if (name == "torch.Size" || name.compare(0, 17, "torch.jit._pickle") == 0) return *items[0];
    if (items[0]->kind != Kind::tensor) damaged();
    return *items[0];  // parameters and buffers
  }

  // --- tensors

  Node& storage(const Node& id) {
    if (id.kind != Kind::tuple || id.items.size() < 5) damaged();
    const auto& items = id.items;
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
               const Dtype* dtype, const Node* metadata) {
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
      // A count of bytes, too, must be a number that LibTorch can hold.
      fits = !__builtin_mul_overflow(count, extent, &count) && count <= INT64_MAX / 16 &&
             !__builtin_mul_overflow(extent - 1, strides[i], &step) &&
             !__builtin_add_overflow(last, step, &last);
    }
    if (!fits || (!empty && last >= elements)) {
      bad(c10::str("it claims a tensor of shape ", c10::IntArrayRef(sizes), ", strides ",
                   c10::IntArrayRef(strides), " and offset ", offset.integer, " in a storage of ", elements,
                   " elements"));
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
      file_.bad("it nests deeper than " + std::to_string(kMaxDepth) + " lists and dicts, or holds itself");
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
        return dict(node, where, depth);
      case Kind::string:
        spend(node.text.size());  // one text may stand in many places
        return core::Value(node.text);
      default:
        file_.bad("it holds " + std::string(kind_name(node.kind)) + (where.empty() ? "" : " at " + where) +
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
      if (key.kind != Kind::string && key.kind != Kind::integer) {
        file_.bad("it holds a dict" + (where.empty() ? "" : " at " + where) + " with " + kind_name(key.kind) +
                  " for a key; torchtap reads dicts with str or int keys");
      }
      const std::string name = key.kind == Kind::string ? key.text : std::to_string(key.integer);
      spend(name.size());
      where += "[\"" + name + "\"]";
      core::Value item = value(*node.items[i + 1], where, depth + 1);
      where.resize(length);
      const auto [place, fresh] = places.emplace(name, std::make_pair(dict.size(), key.kind));
      if (fresh) {
        dict.emplace_back(name, std::move(item));
      } else if (place->second.second != key.kind) {
        file_.bad("it holds a dict" + (where.empty() ? "" : " at " + where) + " with the int " + name +
                  " and the str \"" + name + "\" for keys, which are the same here; rename one");
      } else {
        dict[place->second.first].second = std::move(item);  // as in Python, the last one counts
      }
    }
    return core::Value(std::move(dict));
  }

  const InputFile& file_;
  const ZipReader& records_;
  const bool mmap_;
  const std::string bytes_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;
  std::size_t budget_ = 0;
  std::deque<Node> nodes_;
  Node none_;
  std::vector<Node*> stack_;
  std::unordered_map<std::uint64_t, Node*> memo_;
  std::unordered_map<std::string, at::Tensor> storages_;
};

}  // namespace

void check_value(const std::string& call, const std::string& where, const core::Value& value) {
  check(call, where, value, 0);
}

std::string pickle(const core::Value& value, const Pickler::Store& store) {
  return Pickler(store).run(value);
}

std::string pickle_runs(const std::vector<StoredRun>& runs, bool stacked) {
  const Pickler::Store none;  // the bytes are in the file already
  return Pickler(none).run(runs, stacked);
}

void merge_shape(bool& first, std::string& dtype, std::vector<std::int64_t>& shape, bool& ragged,
                 const std::string& other_dtype, c10::IntArrayRef sizes) {
  if (first) {
    dtype = other_dtype;
    shape = sizes.vec();
  }
  first = false;
  if (dtype != other_dtype) dtype = "mixed";
  if (ragged || shape.size() != sizes.size()) {
    ragged = true;
    shape.clear();
    return;
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != sizes[i]) shape[i] = -1;
  }
}

core::Value unpickle(const InputFile& file, const ZipReader& records, bool mmap) {
  return Unpickler(file, records, mmap).run();
}

std::string dtype_name(c10::ScalarType type) {
  const Dtype* dtype = by_type(type);
  return dtype == nullptr ? "" : dtype->names->python;
}

bool dtype_of(const std::string& name, c10::ScalarType& type) {
  const Dtype* dtype = find_dtype([&](const Dtype& known) { return name == known.names->python; });
  if (dtype != nullptr) type = dtype->type;
  return dtype != nullptr;
}

bool is_utf8(const std::string& text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    const std::size_t more = lead < 0x80                   ? 0
                             : lead >= 0xC2 && lead < 0xE0 ? 1
                             : lead >= 0xE0 && lead < 0xF0 ? 2
                             : lead >= 0xF0 && lead < 0xF5 ? 3
                                                           : 4;
    if (more == 4 || more >= text.size() - i) return false;
    for (std::size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    }
    if (more >= 2) {  // too long, a surrogate, or beyond the last code point
      const unsigned second = byte(i + 1);
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
          (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90)) {
        return false;
      }
    }
    i += more + 1;
  }
  return true;
}

}  // namespace torchtap::storage::detail
