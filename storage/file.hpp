#pragma once

/// Saves and loads one value in one `.pt` file, for C++ and for Python.
///
/// In Python:
///
///     value = torch.load("layer.pt", weights_only=True)   # a tensor, a list or a dict, nested at will
/// and files of Python's `torch.save(value, "layer.pt")` load here.

#include <torch/arg.h>

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::storage {

/// How to save a file (`save_value`) or a recording (`save`).
class TORCHTAP_API SaveOptions {
  /// Create missing directories. Otherwise a missing one is an error.
  TORCH_ARG(bool, mkdir) = false;
  /// Replace an existing file or recording. Otherwise an existing one is an error.
  TORCH_ARG(bool, overwrite) = false;
  /// Wait until the data is on the disk (fsync), so that it survives a power failure. Otherwise it survives
  /// only a killed process.
  TORCH_ARG(bool, sync) = true;
};

/// How to load a file (`load_value`) or a recording (`load`).
class TORCHTAP_API LoadOptions {
  /// Map tensors from the file instead of reading them: loading is immediate, and only the pages that are
  /// accessed take memory. Checksums are not compared, so damage goes unnoticed. Writing to such a tensor
  /// does not change the file. The tensor stays valid when the file is removed or replaced; truncating the
  /// file while it is mapped ends the program (SIGBUS).
  TORCH_ARG(bool, mmap) = false;
  /// Read an object of a class that torchtap does not know, such as an argparse.Namespace beside the tensors
  /// of a checkpoint, as a text that names the class: "<argparse.Namespace>". No code of the class is run. A
  /// quantized or sparse tensor is a dict of its parts, such as "int_repr", "scale" and "zero_point".
  /// Otherwise a file with such an object is refused.
  TORCH_ARG(bool, foreign) = false;
};

/// Writes `value` to the file `path`, whole or not at all.
///
/// Python's `torch.load(path, weights_only=True)` (PyTorch 1.13 or later) reads it as a tensor, a str, a
/// list, a dict with str keys, or None, nested as `value` is. Only a tensor's own elements are written,
/// contiguously: a view does not include the rest of its storage, conjugated and negated views are resolved,
/// and an expanded tensor is written in full. A tensor that occurs several times is written once. Gradients
/// are not kept, `requires_grad` is false in the file, and tensors on other devices are saved as CPU tensors.
/// An undefined tensor is None in Python and nothing (`Value::is_none`) when loaded here. uint16 to uint64,
/// complex32 and the 8-bit floats need PyTorch 2.6 or later in Python.
///
/// The bytes are written to a temporary file beside `path` (".NAME.torchtap-new-…"), which is renamed when it
/// is complete: readers find the old file or the new one, also if the process is killed. The next save to the
/// same path removes the temporary files of killed processes.
///
/// Throws `c10::ValueError` if the file exists (see `SaveOptions::overwrite`), if its directory does not
/// (`SaveOptions::mkdir`), if nesting is deeper than 100, or if a dict key is not UTF-8 or occurs twice;
/// `c10::TypeError` for tensors without plain bytes (sparse, quantized, meta); `c10::Error` naming file and
/// reason if the system fails (disk full, no permission). On error the old file is unchanged and no temporary
/// file is left; unless the message says that the new file "is in place": then only the wait for the disk has
/// failed.
TORCHTAP_API void save_value(const std::string& path, const core::Value& value,
                             const SaveOptions& options = {});

/// Whether files can hold the tensor: one with plain bytes, of a dtype that torch.load can read; or
/// undefined.
TORCHTAP_API bool can_hold(const at::Tensor& tensor);

/// Reads the value in the file `path`, written by `save_value`, Python's `torch.save` (1.6 or later) or C++'s
/// `torch::pickle_save` and `torch::save`. Of a tensor, a vector, a module or an optimizer that `torch::save`
/// wrote, the value is a dict of their parts; a tensor's one part is called "0".
///
/// Reads these Python values: tensors and parameters, lists and tuples (as lists), dicts and OrderedDicts
/// such as a state_dict, None, str (as text), and bool, int and float (as tensors without dimensions of dtype
/// bool, int64 and float64). Int keys become decimal strings. Tensors arrive on the CPU, without
/// `requires_grad`; tensors that share a storage in the file share it here. A tensor that was saved expanded
/// (`x.expand(…)` in Python) is loaded as the same view, which takes only the memory of its storage until it
/// is copied.
///
/// No code in a file is run: only a short list of class and function names is accepted, and every size,
/// offset, stride and checksum is verified, so that untrusted files are safe to open. Throws
/// `c10::ValueError` naming file and reason for everything else: another object among the values (but see
/// `LoadOptions::foreign`), a file that is missing, truncated or damaged, written in the format before 1.6
/// (Python can save it again), or a TorchScript archive (read it with `torch::jit::load`).
TORCHTAP_API core::Value load_value(const std::string& path, const LoadOptions& options = {});

}  // namespace torchtap::storage
