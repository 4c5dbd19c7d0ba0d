#pragma once

/// One value in one `.pt` file, for C++ and for Python.
///
/// In Python:
///
///     value = torch.load("layer.pt", weights_only=True)   # a tensor, a list or a dict, nested at will
///
/// and what Python wrote with `torch.save(value, "layer.pt")` loads here.

#include <torch/arg.h>

#include <string>

#include <torchtap/core/api.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::storage {

/// How to save a file (`save_value`) or a recording (`save`).
class TORCHTAP_API SaveOptions {
  /// Create missing directories. Otherwise a missing one is an error.
  TORCH_ARG(bool, mkdir) = false;
  /// Replace what was saved there before. Otherwise that is an error.
  TORCH_ARG(bool, overwrite) = false;
  /// Wait until the disk has it, so that it survives a power failure. Without, it survives a killed process.
  TORCH_ARG(bool, sync) = true;
};

/// How to load a file (`load_value`) or a recording (`load`).
class TORCHTAP_API LoadOptions {
  /// Map tensors from the file instead of reading them: loading takes no time and memory is taken only by
  /// what is touched, but a file that was damaged since it was written is not noticed (no checksum is
  /// looked at). Writing to such a tensor changes the tensor alone. It stays valid when the file is removed
  /// or replaced; truncating the file while it is mapped ends the program (SIGBUS).
  TORCH_ARG(bool, mmap) = false;
};

/// Writes `value` to the file `path`, whole or not at all.
///
/// Python's `torch.load(path, weights_only=True)` reads it, from 1.13 on, as a tensor, a str, a list, a dict
/// with str keys, or None, nested as `value` is. A tensor is written as its own elements, contiguous: a view
/// does not drag its storage along, conjugated and negated views are resolved, an expanded tensor is written
/// out; a tensor that stands in several places is written once. Gradients are not kept, `requires_grad` is
/// false in the file, and tensors of other devices are saved as CPU tensors. An undefined tensor is None in
/// Python and nothing
/// (`Value::is_none`) when loaded here. uint16 to uint64, complex32 and the 8-bit floats load in Python
/// from 2.6 on; every other dtype everywhere.
///
/// The bytes go to a temporary name beside `path` (".NAME.torchtap-new-…"), which is renamed when all of them
/// are there: a reader, or a process killed at any moment, leaves the old file or the new one. What a killed
/// process left under a temporary name the next save to the same path removes.
///
/// Throws `c10::ValueError` if the file exists (see `SaveOptions::overwrite`), if its directory does not
/// (`SaveOptions::mkdir`), if nesting is deeper than 100, or for a dict with keys that are not UTF-8 or stand
/// twice; `c10::TypeError` for tensors without plain bytes (sparse, quantized, meta); `c10::Error` naming
/// file and reason if the system fails (disk full, no permission). The old file is then untouched and nothing
/// is left behind.
TORCHTAP_API void save_value(const std::string& path, const core::Value& value,
                             const SaveOptions& options = {});

/// Reads the value in the file `path`: what `save_value` wrote, or Python's `torch.save` (1.6 or later), or
/// C++'s `torch::pickle_save`.
///
/// Of Python's values it reads tensors and parameters, lists and tuples (as lists), dicts and OrderedDicts
/// such as a state_dict, None, str (as text), and bool, int and float (as tensors without dimensions of dtype
/// bool, int64 and float64). Int keys become their decimal digits. Tensors arrive on the CPU, without
/// `requires_grad`; those that share a storage in the file share it here. So does a tensor that was saved
/// expanded (`x.expand(…)` in Python): it arrives as the same view, which takes the memory of its storage
/// only, but as much as its shape says once it is copied.
///
/// Nothing in a file is run: names of classes and functions are accepted from a short list only, and every
/// size, offset, stride and checksum is verified, so that a file from anywhere is safe to open. Throws
/// `c10::ValueError` naming file and reason for everything else: another object among the values, a
/// file that is missing, truncated or damaged, written in the format before 1.6 (Python can save it anew), or
/// a TorchScript archive (C++'s `torch::save` writes those; `torch::load` reads them).
TORCHTAP_API core::Value load_value(const std::string& path, const LoadOptions& options = {});

}  // namespace torchtap::storage
