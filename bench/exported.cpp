// What taps cost that nobody listens to: runs packages of one model in turns, the first of them without taps,
// in one thread.
//
// usage: bench_exported ROUNDS PACKAGE…, made by bench/python/exported.py; prints a line a package
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <torchtap/exported/exported.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/moments.hpp>

namespace {

using torchtap::exported::Model;

/// CPU time of this thread, which other processes of the machine hardly disturb.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

struct Times {
  std::string name;
  std::vector<double> us;

  double median() {
    std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2), us.end());
    return us[us.size() / 2];
  }
  double least() const { return *std::min_element(us.begin(), us.end()); }
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fputs("usage: bench_exported ROUNDS PACKAGE…\n", stderr);
    return 2;
  }
  at::set_num_threads(1);
  const int rounds = std::max(1, std::atoi(arguments[1]));
  const at::Tensor x = at::randn({2, 3, 64, 64});
  std::vector<Model> models;
  std::vector<Times> times;
  for (int i = 2; i < count; ++i) {
    models.emplace_back(arguments[i]);
    times.push_back({arguments[i], {}});
    models.back().run({x});
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < models.size(); ++i) {
      const double begin = now();
      models[i].run({x});
      times[i].us.push_back(now() - begin);
    }
  }
  // Last, with moments of all that is tapped.
  Times recorded{times.back().name + " recorded", {}};
  torchtap::recorders::ForwardOutput moments(torchtap::reductions::Moments{});
  moments.modules(models.back());
  for (int round = 0; round < rounds; ++round) {
    const double begin = now();
    models.back().run({x});
    recorded.us.push_back(now() - begin);
  }
  times.push_back(std::move(recorded));
  const double median = times.front().median(), least = times.front().least();
  for (auto& one : times) {
    std::printf(
        "%-40s %5zu taps  median %9.0f us (%+5.1f %%)  least %9.0f us (%+5.1f %%)\n", one.name.c_str(),
        models[std::min<std::size_t>(static_cast<std::size_t>(&one - times.data()), models.size() - 1)]
                .taps()
                .size() -
            1,
        one.median(), 100 * (one.median() / median - 1), one.least(), 100 * (one.least() / least - 1));
  }
}
