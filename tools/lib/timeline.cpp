#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "tools/lib/text/svg.h"
#include "tools/lib/trial.h"

namespace tessera::tools {
namespace {

using kernels::jit::Timeline;
using Bar = Timeline::Bar;
using Row = Timeline::Row;

constexpr const char* kStyle = R"(
svg { background: #fff; font: 12px system-ui, sans-serif; }
.label { fill: #444; } .small { fill: #fff; font-size: 10px; } .grid { stroke: #e4e4e4; }
.m0 { fill: #0072b2; } .m1 { fill: #d55e00; } .m2 { fill: #009e73; } .m3 { fill: #b0588a; }
.m4 { fill: #a06a00; } .m5 { fill: #882255; } .m6 { fill: #777722; } .m7 { fill: #44779a; } .wait { fill: #888; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; } .label { fill: #c9d1d9; } .grid { stroke: #30363d; } .wait { fill: #666; }
}
)";
constexpr int kColours = 8;
constexpr double kWidth = 960, kRight = 20, kTop = 40, kRow = 20, kBox = 16, kGap = 10;
constexpr double kLetter = 6;  // at most, of the small font

int64_t length_of(const Timeline& timeline) {
  int64_t end = 1;
  for (const Row& row : timeline.rows) {
    for (const Bar& bar : row.bars) end = std::max(end, bar.end);
  }
  return end;
}

/// The waits for rings are the last mark.
bool is_wait(const Timeline& timeline, int mark) {
  return mark + 1 == std::ssize(timeline.marks);
}

std::string name_of(const Timeline& timeline, int mark) {
  return timeline.marks.at(static_cast<size_t>(mark));
}

std::vector<int> marks_in(const Timeline& timeline) {
  std::vector<int> marks;
  for (const Row& row : timeline.rows) {
    for (const Bar& bar : row.bars) marks.push_back(bar.mark);
  }
  std::sort(marks.begin(), marks.end());
  marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
  return marks;
}

std::string label_of(const Row& row) {
  return row.role.empty() ? fmt::format("warp {}", row.warp)
                          : fmt::format("{}, warp {}", row.role, row.warp);
}

int64_t dropped_by(const Timeline& timeline) {
  int64_t sum = 0;
  for (const Row& row : timeline.rows) sum += row.dropped;
  return sum;
}

/// "gemm, block 0: 4192 steps, 12 begins and ends did not fit"
std::string title_of(const Timeline& timeline) {
  std::string text = fmt::format("{}, block {}: {} {}", timeline.kernel, timeline.block,
                                 length_of(timeline), timeline.unit);
  const int64_t dropped = dropped_by(timeline);
  if (dropped > 0) text += fmt::format(", {} begins and ends did not fit", dropped);
  return text;
}

class Picture {
 public:
  explicit Picture(const Timeline& timeline)
      : timeline_(timeline),
        end_(length_of(timeline)),
        left_(left_of(timeline)),
        svg_(kWidth, height(), title_of(timeline)) {}

  std::string file() {
    legend();
    axis();
    double y = kTop;
    for (size_t i = 0; i < timeline_.rows.size(); ++i) {
      const bool is_new = i > 0 && timeline_.rows[i].role != timeline_.rows[i - 1].role;
      if (is_new) y += kGap;
      row(timeline_.rows[i], y, i == 0 || is_new);
      y += kRow;
    }
    std::string text = svg_.markup();
    text.insert(text.find('\n') + 1, fmt::format("<title>{}</title>\n<style>{}</style>\n",
                                                 escape_markup(title_of(timeline_)), kStyle));
    text.insert(std::string("<svg ").size(), "xmlns=\"http://www.w3.org/2000/svg\" ");
    return text;
  }

 private:
  double height() const { return bottom() + 24; }
  double bottom() const {
    double y = kTop;
    for (size_t i = 0; i < timeline_.rows.size(); ++i) {
      if (i > 0 && timeline_.rows[i].role != timeline_.rows[i - 1].role) y += kGap;
      y += kRow;
    }
    return y;
  }
  double x_of(int64_t time) const {
    return left_ +
           (kWidth - left_ - kRight) * static_cast<double>(time) / static_cast<double>(end_);
  }
  std::string style_of(int mark) const {
    return is_wait(timeline_, mark) ? "wait" : fmt::format("m{}", mark % kColours);
  }

  void legend() {
    double x = left_;
    for (const int mark : marks_in(timeline_)) {
      svg_.rect({x, 12}, 12, 12, style_of(mark));
      svg_.text({x + 17, 22}, Svg::Anchor::start, name_of(timeline_, mark));
      x += 40 + 7 * static_cast<double>(name_of(timeline_, mark).size());
    }
  }

  /// About eight ticks at multiples of 1, 2 or 5 times a power of ten.
  void axis() {
    const double wanted = static_cast<double>(end_) / 8;
    double step = std::pow(10, std::floor(std::log10(std::max(wanted, 1.0))));
    for (const double factor : {5.0, 2.0}) {
      if (step * factor <= wanted) {
        step *= factor;
        break;
      }
    }
    for (int64_t time = 0; time <= end_; time += std::max<int64_t>(1, std::llround(step))) {
      const double x = x_of(time);
      svg_.line({x, kTop - 4}, {x, bottom()}, "grid");
      svg_.text({x, bottom() + 16}, Svg::Anchor::middle, fmt::format("{}", time));
    }
    svg_.text({4, bottom() + 16}, Svg::Anchor::start, timeline_.unit);
  }

  void row(const Row& row, double y, bool is_first) {
    svg_.text({4, y + 12}, Svg::Anchor::start, label_of(row));
    std::map<std::pair<int, int>, std::vector<Svg::Span>> spans;  // by depth and mark
    for (const Bar& bar : row.bars) {
      const double x = x_of(bar.begin), width = std::max(x_of(bar.end) - x, 0.5);
      spans[{bar.depth, bar.mark}].push_back({{x, y + inset(bar.depth)}, width});
    }
    for (const auto& [key, boxes] : spans) {
      svg_.spans(boxes, kBox - 2 * inset(key.first), style_of(key.second),
                 name_of(timeline_, key.second));
    }
    if (!is_first) return;
    for (const Bar& bar : row.bars) {
      const std::string name = name_of(timeline_, bar.mark);
      const double free = x_of(bar.end) - x_of(bar.begin);
      const bool has_inner = std::any_of(row.bars.begin(), row.bars.end(), [&](const Bar& other) {
        return other.depth > bar.depth && other.begin >= bar.begin && other.end <= bar.end;
      });
      if (has_inner || free < kLetter * static_cast<double>(name.size()) + 4) continue;
      svg_.text({x_of(bar.begin) + free / 2, y + 12}, Svg::Anchor::middle, name, "small");
    }
  }
  static double inset(int depth) { return std::min(3.0 * depth, 6.0); }

  static double left_of(const Timeline& timeline) {
    size_t longest = 14;
    for (const Row& row : timeline.rows) longest = std::max(longest, label_of(row).size());
    return 12 + 7 * static_cast<double>(longest);
  }

  const Timeline& timeline_;
  const int64_t end_;
  const double left_;  // of the boxes
  Svg svg_;
};

/// One letter per mark, in the order of their names in the kernel.
char letter_of(const Timeline& timeline, int mark) {
  return is_wait(timeline, mark) ? '-' : static_cast<char>(mark < 26 ? 'a' + mark : '#');
}

std::string line_of(const Timeline& timeline, const Row& row) {
  constexpr int64_t kColumns = 64;
  const int64_t end = length_of(timeline);
  std::string line(kColumns, '.');
  for (const Bar& bar : row.bars) {  // inner ones come later
    // A short wait leaves the column to what is there already.
    const bool makes_way =
        is_wait(timeline, bar.mark) && 2 * kColumns * (bar.end - bar.begin) < end;
    const int64_t first = std::min(bar.begin * kColumns / end, kColumns - 1);
    const int64_t last = std::clamp((bar.end * kColumns + end - 1) / end, first + 1, kColumns);
    for (int64_t i = first; i < last; ++i) {
      char& letter = line[static_cast<size_t>(i)];
      if (letter == '.' || !makes_way) letter = letter_of(timeline, bar.mark);
    }
  }
  return line;
}

/// A mark in the warps of a role together.
struct Sums {
  int64_t times = 0, length = 0;
};

}  // namespace

std::string timeline_picture(const Timeline& timeline) {
  return Picture(timeline).file();
}

std::string timeline_text(const Timeline& timeline) {
  std::string text = title_of(timeline) + "\n";
  size_t width = 0;
  for (const Row& row : timeline.rows) width = std::max(width, label_of(row).size());
  std::map<std::pair<std::string, int>, Sums> sums;
  std::map<std::string, int64_t> warps;
  for (const Row& row : timeline.rows) {
    text += fmt::format("{:{}}  {}\n", label_of(row), width, line_of(timeline, row));
    ++warps[row.role];
    for (const Bar& bar : row.bars) {
      Sums& sum = sums[{row.role, bar.mark}];
      ++sum.times;
      sum.length += bar.end - bar.begin;
    }
  }
  for (const auto& [key, sum] : sums) {
    const auto& [role, mark] = key;
    const double mean = static_cast<double>(sum.length) / static_cast<double>(warps.at(role));
    const double times = static_cast<double>(sum.times) / static_cast<double>(warps.at(role));
    text += fmt::format("{}  {}{}{}: {:.3g} times, {:.0f} {} of each warp, {:.0f} %\n",
                        letter_of(timeline, mark), role, role.empty() ? "" : ", ",
                        name_of(timeline, mark), times, mean, timeline.unit,
                        100 * mean / static_cast<double>(length_of(timeline)));
  }
  return text;
}

}  // namespace tessera::tools
