// Shares threads and loops with reductions in other libraries.

#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/reductions/fast/reader.hpp>
#include <torchtap/reductions/fast/small.hpp>

namespace torchtap::reductions::extend {

bool copy(const Memory& x, c10::ScalarType to, void* numbers) {
  return detail::copy(x, to, numbers);
}

void parallel(std::int64_t units, std::int64_t elements,
              const std::function<void(std::int64_t, std::int64_t)>& f) {
  detail::parallel(units, elements, f);
}

}  // namespace torchtap::reductions::extend
