#include "tools/lib/calls/op_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "dsl/base/error.h"
#include "kernels/jit/count_scope.h"
#include "kernels/jit/jit.h"
#include "tools/lib/calls/example.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/text/text_table.h"

namespace tessera::tools {
namespace {

using codegen::cpu::Counts;

constexpr int64_t kSectorBytes = 32;

std::string ratio(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(part) / static_cast<double>(whole));
}

int64_t sectors(const Counts& c) {
  return c.global_load_sectors + c.global_store_sectors;
}

struct AccessWork {
  std::string text;  // "load 8 x bf16 x"
  int64_t requests = 0;
  int64_t sectors = 0, least_sectors = 0;        // global memory
  int64_t wavefronts = 0, ideal_wavefronts = 0;  // shared memory

  int64_t wasted() const { return sectors - least_sectors + wavefronts - ideal_wavefronts; }
};

AccessWork work_of(const codegen::cpu::AccessCounts& access) {
  const Counts& c = access.counts;
  AccessWork work;
  work.text = fmt::format("{} {} x {} {}", access.is_load ? "load" : "store", access.width,
                          name(access.dtype), access.array);
  work.requests = c.global_load_requests + c.global_store_requests + c.shared_requests;
  work.sectors = sectors(c);
  work.least_sectors = c.global_load_least_sectors + c.global_store_least_sectors;
  work.wavefronts = c.shared_wavefronts;
  work.ideal_wavefronts = c.shared_ideal_wavefronts;
  return work;
}

/// The cells of one kernel after those of its case.
std::vector<std::string> cells(const KernelWork& work) {
  const Counts& c = work.counts;
  std::vector<std::string> row = {
      ratio(sectors(c), c.global_load_requests + c.global_store_requests),
      ratio(c.global_load_sectors, c.global_load_least_sectors),
      ratio(c.global_store_sectors, c.global_store_least_sectors),
      ratio(c.shared_wavefronts, c.shared_ideal_wavefronts)};
  for (const int64_t count : {c.barriers, c.shuffles, c.guards, c.live_registers}) {
    row.push_back(fmt::format("{}", count));
  }
  if (work.resources) {
    row.push_back(fmt::format("{}", work.resources->registers));
    row.push_back(fmt::format("{}", work.resources->spill_bytes));
    row.push_back(fmt::format("{}", work.shared_bytes));
  }
  return row;
}

}  // namespace

int64_t KernelWork::moved_bytes() const {
  return kSectorBytes * sectors(counts);
}
int64_t KernelWork::sectors_over_least() const {
  return sectors(counts) - counts.global_load_least_sectors - counts.global_store_least_sectors;
}
int64_t KernelWork::bank_conflicts() const {
  return counts.shared_wavefronts - counts.shared_ideal_wavefronts;
}

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
  for (const kernels::jit::KernelCounts& one : counted.kernels()) {
    result.kernels.push_back({one.kernel, one.counts, one.accesses, {}, 0});
  }
  return result;
}

void add_resources(CheckResult& result, const kernels::OpInfo& op,
                   const kernels::BenchCase& example, const ImageOf& image_of) {
  if (!result.error.empty()) return;
  const std::vector<ir::Kernel> kernels = kernels_of(op, example);
  TESSERA_CHECK(kernels.size() == result.kernels.size(),
                op.name + ": the kernels that it lists are not those that it launches");
  for (size_t i = 0; i < kernels.size(); ++i) {
    KernelWork& work = result.kernels[i];
    TESSERA_CHECK(kernels[i].name == work.kernel, op.name + ": lists its kernels in another order");
    const runtime::Image image = image_of(kernels[i]);
    work.resources = image.resources;
    work.shared_bytes = image.shared_bytes + image.resources.static_shared;
  }
}

std::string check_table(const std::vector<CheckResult>& results) {
  std::vector<TextTable::Column> columns = {{"kernel", Align::left}};
  for (const char* title :
       {"moved", "sectors", "loads", "stores", "banks", "barriers", "shuffles", "guards", "live"}) {
    columns.push_back({title, Align::right});
  }
  const bool compiled = std::any_of(results.begin(), results.end(), [](const CheckResult& r) {
    return !r.kernels.empty() && r.kernels.front().resources.has_value();
  });
  if (compiled) {
    for (const char* title : {"registers", "spilled", "shared"}) {
      columns.push_back({title, Align::right});
    }
  }
  const size_t width = columns.size();
  TextTable table(std::move(columns));
  for (const CheckResult& r : results) {
    const char* const verdict = !r.error.empty()    ? "FAILED"
                                : r.kernels.empty() ? "no trap, no launch"
                                                    : "no trap";
    table.heading(fmt::format("{} {}: {}", r.op, r.label, verdict));
    if (!r.error.empty()) continue;
    int64_t moved = 0;
    for (const KernelWork& work : r.kernels) moved += work.moved_bytes();
    for (const KernelWork& work : r.kernels) {
      std::vector<std::string> row = {"  " + work.kernel, ratio(moved, r.least_bytes)};
      for (std::string& cell : cells(work)) row.push_back(std::move(cell));
      row.resize(width, "-");
      table.row(std::move(row));
    }
  }
  return table.text();
}

std::string access_table(const std::vector<CheckResult>& results) {
  struct Row {
    AccessWork work;
    std::vector<std::string> cells;
  };
  std::vector<Row> rows;
  for (const CheckResult& r : results) {
    for (const KernelWork& kernel : r.kernels) {
      for (const codegen::cpu::AccessCounts& access : kernel.accesses) {
        const AccessWork work = work_of(access);
        rows.push_back(
            {work,
             {r.op, r.label, to_string(access.loc), work.text, fmt::format("{}", work.requests),
              work.sectors > 0 ? ratio(work.sectors, work.requests) : "-",
              fmt::format("{}", work.sectors - work.least_sectors),
              fmt::format("{}", work.wavefronts - work.ideal_wavefronts)}});
      }
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.work.wasted() > b.work.wasted(); });
  TextTable table({{"op", Align::left},
                   {"case", Align::left},
                   {"line", Align::left},
                   {"access", Align::left},
                   {"requests", Align::right},
                   {"sectors/request", Align::right},
                   {"sectors over least", Align::right},
                   {"wavefronts over ideal", Align::right}});
  for (Row& row : rows) table.row(std::move(row.cells));
  return table.text();
}

std::string check_json(const std::vector<CheckResult>& results) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const CheckResult& r : results) {
    Json kernels = Json::array();
    for (const KernelWork& work : r.kernels) {
      Json entry = {{"kernel", work.kernel},
                    {"moved_bytes", work.moved_bytes()},
                    {"sectors_over_least", work.sectors_over_least()},
                    {"bank_conflicts", work.bank_conflicts()}};
      for (const auto& [name, count] : codegen::cpu::kCountNames) {
        entry[std::string(name)] = work.counts.*count;
      }
      if (work.resources) {
        entry["registers"] = work.resources->registers;
        entry["spill_bytes"] = work.resources->spill_bytes;
        entry["shared_bytes"] = work.shared_bytes;
      }
      entry["accesses"] = Json::array();
      for (const codegen::cpu::AccessCounts& access : work.accesses) {
        const AccessWork w = work_of(access);
        entry["accesses"].push_back({{"line", to_string(access.loc)},
                                     {"access", w.text},
                                     {"requests", w.requests},
                                     {"sectors", w.sectors},
                                     {"least_sectors", w.least_sectors},
                                     {"wavefronts", w.wavefronts},
                                     {"ideal_wavefronts", w.ideal_wavefronts}});
      }
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
