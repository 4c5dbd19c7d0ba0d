// Writes the files of tests/formats/1/ anew: write_formats FOLDER. Only for a new format, to a new folder;
// what stands there is read for good.

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
