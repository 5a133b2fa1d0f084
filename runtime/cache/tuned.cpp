#include "runtime/cache/tuned.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "runtime/cache/cache_root.h"
#include "runtime/cache/folder.h"
#include "runtime/cache/kernel_json.h"
#include "runtime/cache/shipped_tuned.h"

namespace tessera::runtime {
namespace {

using nlohmann::json;

constexpr int64_t kMostBytes = int64_t{16} << 20;
constexpr int64_t kMostValue = int64_t{1} << 53;

struct BadEntry {
  std::string what;
};

const json& member(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw BadEntry{fmt::format("it lacks '{}'", name)};
  return *found;
}

int64_t integer(const json& value, const char* name) {
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (number >= -kMostValue && number <= kMostValue) return number;
  }
  throw BadEntry{fmt::format("'{}' is no integer", name)};
}

double number(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_number()) throw BadEntry{fmt::format("'{}' is no number", name)};
  return value.get<double>();
}

std::string text(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_string()) throw BadEntry{fmt::format("'{}' is no text", name)};
  return value.get<std::string>();
}

const json& list(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_array()) throw BadEntry{fmt::format("'{}' is no list", name)};
  return value;
}

NamedValues named_values(const json& object, const char* name) {
  const json& values = member(object, name);
  if (!values.is_object()) throw BadEntry{fmt::format("'{}' is no object", name)};
  NamedValues result;
  for (const auto& [key, value] : values.items()) result[key] = integer(value, key.c_str());
  return result;
}

TunedEntry decode_entry(const json& object) {
  if (!object.is_object()) throw BadEntry{"it is no object"};
  TunedEntry entry;
  entry.key.op = text(object, "op");
  entry.key.revision = integer(member(object, "revision"), "revision");
  entry.key.spec = named_values(object, "spec");
  for (const json& value : list(object, "bucket")) {
    entry.key.bucket.push_back(integer(value, "bucket"));
  }
  entry.key.device = text(object, "device");
  entry.key.num_sms = integer(member(object, "sms"), "sms");
  entry.key.target = text(object, "target");
  entry.choice = named_values(object, "choice");
  entry.us = number(object, "us");
  entry.spread = number(object, "spread");
  entry.standard_us = number(object, "standard_us");
  entry.standard_spread = number(object, "standard_spread");
  for (const json& one : list(object, "candidates")) {
    if (!one.is_object()) throw BadEntry{"a candidate is no object"};
    entry.candidates.push_back({text(one, "choice"), number(one, "us"), number(one, "spread"),
                                integer(member(one, "samples"), "samples"), text(one, "dropped")});
  }
  entry.method = text(object, "method");
  entry.version = text(object, "version");
  entry.stamp = text(object, "stamp");
  entry.nvrtc = text(object, "nvrtc");
  entry.driver = text(object, "driver");
  entry.date = text(object, "date");
  return entry;
}

json encode_entry(const TunedEntry& entry) {
  json candidates = json::array();
  for (const TunedCandidate& one : entry.candidates) {
    candidates.push_back({{"choice", one.choice},
                          {"us", one.us},
                          {"spread", one.spread},
                          {"samples", one.samples},
                          {"dropped", one.dropped}});
  }
  return {{"op", entry.key.op},
          {"revision", entry.key.revision},
          {"spec", entry.key.spec},
          {"bucket", entry.key.bucket},
          {"device", entry.key.device},
          {"sms", entry.key.num_sms},
          {"target", entry.key.target},
          {"choice", entry.choice},
          {"us", entry.us},
          {"spread", entry.spread},
          {"standard_us", entry.standard_us},
          {"standard_spread", entry.standard_spread},
          {"candidates", candidates},
          {"method", entry.method},
          {"version", entry.version},
          {"stamp", entry.stamp},
          {"nvrtc", entry.nvrtc},
          {"driver", entry.driver},
          {"date", entry.date}};
}

/// Opens the user's folder. The cache marks its root before anything else is in it.
Folder open_tuned(const Options& options, Missing missing) {
  if (!options.tune_dir.empty()) return open_root(options.tune_dir, missing, options.trust);
  if (options.cache_roots.empty()) {
    Folder none;
    none.missing = true;
    none.problem = "is not set: there is no cache folder; set TESSERA_TUNE_DIR";
    return none;
  }
  CacheRoot root = open_written_root(options.cache_roots.front(), options.trust, missing);
  if (!root.folder.fd) return std::move(root.folder);
  return open_inside(root.folder, "tuned", missing);
}

