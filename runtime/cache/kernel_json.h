#pragma once
// The facts of a kernel as JSON, for manifests and recordings, and a JSON reader for untrusted
// text.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/kernel_source.h"

namespace tessera::runtime {

/// Parses a flat JSON text (objects and arrays at most 4 deep). Returns nothing for anything else.
/// Never throws; time and memory are bounded by the length of the text.
std::optional<nlohmann::json> parse_json(std::string_view text);

/// Reads typed members of an object. After the first failure all reads return empty values and ok()
/// is false; expected() and got() describe that failure.
class JsonReader {
 public:
  explicit JsonReader(const nlohmann::json& object);

  bool ok() const { return expected_.empty(); }
  const std::string& expected() const { return expected_; }  // "a number 'threads'"
  const std::string& got() const { return got_; }            // "-1.5", "nothing"

  std::string text(const char* name);
  int64_t integer(const char* name, int64_t min, int64_t max);
  bool boolean(const char* name);
  std::vector<std::string> texts(const char* name);
  /// Null after a failure.
  const nlohmann::json* list(const char* name);
  bool has(const char* name) const;

  void fail(std::string expected, const nlohmann::json* got);

 private:
  const nlohmann::json* find(const char* name, const char* kind);

  const nlohmann::json& object_;
  std::string expected_, got_;
};

/// Op, entry, parameters, launch facts and options of a kernel; not its text.
nlohmann::json encode_facts(const KernelSource& facts);
/// Reads them back. Types are checked here, values by find_fact_problem(); see reader.ok().
KernelSource decode_facts(JsonReader& reader);

}  // namespace tessera::runtime
