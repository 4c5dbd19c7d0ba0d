// Runs one vector kernel some times over 4096 numbers, for `count`: one_kernel KERNEL TYPE TIMES

#include <c10/core/ScalarType.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torchtap/reductions/fast/kernels.hpp>

namespace {

constexpr std::size_t kNumbers = 4096, kRows = 64;

template <class T>
std::vector<char> numbers() {
  std::vector<char> memory(kNumbers * sizeof(T));
  for (std::size_t i = 0; i < kNumbers; ++i) {
    const T number(static_cast<float>(i % 61) / 61 - 0.3F);
    std::memcpy(&memory[i * sizeof(T)], &number, sizeof(T));
  }
  return memory;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace torchtap::reductions;
  if (argc != 4) return 2;
  const bool half = std::string(argv[2]) == "float16";
  const auto type = half ? c10::ScalarType::Half : c10::ScalarType::Float;
  const std::vector<char> x = half ? numbers<c10::Half>() : numbers<float>();
  std::vector<double> lines;
  for (int i = 0; i <= 64; ++i) lines.push_back(-1 + i / 32.0);
  const detail::BinEdges edges(lines);
  std::vector<std::int64_t> counts(67);
  std::vector<Summary> columns(kRows);
  std::vector<double> mean(kNumbers), m2(kNumbers), m3(kNumbers), m4(kNumbers);
  std::vector<char> to(x.size());
  Summary all;
  const detail::Kernels& kernels = *detail::kernels();
  const std::map<std::string, std::function<void(double)>> known{
      {"sum", [&](double) { kernels.run(type, x.data(), kNumbers, Needs{}, &all); }},
      {"moments",
       [&](double) {
         kernels.run(type, x.data(), kNumbers, Needs{true, false}, &all);
       }},
      {"columns", [&](double) { kernels.columns(type, x.data(), kRows, kRows, kRows, columns.data()); }},
      {"fold",
       [&](double count) {
         kernels.fold_moments(type, x.data(), kNumbers, count, mean.data(), m2.data(), m3.data(), m4.data());
       }},
      {"bins", [&](double) { kernels.count_bins(type, x.data(), kNumbers, edges, counts.data()); }},
      {"transpose",
       [&](double) { kernels.transpose(c10::elementSize(type), x.data(), kRows, kRows, kRows, to.data()); }}};
  const auto kernel = known.find(argv[1]);
  if (kernel == known.end()) return 2;
  for (int i = 0; i < std::atoi(argv[3]); ++i) kernel->second(i + 1);
}
