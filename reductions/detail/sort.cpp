#include <torchtap/reductions/detail/sort.hpp>

// On other processors Highway may know of nothing better than a heap sort, which is slower than by radix.
#if defined(TORCHTAP_HAVE_HIGHWAY_SORT) && (defined(__x86_64__) || defined(__aarch64__))
#include <hwy/contrib/sort/vqsort.h>

namespace torchtap::reductions::detail {

bool sort_keys(std::uint32_t* keys, std::size_t n) {
  hwy::Sorter()(keys, n, hwy::SortAscending());
  return true;
}

bool sort_keys(std::uint64_t* keys, std::size_t n) {
  hwy::Sorter()(keys, n, hwy::SortAscending());
  return true;
}

}  // namespace torchtap::reductions::detail

#else

namespace torchtap::reductions::detail {

bool sort_keys(std::uint32_t* /*keys*/, std::size_t /*n*/) {
  return false;
}

bool sort_keys(std::uint64_t* /*keys*/, std::size_t /*n*/) {
  return false;
}

}  // namespace torchtap::reductions::detail
#endif
