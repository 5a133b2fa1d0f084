// Builder: assertions, printing, marks, the author's CUDA functions, and programmatic dependent launch.

#include <fmt/format.h>

#include <algorithm>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

constexpr int kMaxMarks = 100;  // an event is a byte on the GPU

size_t count_places(const std::string& text) {
  size_t found = 0;
  for (size_t at = text.find("{}"); at != std::string::npos; at = text.find("{}", at + 2)) ++found;
  return found;
}

}  // namespace

void Builder::device_assert(Arg condition, std::string message, SourceLoc loc) {
  const Value test = condition.as(DType::boolean, recorder_.get());
  recorder_->check_in_scope(test.expr(), loc);
  recorder_->add({ir::Assert{test.expr(), std::move(message)}, loc});
}

void Builder::report_unless(Arg condition, std::string message, SourceLoc loc) {
  const Value test = condition.as(DType::boolean, recorder_.get());
  recorder_->check_in_scope(test.expr(), loc);
  std::vector<std::string>& reports = recorder_->kernel.reports;
  const auto known = std::find(reports.begin(), reports.end(), message);
  const auto number = static_cast<int>(known - reports.begin());
  if (known == reports.end()) reports.push_back(message);
  recorder_->add({ir::Assert{test.expr(), std::move(message), number}, loc});
}

void Builder::print(std::string text, std::vector<Arg> values, SourceLoc loc) {
  Recorder& r = *recorder_;
  if (count_places(text) != values.size()) {
    r.fail("PRINT", "a text has another number of places than there are values", loc,
           fmt::format("{} values for \"{}\"", count_places(text), text),
           fmt::format("{}", values.size()));
  }
  ir::Print node;
  node.text = std::move(text);
  for (const Arg& value : values) {
    node.args.push_back(value.value().expr());
    r.check_in_scope(node.args.back(), loc);
  }
  r.add({std::move(node), loc});
}

void Builder::mark(std::string name, const std::function<void()>& body, SourceLoc loc) {
  Recorder& r = *recorder_;
  if (name.empty()) r.fail("MARK", "a mark without a name", loc, "a name", "\"\"");
  if (r.parallel_depth > 0) {
    r.fail("MARK", fmt::format("mark \"{}\" in a parallel loop", name), loc,
           "a mark outside, where the threads of a warp are together", {},
           "put the whole loop into the mark");
  }
  std::vector<std::string>& names = r.kernel.marks;
  const auto known = std::find(names.begin(), names.end(), name);
  const auto number = static_cast<int>(known - names.begin());
  if (known == names.end()) names.push_back(name);
  if (std::ssize(names) > kMaxMarks) {
    r.fail("MARK", "a kernel has too many marks", loc, fmt::format("at most {} names", kMaxMarks),
           fmt::format("{}", names.size()));
  }
  r.add({ir::Print{name, {}, 2 * number}, loc});
  const int depth = r.depth();
  r.marks.push_back(name);
  body();
  r.marks.pop_back();
  if (r.depth() != depth) {
    r.fail("MARK", fmt::format("mark \"{}\" begins and does not end", name), loc,
           "a body that stays in its loop", "k.break_if in it",
           "end the mark before k.break_if, or put the whole loop into it");
  }
  r.add({ir::Print{std::move(name), {}, 2 * number + 1}, loc});
}

Value Builder::call(const ir::ExternFunction& function, std::vector<Arg> args, SourceLoc loc) {
  Recorder& r = *recorder_;
  check_name(r, function.name, loc);
  if (args.size() != function.params.size()) {
    r.fail("RANK", fmt::format("'{}' is called with the wrong number of values", function.name),
           loc, fmt::format("{}", function.params.size()), fmt::format("{}", args.size()));
  }
  ir::ExternCall node;
  node.function = std::make_shared<const ir::ExternFunction>(function);
  for (size_t i = 0; i < args.size(); ++i) {
    node.args.push_back(args[i].as(function.params[i], &r).expr());
    r.check_in_scope(node.args.back(), loc);
  }
  node.var = r.new_var(function.name + "_result", function.result, ir::VarKind::value, loc);
  const ir::VarRef result = node.var;
  r.add({std::move(node), loc});
  return Value(&r, ir::var(result));
}

void Builder::wait_for_previous_kernel(SourceLoc loc) {
  recorder_->add({ir::Dependency{ir::DependencyKind::wait}, loc});
}
void Builder::let_next_kernel_start(SourceLoc loc) {
  recorder_->add({ir::Dependency{ir::DependencyKind::trigger}, loc});
}

}  // namespace tessera::dsl
