#include "tools/lib/files/json_scan.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tessera::tools {
namespace {

using Json = nlohmann::json;

/// Every handler returns whether to go on.
class Scanner : public nlohmann::json_sax<Json> {
 public:
  Scanner(int most_levels, size_t most_names)
      : most_levels_(static_cast<size_t>(most_levels)), most_names_(most_names) {}

  JsonScan found;

  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (names_.back().insert(name).second) {
      found.too_many = names_.back().size() > most_names_;
      return !found.too_many;
    }
    found.repeats = true;
    found.repeated_name = std::move(name);
    return false;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Json::number_integer_t) override { return true; }
  bool number_unsigned(Json::number_unsigned_t) override { return true; }
  bool number_float(Json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  bool enter() {
    names_.emplace_back();
    found.too_deep = names_.size() > most_levels_;
    return !found.too_deep;
  }
  bool leave() {
    names_.pop_back();
    return true;
  }

  size_t most_levels_, most_names_;
  std::vector<std::unordered_set<std::string>> names_;  // of the open objects; empty for arrays
};

}  // namespace

JsonScan scan_json(const std::string& text, int most_levels, size_t most_names) {
  Scanner scanner(most_levels, most_names);
  Json::sax_parse(text, &scanner);
  return scanner.found;
}

std::string json_problem(const std::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 1: ..."
  const std::string_view text = error.what();
  const size_t end =
      text.starts_with("[json.exception.") ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

}  // namespace tessera::tools
