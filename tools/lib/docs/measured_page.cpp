#include "tools/lib/docs/measured_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "tools/lib/docs/example_source.h"

namespace tessera::tools {
namespace {

using kernels::BenchCase;
using kernels::OpInfo;

/// A row of the times in README: an op, a case and a peer, and words for a reader.
struct Shown {
  const char *op, *text, *peer, *words;
};
constexpr Shown kShown[] = {
    {"gemm_bf16", "M=8192 N=8192 K=8192", "cuBLAS", "bf16 product, 8192 x 8192 x 8192"},
    {"gemm_bf16", "M=4096 N=4096 K=4096", "cuBLAS", "bf16 product, 4096 x 4096 x 4096"},
    {"gemm_fp8_block", "M=4096 N=7168 K=16384", "DeepGEMM",
     "FP8 product, scales of blocks, 4096 x 7168 x 16384"},
    {"attention_fwd", "B=4 Sq=4096 Sk=4096 h=16 g=16 dk=128 dv=128 q=bf16", "FlashAttention-3",
     "attention, 4 x 16 heads of 128, 4096 tokens"},
    {"attention_fwd", "B=4 Sq=4096 Sk=4096 h=16 g=16 dk=128 dv=128 q=bf16 causal=true",
     "FlashAttention-3", "the same, causal"},
    {"topk_select", "B=64 L=262144 scores=f32 topk=512", "torch.topk",
     "512 largest of 262144, 64 rows"},
    {"per_token_cast",
     "T=8001 H=7168 x=f32 format=e4m3 num_per_channels=32 round_sf=true sf_layout=packed_ue8m0",
     "TileKernels", "cast to FP8, 8001 x 7168, scales of 32 columns"},
    {"pre_big_fuse", "T=4096 n=4 H=7168", "TileKernels",
     "hyper-connections before a sub-layer, 4096 tokens"},
};

std::string us_text(double us) {
  return us < 100 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

std::string tflops_text(double flops, double us) {
  return fmt::format("{:.0f}", flops / us / 1e6);
}

/// "NVIDIA H200, 2026-11-28 at db32f917".
std::string run_words(const RecordedRun& run) {
  std::string text = fmt::format("{}, {}", run.card, run.date);
  return run.commit.empty() ? text : text + " at " + run.commit;
}

/// The recorded case with the longest time on an H200, one that a peer has before others.
const BenchCase* longest(const Records& records, const OpInfo& op) {
  const BenchCase* found = nullptr;
  bool has_peer = false;
  double most = 0;
  for (const BenchCase& one : op.bench) {
    const std::optional<double> us = records.h200.find(op, one);
    if (!us) continue;
    const std::vector<std::string> peers = records.peers_of(op);
    const bool has = std::any_of(peers.begin(), peers.end(), [&](const std::string& peer) {
      return records.find(peer, op, one).has_value();
    });
    if (std::pair(has, *us) > std::pair(has_peer, most)) has_peer = has, most = *us, found = &one;
  }
  return found;
}

/// Ours over the peer's time of all cases of the ops whose names begin so: geometric means, of the cases and then of
/// the ops. Counts the ops.
std::pair<double, int> mean_over_ops(const Records& records, const std::string& peer,
                                     std::string_view prefix) {
  double sum = 0;
  int num_ops = 0;
  for (const OpInfo& op : kernels::ops()) {
    if (!op.name.starts_with(prefix)) continue;
    double of_op = 0;
    int num_cases = 0;
    for (const BenchCase& one : op.bench) {
      const std::optional<PeerCase> found = records.find(peer, op, one);
      const std::optional<double> recorded = records.h200.find(op, one);
      if (!found || !(found->us || recorded)) continue;
      of_op += std::log(found->us.value_or(recorded.value_or(0)) / found->peer_us);
      ++num_cases;
    }
    if (num_cases == 0) continue;
    sum += of_op / num_cases;
    ++num_ops;
  }
  return {num_ops > 0 ? std::exp(sum / num_ops) : 0, num_ops};
}

std::string measured_row(const Records& records, const OpInfo& op, const BenchCase& one) {
  const double us = *records.h200.find(op, one);
  const double flops = product_flops(op, one);
  const std::optional<double> copy = records.h200.copy_gbs(one.bytes / 2);
  const double gbs = static_cast<double>(one.bytes) / us / 1e3;
  std::string rate = flops > 0 ? tflops_text(flops, us) + " TFLOP/s"
                     : copy    ? fmt::format("{:.0f} GB/s, {:.0f} %", gbs, 100 * gbs / *copy)
                               : "";
  std::string peers;
  for (const std::string& peer : records.peers_of(op)) {
    const std::optional<PeerCase> found = records.find(peer, op, one);
    if (!found) continue;
    peers += fmt::format("{}{} {}", peers.empty() ? "" : ", ", peer, us_text(found->peer_us));
  }
  return fmt::format("| `{}` | `{}` | {} | {} | {} |\n", op.name, one.label, us_text(us), rate,
                     peers);
}

}  // namespace

Records Records::load(const std::string& root) {
  const std::string folder = root + "/tools/measured/";
  Records records;
  records.h100_run = read_run(folder + "h100.jsonl");
  records.h200_run = read_run(folder + "h200.jsonl");
  records.h100 = PeerTimes::load(folder + "h100.jsonl");
  records.h200 = PeerTimes::load(folder + "h200.jsonl");
  for (const char* file : {"peers", "tilekernels", "torch", "attention", "decode-backward"}) {
    records.peers.push_back(read_peers(fmt::format("{}h200-{}.jsonl", folder, file)));
  }
  records.languages = read_languages(folder + "h200-languages.jsonl");
  return records;
}

std::optional<PeerCase> Records::find(const std::string& peer, const OpInfo& op,
                                      const BenchCase& one) const {
  const std::string key = case_key(op.name, one.label);
  for (const PeerRecord& record : peers) {
    for (const PeerCase& found : record.cases) {
      if (found.peer == peer && found.key == key) return found;
    }
  }
  return std::nullopt;
}

std::vector<std::string> Records::peers_of(const OpInfo& op) const {
  std::vector<std::string> names;
  for (const PeerRecord& record : peers) {
    for (const PeerCase& one : record.cases) {
      if (one.op == op.name && std::find(names.begin(), names.end(), one.peer) == names.end()) {
        names.push_back(one.peer);
      }
    }
  }
  return names;
}

std::string times_table(const Records& records, const OpInfo& op) {
  if (op.bench.empty()) return "";
  std::vector<std::string> peers;  // that have one of the cases
  for (const std::string& peer : records.peers_of(op)) {
    if (std::any_of(op.bench.begin(), op.bench.end(), [&](const BenchCase& one) {
          return records.find(peer, op, one).has_value();
        })) {
      peers.push_back(peer);
    }
  }
  const bool is_product = product_flops(op, op.bench.front()) > 0;
  std::string text = "| case | bytes | H100, us | H200, us |";
  std::string rule = "|---|--:|--:|--:|";
  if (is_product) text += " TFLOP/s |", rule += "--:|";
  for (const std::string& peer : peers) text += fmt::format(" {}, us |", peer), rule += "--:|";
  text += "\n" + rule + "\n";
  for (const BenchCase& one : op.bench) {
    const std::optional<double> h100 = records.h100.find(op, one),
                                h200 = records.h200.find(op, one);
    text += fmt::format("| `{}` | {} | {} | {} |", one.label, one.bytes,
                        h100 ? fmt::format("{:.1f}", *h100) : "",
                        h200 ? fmt::format("{:.1f}", *h200) : "");
    if (is_product) text += h200 ? " " + tflops_text(product_flops(op, one), *h200) + " |" : " |";
    for (const std::string& peer : peers) {
      const std::optional<PeerCase> found = records.find(peer, op, one);
      text += found ? fmt::format(" {:.1f} |", found->peer_us) : " |";
    }
    text += "\n";
  }
  return text + "\n";
}

std::string ratios_text(const Records& records) {
  std::string text =
      "| work on an H200 | Tessera, us | peer, us | ours / peer |\n|---|--:|--:|--:|\n";
  for (const Shown& shown : kShown) {
    const OpInfo& op = kernels::find_op(shown.op);
    const BenchCase one = op.case_of(shown.text);
    const std::optional<PeerCase> found = records.find(shown.peer, op, one);
    const std::optional<double> recorded = records.h200.find(op, one);
    if (!found || !(found->us || recorded)) {
      throw Error({.kind = ErrorKind::argument,
                   .what = "a page shows a case that no record has",
                   .argument = "record",
                   .expected = fmt::format("{} by {} and by us", shown.text, shown.peer),
                   .got = fmt::format("{} without it", shown.op)});
    }
    const double us = found->us.value_or(recorded.value_or(0)), flops = product_flops(op, one);
    text += fmt::format("| {}: [`{}`](kernels/{}/README.md#{}) | {}{} | {} {} | {:.2f} |\n",
                        shown.words, shown.op, op.family, shown.op, us_text(us),
                        flops > 0 ? fmt::format(" ({} TFLOP/s)", tflops_text(flops, us)) : "",
                        shown.peer, us_text(found->peer_us), us / found->peer_us);
  }
  const RecordedRun &run = records.peers.front().run, &attention = records.peers.back().run;
  return text + fmt::format(
                    "\n{}: `{}`, each in turn with its peer. Attention: {}. TileKernels' rows: "
                    "`{}`, {}.\n",
                    run_words(run), run.command, attention.date, records.h200_run.command,
                    records.h200_run.date);
}

std::string speed_text(const Records& records) {
  const auto [all, num_all] = mean_over_ops(records, "TileKernels", "");
  const auto [bf16, num_bf16] = mean_over_ops(records, "cuBLAS", "gemm_bf16");
  const auto [fp8, num_fp8] = mean_over_ops(records, "DeepGEMM", "gemm_fp8");
  const auto [attention, num_attention] =
      mean_over_ops(records, "FlashAttention-3", "attention_fwd");
  return fmt::format(
      "On one H200, as a share of the other's time (less is faster, geometric means of all cases): "
      "{:.2f} of TileKernels' "
      "for\nthe {} ops that both have, {:.2f} of cuBLAS's for bf16 products, {:.2f} of DeepGEMM's "
      "for FP8 products, and "
      "{:.2f} of FlashAttention-3's for\nattention, forward. [Single cases](#speed) are below.\n",
      all, num_all, bf16, fp8, attention);
}

std::string measured_text(const Records& records) {
  std::map<std::string, std::string> rows;  // by family
  std::vector<std::string> families;
  for (const OpInfo& op : kernels::ops()) {
    const BenchCase* one = longest(records, op);
    if (one == nullptr) continue;
    if (std::find(families.begin(), families.end(), op.family) == families.end()) {
      families.push_back(op.family);
    }
    rows[op.family] += measured_row(records, op, *one);
  }
  std::string text;
  for (const std::string& family : families) {
    text +=
        fmt::format("### {}\n\n| op | case | us | rate | peer, us |\n|---|---|--:|--:|---|\n{}\n",
                    family, rows[family]);
  }
  text += "| record | card | when | command | peers |\n|---|---|---|---|---|\n";
  text += fmt::format("| `h200.jsonl` | {} | {} | `{}` |  |\n", records.h200_run.card,
                      records.h200_run.date, records.h200_run.command);
  text += fmt::format("| `h100.jsonl` | {} | {} | `{}` |  |\n", records.h100_run.card,
                      records.h100_run.date, records.h100_run.command);
  const auto row = [&](const char* file, const RecordedRun& run) {
    text += fmt::format("| `{}` | {} | {}{} | {} | {} |\n", file, run.card, run.date,
                        run.commit.empty() ? "" : " at " + run.commit,
                        run.command.empty() ? "" : "`" + run.command + "`", run.peers);
  };
  row("h200-peers.jsonl", records.peers[0].run);
  row("h200-tilekernels.jsonl", records.peers[1].run);
  row("h200-torch.jsonl", records.peers[2].run);
  row("h200-languages.jsonl", records.languages.run);
  return text;
}

std::string languages_text(const std::string& root, const Records& records) {
  std::string text = "| kernel | language | lines | us | TFLOP/s |\n|---|---|--:|--:|--:|\n";
  std::string kernel_before;
  for (const LanguageTime& one : records.languages.times) {
    std::string language = one.language, lines = one.lines ? fmt::format("{}", *one.lines) : "";
    if (!one.example.empty()) {
      language = fmt::format("[Tessera]({}.cpp)", one.example);
      lines = fmt::format("{}", kernel_lines(root + "/examples/" + one.example + ".cpp"));
    }
    text += fmt::format("| {} | {} | {} | {} | {} |\n",
                        one.kernel == kernel_before ? "" : one.kernel, language, lines,
                        us_text(one.us), one.tflops ? fmt::format("{:.0f}", *one.tflops) : "");
    kernel_before = one.kernel;
  }
  const RecordedRun& run = records.languages.run;
  return text + fmt::format("\n{}. {}.\n", run_words(run), run.peers);
}

}  // namespace tessera::tools
