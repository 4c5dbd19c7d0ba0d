#pragma once

/// Includes all of recorders/.

#include <torchtap/recorders/companion.hpp>
#include <torchtap/recorders/kind.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/recorders/stream.hpp>
#include <torchtap/recorders/subrecorder.hpp>
