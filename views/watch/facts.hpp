#pragma once

/// Facts that hold for all calls of an operation.

#include <c10/util/flat_hash_map.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/operations/event.hpp>

namespace torchtap::views::watch {

/// Whether an operation reads the values of each of its arguments. It does not read a tensor that it
/// overwrites completely (`copy_`, all arguments `out`), nor a tensor that only gives it a shape
/// (`zeros_like`, the second argument of `expand_as`).
TORCHTAP_API std::vector<bool> reads_of(const c10::FunctionSchema& schema);

/// A `Value` for each operation, which is made when it is first asked for and stays where it is. Not for
/// several threads at once.
template <class Value>
class PerOperation {
 public:
  /// The operation's; the first time `make()`.
  template <class Make>
  const Value& of(const operations::Event& event, Make&& make) {
    const Known*& known = by_schema_[&event.schema()];
    // An operation of a library that was unloaded may have left its address to another one.
    if (known == nullptr || known->name != event.name() || known->overload != event.overload()) {
      known = &all_.emplace_back(Known{event.name(), event.overload(), make()});
    }
    return known->value;
  }

 private:
  struct Known {
    std::string name, overload;
    Value value;
  };

  ska::flat_hash_map<const c10::FunctionSchema*, const Known*> by_schema_;
  std::deque<Known> all_;
};

}  // namespace torchtap::views::watch
