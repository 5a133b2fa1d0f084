// The roofline of a record as a file of its own: report's drawing with its colours and a legend inside, readable on
// a light and on a dark page.

#include <fmt/format.h>

#include <algorithm>

#include "tools/lib/bench/bench_file.h"
#include "tools/lib/docs/measured_page.h"
#include "tools/lib/report/report_charts.h"
#include "tools/lib/text/svg.h"

namespace tessera::tools {
namespace {

constexpr const char* kStyle = R"(
svg { background: #fff; font: 12px system-ui, sans-serif; }
.label { fill: #444; } .grid { stroke: #e4e4e4; } .dot { stroke: #fff; stroke-width: .8; }
.roof { fill: none; stroke: #222; stroke-width: 1.5; } .dashed { stroke-dasharray: 5 4; stroke-width: 1; }
.moe { fill: #0072b2; } .quant { fill: #d55e00; } .transpose { fill: #009e73; } .engram { fill: #cc79a7; }
.mhc { fill: #e69f00; } .modeling { fill: #999933; } .attention { fill: #117733; } .serving { fill: #882255; } .other { fill: #777; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; } .label { fill: #c9d1d9; } .grid { stroke: #30363d; } .dot { stroke: #0d1117; }
  .roof { stroke: #e6edf3; } .moe { fill: #3a8fd0; } .serving { fill: #c05a8e; }
}
)";

/// The recorded cases as a run of bench has them, products left out: their bound is another one.
BenchFile bench_file(const Records& records) {
  BenchFile file;
  for (const kernels::OpInfo& op : kernels::ops()) {
    for (const kernels::BenchCase& one : op.bench) {
      if (product_flops(op, one) > 0) continue;
      auto result = recorded_result(op, one, records.h200);
      if (result) file.results.push_back(*std::move(result));
    }
  }
  return file;
}

std::string legend(const BenchFile& file) {
  std::vector<std::string> families;
  for (const BenchResult& one : file.results) {
    const std::string family = family_of(one.op);
    if (std::find(families.begin(), families.end(), family) == families.end()) {
      families.push_back(family);
    }
  }
  std::string text;
  for (size_t i = 0; i < families.size(); ++i) {
    const double y = 40 + 20 * static_cast<double>(i);
    text += fmt::format(
        "<circle cx=\"106\" cy=\"{:g}\" r=\"5\" class=\"{}\"/>\n<text x=\"118\" y=\"{:g}\" "
        "class=\"label\">{}"
        "</text>\n",
        y, families[i], y + 4, families[i]);
  }
  return text;
}

}  // namespace

std::string roofline_picture(const Records& records) {
  const BenchFile file = bench_file(records);
  std::string picture = draw_roofline(file);
  const size_t first = picture.find('\n') + 1;
  picture.insert(picture.rfind("</svg>"), legend(file));
  picture.insert(first, fmt::format("<title>{}, {}</title>\n<style>{}</style>\n",
                                    escape_markup(records.h200_run.card),
                                    escape_markup(records.h200_run.date), kStyle));
  picture.insert(std::string("<svg ").size(), "xmlns=\"http://www.w3.org/2000/svg\" ");
  return picture;
}

}  // namespace tessera::tools
