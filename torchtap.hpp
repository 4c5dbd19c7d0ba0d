#pragma once

/// All of torchtap at once. A file that wants to compile fast includes just the headers it uses.
