#include "tools/lib/tune/tuned_entries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "dsl/base/error.h"
#include "runtime/cache/folder.h"
#include "runtime/runtime.h"
#include "tools/lib/text/text_table.h"
#include "tools/lib/tune/tuner.h"

namespace tessera::tools {
namespace {

const runtime::TunedEntry* entry_of(const std::vector<runtime::TunedEntry>& entries,
                                    const runtime::TunedKey& key) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const runtime::TunedEntry& e) { return e.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

std::string key_text(const runtime::TunedKey& key) {
  std::string text = runtime::to_string(key.spec);
  if (!key.bucket.empty()) text += fmt::format(" bucket {}", fmt::join(key.bucket, ","));
  return text;
}

std::string choice_text(const runtime::TunedEntry* entry) {
  return entry == nullptr
             ? "-"
             : fmt::format("{} ({:.2f} us)", runtime::to_string(entry->choice), entry->us);
}

}  // namespace

std::string tuned_table(const std::vector<runtime::TunedEntry>& entries) {
  TextTable table({{"op", Align::left},
                   {"spec", Align::left},
                   {"device", Align::left},
                   {"choice", Align::left},
                   {"us", Align::right},
                   {"standard", Align::right}});
  for (const runtime::TunedEntry& entry : entries) {
    table.row({entry.key.op, key_text(entry.key),
               fmt::format("{}, {} SMs", entry.key.device, entry.key.num_sms),
               runtime::to_string(entry.choice), fmt::format("{:.2f}", entry.us),
               fmt::format("{:.2f}", entry.standard_us)});
  }
  return table.text();
}

std::string tuned_text(const runtime::TunedEntry& entry) {
  std::string text = fmt::format(
      "{} {}\n{}, {} SMs, {}, driver {}, NVRTC {}, times from {}, {}\nchosen: {}\n\n", entry.key.op,
      runtime::to_string(entry.key.spec), entry.key.device, entry.key.num_sms, entry.key.target,
      entry.driver, entry.nvrtc, entry.method, entry.date, runtime::to_string(entry.choice));
  TextTable table({{"candidate", Align::left},
                   {"us", Align::right},
                   {"spread", Align::right},
                   {"samples", Align::right},
                   {"left", Align::left}});
  for (const runtime::TunedCandidate& one : entry.candidates) {
    table.row({one.choice, fmt::format("{:.2f}", one.us), fmt::format("{:.2f}", one.spread),
               fmt::format("{}", one.samples), one.dropped});
  }
  return text + table.text();
}

kernels::jit::GpuModel tuned_model(const std::string& word) {
  std::vector<kernels::jit::GpuModel> all;
  std::vector<std::string> names;
  runtime::TunedFile stored = runtime::read_all_tuned(runtime::Runtime::instance().options());
  runtime::merge_tuned(stored.entries, runtime::all_shipped_tuned());
  for (const runtime::TunedEntry& entry : stored.entries) {
    const kernels::jit::GpuModel model = {entry.key.device, entry.key.num_sms};
    if (std::find(all.begin(), all.end(), model) != all.end()) continue;
    all.push_back(model);
    names.push_back(fmt::format("{}, {} SMs", model.name, model.num_sms));
  }
  std::vector<kernels::jit::GpuModel> found = all;
  std::erase_if(found, [&](const auto& model) { return model.name.find(word) == word.npos; });
  if (found.size() == 1) return found.front();
  throw Error({.kind = ErrorKind::argument,
               .what = found.empty() ? "no tile sizes are stored for this GPU"
                                     : "tile sizes are stored for several such GPUs",
               .argument = "gpu",
               .expected = names.empty() ? "a GPU on which `tessera tune` has run"
                                         : fmt::format("one of: {}", fmt::join(names, "; ")),
               .got = word,
               .hint = stored.problems.empty() ? "" : "not read: " + stored.problems.front()});
}

std::vector<runtime::TunedEntry> tuned_entries_in(const std::string& path) {
  const auto refuse = [&](const std::string& got) {
    throw Error({.kind = ErrorKind::argument,
                 .what = fmt::format("{} holds no tile sizes that can be read", path),
                 .argument = "file",
                 .expected = "a file of `tessera tune --out` or `tune export`",
                 .got = got});
  };
  const runtime::FileBytes file = runtime::read_named_file(path, runtime::kMostTunedBytes);
  if (!file.bytes) refuse("a file that " + file.problem);
  runtime::TunedFile tuned = runtime::decode_tuned(*file.bytes);
  if (!tuned.problems.empty()) refuse(tuned.problems.front());
  return std::move(tuned.entries);
}

std::string tuned_diff(const std::vector<runtime::TunedEntry>& before,
                       const std::vector<runtime::TunedEntry>& after) {
  TextTable table({{"op", Align::left},
                   {"spec", Align::left},
                   {"device", Align::left},
                   {"before", Align::left},
                   {"after", Align::left}});
  bool any = false;
  const auto add = [&](const runtime::TunedKey& key, const runtime::TunedEntry* a,
                       const runtime::TunedEntry* b) {
    if (a != nullptr && b != nullptr && a->choice == b->choice) return;
    any = true;
    table.row({key.op, key_text(key), fmt::format("{}, {} SMs", key.device, key.num_sms),
               choice_text(a), choice_text(b)});
  };
  for (const runtime::TunedEntry& entry : before)
    add(entry.key, &entry, entry_of(after, entry.key));
  for (const runtime::TunedEntry& entry : after) {
    if (entry_of(before, entry.key) == nullptr) add(entry.key, nullptr, &entry);
  }
  return any ? table.text() : "the same choices\n";
}

ObsoleteTuned::ObsoleteTuned(const std::vector<kernels::OpInfo>& ops) {
  for (const kernels::OpInfo& op : ops) {
    for (const kernels::BenchCase& one : op.examples) {
      for (const kernels::jit::TuneAsk& ask : open_choices(op, one, {9, 0, 'a'})) {
        if (std::any_of(spaces_.begin(), spaces_.end(),
                        [&](const Space& known) { return known.op == ask.op; })) {
          continue;
        }
        Space space{ask.op, ask.space->revision, {}};
        for (const auto& field : ask.space->fields) space.fields.emplace(field.name);
        spaces_.push_back(std::move(space));
      }
    }
  }
}

std::string ObsoleteTuned::why(const runtime::TunedEntry& entry) const {
  for (const Space& space : spaces_) {
    if (space.op != entry.key.op) continue;
    if (space.revision != entry.key.revision) {
      return fmt::format("of revision {}, now {}", entry.key.revision, space.revision);
    }
    std::set<std::string> fields;
    for (const auto& [name, value] : entry.choice) fields.insert(name);
    if (fields != space.fields) {
      return fmt::format("chooses {}, now {}", fmt::join(fields, ", "),
                         fmt::join(space.fields, ", "));
    }
  }
  return "";
}

}  // namespace tessera::tools
