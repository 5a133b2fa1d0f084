#include "tools/lib/report/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/lib/report/report_charts.h"
#include "tools/lib/text/svg.h"

namespace tessera::tools {
namespace {

// Colours of the families tell apart with any kind of colour vision; dark pages have lighter ones where
// the first would be lost.
constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #222; --soft: #666; --faint: #e4e4e4; --paper: #fff; --slow: #b00020; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --soft: #999; --faint: #3a3a3a; --paper: #181818; --slow: #ff6b7f; }
}
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1100px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.15em; margin-top: 2em; } .machine { color: var(--soft); }
.facts { display: flex; gap: 2.5em; margin: 1em 0; padding: 0; } .facts b { display: block; font-size: 1.7em; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.label { fill: var(--soft); } .note { fill: var(--ink); font-weight: 600; }
.grid { stroke: var(--faint); } .limit { stroke: var(--ink); } .mean { stroke: var(--ink); stroke-dasharray: 5 3; }
.roof { fill: none; stroke: var(--ink); stroke-width: 1.5; } .dashed { stroke-dasharray: 5 4; stroke-width: 1; }
.bar { opacity: .75; } .dot { stroke: var(--paper); stroke-width: .8; }
.moe { fill: #0072b2; } .quant { fill: #d55e00; } .transpose { fill: #009e73; } .engram { fill: #cc79a7; }
.mhc { fill: #e69f00; } .gemm { fill: #56b4e9; } .serving { fill: #882255; } .modeling { fill: #999933; } .attention { fill: #117733; }
.linear { fill: #332288; } .other { fill: #777; }
@media (prefers-color-scheme: dark) { .moe { fill: #3a8fd0; } .serving { fill: #c05a8e; } .linear { fill: #8f7fe0; } }
.legend span { margin-right: 1.5em; } .legend svg { width: 12px; vertical-align: -1px; margin-right: .4em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: right; padding: 2px 8px; border-bottom: 1px solid var(--faint); vertical-align: bottom; }
th { cursor: pointer; } td { white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; white-space: normal; }
.slower { color: var(--slow); font-weight: 600; }
)";

// A click on a column's title sorts the rows by it, a second one the other way.
constexpr const char* kSorting = R"(
for (const title of document.querySelectorAll('th')) title.onclick = () => {
  const table = title.closest('table'), column = title.cellIndex, sign = title.sign = -(title.sign || -1);
  const key = row => row.cells[column].textContent;
  const order = (a, b) => sign * (key(a).localeCompare(key(b), 'en', {numeric: true}));
  table.tBodies[0].append(...[...table.rows].slice(1).sort(order));
};
)";

std::string fact(const std::string& value, const std::string& meaning) {
  return fmt::format("<div><b>{}</b>{}</div>\n", value, meaning);
}

std::string summary(const BenchFile& file) {
  const std::vector<OpRatio> ratios = op_ratios(file);
  std::string html = "<div class=\"facts\">\n";
  if (!ratios.empty()) {
    size_t cases = 0, keeping_up = 0;
    for (const OpRatio& op : ratios) {
      cases += op.cases.size();
      keeping_up += static_cast<size_t>(std::count_if(
          op.cases.begin(), op.cases.end(), [](const BenchResult* one) { return keeps_up(*one); }));
    }
    html += fact(fmt::format("{:.2f}", mean_ratio(ratios)),
                 fmt::format("of the peer's time, geometric mean over {} ops", ratios.size()));
    html += fact(fmt::format("{} of {}", keeping_up, cases), "cases not slower than the peer");
  }
  const bool has_rates = std::any_of(file.results.begin(), file.results.end(),
                                     [](const auto& r) { return r.copy_gbs > 0; });
  const auto near_copy = std::count_if(file.results.begin(), file.results.end(),
                                       [](const auto& r) { return r.percent_of_copy() >= 92; });
  if (has_rates) {
    html += fact(fmt::format("{} of {}", near_copy, file.results.size()),
                 "cases at 92 % of the copy rate or more");
  }
  return html + "</div>\n";
}

std::string legend(const BenchFile& file) {
  std::vector<std::string> families;
  for (const BenchResult& r : file.results) {
    const std::string family = family_of(r.op);
    if (std::find(families.begin(), families.end(), family) == families.end()) {
      families.push_back(family);
    }
  }
  std::string html = "<p class=\"legend\">";
  for (const std::string& family : families) {
    Svg swatch(12, 12, family);
    swatch.circle({6, 6}, 5, family);
    html += fmt::format("<span>{}{}</span>", swatch.markup(), family);
  }
  return html + "</p>\n";
}

std::string row(const std::vector<std::string>& cells, const char* cell = "td") {
  std::string html = "<tr>";
  for (const std::string& text : cells) html += fmt::format("<{0}>{1}</{0}>", cell, text);
  return html + "</tr>\n";
}

/// A number that older records lack.
std::string known(bool is_known, const char* form, double value) {
  return is_known ? fmt::format(fmt::runtime(form), value) : "-";
}

std::string all_cases(const BenchFile& file) {
  std::string html =
      "<div class=\"wide\"><table>\n" + row({"op", "case", "us", "spread", "GB/s", "% of copy",
                                             "% of stream", "peer us", "scaled", "ours / peer"},
                                            "th");
  for (const BenchResult& r : file.results) {
    std::vector<std::string> cells = {
        escape_markup(r.op),
        escape_markup(r.label),
        fmt::format("{:.2f}", r.timing.us),
        known(r.timing.samples > 0, "{:.1f} %", 100 * r.timing.spread),
        fmt::format("{:.0f}", r.gbs),
        known(r.copy_gbs > 0, "{:.1f}", r.percent_of_copy()),
        known(r.stream_us > 0, "{:.1f}", r.percent_of_stream())};
    if (r.peer_us && r.peer_scaled_us) {
      cells.push_back(fmt::format("{:.2f}", *r.peer_us));
      cells.push_back(fmt::format("{:.2f}", *r.peer_scaled_us));
      cells.push_back(keeps_up(r)
                          ? fmt::format("{:.2f}", peer_ratio(r))
                          : fmt::format("<span class=\"slower\">{:.2f}</span>", peer_ratio(r)));
    } else {
      cells.insert(cells.end(), 3, "-");
    }
    html += row(cells);
  }
  return html + "</table></div>\n";
}

/// "times from CUPTI, driver 13.0, ..", of what the file says.
std::string provenance(const BenchMachine& m) {
  std::string text = "times from " + escape_markup(m.method);
  const auto add = [&](const char* before, const std::string& word) {
    if (!word.empty()) text += before + escape_markup(word);
  };
  add(", driver ", m.driver);
  add(", NVRTC ", m.nvrtc);
  add(", ", m.date);
  add(", Tessera ", m.code);
  return text;
}

std::string launch_costs(const BenchFile& file) {
  std::string html =
      "<div class=\"wide\"><table>\n" +
      row({"op", "case", "tensors", "kernels", "driver alone ns", "plan above", "call above"},
          "th");
  for (const LaunchCost& c : file.launches) {
    html += row({escape_markup(c.op), escape_markup(c.label), fmt::format("{}", c.num_tensors),
                 fmt::format("{}", c.num_kernels), fmt::format("{:.0f}", c.bare_ns),
                 fmt::format("{:.0f}", c.plan_ns - c.bare_ns),
                 fmt::format("{:.0f}", c.call_ns - c.bare_ns)});
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string report_page(const BenchFile& file) {
  const BenchMachine& m = file.machine;
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<title>Tessera on {0}</title>\n<style>{2}</style>\n</head>\n<body>\n"
      "<h1>Tessera on {0}</h1>\n<p class=\"machine\">{1}</p>\n",
      escape_markup(m.device), provenance(m), kStyle);
  if (!file.results.empty()) {
    html += summary(file) + legend(file);
    const std::string peers = draw_peer_ratios(file);
    if (!peers.empty()) html += "<h2>Against the peer</h2>\n" + peers;
    html += "<h2>Against the copy rate</h2>\n" + draw_roofline(file);
    html += "<h2>All cases</h2>\n" + all_cases(file);
  }
  if (!file.launches.empty()) html += "<h2>Host time of a call</h2>\n" + launch_costs(file);
  return html + fmt::format("<script>{}</script>\n</body>\n</html>\n", kSorting);
}

}  // namespace tessera::tools
