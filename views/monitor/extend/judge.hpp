#pragma once

/// A monitor in two processes: a watcher in the program, and a judge in another.

#include <torchtap/views/monitor/detail/chosen.hpp>
#include <torchtap/views/monitor/detail/judge.hpp>
#include <torchtap/views/monitor/detail/read_ring.hpp>
#include <torchtap/views/monitor/detail/told.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>

namespace torchtap::views::monitor::extend {

using detail::choose;
using detail::Chosen;
using detail::Counts;
using detail::Elsewhere;
using detail::FlightRecorder;
using detail::forwards_in;
using detail::Judge;
using detail::JudgedModel;
using detail::KeptForward;
using detail::packed;
using detail::Subject;
using detail::Told;
using detail::unpacked;
using detail::unpacked_model;
using detail::Watcher;

}  // namespace torchtap::views::monitor::extend
