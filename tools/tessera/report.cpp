// tessera report: a page with the drawings of a benchmark run.

#include "tools/lib/report/report.h"

#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct ReportOptions {
  std::string bench, peer, out;
  bool markdown = false;
};

int report(const ReportOptions& options) {
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
  CLI::App* sub = app.add_subcommand("report", "a benchmark run as one HTML page, or as Markdown");
  sub->footer(
      "Examples:\n"
      "  tessera report bench.json --out report.html\n"
      "  tessera report tools/measured/h200.jsonl --out report.html\n"
      "  tessera report bench.json --markdown --out report.md");
  sub->add_option("bench", options->bench, "file written by bench --json or --record")->required();
  sub->add_option("--peer", options->peer,
                  "peer times for a run that had none: a JSON-lines file or a folder");
  sub->add_flag("--markdown", options->markdown, "tables for a page such as tests/MEASURED.md");
  sub->add_option("--out", options->out, "the page")->required();
  sub->callback([options, &command] { command = [options] { return report(*options); }; });
}

}  // namespace tessera::tools
