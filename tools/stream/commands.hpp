#pragma once

#include <CLI/App.hpp>

/// The subcommands that read what other programs publish.
namespace torchtap::tools::stream {

/// `torchtap streams`: lists publishers and their readers.
void add_streams(CLI::App& app);
/// `torchtap video NAME|RECORDING`: pictures of tensors, as a video or as files.
void add_video(CLI::App& app);
/// `torchtap tail NAME`: prints frames as they come, saves them or sends them on.
void add_tail(CLI::App& app);
/// `torchtap watch NAME`: statistics in the terminal, live.
void add_watch(CLI::App& app);

}  // namespace torchtap::tools::stream
