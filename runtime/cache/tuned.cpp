#include "runtime/cache/tuned.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <initializer_list>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "runtime/cache/bundle.h"
#include "runtime/cache/cache_root.h"
#include "runtime/cache/folder.h"
#include "runtime/cache/kernel_json.h"
#include "runtime/cache/peer_lock.h"
#include "runtime/cache/shipped_tuned.h"

namespace tessera::runtime {
namespace {

using nlohmann::json;

constexpr const char* kLock = "tuned.lock";
constexpr std::string_view kTunedSuffix = ".json";
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

/// Fields of a later version have a meaning that is not known here, and would be lost in a new file.
void need_known_fields(const json& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, unused] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw BadEntry{fmt::format("it has an unknown field '{}'", key)};
    }
  }
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
    need_known_fields(one, {"choice", "us", "spread", "samples", "dropped"});
    entry.candidates.push_back({text(one, "choice"), number(one, "us"), number(one, "spread"),
                                integer(member(one, "samples"), "samples"), text(one, "dropped")});
  }
  entry.method = text(object, "method");
  entry.version = text(object, "version");
  entry.stamp = text(object, "stamp");
  entry.nvrtc = text(object, "nvrtc");
  entry.driver = text(object, "driver");
  entry.date = text(object, "date");
  need_known_fields(object,
                    {"op", "revision", "spec", "bucket", "device", "sms", "target", "choice", "us",
                     "spread", "standard_us", "standard_spread", "candidates", "method", "version",
                     "stamp", "nvrtc", "driver", "date"});
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

/// The user's folder and its path.
struct TunedPlace {
  Folder folder;
  std::string path;
};

/// Opens the user's folder. The cache marks its root before anything else is in it.
TunedPlace open_tuned(const Options& options, Missing missing) {
  if (!options.tune_dir.empty()) {
    return {open_root(options.tune_dir, missing, options.trust), options.tune_dir};
  }
  const std::string root_path = options.cache_roots.empty() ? "" : options.cache_roots.front();
  if (root_path.empty() || is_bundle_path(root_path)) {
    TunedPlace none;
    none.folder.missing = true;
    none.folder.problem = fmt::format(
        "the folder of tile sizes is not set: there is no cache folder{}; set TESSERA_TUNE_DIR",
        root_path.empty() ? "" : ", but the bundle " + root_path);
    return none;
  }
  CacheRoot root = open_written_root(root_path, options.trust, missing);
  std::string path = root.path + "/tuned";
  if (!root.folder.fd) return {std::move(root.folder), std::move(path)};
  return {open_inside(root.folder, "tuned", missing), std::move(path)};
}

TunedFile read_from(const Folder& folder, const std::string& name) {
  const FileBytes file = read_file(folder, name, kMostTunedBytes);
  if (file.bytes) return decode_tuned(*file.bytes);
  TunedFile none;
  if (!file.missing || file.is_stale) none.problems.push_back("it " + file.problem);
  return none;
}

std::string problem_of(const TunedPlace& place) {
  return place.path.empty() ? place.folder.problem : place.path + " " + place.folder.problem;
}

bool is_before(const TunedKey& a, const TunedKey& b) {
  const auto all = [](const TunedKey& key) {
    return std::tie(key.op, key.revision, key.spec, key.bucket, key.device, key.num_sms,
                    key.target);
  };
  return all(a) < all(b);
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
  std::vector<TunedEntry> all;
  for (size_t i = 0; i < root->size(); ++i) {
    try {
      all.push_back(decode_entry(root->at(i)));
    } catch (const BadEntry& bad) {
      file.problems.push_back(fmt::format("entry {}: {}", i + 1, bad.what));
    }
  }
  merge_tuned(file.entries, all);
  return file;
}

std::string encode_tuned(const std::vector<TunedEntry>& entries) {
  json root = json::array();
  for (const TunedEntry& entry : entries) root.push_back(encode_entry(entry));
  return root.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

void merge_tuned(std::vector<TunedEntry>& into, const std::vector<TunedEntry>& more) {
  std::map<TunedKey, size_t, decltype(&is_before)> places(&is_before);
  for (size_t i = 0; i < into.size(); ++i) places.emplace(into[i].key, i);
  for (const TunedEntry& entry : more) {
    const auto [place, is_new] = places.emplace(entry.key, into.size());
    if (is_new) {
      into.push_back(entry);
    } else if (entry.date > into[place->second].date) {
      into[place->second] = entry;
    }
  }
}

std::string tuned_file_name(std::string_view device, int64_t num_sms) {
  std::string name;
  for (const char c : device) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return fmt::format("{}_{}sm{}", name, num_sms, kTunedSuffix);
}

std::string tuned_folder(const Options& options) {
  return open_tuned(options, Missing::leave).path;
}

TunedFile read_tuned(const Options& options, std::string_view device, int64_t num_sms) {
  const Folder folder = open_tuned(options, Missing::leave).folder;
  if (folder.fd) return read_from(folder, tuned_file_name(device, num_sms));
  TunedFile none;
  if (!folder.missing) none.problems.push_back("its folder " + folder.problem);
  return none;
}

TunedFile read_all_tuned(const Options& options) {
  const TunedPlace place = open_tuned(options, Missing::leave);
  TunedFile all;
  if (!place.folder.fd) {
    if (!place.folder.missing) all.problems.push_back(problem_of(place));
    return all;
  }
  std::optional<std::vector<std::string>> names = names_in(place.folder);
  if (!names) {
    all.problems.push_back(place.path + " cannot be listed");
    return all;
  }
  std::sort(names->begin(), names->end());
  std::vector<TunedEntry> entries;
  for (const std::string& name : *names) {
    if (!name.ends_with(kTunedSuffix)) continue;
    TunedFile file = read_from(place.folder, name);
    std::move(file.entries.begin(), file.entries.end(), std::back_inserter(entries));
    for (const std::string& problem : file.problems) {
      all.problems.push_back(fmt::format("{}/{}: {}", place.path, name, problem));
    }
  }
  merge_tuned(all.entries, entries);
  return all;
}

std::string change_tuned(const Options& options, std::string_view device, int64_t num_sms,
                         const std::function<void(std::vector<TunedEntry>&)>& change) {
  TunedPlace place = open_tuned(options, Missing::create);
  if (!place.folder.fd) return problem_of(place);
  // Readers need no lock: the file is replaced at once.
  const PeerLock lock(std::move(place.folder), kLock,
                      std::chrono::milliseconds(options.peer_patience_ms));
  if (lock.gave_up()) {
    return fmt::format("{}/{} is locked by another process, for more than {} s", place.path, kLock,
                       options.peer_patience_ms / 1000.0);
  }
  const std::string name = tuned_file_name(device, num_sms);
  const std::string path = place.path + "/" + name;
  TunedFile file = read_from(lock.folder(), name);
  if (!file.problems.empty()) {
    return fmt::format("{} stays as it is, because not all of it can be read: {}", path,
                       file.problems.front());
  }
  change(file.entries);
  const std::string text = encode_tuned(file.entries);
  if (static_cast<int64_t>(text.size()) > kMostTunedBytes) {
    return fmt::format("{} would have {} bytes, and more than {} are not read", path, text.size(),
                       kMostTunedBytes);
  }
  const std::string problem = replace_file(lock.folder(), name, text);
  return problem.empty() ? "" : fmt::format("{} cannot be written: {}", path, problem);
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
