#pragma once

/// Turns member functions into the addresses of their code, and back.

#include <cstdint>
#include <cstring>

namespace torchtap::transparent::extend {

/// The address of a non-virtual member function. In the Itanium C++ ABI a pointer to member consists of this
/// address and the adjustment of `this`, zero here.
template <class Member>
const void* code_of(Member member) {
  std::uintptr_t words[2];
  static_assert(sizeof(member) == sizeof(words), "torchtap needs the Itanium C++ ABI");
  std::memcpy(words, &member, sizeof(words));
  return reinterpret_cast<const void*>(words[0]);
}

template <class Member>
Member member_at(const void* code) {
  const std::uintptr_t words[2]{reinterpret_cast<std::uintptr_t>(code), 0};
  Member member;
  std::memcpy(&member, words, sizeof(words));
  return member;
}

}  // namespace torchtap::transparent::extend
