// Checks values and writes their pickles.
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/utf8.hpp>
#include <torchtap/storage/file.hpp>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "torchtap writes tensors as they lie in memory, and its files are little-endian");

namespace torchtap::storage::detail {
namespace {

/// A place inside a value, for messages: `[3]["mean"]`.
std::string key_at(const std::string& where, const std::string& key) {
  return where + "[\"" + key + "\"]";
}
std::string index_at(const std::string& where, std::size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

bool has_plain_bytes(const at::Tensor& tensor) {
  return base::is_strided(tensor) && !tensor.is_quantized() && !tensor.is_meta() && tensor.has_storage();
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
      TORCH_CHECK_TYPE(base::dtype_by_type(tensor.scalar_type()) != nullptr, call, ": ", where,
                       " is a tensor of dtype ", tensor.scalar_type(),
                       ", which torch.load cannot read; convert it first, e.g. with to(at::kFloat).");
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
                          "\", but the keys of a Python dict are unique; rename one.");
        check(call, key_at(where, key), item, depth + 1);
      }
      return;
    }
    case core::Value::Kind::text:
      TORCH_CHECK_VALUE(is_utf8(value.text()), call, ": ", where,
                        " is a text that is not UTF-8; convert it first.");
      return;
  }
}

/// Writes the dozen opcodes that a value needs. Every reader of `.pt` files knows them: Python's weights_only
/// unpickler since 1.13 and C++'s `torch::pickle_load`.
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
      view(*base::dtype_by_type(run.dtype), run.key, run.storage_elements, run.offset, sizes);
    } else {
      out_ += "](";
      for (const StoredRun& run : runs) {
        std::int64_t size = 1;
        for (const auto extent : run.sizes) size *= extent;
        for (std::int64_t i = 0; i < run.count; ++i) {
          if (run.defined) {
            view(*base::dtype_by_type(run.dtype), run.key, run.storage_elements, run.offset + i * size,
                 run.sizes);
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
  using Name = std::pair<std::string_view, std::string_view>;  ///< of a module, and in it

  void write(const core::Value& value) { write(value, &value + 1); }

  /// Writes a value of a list that ends at `end`.
  void write(const core::Value& value, const core::Value* end) {
    switch (value.kind()) {
      case core::Value::Kind::none:
        out_ += 'N';
        return;
      case core::Value::Kind::tensor:
        write_tensor(value, end);
        return;
      case core::Value::Kind::list:
        out_ += ']';
        if (value.list().empty()) return;
        out_ += '(';
        for (const auto& item : value.list()) write(item, &value.list().back() + 1);
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

  // Identifies a view of a storage. Addresses are unique, because the value keeps all storages alive.
  using Identity = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                              int, bool, bool>;

  static Identity identity_of(const at::Tensor& tensor) {
    return {tensor.storage().unsafeGetStorageImpl(),
            tensor.storage_offset(),
            tensor.sizes().vec(),
            tensor.strides().vec(),
            static_cast<int>(tensor.scalar_type()),
            tensor.is_conj(),
            tensor.is_neg()};
  }

  /// Only the tensor's own elements, in order: a view must not write the rest of its storage, and readers
  /// need not know about lazy conjugation.
  static at::Tensor plain(const at::Tensor& tensor) {
    if (tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
        !tensor._is_zerotensor())
      return tensor;
    at::Tensor plain = tensor.detach();
    if (plain._is_zerotensor()) plain = plain.clone();
    return plain.resolve_conj().resolve_neg().to(at::kCPU).contiguous();
  }

  void write_tensor(const core::Value& value, const core::Value* end) {
    const at::Tensor& tensor = value.tensor();
    if (!tensor.defined()) {
      out_ += 'N';
      return;
    }
    const Identity identity = identity_of(tensor);
    auto known = places_.find(identity);
    if (known == places_.end()) {
      store(&value, end);
      known = places_.find(identity);
    }
    const auto [record, offset] = known->second;
    view(*base::dtype_by_type(tensor.scalar_type()), std::to_string(record), elements_[record], offset,
         tensor.sizes());
  }

  /// Stores a tensor in a record, together with the small ones of its dtype behind it: a record costs more
  /// than these.
  void store(const core::Value* item, const core::Value* end) {
    constexpr std::size_t kSmall = std::size_t{4} << 10, kRecord = std::size_t{64} << 10;
    const at::Tensor first = item->tensor();
    const std::string name = "data/" + std::to_string(elements_.size());
    if (first.nbytes() > kSmall) {
      const at::Tensor bytes = plain(first);
      store_(name, bytes.data_ptr(), bytes.nbytes());
      places_.emplace(identity_of(first), Place{elements_.size(), 0});
      elements_.push_back(first.numel());
      return;
    }
    std::string bytes;
    std::int64_t elements = 0;
    for (; item != end && item->is_tensor() && item->tensor().defined(); ++item) {
      const at::Tensor& tensor = item->tensor();
      const std::size_t size = tensor.nbytes();
      if (tensor.scalar_type() != first.scalar_type() || size > kSmall || bytes.size() + size > kRecord)
        break;
      if (!places_.emplace(identity_of(tensor), Place{elements_.size(), elements}).second) continue;
      bytes.append(static_cast<const char*>(plain(tensor).data_ptr()), size);
      elements += tensor.numel();
    }
    store_(name, bytes.data(), bytes.size());
    elements_.push_back(elements);
  }

  /// Writes a contiguous tensor of `sizes` that begins at `offset` in a storage of `elements`.
  void view(const base::Dtype& dtype, const std::string& key, std::int64_t elements, std::int64_t offset,
            c10::IntArrayRef sizes) {
    const bool typed = dtype.storage != nullptr;
    global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    out_ += '(';  // the arguments
    out_ += '(';  // the persistent id of the storage
    shared("storage");
    if (typed) {
      global("torch", dtype.storage);
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
    if (!typed) global("torch", dtype.python);
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
    } else {  // always eight bytes: C++'s reader accepts no other number
      out_ += "\x8a\x08";
      little(static_cast<std::uint64_t>(value), 8);
    }
  }

  void little(std::uint64_t value, int size) { base::put_bytes(out_, value, size); }

  void text(std::string_view value) {
    out_ += 'X';
    little(value.size(), 4);
    out_ += value;
  }

  /// Writes an object the first time, and a reference to it after that.
  template <class Write>
  void memo(const Name& name, Write write) {
    const auto known = std::find(memo_.begin(), memo_.end(), name);
    const auto number = static_cast<std::uint64_t>(known - memo_.begin());
    if (known == memo_.end()) {
      write();
      memo_.push_back(name);
      out_ += 'q';
    } else {
      out_ += 'h';
    }
    little(number, 1);
  }

  void shared(std::string_view value) {
    memo({"", value}, [&] { text(value); });
  }

  void global(std::string_view module, std::string_view name) {
    memo({module, name}, [&] {
      out_ += 'c';
      (out_ += module) += '\n';
      (out_ += name) += '\n';
    });
  }

  const Store& store_;
  std::string out_;
  std::vector<Name> memo_;  // a few names and three dozen dtypes at most, which are literals
  struct Place {
    std::size_t record;
    std::int64_t offset;  // in elements
  };
  std::map<Identity, Place> places_;
  std::vector<std::int64_t> elements_;  // of each record
};

}  // namespace
}  // namespace torchtap::storage::detail

namespace torchtap::storage {

bool can_hold(const at::Tensor& tensor) {
  return !tensor.defined() ||
         (detail::has_plain_bytes(tensor) && base::dtype_by_type(tensor.scalar_type()) != nullptr);
}

}  // namespace torchtap::storage

namespace torchtap::storage::detail {

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

}  // namespace torchtap::storage::detail
