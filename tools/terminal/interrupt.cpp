#include "interrupt.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace torchtap::tools {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
volatile sig_atomic_t noted = 0;

void on_signal(int number) {
  noted = number;
  for (const int each : kSignals) ::signal(each, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt() {
  noted = 0;
  for (const int number : kSignals) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = on_signal;
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    ::sigaction(number, &ours, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (const int number : kSignals) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler == on_signal) ::signal(number, SIG_DFL);
  }
}

int Interrupt::signal() const noexcept {
  return noted;
}

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);
  std::_Exit(128 + signal);  // reached only if the signal is blocked
}

}  // namespace torchtap::tools
