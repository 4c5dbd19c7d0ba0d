#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

/// Header-only: the preload agent uses it too.
namespace torchtap::tools {

/// The message of an exception, without C++'s backtrace.
inline std::string message_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const c10::Error*>(&error)) return ours->what_without_backtrace();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "there is not enough memory.";
  return error.what();
}

}  // namespace torchtap::tools
