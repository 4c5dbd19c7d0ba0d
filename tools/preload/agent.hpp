#pragma once

#include <torch/nn/module.h>

namespace torchtap::preload {

/// The program asked something of a module that it asks of whole models (its parameters, to train, to move):
/// its descendants can be called by their paths from there. Does nothing while the agent itself is at work.
void found_root(const torch::nn::Module& root) noexcept;

}  // namespace torchtap::preload
