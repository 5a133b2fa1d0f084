#include "runtime/cache/manifest.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace tessera::runtime {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 4;
constexpr size_t kMaxTextBytes = size_t{4} << 20;  // the log in it has 64 KB at most
constexpr size_t kMaxParams = 4096;
constexpr int64_t kMaxBytesPerBlock = int64_t{1} << 24;  // far above any device's shared memory

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Reads typed, range-checked members; after the first failure everything reads as empty and ok() is
// false.
class Reader {
 public:
  explicit Reader(const json& object) : object_(object), ok_(object.is_object()) {}

  bool ok() const { return ok_; }

  std::string text(const char* name) {
    const json* value = find(name);
    if (!value || !value->is_string()) return fail<std::string>();
    return value->get<std::string>();
  }
  std::string identifier(const char* name) {
    std::string value = text(name);
    return is_identifier(value) ? value : fail<std::string>();
  }
  int64_t integer(const char* name, int64_t min, int64_t max) {
    const json* value = find(name);
    if (!value || !value->is_number_integer()) return fail<int64_t>();
    if (value->is_number_unsigned() &&
        value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return fail<int64_t>();
    }
    const int64_t number = value->get<int64_t>();
    return number >= min && number <= max ? number : fail<int64_t>();
  }
  bool boolean(const char* name) {
    const json* value = find(name);
    if (!value || !value->is_boolean()) return fail<bool>();
    return value->get<bool>();
  }
  const json& array(const char* name) {
    // Never destroyed: other threads may read entries while the process exits.
    static const auto& kEmpty = *new json(json::array());
    const json* value = find(name);
    if (value && value->is_array() && value->size() <= kMaxParams) return *value;
    ok_ = false;
    return kEmpty;
  }
  template <class T>
  T fail() {
    ok_ = false;
    return T{};
  }

 private:
  const json* find(const char* name) const {
    if (!ok_) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }

  const json& object_;
  bool ok_;
};

json encode_params(const std::vector<KernelParam>& params) {
  json list = json::array();
  for (const KernelParam& param : params) {
    list.push_back({{"name", param.name},
                    {"pointer", param.is_pointer},
                    {"dtype", std::string(name(param.dtype))}});
  }
  return list;
}

bool decode_params(const json& list, std::vector<KernelParam>& params) {
  for (const json& item : list) {
    Reader reader(item);
    const auto dtype = dtype_from_name(reader.text("dtype"));
    if (!dtype) return false;
    params.push_back({reader.identifier("name"), reader.boolean("pointer"), *dtype});
    if (!reader.ok()) return false;
  }
  return true;
}

bool decode_key_fields(const json& list, std::vector<KeyField>& fields) {
  for (const json& item : list) {
    Reader reader(item);
    fields.push_back({reader.text("name"), reader.text("value")});
    if (!reader.ok()) return false;
  }
  return true;
}

std::string dump(const json& value) {
  // A compiler log may hold bytes that are not UTF-8: they are replaced, not thrown about.
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
  return dump({{"key", key.hex},
               {"key_fields", key_fields},
               {"op", image.op},
               {"entry", image.entry},
               {"target", to_string(image.target)},
               {"params", encode_params(image.params)},
               {"threads", image.threads},
               {"shared_bytes", image.shared_bytes},
               {"cluster", image.cluster},
               {"options", image.options},
               {"waits_for_previous", image.waits_for_previous},
               {"cooperative", image.cooperative},
               {"registers", image.resources.registers},
               {"spill_bytes", image.resources.spill_bytes},
               {"stack_bytes", image.resources.stack_bytes},
               {"static_shared", image.resources.static_shared},
               {"compiler", image.compiler},
               {"log", image.log}});
}

std::optional<Manifest> decode_manifest(std::string_view text) {
  if (text.size() > kMaxTextBytes) return std::nullopt;
  bool too_deep = false;
  const auto watch_depth = [&](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  const json root = json::parse(text.begin(), text.end(), watch_depth, false);
  if (root.is_discarded() || too_deep) return std::nullopt;

  Manifest manifest;
  Reader reader(root);
  Image& image = manifest.image;
  manifest.key.hex = reader.text("key");
  image.op = reader.identifier("op");
  image.entry = reader.identifier("entry");
  const auto target = parse_target(reader.text("target"));
  if (!target) return std::nullopt;
  image.target = *target;
  image.threads = static_cast<int>(reader.integer("threads", 1, 1024));
  image.shared_bytes = reader.integer("shared_bytes", 0, kMaxBytesPerBlock);
  image.cluster = static_cast<int>(reader.integer("cluster", 1, 16));
  image.resources.registers = static_cast<int>(reader.integer("registers", 0, 255));
  image.resources.spill_bytes = reader.integer("spill_bytes", 0, kMaxBytesPerBlock);
  image.resources.stack_bytes = reader.integer("stack_bytes", 0, kMaxBytesPerBlock);
  image.resources.static_shared = reader.integer("static_shared", 0, kMaxBytesPerBlock);
  image.compiler = reader.text("compiler");
  image.log = reader.text("log");
  image.waits_for_previous = reader.boolean("waits_for_previous");
  image.cooperative = reader.boolean("cooperative");
  for (const json& option : reader.array("options")) {
    if (!option.is_string()) return std::nullopt;
    image.options.push_back(option.get<std::string>());
  }
  const bool lists_ok = decode_params(reader.array("params"), image.params) &&
                        decode_key_fields(reader.array("key_fields"), manifest.key.fields);
  if (!lists_ok || !reader.ok()) return std::nullopt;
  return manifest;
}

}  // namespace tessera::runtime
