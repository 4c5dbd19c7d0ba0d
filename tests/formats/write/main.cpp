// Writes the files of all formats: write_formats FOLDER. Run it only for a new format, with a new folder:
// existing files have to stay readable and are never written again.

#include <cstdio>
#include <exception>

#include "../fixtures.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_formats FOLDER\n");
    return 2;
  }
  try {
    formats::write_fixtures(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
