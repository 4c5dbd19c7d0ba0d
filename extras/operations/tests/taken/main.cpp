// Another library of the program has the dispatch key: the error says so, and nothing else happens.
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <iostream>

#include <torchtap/operations/operations.hpp>

namespace {

void theirs(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  operation.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::TESTING_ONLY_GenericMode),
      stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&theirs>());
}

}  // namespace

int main() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      const torchtap::operations::Scope scope([](torchtap::operations::Event&) {});
      std::cout << "a scope opened, although its key is taken\n";
      return 1;
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      std::cout << text << "\n";
      for (const char* part : {"TESTING_ONLY_GenericMode", "other code", "taken/main.cpp"}) {
        if (text.find(part) == std::string::npos) {
          std::cout << "the message lacks \"" << part << "\"\n";
          return 1;
        }
      }
    }
  }
  return at::ones({2}).sum().item<float>() == 2 ? 0 : 1;
}
