// A library compiled without torchtap::transparent in a program compiled with it: modules of either work in
// both, calls that the program makes are seen, and modules that the library made are refused with a reason.
#include "mixed.hpp"

#include <iostream>

#include <torchtap/hooks/hooks.hpp>

namespace hooks = torchtap::hooks;

namespace {
int failures = 0;
void expect(bool good, const char* what) {
  if (good) return;
  std::cerr << "failed: " << what << '\n';
  ++failures;
}
}  // namespace

int main() {
  const at::Tensor x = at::full({1}, 3);
  Part ours(4), theirs = make_part(4), derived = make_part(0);
  expect(
      at::equal(call_part(ours, x), at::full({1}, 26)) && at::equal(call_part(theirs, x), at::full({1}, 26)),
      "the library calls modules of both");
  expect(at::equal(ours->forward(x), theirs->forward(x)) && at::equal(theirs(x, 2), at::full({1}, 14)),
         "the program calls modules of both");
  expect(at::equal(derived->forward(x), at::full({1}, 2)) && at::equal(derived(x, 2), at::full({1}, 1)),
         "a derived module behind a holder of its base");
  const Part copy(std::dynamic_pointer_cast<PartImpl>(theirs->clone()));
  expect(at::equal(copy.ptr()->weight, theirs->weight), "a clone");

  int seen = 0;
  const auto handle = hooks::attach(*ours, hooks::Kind::forward_output, [&](hooks::Event&) { ++seen; });
  ours->forward(x);
  ours(x);
  expect(seen == 2, "calls in the program are seen");
  call_part(ours, x);
  expect(seen == 2, "calls in the library are not");
  try {
    hooks::attach(*theirs, hooks::Kind::forward_output, [](hooks::Event&) {}).remove();
    expect(false, "a module that the library made cannot be attached to");
  } catch (const c10::ValueError& error) {
    expect(std::string(error.what()).find("a library that was compiled without") != std::string::npos,
           "the reason is told");
  }
  return failures;
}
