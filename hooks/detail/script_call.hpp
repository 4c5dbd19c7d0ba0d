#pragma once

#include <ATen/core/jit_type.h>
#include <ATen/core/symbol.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace torchtap::hooks::detail {

class InterposedTable;

/// What the operators know about the function that they were compiled into. Lives as long as that.
struct ScriptFunction {
  std::atomic<int> method{0};        ///< see `method_number`; of a function without hooks it may change
  std::vector<c10::TypePtr> inputs;  ///< without self
  c10::TypePtr output;
};

/// A small number for the name of a method; the same each time.
int method_number(const std::string& method);
std::string method_name(int number);

/// From objects and methods to hooks; see `script_key`. Lives as long as the process.
InterposedTable& script_table();

const void* script_key(const void* object, int method) noexcept;

/// The operator `(self, function, arguments…) -> (call, arguments…)`, which runs the hooks before forward.
/// One for each number of arguments; registered on first use.
c10::Symbol enter_operator(std::size_t arguments);
/// The operator `(call, value) -> value`, which runs the hooks after forward.
c10::Symbol leave_operator();

}  // namespace torchtap::hooks::detail