TunedFile read_from(const Folder& folder, const std::string& name) {
  const FileBytes file = read_file(folder, name, kMostBytes);
  if (file.bytes) return decode_tuned(*file.bytes);
  TunedFile none;
  if (!file.missing) none.problems.push_back("it " + file.problem);
  return none;
}

}  // namespace

std::string to_string(const NamedValues& values) {
  std::string result;
  for (const auto& [name, value] : values) {
    result += fmt::format("{}{}={}", result.empty() ? "" : " ", name, value);
  }
  return result;
}

TunedFile decode_tuned(std::string_view text) {
  TunedFile file;
  const std::optional<json> root = parse_json(text);
  if (!root || !root->is_array()) {
    file.problems.emplace_back("it is no JSON list of entries");
    return file;
  }
  for (size_t i = 0; i < root->size(); ++i) {
    try {
      merge_tuned(file.entries, {decode_entry(root->at(i))});
    } catch (const BadEntry& bad) {
      file.problems.push_back(fmt::format("entry {}: {}", i + 1, bad.what));
    }
  }
  return file;
}

std::string encode_tuned(const std::vector<TunedEntry>& entries) {
  json root = json::array();
  for (const TunedEntry& entry : entries) root.push_back(encode_entry(entry));
  return root.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

void merge_tuned(std::vector<TunedEntry>& into, const std::vector<TunedEntry>& more) {
  for (const TunedEntry& entry : more) {
    const auto found = std::find_if(into.begin(), into.end(),
                                    [&](const TunedEntry& old) { return old.key == entry.key; });
    if (found == into.end()) {
      into.push_back(entry);
    } else if (entry.date > found->date) {
      *found = entry;
    }
  }
}

std::string tuned_file_name(std::string_view device, int64_t num_sms) {
  std::string name;
  for (const char c : device) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return fmt::format("{}_{}sm.json", name, num_sms);
}

std::string tuned_folder(const Options& options) {
  if (!options.tune_dir.empty()) return options.tune_dir;
  return options.cache_roots.empty() ? "" : options.cache_roots.front() + "/tuned";
}

TunedFile read_tuned(const Options& options, std::string_view device, int64_t num_sms) {
  const Folder folder = open_tuned(options, Missing::leave);
  if (folder.fd) return read_from(folder, tuned_file_name(device, num_sms));
  TunedFile none;
  if (!folder.missing) none.problems.push_back("its folder " + folder.problem);
  return none;
}

std::string change_tuned(const Options& options, std::string_view device, int64_t num_sms,
                         const std::function<void(std::vector<TunedEntry>&)>& change) {
  const Folder folder = open_tuned(options, Missing::create);
  if (!folder.fd) return fmt::format("{} {}", tuned_folder(options), folder.problem);
  // Held until the folder is closed: readers need no lock, since the file is replaced at once.
  if (flock(folder.fd.get(), LOCK_EX) != 0) return tuned_folder(options) + " cannot be locked";
  const std::string name = tuned_file_name(device, num_sms);
  std::vector<TunedEntry> entries = read_from(folder, name).entries;
  change(entries);
  return replace_file(folder, name, encode_tuned(entries));
}

std::string publish_tuned(const Options& options, const TunedEntry& entry) {
  return change_tuned(options, entry.key.device, entry.key.num_sms,
                      [&](std::vector<TunedEntry>& entries) { merge_tuned(entries, {entry}); });
}

TunedFile shipped_tuned(std::string_view device, int64_t num_sms) {
  const std::string name = tuned_file_name(device, num_sms);
  for (const ShippedTuned& file : shipped_tuned_files()) {
    if (file.name == name) return decode_tuned(file.text);
  }
  return {};
}

std::vector<TunedEntry> all_shipped_tuned() {
  std::vector<TunedEntry> entries;
  for (const ShippedTuned& file : shipped_tuned_files()) {
    merge_tuned(entries, decode_tuned(file.text).entries);
  }
  return entries;
}

}  // namespace tessera::runtime
