#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include <torchtap/model/module_ref.hpp>

namespace torchtap::preload {

/// The modules of a walk, without a share in them: the program's models must not live longer because of us.
std::vector<model::ModuleRef> without_ownership(const std::vector<model::ModuleRef>& modules);

/// Expires with the model. A model on the stack lives as long as the first part of it that is not.
std::weak_ptr<const torch::nn::Module> life_of(const std::vector<model::ModuleRef>& modules);

}  // namespace torchtap::preload
