#include "runtime/cache/kernel_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera::runtime {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 4;
constexpr size_t kMaxShown = 60;
constexpr int64_t kMaxInt = std::numeric_limits<int>::max();

std::string shown(const json* value) {
  if (!value) return "nothing";
  std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kMaxShown ? text : text.substr(0, kMaxShown) + "...";
}

}  // namespace

std::optional<json> parse_json(std::string_view text) {
  bool too_deep = false;
  const auto watch_depth = [&](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  json root = json::parse(text.begin(), text.end(), watch_depth, false);
  if (root.is_discarded() || too_deep) return std::nullopt;
  return root;
}

JsonReader::JsonReader(const json& object) : object_(object) {
  if (!object.is_object()) fail("an object", &object);
}

void JsonReader::fail(std::string expected, const json* got) {
  if (!ok()) return;
  expected_ = std::move(expected);
  got_ = shown(got);
}

bool JsonReader::has(const char* name) const {
  return object_.contains(name);
}

// Returns null and records the failure if there is no such member.
const json* JsonReader::find(const char* name, const char* kind) {
  if (!ok()) return nullptr;
  const auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  fail(fmt::format("{} '{}'", kind, name), nullptr);
  return nullptr;
}

std::string JsonReader::text(const char* name) {
  const json* value = find(name, "a text");
  if (value && value->is_string()) return value->get<std::string>();
  if (value) fail(fmt::format("a text '{}'", name), value);
  return "";
}

int64_t JsonReader::integer(const char* name, int64_t min, int64_t max) {
  const json* value = find(name, "a whole number");
  if (!value) return 0;
  const bool is_huge = value->is_number_unsigned() &&
                       value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (value->is_number_integer() && !is_huge) {
    const int64_t number = value->get<int64_t>();
    if (number >= min && number <= max) return number;
  }
  fail(fmt::format("a whole number '{}' from {} to {}", name, min, max), value);
  return 0;
}

bool JsonReader::boolean(const char* name) {
  const json* value = find(name, "true or false");
  if (value && value->is_boolean()) return value->get<bool>();
  if (value) fail(fmt::format("true or false for '{}'", name), value);
  return false;
}

const json* JsonReader::list(const char* name) {
  const json* value = find(name, "a list");
  if (value && value->is_array()) return value;
  if (value) fail(fmt::format("a list '{}'", name), value);
  return nullptr;
}

std::vector<std::string> JsonReader::texts(const char* name) {
  std::vector<std::string> result;
  const json* items = list(name);
  if (!items) return result;
  for (const json& item : *items) {
    if (!item.is_string()) return fail(fmt::format("texts in '{}'", name), &item), result;
    result.push_back(item.get<std::string>());
  }
  return result;
}

json encode_facts(const KernelSource& facts) {
  json params = json::array();
  for (const KernelParam& param : facts.params) {
    params.push_back({{"name", param.name},
                      {"pointer", param.is_pointer},
                      {"dtype", std::string(name(param.dtype))}});
    if (!param.map) continue;
    params.back()["map_of"] = param.map->tensor;
    params.back()["box"] = param.map->box;
    params.back()["swizzle"] = param.map->swizzle;
  }
  return {{"op", facts.op},
          {"entry", facts.entry},
          {"params", std::move(params)},
          {"threads", facts.threads},
          {"shared_bytes", facts.shared_bytes},
          {"cluster", facts.cluster},
          {"options", facts.options},
          {"waits_for_previous", facts.waits_for_previous},
          {"cooperative", facts.cooperative}};
}

namespace {

TensorMapParam decode_map(JsonReader& item) {
  TensorMapParam map;
  map.tensor = static_cast<int>(item.integer("map_of", TensorMapParam::kNoTensor, kMaxInt));
  map.swizzle = static_cast<int>(item.integer("swizzle", 0, kMaxInt));
  const json* box = item.list("box");
  for (size_t d = 0; box && d < box->size(); ++d) {
    if (!box->at(d).is_number_integer()) return item.fail("whole numbers in 'box'", box), map;
    map.box.push_back(box->at(d).get<int64_t>());
  }
  return map;
}

}  // namespace

KernelSource decode_facts(JsonReader& reader) {
  KernelSource facts;
  facts.op = reader.text("op");
  facts.entry = reader.text("entry");
  facts.threads = static_cast<int>(reader.integer("threads", -kMaxInt, kMaxInt));
  facts.shared_bytes = reader.integer("shared_bytes", std::numeric_limits<int64_t>::min(),
                                      std::numeric_limits<int64_t>::max());
  facts.cluster = static_cast<int>(reader.integer("cluster", -kMaxInt, kMaxInt));
  facts.options = reader.texts("options");
  facts.waits_for_previous = reader.boolean("waits_for_previous");
  facts.cooperative = reader.boolean("cooperative");
  const json* params = reader.list("params");
  for (size_t i = 0; params && i < params->size() && reader.ok(); ++i) {
    JsonReader item(params->at(i));
    const std::string word = item.text("dtype");
    const auto dtype = dtype_from_name(word);
    if (item.ok() && !dtype) item.fail("the name of a dtype", &params->at(i).at("dtype"));
    facts.params.push_back(
        {item.text("name"), item.boolean("pointer"), dtype.value_or(DType::i32)});
    if (item.has("map_of")) facts.params.back().map = decode_map(item);
    if (!item.ok())
      reader.fail(fmt::format("params[{}] with {}", i, item.expected()), &params->at(i));
  }
  return facts;
}

}  // namespace tessera::runtime
