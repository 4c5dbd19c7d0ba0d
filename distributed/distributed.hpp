#pragma once

/// All of torchtap::distributed.

#include <torchtap/distributed/environment.hpp>
#include <torchtap/distributed/group.hpp>
#include <torchtap/distributed/merge.hpp>
#include <torchtap/distributed/options.hpp>
