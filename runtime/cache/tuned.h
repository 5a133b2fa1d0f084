#pragma once
// The database of tuned tile sizes: a JSON file per GPU model, a list of entries. The user's file is
// trusted and published as the cache is; the shipped one is part of the library.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"
#include "runtime/options.h"

namespace tessera::runtime {

/// Numbers by name, such as {"rows", 128}: the fields of a Spec or of a choice.
using NamedValues = std::map<std::string, int64_t>;

/// "cols=128 rows=64".
TESSERA_API std::string to_string(const NamedValues& values);

/// The key of an entry.
struct TunedKey {
  std::string op;
  int64_t revision = 1;         // of the op's fields
  NamedValues spec;             // without the choice
  std::vector<int64_t> bucket;  // of the extents that are not in the Spec
  std::string device;           // "NVIDIA H200"
  int64_t num_sms = 0;          // a MIG slice is another device
  std::string target;           // "sm_90a"

  friend bool operator==(const TunedKey&, const TunedKey&) = default;
};

/// A candidate as it was measured. Choice as to_string gives it.
struct TunedCandidate {
  std::string choice;
  double us = 0, spread = 0;
  int64_t samples = 0;
  std::string dropped;  // the reason, if it was not measured to the end
};

/// The choice for a key, and how it was found. The texts explain; only the key decides.
struct TunedEntry {
  TunedKey key;
  NamedValues choice;
  double us = 0, spread = 0, standard_us = 0, standard_spread = 0;
  std::vector<TunedCandidate> candidates;
  std::string method, version, stamp, nvrtc, driver;
  std::string date;  // "2026-11-26T21:30:00Z"; of two entries with one key the newer one wins
};

/// The entries of a file, and a line for each that cannot be used.
struct TunedFile {
  std::vector<TunedEntry> entries;
  std::vector<std::string> problems;
};

/// Never throws.
TESSERA_API TunedFile decode_tuned(std::string_view text);
TESSERA_API std::string encode_tuned(const std::vector<TunedEntry>& entries);

/// Adds entries; of two with one key the newer date stays, of one date the one that was there.
TESSERA_API void merge_tuned(std::vector<TunedEntry>& into, const std::vector<TunedEntry>& more);

/// "nvidia-h200_132sm.json".
TESSERA_API std::string tuned_file_name(std::string_view device, int64_t num_sms);

/// Most bytes of a file of entries.
inline constexpr int64_t kMostTunedBytes = int64_t{16} << 20;

/// The user's folder: Options::tune_dir, else "tuned" below the folder that the cache writes (see
/// cache_root.h), else "".
TESSERA_API std::string tuned_folder(const Options& options);

/// The user's entries for a GPU model; none if there is no file. Never throws.
TESSERA_API TunedFile read_tuned(const Options& options, std::string_view device, int64_t num_sms);
/// The user's entries for all GPU models. Each problem names its file.
TESSERA_API TunedFile read_all_tuned(const Options& options);

/// Changes the user's entries for a GPU model. Other processes see the file before or after, never
/// half of it, and lose no entry; without locks of the file system the last of two that write at
/// once wins. Returns an error text or "". A file of which something cannot be read is an error and
/// stays as it is; so does one that another process keeps locked for Options::peer_patience_ms.
TESSERA_API std::string change_tuned(const Options& options, std::string_view device,
                                     int64_t num_sms,
                                     const std::function<void(std::vector<TunedEntry>&)>& change);
/// Merges an entry into the user's file, as change_tuned.
TESSERA_API std::string publish_tuned(const Options& options, const TunedEntry& entry);

/// The entries that this build ships for a GPU model, and for all.
TESSERA_API TunedFile shipped_tuned(std::string_view device, int64_t num_sms);
TESSERA_API std::vector<TunedEntry> all_shipped_tuned();

}  // namespace tessera::runtime
