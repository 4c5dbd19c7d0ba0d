// Shares threads with reductions in other libraries.

#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/reductions/fast/reader.hpp>

namespace torchtap::reductions::extend {

void parallel(std::int64_t units, std::int64_t elements,
              const std::function<void(std::int64_t, std::int64_t)>& f) {
  detail::parallel(units, elements, f);
}

}  // namespace torchtap::reductions::extend
