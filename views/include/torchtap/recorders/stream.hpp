#pragma once

/// The interface of streams, to which recorders send data while the model runs (`RecorderOptions::stream`).

#include <torchtap/views/send/stream.hpp>
