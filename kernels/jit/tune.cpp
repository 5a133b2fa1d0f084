#include "kernels/jit/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "dsl/base/error.h"
#include "kernels/jit/prepared.h"
#include "kernels/jit/target.h"
#include "runtime/cache/tuned.h"
#include "runtime/options.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {
namespace {

constexpr size_t kMostCandidates = 64;

std::atomic<uint64_t> g_last_generation = 1;
std::atomic<uint64_t> g_generation = 1;
thread_local TuneScope* t_scope = nullptr;

/// The databases of one GPU model.
struct Database {
  std::vector<runtime::TunedEntry> user, shipped;
};

struct Databases {
  std::mutex mutex;
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<const Database>> of_model;
};

Databases& databases() {
  static auto* const made = new Databases;  // never destroyed: calls may come late
  return *made;
}

std::vector<runtime::TunedEntry> usable(runtime::TunedFile file, const std::string& what) {
  if (!file.problems.empty()) {
    runtime::Runtime::instance().warn_once(
        what, fmt::format("{}: {} of its entries cannot be used, the first: {}", what,
                          file.problems.size(), file.problems.front()));
  }
  return std::move(file.entries);
}

std::shared_ptr<const Database> database_of(const TuneFacts& facts) {
  Databases& all = databases();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<const Database>& found = all.of_model[{facts.device, facts.num_sms}];
  if (!found) {
    const runtime::Options& options = runtime::Runtime::instance().options();
    const std::string file = runtime::tuned_file_name(facts.device, facts.num_sms);
    Database fresh;
    fresh.user = usable(runtime::read_tuned(options, facts.device, facts.num_sms),
                        runtime::tuned_folder(options) + "/" + file);
    fresh.shipped =
        usable(runtime::shipped_tuned(facts.device, facts.num_sms), "shipped tile sizes " + file);
    found = std::make_shared<const Database>(std::move(fresh));
  }
  return found;
}

/// Nothing for other field names than the space's.
std::optional<TuneChoice> in_order(const TuneSpace& space, const runtime::NamedValues& values) {
  if (values.size() != space.fields.size()) return std::nullopt;
  TuneChoice choice;
  for (const TuneField& field : space.fields) {
    const auto found = values.find(std::string(field.name));
    if (found == values.end()) return std::nullopt;
    choice.push_back(found->second);
  }
  return choice;
}

/// Whether a choice is one of the candidates; the standard one need not be made of listed values.
bool is_candidate(const TuneAsk& ask, const TuneChoice& choice) {
  const std::vector<TuneChoice> all = candidates(*ask.space, ask.facts);
  return std::find(all.begin(), all.end(), choice) != all.end();
}

/// How far apart two buckets are; nothing for buckets of different kinds.
std::optional<int64_t> distance(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  if (a.size() != b.size()) return std::nullopt;
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum;
}

std::optional<TuneChoice> nearest(const std::vector<runtime::TunedEntry>& entries,
                                  const TuneAsk& ask) {
  const std::vector<int64_t> bucket = ask.space->bucket_of(ask.facts);
  std::optional<TuneChoice> best;
  int64_t least = 0;
  for (const runtime::TunedEntry& entry : entries) {
    const runtime::TunedKey& key = entry.key;
    if (key.op != ask.op || key.revision != ask.space->revision || key.spec != ask.facts.spec ||
        key.device != ask.facts.device || key.num_sms != ask.facts.num_sms) {
      continue;
    }
    const std::optional<int64_t> far = distance(key.bucket, bucket);
    if (!far || (best && *far >= least)) continue;
    std::optional<TuneChoice> choice = in_order(*ask.space, entry.choice);
    if (!choice || !is_candidate(ask, *choice)) continue;
    best = std::move(choice);
    least = *far;
  }
  return best;
}

}  // namespace

std::vector<TuneChoice> candidates(const TuneSpace& space, const TuneFacts& facts) {
  const TuneChoice standard = space.standard(facts);
  std::vector<TuneChoice> result = {standard};
  TuneChoice choice(space.fields.size());
  std::vector<size_t> at(space.fields.size(), 0);
  bool is_done = space.fields.empty();
  while (!is_done && result.size() < kMostCandidates) {
    for (size_t i = 0; i < at.size(); ++i) choice[i] = space.fields[i].values[at[i]];
    if (choice != standard && space.is_legal(facts, choice)) result.push_back(choice);
    size_t i = at.size();
    while (i > 0 && ++at[i - 1] == space.fields[i - 1].values.size()) at[--i] = 0;
    is_done = i == 0;
  }
  return result;
}

std::map<std::string, int64_t> named(const TuneSpace& space, const TuneChoice& choice) {
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < space.fields.size(); ++i) {
    result.emplace(space.fields[i].name, choice[i]);
  }
  return result;
}

std::string_view name(TuneSource source) {
  switch (source) {
    case TuneSource::scope:
      return "scope";
    case TuneSource::user:
      return "user";
    case TuneSource::shipped:
      return "shipped";
    case TuneSource::standard:
      return "standard";
  }
  return "standard";
}

Chosen find_choice(const TuneAsk& ask) {
  if (t_scope != nullptr) {
    if (std::optional<TuneChoice> choice = t_scope->decide_(ask)) {
      TESSERA_CHECK(is_candidate(ask, *choice), ask.op + ": a TuneScope chose what is not legal");
      return {*std::move(choice), TuneSource::scope};
    }
  }
  const bool looks = !ask.facts.device.empty() &&
                     runtime::Runtime::instance().options().tune == runtime::TuneMode::cached;
  if (looks) {
    const std::shared_ptr<const Database> database = database_of(ask.facts);
    if (auto choice = nearest(database->user, ask)) return {*std::move(choice), TuneSource::user};
    if (auto choice = nearest(database->shipped, ask)) {
      return {*std::move(choice), TuneSource::shipped};
    }
  }
  return {ask.space->standard(ask.facts), TuneSource::standard};
}

TuneChoice choose(std::string_view op, const TuneSpace& space, TuneFacts facts, Device device) {
  facts.shared_memory = shared_memory_limit(device);
  // Calls that only list their kernels are for a device that need not exist.
  if (device.is_cuda() && call_mode().until != CallMode::Until::named) {
    const runtime::DeviceInfo info = runtime::Runtime::instance().device_on(device.ordinal);
    facts.device = info.name;
    facts.num_sms = info.num_sms;
  }
  return find_choice({std::string(op), &space, std::move(facts)}).choice;
}

void reload_tuned() {
  Databases& all = databases();
  const std::lock_guard lock(all.mutex);
  all.of_model.clear();
  g_generation = ++g_last_generation;
}

uint64_t tune_generation() {
  if (t_scope != nullptr) return t_scope->generation_;
  return g_generation.load(std::memory_order_relaxed);
}

TuneScope::TuneScope(Decide decide)
    : decide_(std::move(decide)),
      generation_(++g_last_generation),
      before_(std::exchange(t_scope, this)) {}

TuneScope::~TuneScope() {
  t_scope = before_;
}

}  // namespace tessera::kernels::jit
