#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

/// A header alone: also for what is loaded into programs.
namespace torchtap::tools {

/// What an exception says, without C++'s backtrace.
inline std::string message_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const c10::Error*>(&error)) return ours->what_without_backtrace();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "there is not enough memory.";
  return error.what();
}

}  // namespace torchtap::tools
