#pragma once

/// Includes all of recorders/.

#include <torchtap/recorders/options.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/recorders/source.hpp>
#include <torchtap/recorders/stream.hpp>
#include <torchtap/recorders/subrecorder.hpp>
