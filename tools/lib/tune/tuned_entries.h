#pragma once
// Stored tile sizes as `tessera tune` shows, compares, prunes and moves them.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "runtime/cache/tuned.h"
#include "runtime/options.h"

namespace tessera::tools {

std::string tuned_table(const std::vector<runtime::TunedEntry>& entries);
/// An entry with all its candidates.
std::string tuned_text(const runtime::TunedEntry& entry);

/// The one GPU model with `word` in its name that stored or shipped entries are of.
///
/// Errors: argument, naming all models, unless it is one.
kernels::jit::GpuModel tuned_model(const std::string& word);

/// The entries of a file that `tune --out`, `--json` or `tune export` wrote, or of a database.
///
/// Errors: argument, naming the first entry that cannot be used.
std::vector<runtime::TunedEntry> tuned_entries_in(const std::string& path);

/// The changes from one list to another: a table of the entries that are new, gone or chosen otherwise, or
/// a line that says that nothing did.
std::string tuned_diff(const std::vector<runtime::TunedEntry>& before,
                       const std::vector<runtime::TunedEntry>& after);

/// Why no kernel of this build takes its tile sizes from an entry: its op's fields have another meaning,
/// other names or other values now. Empty: a kernel may. Entries of ops that `ops` lacks are of somebody's
/// own kernels, of which nothing is known: empty.
class ObsoleteTuned {
 public:
  explicit ObsoleteTuned(const std::vector<kernels::OpInfo>& ops);
  std::string why(const runtime::TunedEntry& entry) const;

 private:
  struct Space {
    std::string op;
    int64_t revision;
    std::set<std::string> fields;
  };
  std::vector<Space> spaces_;
};

}  // namespace tessera::tools
