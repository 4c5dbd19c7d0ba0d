#pragma once

/// Defines `Value` and `Results`, which recorders, reductions and storage exchange.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::core {

/// Named tensors in a fixed order: the results of a reduction (`{"mean": …, "variance": …}`).
///
/// A regular value; copies share the tensors. Keeps the order of insertion.
class TORCHTAP_API Results {
 public:
  /// A name and its tensor.
  using Entry = std::pair<std::string, at::Tensor>;

  Results() = default;
  /// Results in the order given.
  Results(std::initializer_list<Entry> entries);

  /// Adds `tensor` under `name`, or replaces the tensor of that name.
  void set(const std::string& name, at::Tensor tensor);
  /// The tensor called `name`. Throws `c10::IndexError` listing the existing names.
  const at::Tensor& at(const std::string& name) const&;
  /// For a temporary: returns by value.
  at::Tensor at(const std::string& name) && { return at(name); }
  /// 0 is no name.
  at::Tensor at(std::nullptr_t name) const = delete;
  /// Whether there is a result called `name`.
  bool contains(const std::string& name) const noexcept;
  /// The names, in order.
  std::vector<std::string> names() const;

  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }

  /// Whether both have the same names in the same order, with tensors of the same dtype, shape, device and
  /// bytes, as for `Value`.
  friend bool operator==(const Results& a, const Results& b) { return a.equals(b); }
  friend bool operator!=(const Results& a, const Results& b) { return !a.equals(b); }
  /// Prints like the dict of a `Value`: `{'mean': tensor([1, 2], float64), 'variance': …}`.
  friend std::ostream& operator<<(std::ostream& out, const Results& results) { return results.print(out); }

 private:
  bool equals(const Results& other) const;
  std::ostream& print(std::ostream& out) const;

  std::vector<Entry> entries_;
};

/// The contents of a `.pt` file: nothing, one tensor, a text, a list of values or a dict of named values,
/// nested at will.
///
/// A regular value; copies share the tensors. Recorders and storage exchange this type.
class TORCHTAP_API Value {
 public:
  /// The kinds of a value.
  enum class Kind { none, tensor, list, dict, text };
  /// The entries of a list.
  using List = std::vector<Value>;
  /// The entries of a dict, in order of insertion.
  using Dict = std::vector<std::pair<std::string, Value>>;  // in order of insertion

  Value() = default;
  /// A tensor.
  Value(at::Tensor tensor);  // NOLINT: a tensor is a value
  /// A list of tensors.
  Value(const std::vector<at::Tensor>& list);  // NOLINT
  /// A list.
  Value(List list);  // NOLINT
  /// A dict.
  Value(Dict dict);  // NOLINT
  /// A dict of results.
  Value(const Results& results);  // NOLINT
  /// A text.
  explicit Value(std::string text);

  Kind kind() const noexcept { return kind_; }
  /// Whether it is nothing.
  bool is_none() const noexcept { return kind_ == Kind::none; }
  /// Whether it is a tensor.
  bool is_tensor() const noexcept { return kind_ == Kind::tensor; }
  /// Whether it is a list.
  bool is_list() const noexcept { return kind_ == Kind::list; }
  /// Whether it is a dict.
  bool is_dict() const noexcept { return kind_ == Kind::dict; }
  /// Whether it is a text.
  bool is_text() const noexcept { return kind_ == Kind::text; }

  /// The tensor. Throws `c10::TypeError`, which says what this value is instead.
  const at::Tensor& tensor() const&;
  /// For a temporary: returns by value.
  at::Tensor tensor() && { return tensor(); }
  /// The entries of a list. Throws `c10::TypeError`.
  const List& list() const&;
  /// For a temporary: returns by value.
  List list() && { return std::move(const_cast<List&>(list())); }
  /// The entries of a dict. Throws `c10::TypeError`.
  const Dict& dict() const&;
  /// For a temporary: returns by value.
  Dict dict() && { return std::move(const_cast<Dict&>(dict())); }
  /// The text. Throws `c10::TypeError`.
  const std::string& text() const&;
  /// For a temporary: returns by value.
  std::string text() && { return std::move(const_cast<std::string&>(text())); }
  /// The entry of a dict. Throws `c10::IndexError` listing the existing keys.
  const Value& at(const std::string& key) const&;
  /// For a temporary: returns by value.
  Value at(const std::string& key) && { return std::move(const_cast<Value&>(at(key))); }
  /// The entry of a list. Throws `c10::IndexError`.
  const Value& at(std::int64_t index) const&;
  /// For a temporary: returns by value.
  Value at(std::int64_t index) && { return std::move(const_cast<Value&>(at(index))); }
  /// The tensors of a list of tensors; a single tensor is a list of one. Throws `c10::TypeError`.
  std::vector<at::Tensor> tensors() const;

  /// "a tensor of shape [2]", "a list of 3", "a dict with the keys "a" and "b"", "nothing": for messages.
  std::string describe() const;

  /// Whether both have the same structure and the same contents; keys of dicts in the same order.
  ///
  /// Tensors are the same if dtype, layout, shape, device and bytes are: a NaN is equal to one of the same
  /// bits, 0.0 is not equal to -0.0, and whether gradients are required does not count. The elements of
  /// tensors that are not strided (sparse, MKL-DNN) are compared. Undefined tensors are equal to each other,
  /// and so are tensors on the meta device, which have no bytes. Copies tensors to the CPU where they are not
  /// there, so it waits for their device.
  friend bool operator==(const Value& a, const Value& b) { return a.equals(b); }
  friend bool operator!=(const Value& a, const Value& b) { return !a.equals(b); }
  /// Prints in short what Python's `repr` would: ``None``, ``'text'``, ``[tensor([1, 2], float32), None]``,
  /// ``{'mean': tensor(0.5, float64)}``. A tensor of more than 10 elements is given by its shape,
  /// `tensor(shape=[64, 3, 7, 7], float32)`, and long lists, dicts and texts are cut. Another device than the
  /// CPU and another layout than strided are named. Waits for the device of tensors whose elements it prints.
  friend std::ostream& operator<<(std::ostream& out, const Value& value) { return value.print(out); }

 private:
  bool equals(const Value& other) const;
  std::ostream& print(std::ostream& out) const;

  Kind kind_ = Kind::none;
  at::Tensor tensor_;
  List list_;
  Dict dict_;  // for a text: one entry with that key, so that other values need no room for it
};

/// The saved form of a reduction's results: the only tensor, a dict of several, or nothing if there are none.
TORCHTAP_API Value to_value(const Results& results);

}  // namespace torchtap::core
