#pragma once

// The search for the first value that is not finite. Whether a tensor is finite is known from when it was
// made; tensors that no operation made are looked through when they are first used.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <torchtap/operations/event.hpp>
#include <torchtap/views/report/detail/scan.hpp>
#include <torchtap/views/report/results.hpp>

namespace torchtap::views::report::detail {

/// Where an operation ran.
struct Where {
  std::string module;
  std::int64_t call = 0;
  bool backward = false;
};

/// An operation on its way.
struct Searched {
  struct Input {
    std::string name;
    at::Tensor tensor;
  };
  struct Written {
    at::Tensor tensor;
    bool filled;  // nothing of what was there before remains
  };
  c10::SmallVector<Input, 4> inputs;  // those that it reads
  c10::SmallVector<Written, 2> written;
  bool bad_input = false;
};

/// A tensor that the model holds, and its values that are not finite.
struct BadHeld {
  std::string path;
  NonFinite values;
};

/// Not thread safe: the session locks.
class Search {
 public:
  std::vector<Finding> findings;
  std::int64_t left_out = 0;      // findings beyond the most that are kept
  std::vector<BadHeld> bad_held;  // parameters and buffers
  bool collects = true;           // whether findings are noted
  std::string first;              // the first source or producer of this repeat, as a sentence

  void begin();
  /// Lets go of tensors; what was found stays.
  void forget();
  /// Names a parameter, buffer or input for findings.
  void name(const at::Tensor& tensor, const std::string& name, const std::string& module, bool held);
  void before(operations::Event& event, Searched& searched, const Where& where);
  void after(operations::Event& event, const Searched& searched, const Where& where);
  /// Whether the tensor's elements are finite.
  bool finite(const at::Tensor& tensor);
  /// The zeros among its elements; -1 if unknown.
  std::int64_t zeros(const at::Tensor& tensor);

 private:
  struct Memory {
    c10::weak_intrusive_ptr<c10::StorageImpl> alive;  // nothing else gets its address
    bool finite = true;
    bool unset = false;       // made by empty(), and not filled since
    std::int64_t numel = -1;  // elements of the tensor that `finite` and `zeros` are about; -1 if of several
    std::int64_t zeros = -1;

    explicit Memory(const at::Tensor& tensor) : alive(tensor.storage().getWeakStorageImpl()) {}
  };
  struct Name {
    std::string name, module;
    bool held;
  };

  Memory* known(const at::Tensor& tensor);
  bool look(const at::Tensor& tensor, Memory& memory);
  bool made(const at::Tensor& tensor, bool filled);
  bool read(const at::Tensor& tensor, const Where& where);
  void make_unset(const at::Tensor& tensor);
  void source(const at::Tensor& tensor, const Where& where);
  void add(Finding finding);

  ska::flat_hash_map<const c10::StorageImpl*, Memory> memory_;
  std::unordered_map<const c10::StorageImpl*, Name> names_;
};

}  // namespace torchtap::views::report::detail
