#pragma once
// A drawing in SVG, for a page that brings its own style sheet: shapes carry class names, no colours.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// The text with &, <, > and quotes as entities.
std::string escape_markup(std::string_view text);

class Svg {
 public:
  struct Point {
    double x = 0, y = 0;  // pixels from the left and the top
  };
  enum class Anchor : unsigned char { start, middle, end };

  /// `label` is read aloud in place of the drawing.
  Svg(double width, double height, std::string_view label);

  void line(Point from, Point to, std::string_view style);
  void path(const std::vector<Point>& points, std::string_view style);
  /// Shapes with a title show it under the mouse.
  void rect(Point corner, double width, double height, std::string_view style,
            std::string_view title = {});
  /// Many boxes of one height as one shape: of each the left upper corner and the width.
  struct Span {
    Point corner;
    double width = 0;
  };
  void spans(const std::vector<Span>& spans, double height, std::string_view style,
             std::string_view title = {});
  void circle(Point centre, double radius, std::string_view style, std::string_view title = {});
  /// The base line of the text starts, has its middle or ends at `at`.
  void text(Point at, Anchor anchor, std::string_view text, std::string_view style = "label");

  /// The whole element.
  std::string markup() const;

 private:
  std::string body_;
};

}  // namespace tessera::tools
