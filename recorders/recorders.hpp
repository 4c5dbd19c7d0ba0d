#pragma once

/// Includes all of recorders/, and the companions of the component statistics where it was built.

#include <torchtap/recorders/kind.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/recorders/subrecorder.hpp>
