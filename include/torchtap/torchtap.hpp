#pragma once

/// All of torchtap at once. A file that wants to compile fast includes just the headers it uses.

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/operations/operations.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/dtype.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/pictures/pictures.hpp>
#include <torchtap/views/report/report.hpp>
#if defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <torchtap/views/stream/stream.hpp>
#endif
#include <torchtap/views/trace/trace.hpp>
