// Memory that is used again: blocks that overlap nothing, also among threads and in a child, and come back.
#include <boost/test/unit_test.hpp>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <torchtap/base/reused_memory.hpp>

using torchtap::base::reused_storage;

namespace {

unsigned char* bytes_of(const c10::Storage& storage) {
  return static_cast<unsigned char*>(storage.data_ptr().get());
}

/// Takes and gives back blocks of all sizes in random order; each is filled with a number of its own. Returns
/// how many were not as they were left.
int damaged_blocks(unsigned seed, int steps) {
  std::mt19937 random(seed);
  struct Filled {
    c10::Storage storage;
    unsigned char with;
  };
  std::vector<Filled> blocks;
  int damaged = 0;
  const auto check = [&](const Filled& block) {
    const unsigned char* const begin = bytes_of(block.storage);
    const auto size = static_cast<std::ptrdiff_t>(block.storage.nbytes());
    damaged += std::count(begin, begin + size, block.with) == size ? 0 : 1;
  };
  for (int i = 0; i < steps; ++i) {
    if (blocks.size() > 40 || (!blocks.empty() && random() % 3 == 0)) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      check(blocks.back());
      blocks.pop_back();
      continue;
    }
    const std::size_t size = random() % (std::size_t{1} << random() % 23);
    blocks.push_back({reused_storage(size), static_cast<unsigned char>(random())});
    if (size > 0) std::memset(bytes_of(blocks.back().storage), blocks.back().with, size);
  }
  for (const Filled& block : blocks) check(block);
  return damaged;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reused_memory)

BOOST_AUTO_TEST_CASE(blocks_overlap_nothing) {
  BOOST_TEST(damaged_blocks(1, 3000) == 0);
  std::vector<int> damaged(4, -1);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < damaged.size(); ++i) {
    threads.emplace_back([&, i] { damaged[i] = damaged_blocks(i + 2, 1000); });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(damaged == std::vector<int>(4, 0), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(memory_is_aligned_as_large_as_asked_for_and_used_again) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{100001},
                                 std::size_t{3} << 20, std::size_t{40} << 20}) {
    const void* before = nullptr;
    {
      const c10::Storage storage = reused_storage(size);
      before = bytes_of(storage);
      BOOST_TEST(reinterpret_cast<std::uintptr_t>(before) % 64 == 0U);
      BOOST_TEST(storage.nbytes() == size);
      BOOST_TEST(storage.device() == at::kCPU);
      BOOST_TEST(storage.resizable());
    }
    if (size >= 100001) BOOST_TEST(bytes_of(reused_storage(size)) == before, size);
  }
}

BOOST_AUTO_TEST_CASE(a_child_has_memory_of_its_own) {
  const c10::Storage storage = reused_storage(std::size_t{1} << 20);
  std::memset(bytes_of(storage), 7, storage.nbytes());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool kept = bytes_of(storage)[storage.nbytes() - 1] == 7;
    std::memset(bytes_of(storage), 8, storage.nbytes());
    ::_exit(kept && damaged_blocks(9, 300) == 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(status == 0);
  BOOST_TEST(bytes_of(storage)[0] == 7);
}

BOOST_AUTO_TEST_CASE(much_free_memory_goes_back_to_the_system) {
  const auto blocks = [] {  // of 1.2 GB, none of which is touched
    std::vector<c10::Storage> all;
    for (int i = 0; i < 12; ++i) all.push_back(reused_storage(std::size_t{100} << 20));
    std::vector<char*> addresses;
    for (const c10::Storage& one : all) addresses.push_back(reinterpret_cast<char*>(bytes_of(one)));
    return addresses;
  }();
  int mapped = 0;
  for (char* const block : blocks) {
    unsigned char resident = 0;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto start = reinterpret_cast<std::uintptr_t>(block) / page * page;
    if (::mincore(reinterpret_cast<void*>(start), page, &resident) == 0) ++mapped;
  }
  BOOST_TEST(mapped < 12);
}

BOOST_AUTO_TEST_CASE(of_memory_that_was_written_to_256_MB_stay) {
  constexpr std::size_t kEach = std::size_t{40} << 20;
  std::vector<unsigned char*> blocks;
  {
    std::vector<c10::Storage> all;
    for (int i = 0; i < 12; ++i) all.push_back(reused_storage(kEach));
    for (const c10::Storage& one : all) {
      blocks.push_back(bytes_of(one));
      std::memset(blocks.back(), 1, kEach);
    }
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t resident = 0;
  std::vector<unsigned char> pages(kEach / page);
  for (unsigned char* const block : blocks) {
    if (::mincore(block, kEach, pages.data()) != 0) continue;  // no longer mapped
    resident += page * static_cast<std::size_t>(std::count_if(
                           pages.begin(), pages.end(), [](unsigned char one) { return (one & 1) != 0; }));
  }
  BOOST_TEST(resident <= (std::size_t{256} << 20));
}

BOOST_AUTO_TEST_SUITE_END()
