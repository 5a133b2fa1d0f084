#pragma once
// `tessera report`: the numbers of a benchmark run as one page for a browser.

#include <string>

#include "tools/lib/bench/bench_file.h"

namespace tessera::tools {

/// Summary, peer comparison, roofline, all cases, launch costs; parts without numbers are left out.
/// The page refers to nothing outside itself.
std::string report_page(const BenchFile& file);

/// The same numbers as Markdown: the machine, a row per case, a row per host time. For tests/MEASURED.md.
std::string report_markdown(const BenchFile& file);

}  // namespace tessera::tools
