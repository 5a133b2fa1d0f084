#pragma once
// Tile sizes that measurement may choose. A choice is the last member of a kernel's Spec and leaves every bit
// of the results unchanged; `standard` is the rule of the kernel, which knows no clock.
//
//   const TuneSpace& space = tune_space();
//   const TuneChoice tile = jit::choose("transpose", space, {.spec = {{"bytes", 2}}}, x.device);

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"

namespace tessera::runtime {
struct TunedEntry;
}

namespace tessera::kernels::jit {

/// A number that may vary, and its values in ascending order.
struct TuneField {
  std::string_view name;
  std::vector<int64_t> values;
};

/// One value per field.
using TuneChoice = std::vector<int64_t>;

/// All that a choice may depend on: never addresses, other tensors or time.
struct TuneFacts {
  std::map<std::string, int64_t> spec = {};     // the Spec without its choice, by name
  std::map<std::string, int64_t> extents = {};  // that are not in the Spec
  // choose() fills in the rest.
  int64_t shared_memory = 0;  // bytes per block
  std::string device = {};    // "NVIDIA H200"; empty on the CPU and without a device
  int64_t num_sms = 0;
};

struct TuneSpace {
  std::vector<TuneField> fields;
  std::function<TuneChoice(const TuneFacts&)> standard;  // always legal
  std::function<bool(const TuneFacts&, const TuneChoice&)> is_legal;
  /// Buckets of the extents, such as {ceil_log2(tokens)}; null: none.
  std::function<std::vector<int64_t>(const TuneFacts&)> bucket = nullptr;
  int64_t revision = 1;  // another one after the meaning of a field changed
  /// Choices may change results: databases count with Options::tune_may_change_bits only. Tessera's ops have none.
  bool changes_bits = false;

  std::vector<int64_t> bucket_of(const TuneFacts& facts) const {
    return bucket ? bucket(facts) : std::vector<int64_t>();
  }
};

/// The legal choices, at most 64: the standard one first, the others in lexicographic order.
TESSERA_API std::vector<TuneChoice> candidates(const TuneSpace& space, const TuneFacts& facts);

/// By field name.
TESSERA_API std::map<std::string, int64_t> named(const TuneSpace& space, const TuneChoice& choice);

/// A question that a kernel asked. `space` lives as long as the process.
struct TuneAsk {
  std::string op;
  const TuneSpace* space;
  TuneFacts facts;
};

/// True if both ask for the same kernel.
TESSERA_API bool is_same(const TuneAsk& a, const TuneAsk& b);

/// Where a choice came from.
enum class TuneSource { scope, user, shipped, standard };
/// "scope", "user", "shipped", "standard".
TESSERA_API std::string_view name(TuneSource source);

struct Chosen {
  TuneChoice choice;
  TuneSource source;
};

/// The choice for a kernel: that of a TuneScope, else of the user's database, the shipped one, `standard`.
/// Databases count for CUDA devices and unless TESSERA_TUNE=off. Of one Spec the nearest bucket counts where
/// its own is missing. A choice that is not legal is passed over. `space` has to live as long as the process.
/// Never measures.
TESSERA_API TuneChoice choose(std::string_view op, const TuneSpace& space, TuneFacts facts,
                              Device device);
/// The same, with where it came from; facts complete.
TESSERA_API Chosen find_choice(const TuneAsk& ask);
/// True if a database that counts has a legal choice for the Spec and the bucket of `ask`; facts complete.
bool has_entry(const TuneAsk& ask);

/// Runs `call` with every choice that the databases hold for its kernels, whatever the bucket, and with the one
/// that it would get: together they need the kernels of any extents.
///
///   jit::for_each_choice([&] { op.run(tensors, params, nullptr); });   // in a call that only prepares
TESSERA_API void for_each_choice(const std::function<void()>& call);

/// Forgets the databases: later calls read them anew.
TESSERA_API void reload_tuned();
/// Later calls of this process find the entry in the user's database, whatever its file says.
void add_tuned(const runtime::TunedEntry& entry);

/// Changes when earlier choices of this thread no longer hold. Memos of calls compare it.
TESSERA_API uint64_t tune_generation();

/// While it lives, `decide` hears the questions of this thread first. Where it returns nothing, the scope around
/// it decides.
///
/// Errors: internal, in choose(), if it returns a choice that is not legal.
/// Example: jit::TuneScope scope([&](const jit::TuneAsk& ask) { asked.push_back(ask); return std::nullopt; });
class TESSERA_API TuneScope {
 public:
  using Decide = std::function<std::optional<TuneChoice>(const TuneAsk&)>;
  explicit TuneScope(Decide decide);
  ~TuneScope();
  TuneScope(const TuneScope&) = delete;
  TuneScope& operator=(const TuneScope&) = delete;

  /// True if one lives on this thread.
  static bool is_active();

 private:
  friend Chosen find_choice(const TuneAsk& ask);
  friend uint64_t tune_generation();
  Decide decide_;
  uint64_t generation_;
  TuneScope* before_;
};

}  // namespace tessera::kernels::jit
