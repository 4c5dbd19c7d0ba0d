// An object of each thread that is there until the very end.
#include <boost/test/unit_test.hpp>

#include <thread>
#include <vector>

#include <torchtap/base/of_thread.hpp>

using Numbers = std::vector<int>;

namespace {

struct Uses {
  std::size_t size = 0;
  int first = -1;
};

/// A use after the object of the thread was destroyed, as by a static object's destructor in the main thread.
struct Last {
  Uses* late = nullptr;
  ~Last() {
    for (int i = 0; i < 2; ++i) {
      auto& again = torchtap::base::of_thread<Numbers>();
      if (i == 0) late->size = again.size();
      again.resize(1000);
      again[0] += 1;
      late->first = again[0];
    }
    delete &torchtap::base::of_thread<Numbers>();  // which else stays until the process ends
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(an_object_of_a_thread_is_there_after_the_others_were_destroyed) {
  Uses late;
  std::thread([&] {
    static thread_local Last last;  // made first, so destroyed last
    last.late = &late;
    auto& mine = torchtap::base::of_thread<Numbers>();
    BOOST_TEST((&mine == &torchtap::base::of_thread<Numbers>()));
    BOOST_TEST((&mine != &torchtap::base::of_thread<Numbers, Last>()));
    mine.assign(1000, 7);
  }).join();
  BOOST_TEST(late.size == 0U);
  BOOST_TEST(late.first == 2);
}
