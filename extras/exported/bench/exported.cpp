// What taps cost that nobody listens to: runs packages of one model in turns, in one thread, and compares
// each with the first in the same round. The first is run twice a round, so that its second line says how
// much of this is noise.
//
// usage: bench_exported ROUNDS UNTAPPED TAPPED…, made by export_resnet18.py; prints a line a package,
// and a last one for the last package with moments of all that is tapped
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <torchtap/exported/exported.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/moments.hpp>

namespace {

using torchtap::exported::Model;

/// CPU time of this thread in microseconds, which other processes of the machine hardly disturb.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double run(Model& model, const at::Tensor& x) {
  const double begin = now();
  model.run({x});
  return now() - begin;
}

/// Prints the median of `us` and that of its ratios to `baseline` in the same round, with the interval that
/// holds the ratios' median with a probability of 95 % (by the order statistics of a binomial distribution).
void print(const std::string& name, std::size_t tapped, std::vector<double> us,
           const std::vector<double>& baseline) {
  std::vector<double> ratios(us.size());
  for (std::size_t i = 0; i < us.size(); ++i) ratios[i] = us[i] / baseline[i];
  std::sort(us.begin(), us.end());
  std::sort(ratios.begin(), ratios.end());
  const auto rounds = static_cast<double>(ratios.size());
  const auto at = [&ratios](double index) {
    return ratios[static_cast<std::size_t>(std::clamp(index, 0.0, static_cast<double>(ratios.size() - 1)))];
  };
  const double half = 0.98 * std::sqrt(rounds);
  std::printf("%-32s %3zu modules tapped  median %8.0f us   of the first %.4f (%.4f to %.4f)\n", name.c_str(),
              tapped, us[us.size() / 2], at(rounds / 2), at(std::floor(rounds / 2 - half)),
              at(std::ceil(rounds / 2 + half)));
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fputs("usage: bench_exported ROUNDS UNTAPPED TAPPED…\n", stderr);
    return 2;
  }
  at::set_num_threads(1);
  const auto rounds = static_cast<std::size_t>(std::max(1, std::atoi(arguments[1])));
  const at::Tensor x = at::randn({2, 3, 64, 64});
  std::vector<std::string> names{arguments[2]};
  names.insert(names.end(), arguments + 2, arguments + count);
  std::vector<Model> models;
  for (const auto& name : names) run(models.emplace_back(name), x);
  std::vector<std::vector<double>> us(names.size(), std::vector<double>(rounds));
  for (std::size_t round = 0; round < rounds; ++round) {
    // Each begins a round as often as the others.
    for (std::size_t i = 0; i < models.size(); ++i) {
      const std::size_t turn = (round + i) % models.size();
      us[turn][round] = run(models[turn], x);
    }
  }
  for (std::size_t i = 1; i < models.size(); ++i) print(names[i], models[i].taps().size() - 1, us[i], us[0]);

  torchtap::recorders::ForwardOutput moments(torchtap::reductions::Moments{});
  moments.modules(models.back());
  std::vector<double> plain(rounds), recorded(rounds);
  for (std::size_t round = 0; round < rounds; ++round) {
    plain[round] = run(models.front(), x);
    recorded[round] = run(models.back(), x);
  }
  print(names.back() + " recorded", models.back().taps().size() - 1, recorded, plain);
}
