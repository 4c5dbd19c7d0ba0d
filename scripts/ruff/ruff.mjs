// Formats and checks Python files as ruff does, with its WebAssembly: no Debian release has the same ruff.
//
// usage: node ruff.mjs [--fix] FILE…     exit status 1 if a file is not as ruff writes it, or has a fault
import { readFileSync, writeFileSync } from "node:fs";
import { PositionEncoding, Workspace } from "@astral-sh/ruff-wasm-nodejs";

const workspace = new Workspace(
  {
    "target-version": "py39",
    "line-length": 120,
    // Faults that pycodestyle and Pyflakes find, the order of imports, likely bugs, and what newer Python writes in a better way.
    // Not: lines that the formatter cannot break (E501), imports below changes of sys.path (E402), variables of loops that are
    // not used (B007) or used by functions that end with the round (B023), and types as TorchScript of old versions needs them
    // (UP006, UP035).
    lint: { select: ["E", "W", "F", "I", "B", "UP"], ignore: ["E402", "E501", "B007", "B023", "UP006", "UP035"] },
  },
  PositionEncoding.Utf16,
);

const files = process.argv.slice(2);
const fix = files[0] === "--fix" && files.shift();
let faults = 0;
for (const file of files) {
  const text = readFileSync(file, "utf8");
  const formatted = workspace.format(text);
  if (fix && formatted !== text) {
    writeFileSync(file, formatted);
  } else if (formatted !== text) {
    console.error(`${file}: is not as ruff writes it; scripts/check-format --fix writes it so`);
    faults += 1;
  }
  for (const found of workspace.check(fix ? formatted : text)) {
    console.error(`${file}:${found.start_location.row}: ${found.code} ${found.message}`);
    faults += 1;
  }
}
process.exit(faults > 0 ? 1 : 0);
