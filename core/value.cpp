// Implements the access to values and results, and their comparison.

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/core/detail/same.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::core {
namespace {

template <class Entries>
auto find(Entries& entries, const std::string& name) {
  return std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == name; });
}

template <class Entries>
std::vector<std::string> keys(const Entries& entries) {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const auto& entry : entries) names.push_back(entry.first);
  return names;
}

}  // namespace

Results::Results(std::initializer_list<Entry> entries) : entries_(entries) {}

void Results::set(const std::string& name, at::Tensor tensor) {
  const auto entry = find(entries_, name);
  if (entry == entries_.end()) {
    entries_.emplace_back(name, std::move(tensor));
  } else {
    entry->second = std::move(tensor);
  }
}

const at::Tensor& Results::at(const std::string& name) const& {
  const auto entry = find(entries_, name);
  TORCH_CHECK_INDEX(entry != entries_.end(), "core::Results::at: there is no result called \"", name,
                    "\"; the results are ", base::quoted(names()), ".");
  return entry->second;
}

bool Results::contains(const std::string& name) const noexcept {
  return find(entries_, name) != entries_.end();
}

std::vector<std::string> Results::names() const {
  return keys(entries_);
}

bool Results::equals(const Results& other) const {
  return std::equal(
      entries_.begin(), entries_.end(), other.entries_.begin(), other.entries_.end(),
      [](const Entry& a, const Entry& b) { return a.first == b.first && detail::same(a.second, b.second); });
}

Value::Value(at::Tensor tensor) : kind_(Kind::tensor), tensor_(std::move(tensor)) {}

Value::Value(const std::vector<at::Tensor>& list) : kind_(Kind::list), list_(list.begin(), list.end()) {}

Value::Value(List list) : kind_(Kind::list), list_(std::move(list)) {}

Value::Value(Dict dict) : kind_(Kind::dict), dict_(std::move(dict)) {}

Value::Value(const Results& results) : kind_(Kind::dict), dict_(results.begin(), results.end()) {}

Value::Value(std::string text) : kind_(Kind::text) {
  dict_.emplace_back(std::move(text), Value());
}

const at::Tensor& Value::tensor() const& {
  TORCH_CHECK_TYPE(is_tensor(), "core::Value::tensor: expected a tensor, got ", describe(), ".");
  return tensor_;
}

const Value::List& Value::list() const& {
  TORCH_CHECK_TYPE(is_list(), "core::Value::list: expected a list, got ", describe(), ".");
  return list_;
}

const Value::Dict& Value::dict() const& {
  TORCH_CHECK_TYPE(is_dict(), "core::Value::dict: expected a dict, got ", describe(), ".");
  return dict_;
}

const std::string& Value::text() const& {
  TORCH_CHECK_TYPE(is_text(), "core::Value::text: expected a text, got ", describe(), ".");
  return dict_.front().first;
}

const Value& Value::at(const std::string& key) const& {
  const auto entry = find(dict(), key);
  TORCH_CHECK_INDEX(entry != dict_.end(), "core::Value::at: there is no key \"", key, "\"; the keys are ",
                    base::quoted(keys(dict_)), ".");
  return entry->second;
}

const Value& Value::at(std::int64_t index) const& {
  TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(list().size()), "core::Value::at: index ",
                    index, " is out of range for ", describe(), ".");
  return list_[static_cast<std::size_t>(index)];
}

std::vector<at::Tensor> Value::tensors() const {
  if (is_tensor()) return {tensor_};
  std::vector<at::Tensor> result;
  result.reserve(list().size());
  for (const auto& item : list_) result.push_back(item.tensor());
  return result;
}

std::string Value::describe() const {
  switch (kind_) {
    case Kind::none:
      return "nothing";
    case Kind::tensor:
      return tensor_.defined() ? c10::str("a tensor of shape ", tensor_.sizes()) : "an undefined tensor";
    case Kind::list:
      return c10::str("a list of ", list_.size());
    case Kind::dict:
      return c10::str("a dict with the keys ", base::quoted(keys(dict_)));
    case Kind::text:
      return "a text";
  }
  return "nothing";
}

bool Value::equals(const Value& other) const {
  // A text is the key of its one entry.
  return kind_ == other.kind_ && detail::same(tensor_, other.tensor_) && list_ == other.list_ &&
         dict_ == other.dict_;
}

Value to_value(const Results& results) {
  if (results.empty()) return {};
  return results.size() == 1 ? Value(results.begin()->second) : Value(results);
}

}  // namespace torchtap::core
