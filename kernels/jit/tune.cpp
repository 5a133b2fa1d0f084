#include "kernels/jit/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "dsl/base/callbacks.h"
#include "dsl/base/error.h"
#include "kernels/jit/call_context.h"
#include "kernels/jit/target.h"
#include "runtime/cache/tuned.h"
#include "runtime/options.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {
namespace {

constexpr size_t kMostCandidates = 64;

std::atomic<uint64_t> g_last_generation = 1;
std::atomic<uint64_t> g_generation = 1;

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
  const DeferCallbacks defer;
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

/// The choice of an entry for the Spec of `ask`, in any bucket; nothing if it is of another or not legal.
std::optional<TuneChoice> usable_choice(const runtime::TunedEntry& entry, const TuneAsk& ask) {
  const runtime::TunedKey& key = entry.key;
  if (key.op != ask.op || key.revision != ask.space->revision || key.spec != ask.facts.spec ||
      key.device != ask.facts.device || key.num_sms != ask.facts.num_sms) {
    return std::nullopt;
  }
  std::optional<TuneChoice> choice = in_order(*ask.space, entry.choice);
  return choice && is_candidate(ask, *choice) ? choice : std::nullopt;
}

std::optional<TuneChoice> nearest(const std::vector<runtime::TunedEntry>& entries,
                                  const TuneAsk& ask) {
  const std::vector<int64_t> bucket = ask.space->bucket_of(ask.facts);
  std::optional<TuneChoice> best;
  int64_t least = 0;
  for (const runtime::TunedEntry& entry : entries) {
    const std::optional<int64_t> far = distance(entry.key.bucket, bucket);
    if (!far || (best && *far >= least)) continue;
    std::optional<TuneChoice> choice = usable_choice(entry, ask);
    if (!choice) continue;
    best = std::move(choice);
    least = *far;
  }
  return best;
}

bool looks_up(const TuneAsk& ask) {
  if (ask.facts.device.empty()) return false;
  const runtime::Options& options = runtime::Runtime::instance().options();
  return options.tune != runtime::TuneMode::off &&
         (!ask.space->changes_bits || options.tune_may_change_bits);
}

/// The entries of the databases for the Spec of `ask`, each once.
std::set<TuneChoice> stored_choices(const TuneAsk& ask) {
  std::set<TuneChoice> all;
  if (!looks_up(ask)) return all;
  const std::shared_ptr<const Database> database = database_of(ask.facts);
  for (const auto* entries : {&database->user, &database->shipped}) {
    for (const runtime::TunedEntry& entry : *entries) {
      if (auto choice = usable_choice(entry, ask)) all.insert(*std::move(choice));
    }
  }
  return all;
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

bool is_same(const TuneAsk& a, const TuneAsk& b) {
  return a.op == b.op && a.space == b.space && a.facts.spec == b.facts.spec &&
         a.facts.extents == b.facts.extents;
}

void for_each_choice(const std::function<void()>& call) {
  std::vector<std::pair<TuneAsk, TuneChoice>> others;
  {
    const TuneScope scope([&](const TuneAsk& ask) {
      for (const TuneChoice& choice : stored_choices(ask)) others.emplace_back(ask, choice);
      return std::nullopt;
    });
    call();
  }
  for (const auto& [ask, choice] : others) {
    const TuneScope scope([&ask = ask, &choice = choice](const TuneAsk& other) {
      return is_same(ask, other) ? std::optional(choice) : std::nullopt;
    });
    call();
  }
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
  for (const TuneScope* scope = call_context().tuning; scope != nullptr; scope = scope->before_) {
    if (std::optional<TuneChoice> choice = scope->decide_(ask)) {
      TESSERA_CHECK(is_candidate(ask, *choice), ask.op + ": a TuneScope chose what is not legal");
      return {*std::move(choice), TuneSource::scope};
    }
  }
  if (looks_up(ask)) {
    const std::shared_ptr<const Database> database = database_of(ask.facts);
    if (auto choice = nearest(database->user, ask)) return {*std::move(choice), TuneSource::user};
    if (auto choice = nearest(database->shipped, ask)) {
      return {*std::move(choice), TuneSource::shipped};
    }
  }
  return {ask.space->standard(ask.facts), TuneSource::standard};
}

bool has_entry(const TuneAsk& ask) {
  if (!looks_up(ask)) return false;
  const std::shared_ptr<const Database> database = database_of(ask.facts);
  const std::vector<int64_t> bucket = ask.space->bucket_of(ask.facts);
  for (const auto* entries : {&database->user, &database->shipped}) {
    for (const runtime::TunedEntry& entry : *entries) {
      if (entry.key.bucket == bucket && usable_choice(entry, ask)) return true;
    }
  }
  return false;
}

TuneChoice choose(std::string_view op, const TuneSpace& space, TuneFacts facts, Device device) {
  facts.shared_memory = shared_memory_limit(device);
  const GpuModel model = gpu_model(device);
  facts.device = model.name;
  facts.num_sms = model.num_sms;
  return find_choice({std::string(op), &space, std::move(facts)}).choice;
}

void reload_tuned() {
  Databases& all = databases();
  const std::lock_guard lock(all.mutex);
  all.of_model.clear();
  g_generation = ++g_last_generation;
}

void add_tuned(const runtime::TunedEntry& entry) {
  TuneFacts model;
  model.device = entry.key.device;
  model.num_sms = entry.key.num_sms;
  Database changed = *database_of(model);
  runtime::merge_tuned(changed.user, {entry});
  Databases& all = databases();
  const std::lock_guard lock(all.mutex);
  all.of_model[{model.device, model.num_sms}] =
      std::make_shared<const Database>(std::move(changed));
  g_generation = ++g_last_generation;
}

uint64_t tune_generation() {
  if (const TuneScope* scope = call_context().tuning) return scope->generation_;
  return g_generation.load(std::memory_order_relaxed);
}

TuneScope::TuneScope(Decide decide)
    : decide_(std::move(decide)),
      generation_(++g_last_generation),
      before_(std::exchange(call_context().tuning, this)) {}

TuneScope::~TuneScope() {
  call_context().tuning = before_;
}

bool TuneScope::is_active() {
  return call_context().tuning != nullptr;
}

}  // namespace tessera::kernels::jit
