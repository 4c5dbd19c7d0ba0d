#pragma once

// The shared libraries of a program before it runs.

#include <string>
#include <vector>

namespace torchtap::tools::preload {

/// The files of the shared libraries that the dynamic loader loads with a program, in the order in which it
/// looks for symbols, with `preloaded` as LD_PRELOAD. Empty for a script or a static program, and where the
/// loader fails. The program itself does not run.
std::vector<std::string> libraries_of(const std::string& program, const std::string& preloaded);

/// The file of LibTorch among the libraries: of the first that is another one than this command's, which
/// cannot be loaded into one process with it; else this command's. Empty if there is none.
std::string torch_in(const std::vector<std::string>& libraries);
/// This command's LibTorch.
std::string own_torch();
/// The file with the version of LibTorch in it, as far as that is known: "/usr/lib/libtorch_cpu.so (1.13.1)".
std::string with_version(const std::string& torch);

/// "ran as without torchtap: …": what is said of a process that uses this other LibTorch.
std::string ran_without(const std::string& torch);

/// Whether libraries that are in both come in another order.
bool reordered(const std::vector<std::string>& before, const std::vector<std::string>& after);

}  // namespace torchtap::tools::preload
