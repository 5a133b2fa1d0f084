// Builder: tables of constants, looked up by selects.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/operands.h"
#include "dsl/recorder.h"

namespace tessera::dsl {

Table Builder::table(DType dtype, std::vector<Arg> values, SourceLoc loc) {
  constexpr size_t kMost = 256;
  if (values.empty() || values.size() > kMost) {
    recorder_->fail("TABLE", "a table of constants has an impossible length", loc,
                    fmt::format("1 .. {}", kMost), fmt::format("{}", values.size()),
                    "keep a longer table in an input tensor");
  }
  Table table;
  table.recorder_ = recorder_.get();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].is_literal()) {
      recorder_->fail("TABLE", fmt::format("element {} of a table is no constant", i), loc,
                      "a number", "a value of the kernel", "keep it in a fragment or in k.local");
    }
    table.values_.push_back(values[i].as(dtype, recorder_.get()));
  }
  return table;
}

Value Table::operator()(const Arg& index, SourceLoc loc) const {
  Recorder& r = *recorder_;
  const Value given = index.value();
  if (is_float(given.dtype()) || given.dtype() == DType::boolean) {
    r.fail("DTYPE", "the index of a table is no integer", loc, "an integer",
           std::string(name(given.dtype())));
  }
  r.check_in_scope(given.expr(), loc);
  const auto let = [&](const char* name, const Value& value) {
    auto var = r.new_var(name, value.dtype(), ir::VarKind::value, loc);
    r.add({ir::Let{var, value.expr()}, loc});
    return Value(&r, ir::var(var));
  };
  const Value at = let("index", given);
  // Neighbours that differ in the lowest bit of the index first; then those that the next bit tells apart.
  std::vector<Value> left = values_;
  for (int64_t bit = 1; left.size() > 1; bit *= 2) {
    const Value is_set = let("bit", (Arg(at, loc) & bit) != 0);
    std::vector<Value> chosen;
    for (size_t i = 0; i < left.size(); i += 2) {
      const bool differ = i + 1 < left.size() && !ir::equal(left[i].expr(), left[i + 1].expr());
      chosen.push_back(differ ? select(is_set, left[i + 1], left[i]) : left[i]);
    }
    left = std::move(chosen);
  }
  return left.front();
}

}  // namespace tessera::dsl
