// tessera report: a page with the drawings of a benchmark run, or the timeline of a kernel.

#include "tools/lib/report/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/jit/jit.h"
#include "tools/lib/calls/example.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/own_kernel.h"
#include "tools/lib/trial.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct ReportOptions {
  std::string bench, peer, out;
  bool markdown = false;
  std::string timeline, device = "cpu";
  std::vector<std::string> params;
  int64_t block = 0;
};

/// The timelines of the marked kernels of a call with random tensors.
std::vector<kernels::jit::Timeline> run_marked(const ReportOptions& options) {
  std::optional<OpCall> call;
  reading_arguments([&] {
    const kernels::OpInfo& op = kernels::find_op(program_ops(), options.timeline);
    call.emplace(op, find_example(op, options.params), parse_device(options.device), 1);
  });
  const kernels::jit::TimelineScope scope(options.block);
  call->run();
  std::vector<kernels::jit::Timeline> timelines = scope.timelines();
  std::erase_if(timelines, [](const kernels::jit::Timeline& one) { return one.rows.empty(); });
  if (timelines.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .op = options.timeline,
                 .what = fmt::format("no warp of block {} comes to a mark", options.block),
                 .expected = "kernels with k.mark or rings",
                 .got = "none",
                 .hint = "k.mark(\"name\", [&] { ... })"});
  }
  return timelines;
}

int report_timeline(const ReportOptions& options) {
  OptionalOutput out(options.out);
  const std::vector<kernels::jit::Timeline> timelines = run_marked(options);
  std::string text;
  for (const kernels::jit::Timeline& one : timelines) text += timeline_text(one);
  out.write(timeline_picture(timelines.front()));
  return print(text) ? kOk : kFailed;
}

int report(const ReportOptions& options) {
  if (!options.timeline.empty()) return report_timeline(options);
  const BenchFile file = reading_arguments([&] {
    BenchFile read = read_bench(options.bench);
    if (!options.peer.empty()) set_peer_times(read, PeerTimes::load(options.peer));
    return read;
  });
  AtomicFile out(options.out);
  out.write(options.markdown ? report_markdown(file) : report_page(file));
  out.commit();
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Command& command) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* sub = app.add_subcommand(
      "report",
      "a benchmark run as one HTML page or as Markdown; or a timeline of a kernel's warps");
  sub->footer(
      "Examples:\n"
      "  tessera report bench.json --out report.html\n"
      "  tessera report tools/measured/h200.jsonl --out report.html\n"
      "  tessera report bench.json --markdown --out report.md\n"
      "  tessera report --timeline gemm_bf16 --out gemm.svg\n"
      "  tessera report --timeline gemm_bf16 --device cuda:0");
  CLI::Option* bench =
      sub->add_option("bench", options->bench, "file written by bench --json or --record");
  CLI::Option* peer = sub->add_option(
      "--peer", options->peer, "peer times for a run that had none: a JSON-lines file or a folder");
  CLI::Option* markdown =
      sub->add_flag("--markdown", options->markdown, "tables for a page such as tests/MEASURED.md");
  sub->add_option("--out", options->out, "the page, or the picture of a timeline (SVG)");
  CLI::Option* timeline =
      sub->add_option("--timeline", options->timeline,
                      "an op: when each warp of a block comes to the marks (k.mark) of its "
                      "kernels, as text and as a picture of the first");
  timeline->excludes(bench)->excludes(peer)->excludes(markdown);
  sub->add_option("-p,--param", options->params,
                  "name=value of the op's example, any number of times")
      ->allow_extra_args(false)
      ->needs(timeline);
  sub->add_option("--device", options->device,
                  "cpu (steps of the executor, the default) or cuda:N (cycles)")
      ->needs(timeline);
  sub->add_option("--block", options->block, "of the grid, with x fastest; 0 by default")
      ->needs(timeline)
      ->check(CLI::NonNegativeNumber);
  sub->callback([options, &command] {
    if (options->timeline.empty()) {
      if (options->bench.empty()) throw CLI::RequiredError("bench");
      if (options->out.empty()) throw CLI::RequiredError("--out");
    }
    command = [options] { return report(*options); };
  });
}

}  // namespace tessera::tools
