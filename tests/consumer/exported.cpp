#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/exported/exported.hpp>

int main() {
  try {
    const torchtap::exported::Model model("no such file.pt2");
  } catch (const c10::ValueError& error) {
    return std::strstr(error.what(), "no such file.pt2") != nullptr ? 0 : 1;
  }
  return 1;
}
