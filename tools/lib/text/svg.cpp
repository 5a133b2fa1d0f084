#include "tools/lib/text/svg.h"

#include <fmt/format.h>

namespace tessera::tools {
namespace {

std::string titled(std::string_view element, std::string_view attributes, std::string_view title) {
  if (title.empty()) return fmt::format("<{} {}/>\n", element, attributes);
  return fmt::format("<{} {}><title>{}</title></{}>\n", element, attributes, escape_markup(title),
                     element);
}

std::string_view word(Svg::Anchor anchor) {
  switch (anchor) {
    case Svg::Anchor::start:
      return "start";
    case Svg::Anchor::middle:
      return "middle";
    case Svg::Anchor::end:
      return "end";
  }
  return "start";
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

Svg::Svg(double width, double height, std::string_view label)
    : body_(fmt::format("<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\">\n", width,
                        height, escape_markup(label))) {}

void Svg::line(Point from, Point to, std::string_view style) {
  body_ +=
      fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n",
                  from.x, from.y, to.x, to.y, style);
}

void Svg::path(const std::vector<Point>& points, std::string_view style) {
  body_ += "<polyline points=\"";
  for (const Point& point : points) body_ += fmt::format("{:.1f},{:.1f} ", point.x, point.y);
  body_ += fmt::format("\" class=\"{}\"/>\n", style);
}

void Svg::rect(Point corner, double width, double height, std::string_view style,
               std::string_view title) {
  body_ += titled("rect",
                  fmt::format("x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                              "class=\"{}\"",
                              corner.x, corner.y, width, height, style),
                  title);
}

void Svg::spans(const std::vector<Span>& spans, double height, std::string_view style,
                std::string_view title) {
  std::string path;
  for (const Span& one : spans) {
    path += fmt::format("M{:.1f} {:.1f}h{:.1f}v{:g}h-{:.1f}z", one.corner.x, one.corner.y,
                        one.width, height, one.width);
  }
  body_ += titled("path", fmt::format("d=\"{}\" class=\"{}\"", path, style), title);
}

void Svg::circle(Point centre, double radius, std::string_view style, std::string_view title) {
  body_ += titled("circle",
                  fmt::format("cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" class=\"{}\"", centre.x,
                              centre.y, radius, style),
                  title);
}

void Svg::text(Point at, Anchor anchor, std::string_view text, std::string_view style) {
  body_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                  at.x, at.y, word(anchor), style, escape_markup(text));
}

std::string Svg::markup() const {
  return body_ + "</svg>\n";
}

}  // namespace tessera::tools
