#include <fmt/format.h>

#include "tools/lib/report/report.h"

namespace tessera::tools {
namespace {

/// A text in a cell: no character ends it early.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '<') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string report_markdown(const BenchFile& file) {
  const BenchMachine& m = file.machine;
  std::string text = cell(m.device);
  const auto add = [&](const char* before, const std::string& word) {
    if (!word.empty()) text += before + cell(word);
  };
  add(", driver ", m.driver);
  add(", NVRTC ", m.nvrtc);
  add(", times from ", m.method);
  add(", ", m.date);
  add(", Tessera ", m.code);
  text += ".\n";
  if (!file.results.empty()) {
    text += "\n| op | case | us | GB/s | % of copy | % of stream |\n|---|---|--:|--:|--:|--:|\n";
  }
  for (const BenchResult& r : file.results) {
    const auto percent = [](double rate, double value) {
      return rate > 0 ? fmt::format("{:.1f}", value) : "-";  // older records lack rates
    };
    text += fmt::format("| `{}` | {} | {:.2f} | {:.0f} | {} | {} |\n", r.op, cell(r.label),
                        r.timing.us, r.gbs, percent(r.copy_gbs, r.percent_of_copy()),
                        percent(r.stream_us, r.percent_of_stream()));
  }
  if (!file.launches.empty()) {
    text += "\n| op | case | driver alone, ns | plan above | call above |\n|---|---|--:|--:|--:|\n";
  }
  for (const LaunchCost& c : file.launches) {
    text += fmt::format("| `{}` | {} | {:.0f} | {:.0f} | {:.0f} |\n", c.op, cell(c.label),
                        c.bare_ns, c.plan_ns - c.bare_ns, c.call_ns - c.bare_ns);
  }
  return text;
}

}  // namespace tessera::tools
