// Sorts integer keys with Highway's vector instructions, where the build has them.

#include <torchtap/statistics/detail/sort.hpp>

// On other processors Highway may fall back to a heap sort, which is slower than a radix sort.
#if defined(TORCHTAP_HAVE_HIGHWAY_SORT) && (defined(__x86_64__) || defined(__aarch64__))
#include <hwy/contrib/sort/vqsort.h>

#include <torchtap/base/of_thread.hpp>

namespace torchtap::statistics::detail {

bool sort_keys(std::uint32_t* keys, std::size_t n) {
  base::of_thread<hwy::Sorter>()(keys, n, hwy::SortAscending());
  return true;
}

bool sort_keys(std::uint64_t* keys, std::size_t n) {
  base::of_thread<hwy::Sorter>()(keys, n, hwy::SortAscending());
  return true;
}

}  // namespace torchtap::statistics::detail

#else

namespace torchtap::statistics::detail {

bool sort_keys(std::uint32_t* /*keys*/, std::size_t /*n*/) {
  return false;
}

bool sort_keys(std::uint64_t* /*keys*/, std::size_t /*n*/) {
  return false;
}

}  // namespace torchtap::statistics::detail
#endif
