#include "tools/lib/report/report_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "tools/lib/own_kernel.h"
#include "tools/lib/text/svg.h"

namespace tessera::tools {
namespace {

using Anchor = Svg::Anchor;
using Point = Svg::Point;

constexpr double kWidth = 960;

/// Values from `low` to `high` on pixels from `begin` to `end`.
struct Axis {
  double low = 0, high = 1, begin = 0, end = 1;
  bool logarithmic = false;

  double operator()(double value) const {
    const auto at = [&](double v) { return logarithmic ? std::log10(v) : v; };
    return begin + (at(value) - at(low)) / (at(high) - at(low)) * (end - begin);
  }
};

/// The powers of ten around all values.
Axis decades(double smallest, double largest, double begin, double end) {
  double low = std::pow(10, std::floor(std::log10(smallest)));
  double high = std::pow(10, std::ceil(std::log10(largest)));
  if (!(high > low)) high = low * 10;
  return {low, high, begin, end, true};
}

std::string si(double value, const char* unit) {
  constexpr std::array<const char*, 5> kPrefixes = {"", "k", "M", "G", "T"};
  size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{:.3g} {}{}", value, kPrefixes[prefix], unit);
}

std::string describe(const BenchResult& r) {
  std::string text =
      fmt::format("{}, {}: {:.2f} us, {:.0f} GB/s", r.op, r.label, r.timing.us, r.gbs);
  if (r.copy_gbs > 0) text += fmt::format(", {:.0f} % of copy", r.percent_of_copy());
  if (r.peer_scaled_us) text += fmt::format(", {:.2f} of the peer's time", peer_ratio(r));
  return text;
}

}  // namespace

std::string family_of(const std::string& op) {
  for (const kernels::OpInfo& known : program_ops()) {
    if (known.name == op) return known.family;
  }
  return "other";
}

std::string draw_peer_ratios(const BenchFile& file) {
  std::vector<OpRatio> ratios = op_ratios(file);
  if (ratios.empty()) return "";
  std::stable_sort(ratios.begin(), ratios.end(),
                   [](const OpRatio& a, const OpRatio& b) { return a.ratio < b.ratio; });
  double largest = 1;
  for (const OpRatio& op : ratios) {
    for (const BenchResult* one : op.cases) largest = std::max(largest, peer_ratio(*one));
  }
  constexpr double kTop = 28, kRow = 22, kBar = 12, kLeft = 270, kRight = 60;
  const double bottom = kTop + kRow * static_cast<double>(ratios.size());
  const Axis x{0, std::ceil(largest * 5 + 0.25) / 5, kLeft, kWidth - kRight, false};

  Svg svg(kWidth, bottom + 40, "Time of each op over the peer's");
  const int steps = static_cast<int>(std::lround(x.high * 5));
  const int every = steps > 20 ? 5 : 1;
  for (int step = 0; step <= steps; step += every) {
    const double value = step / 5.0;
    svg.line({x(value), kTop}, {x(value), bottom}, "grid");
    svg.text({x(value), bottom + 16}, Anchor::middle, fmt::format("{:g}", value));
  }
  svg.text({(x.begin + x.end) / 2, bottom + 34}, Anchor::middle,
           "our time / peer's time (less is faster); bars: mean of the cases, dots: cases");
  double y = kTop;
  for (const OpRatio& op : ratios) {
    const std::string family = family_of(op.op);
    const double middle = y + kRow / 2;
    svg.text({kLeft - 10, middle + 4}, Anchor::end, op.op);
    svg.rect({x(0), middle - kBar / 2}, x(op.ratio) - x(0), kBar, "bar " + family,
             fmt::format("{}: {:.2f} over {} cases", op.op, op.ratio, op.cases.size()));
    for (const BenchResult* one : op.cases) {
      svg.circle({x(peer_ratio(*one)), middle}, 3, "dot " + family, describe(*one));
    }
    svg.text({x.end + 10, middle + 4}, Anchor::start, fmt::format("{:.2f}", op.ratio));
    y += kRow;
  }
  svg.line({x(1), kTop - 6}, {x(1), bottom}, "limit");
  svg.text({x(1), kTop - 12}, Anchor::middle, "peer", "note");
  const double mean = mean_ratio(ratios);
  svg.line({x(mean), kTop - 6}, {x(mean), bottom}, "mean");
  svg.text({x(mean), kTop - 12}, Anchor::middle, fmt::format("mean {:.2f}", mean), "note");
  return svg.markup();
}

std::string draw_roofline(const BenchFile& file) {
  if (file.results.empty()) return "";
  std::map<int64_t, double> copy;  // bytes -> GB/s; empty for a record without copy rates
  double least_gbs = file.results.front().gbs, most_gbs = least_gbs;
  int64_t least_bytes = file.results.front().bytes, most_bytes = least_bytes;
  for (const BenchResult& r : file.results) {
    least_bytes = std::min(least_bytes, r.bytes);
    most_bytes = std::max(most_bytes, r.bytes);
    for (const double gbs : {r.gbs, r.copy_gbs > 0 ? r.copy_gbs : r.gbs}) {
      least_gbs = std::min(least_gbs, gbs);
      most_gbs = std::max(most_gbs, gbs);
    }
    if (r.copy_gbs > 0) copy[r.bytes] = r.copy_gbs;
  }
  constexpr double kTop = 16, kBottom = 430, kLeft = 80, kRight = 20;
  const Axis x = decades(static_cast<double>(least_bytes), static_cast<double>(most_bytes), kLeft,
                         kWidth - kRight);
  const Axis y = decades(least_gbs, most_gbs, kBottom, kTop);

  Svg svg(kWidth, kBottom + 44, "Bandwidth of each case against the copy rate");
  for (double bytes = x.low; bytes < x.high * 1.01; bytes *= 10) {
    svg.line({x(bytes), kTop}, {x(bytes), kBottom}, "grid");
    svg.text({x(bytes), kBottom + 16}, Anchor::middle, si(bytes, "B"));
  }
  for (double gbs = y.low; gbs < y.high * 1.01; gbs *= 10) {
    svg.line({x.begin, y(gbs)}, {x.end, y(gbs)}, "grid");
    svg.text({x.begin - 8, y(gbs) + 4}, Anchor::end, si(gbs * 1e9, "B/s"));
  }
  svg.text({(x.begin + x.end) / 2, kBottom + 36}, Anchor::middle,
           copy.empty()
               ? "least bytes of the case"
               : "least bytes of the case; line: copy of as many bytes, dashes: 92 % of it");
  std::vector<Point> roof, bar;
  for (const auto& [bytes, gbs] : copy) {
    roof.push_back({x(static_cast<double>(bytes)), y(gbs)});
    bar.push_back({x(static_cast<double>(bytes)), y(0.92 * gbs)});
  }
  if (!roof.empty()) {
    svg.path(roof, "roof");
    svg.path(bar, "roof dashed");
  }
  for (const BenchResult& r : file.results) {
    svg.circle({x(static_cast<double>(r.bytes)), y(r.gbs)}, 4, "dot " + family_of(r.op),
               describe(r));
  }
  return svg.markup();
}

}  // namespace tessera::tools
