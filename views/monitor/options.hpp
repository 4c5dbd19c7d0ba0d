#pragma once

/// The options of a monitor.

#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/rules/rules.hpp>
#include <torchtap/selectors/selector.hpp>

namespace torchtap::views::monitor {

/// Leaves but norms, dropout and `Identity`, whose outputs say little that their inputs do not.
TORCHTAP_API selectors::Selector default_selection();

/// Chained like LibTorch's own options: `MonitorOptions().incidents("incidents/").cost(0.005)`.
struct TORCHTAP_API MonitorOptions {
  /// Name of the model in metrics and alarms.
  TORCH_ARG(std::string, model) = "model";
  /// Folder for incidents and `alarms.jsonl`; empty: nothing is written. Incidents hold inputs of the model
  /// (`inputs`); whoever may read the folder can read them.
  TORCH_ARG(std::string, incidents);
  /// Whether incidents hold inputs of the model; without inputs they hold only statistics and cannot be
  /// replayed.
  TORCH_ARG(bool, inputs) = true;
  /// Bytes of the ring of the last inputs; 0: no ring.
  TORCH_ARG(std::int64_t, ring) = std::int64_t{64} << 20;
  /// Folder of the ring's file; by default /dev/shm/torchtap-UID, or `incidents` if that has no room.
  TORCH_ARG(std::string, ring_in);
  /// Rows of a window: of the first input's dimension 0, in sampled forwards. It also ends after
  /// `window_seconds` if it has 64 rows.
  TORCH_ARG(std::int64_t, window) = 256;
  /// See `window`.
  TORCH_ARG(double, window_seconds) = 3600;
  /// The share of a forward's time that the monitor may take: it decides how many forwards are sampled. From
  /// 1 on every forward is sampled.
  TORCH_ARG(double, cost) = 0.01;
  /// The watched modules besides the model itself.
  TORCH_ARG(selectors::Selector, select) = default_selection();
  /// The rules that judge, and their thresholds.
  TORCH_ARG(rules::Rules, rules);
  /// How many incidents are kept; the oldest is removed first, but not within its first hour.
  TORCH_ARG(std::int64_t, keep_incidents) = 16;
  /// File that `metrics()` is written to at each window's end, for a collector of text files.
  TORCH_ARG(std::string, metrics_file);
  /// Folder of TensorBoard's event file with histograms and scalars of each window.
  TORCH_ARG(std::string, tensorboard);
  /// Watches gradients of outputs.
  TORCH_ARG(bool, gradients) = false;
  /// Watches the change of parameters by the optimizer.
  TORCH_ARG(bool, parameters) = false;
  /// Gradients are divided by it before they are judged.
  TORCH_ARG(double, loss_scale) = 1;
  /// How many modules have separate series in `metrics()`.
  TORCH_ARG(std::int64_t, max_series) = 200;
  /// Writes a reference to this folder instead of comparing: every forward is taken in.
  TORCH_ARG(std::string, learn);
  /// Whether the monitor has its own thread. Without it windows are judged, and incidents written, in the
  /// forward that ends them.
  TORCH_ARG(bool, thread) = true;
};

}  // namespace torchtap::views::monitor
