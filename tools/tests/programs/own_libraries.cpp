// Parts of a program whose libraries are its own: `PART` is which. PROGRAM calls SOLVER, which calls a
// function of BLAS that OWN_BLAS defines, two levels below the program; LibTorch's BLAS has one of that name.
// OTHER_TORCH has the name of LibTorch's library, and nothing else; PLUGIN_OF_OTHER links it. HOST opens
// plug-ins, and links nothing.
#define OWN_BLAS 1
#define SOLVER 2
#define MIDDLE 3
#define ENGINE 4
#define PROGRAM 5
#define OTHER_TORCH 6
#define PROGRAM_OF_OTHER 7
#define PLUGIN_OF_OTHER 8
#define HOST 9

#if PART == ENGINE
#include <torch/nn/modules/linear.h>
#elif PART == PROGRAM || PART == PROGRAM_OF_OTHER
#include <cstdio>
#include <cstdlib>
#elif PART == HOST
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <string>
#endif

extern "C" {
double ddot_(const int* size, const double* x, const int* x_step, const double* y, const int* y_step);
double solve();
double solve_in_the_middle();
double run_engine();
int version_of_other_torch();

#if PART == OWN_BLAS
double ddot_(const int* size, const double* x, const int* /*x_step*/, const double* y,
             const int* /*y_step*/) {
  double sum = 1000;
  for (int i = 0; i < *size; ++i) sum += x[i] * y[i];
  return sum;
}
#elif PART == SOLVER
double solve() {
  const double x[] = {1, 2, 3};
  const int size = 3, step = 1;
  return ddot_(&size, x, &step, x, &step);
}
#elif PART == MIDDLE
double solve_in_the_middle() {
  return solve();
}
#elif PART == ENGINE
double run_engine() {
  const torch::NoGradGuard guard;
  torch::nn::Linear layer(2, 1);
  layer->weight.fill_(1);
  layer->bias.fill_(0);
  return layer(torch::ones({1, 2})).item<double>();
}
#elif PART == OTHER_TORCH
int version_of_other_torch() {
  return 9;
}
#elif PART == PLUGIN_OF_OTHER
double run_engine() {
  return version_of_other_torch();
}
#endif
}

#if PART == PROGRAM
int main() {
  std::printf("%g %g\n", solve_in_the_middle(), run_engine());
  std::fflush(stdout);
  return std::system("case \"$LD_PRELOAD\" in *own_blas*) exit 1;; esac");
}
#elif PART == PROGRAM_OF_OTHER
int main() {
  const char* preloaded = std::getenv("LD_PRELOAD");
  std::printf("%d %s\n", version_of_other_torch(), preloaded == nullptr ? "" : preloaded);
  return 7;
}
#elif PART == HOST
/// How many files of LibTorch, and of torchtap apart from what is in every process, this one has.
int torch_files() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    found += line.find("libtorch") != std::string::npos &&
             line.find("libtorchtap_preload.so") == std::string::npos;
  }
  return found;
}

int main(int count, char** plugins) {
  std::printf("%d", torch_files());
  for (int i = 1; i < count; ++i) {
    void* plugin = ::dlopen(plugins[i], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) return std::printf("%s\n", ::dlerror()), 3;
    std::printf(" %g", reinterpret_cast<double (*)()>(::dlsym(plugin, "run_engine"))());
  }
  std::printf("\n");
  return 6;
}
#endif
