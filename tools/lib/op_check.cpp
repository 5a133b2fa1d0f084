#include "tools/lib/op_check.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "dsl/base/error.h"
#include "kernels/jit/jit.h"
#include "tools/lib/op_call.h"
#include "tools/lib/text_table.h"

namespace tessera::tools {
namespace {

using codegen::cpu::Counts;

constexpr int64_t kSectorBytes = 32;

constexpr std::array<std::pair<const char*, int64_t Counts::*>, 14> kFields = {{
    {"global_load_requests", &Counts::global_load_requests},
    {"global_load_sectors", &Counts::global_load_sectors},
    {"global_load_bytes", &Counts::global_load_bytes},
    {"global_store_requests", &Counts::global_store_requests},
    {"global_store_sectors", &Counts::global_store_sectors},
    {"global_store_bytes", &Counts::global_store_bytes},
    {"shared_requests", &Counts::shared_requests},
    {"shared_wavefronts", &Counts::shared_wavefronts},
    {"shared_ideal_wavefronts", &Counts::shared_ideal_wavefronts},
    {"barriers", &Counts::barriers},
    {"warp_barriers", &Counts::warp_barriers},
    {"shuffles", &Counts::shuffles},
    {"guards", &Counts::guards},
    {"atomics", &Counts::atomics},
}};

std::string ratio(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

CheckResult check_example(const kernels::OpInfo& op, const kernels::BenchCase& example,
                          uint64_t seed) {
  CheckResult result;
  result.op = op.name;
  result.label = example.label;
  const kernels::jit::CountScope counted;
  const kernels::jit::TrapScope traps;
  try {
    OpCall call(op, example, Device::cpu(), seed);
    result.least_bytes = example.bytes > 0 ? example.bytes : call.bytes();
    call.run();
  } catch (const Error& error) {
    result.error = error.what();
  }
  result.kernels = counted.kernels();
  return result;
}

std::string check_table(const std::vector<CheckResult>& results) {
  TextTable table({{"op", Align::left},
                   {"case", Align::left},
                   {"kernel", Align::left},
                   {"result", Align::left},
                   {"bytes/least", Align::right},
                   {"load sectors/bytes", Align::right},
                   {"store sectors/bytes", Align::right},
                   {"wavefronts/ideal", Align::right},
                   {"barriers", Align::right},
                   {"shuffles", Align::right},
                   {"guards", Align::right}});
  for (const CheckResult& r : results) {
    if (!r.error.empty()) {
      table.row({r.op, r.label, "", "FAILED", "", "", "", "", "", "", ""});
      continue;
    }
    int64_t moved = 0;
    for (const auto& [kernel, c] : r.kernels) moved += c.global_load_bytes + c.global_store_bytes;
    for (const auto& [kernel, c] : r.kernels) {
      table.row({r.op, r.label, kernel, "ok", ratio(moved, r.least_bytes),
                 ratio(c.global_load_sectors * kSectorBytes, c.global_load_bytes),
                 ratio(c.global_store_sectors * kSectorBytes, c.global_store_bytes),
                 ratio(c.shared_wavefronts, c.shared_ideal_wavefronts),
                 fmt::format("{}", c.barriers), fmt::format("{}", c.shuffles),
                 fmt::format("{}", c.guards)});
    }
    if (r.kernels.empty()) {
      table.row({r.op, r.label, "no launch", "ok", "-", "-", "-", "-", "-", "-", "-"});
    }
  }
  return table.text();
}

std::string check_json(const std::vector<CheckResult>& results) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const CheckResult& r : results) {
    Json kernels = Json::array();
    for (const auto& [kernel, counts] : r.kernels) {
      Json entry = {{"kernel", kernel}};
      for (const auto& [name, field] : kFields) entry[name] = counts.*field;
      kernels.push_back(std::move(entry));
    }
    list.push_back({{"op", r.op},
                    {"case", r.label},
                    {"least_bytes", r.least_bytes},
                    {"error", r.error.empty() ? Json() : Json(r.error)},
                    {"kernels", std::move(kernels)}});
  }
  return Json{{"checks", std::move(list)}}.dump(2) + "\n";
}

}  // namespace tessera::tools
