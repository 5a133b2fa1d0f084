#pragma once
// The records in tools/measured: files of JSON lines, one for each kind of run.
//
//   {"run": {"card", "date", "command", ..}}                   the first line: where the rest is from
//   {"op", "case", "time_us"}                                  of `tessera bench --record`
//   {"op", "case", "peer", "peer_us", "time_us"}               a peer, and ours if both ran in turn
//   {"kernel", "language", "lines", "time_us"}                 a kernel written in several languages
//
// Pages show them by the parts that `tessera docs` makes; nothing on a page is typed from a record.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "tools/lib/bench/bench.h"

namespace tessera::tools {

/// Where the times of a record are from.
struct RecordedRun {
  std::string card, date, commit, command;
  std::string peers;  // which, and how they were measured
};

/// A case of an op on both sides.
struct PeerCase {
  std::string op, text;
  std::string key;  // as case_key() makes it
  std::string peer;
  double peer_us = 0;
  std::optional<double> us;  // ours, in the same run
};

struct PeerRecord {
  RecordedRun run;
  std::vector<PeerCase> cases;
};

/// A kernel in one language.
struct LanguageTime {
  std::string kernel, language;
  std::string example;       // "02_softmax": of ours, whose lines the source has
  std::optional<int> lines;  // of device code, without blank ones
  double us = 0;
  std::optional<double> tflops;
};

struct LanguageRecord {
  RecordedRun run;
  std::vector<LanguageTime> times;
};

/// Errors of all: argument, naming file and line, for what is no record of that kind.
RecordedRun read_run(const std::string& path);
PeerRecord read_peers(const std::string& path);
LanguageRecord read_languages(const std::string& path);

/// The first line of a record of ours: the card, today's date, the command, and the copy rates that the run
/// measured, from 1 MiB on.
std::string run_line(const std::string& card, const std::string& command,
                     const std::vector<BenchResult>& results);

/// Floating-point operations of a matrix product, counting each multiplication and addition of the rows that
/// the case computes; of both products of attention, of half of them if it is causal. 0 for other ops.
double product_flops(const kernels::OpInfo& op, const kernels::BenchCase& one);

}  // namespace tessera::tools
