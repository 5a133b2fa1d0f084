#include "runtime/cache/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/cache/kernel_json.h"
#include "runtime/check_source.h"

namespace tessera::runtime {
namespace {

using nlohmann::json;

constexpr size_t kMaxManifestBytes = size_t{4} << 20;  // the log in the manifest has 64 KB at most

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::vector<KeyField> decode_key_fields(JsonReader& reader) {
  std::vector<KeyField> fields;
  const json* list = reader.list("key_fields");
  for (size_t i = 0; list && i < list->size() && reader.ok(); ++i) {
    JsonReader item(list->at(i));
    fields.push_back({item.text("name"), item.text("value")});
    if (!item.ok()) reader.fail(item.expected(), &list->at(i));
  }
  return fields;
}

std::string dump(const json& value) {
  // A compiler log may hold bytes that are not UTF-8. dump() replaces them and does not throw.
  return value.dump(1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

bool is_identifier(std::string_view name) {
  return !name.empty() && name.size() <= 64 && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

std::string encode_manifest(const CacheKey& key, const Image& image) {
  json key_fields = json::array();
  for (const KeyField& field : key.fields) {
    key_fields.push_back({{"name", field.name}, {"value", field.value}});
  }
  json object = encode_facts(facts_of(image));
  object.update({{"key", key.hex},
                 {"key_fields", key_fields},
                 {"target", to_string(image.target)},
                 {"registers", image.resources.registers},
                 {"spill_bytes", image.resources.spill_bytes},
                 {"stack_bytes", image.resources.stack_bytes},
                 {"static_shared", image.resources.static_shared},
                 {"compiler", image.compiler},
                 {"log", image.log}});
  return dump(object);
}

std::optional<Manifest> decode_manifest(std::string_view text) {
  if (text.size() > kMaxManifestBytes) return std::nullopt;
  const auto root = parse_json(text);
  if (!root) return std::nullopt;
  Manifest manifest;
  JsonReader reader(*root);
  Image& image = manifest.image;
  const KernelSource facts = decode_facts(reader);
  manifest.key = {reader.text("key"), decode_key_fields(reader)};
  const auto target = parse_target(reader.text("target"));
  image.resources.registers = static_cast<int>(reader.integer("registers", 0, 255));
  image.resources.spill_bytes = reader.integer("spill_bytes", 0, kMaxBytesPerBlock);
  image.resources.stack_bytes = reader.integer("stack_bytes", 0, kMaxBytesPerBlock);
  image.resources.static_shared = reader.integer("static_shared", 0, kMaxBytesPerBlock);
  image.compiler = reader.text("compiler");
  image.log = reader.text("log");
  if (!reader.ok() || !target || find_fact_problem(facts)) return std::nullopt;
  copy_facts(facts, image);
  image.target = *target;
  return manifest;
}

}  // namespace tessera::runtime
