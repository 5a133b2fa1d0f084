// Files whose place the user chooses: dumps, overrides, recordings. Others may be able to write there
// and can foresee the names: no link is followed, no pipe waited for, no text of theirs compiled.

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/record.h"
#include "tests/runtime/child_end.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/sample_image.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace fs = std::filesystem;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream text(path);
  return {std::istreambuf_iterator<char>(text), {}};
}

// The path that a dump of the kernel "a" has in `folder`.
std::string dump_path(const FakeCuda& fake, const std::string& folder) {
  const ScratchFolder scratch;
  Options options;
  options.dump_dir = scratch / "dump";
  Process process(fake, options);
  process.runtime->image(process.with_spec("a"), kTarget);
  for (const auto& item : fs::directory_iterator(options.dump_dir)) {
    if (item.path().extension() == ".cu") return folder + "/" + item.path().filename().string();
  }
  return "";
}

Options with_override(const std::string& folder) {
  Options options;
  options.override_dir = folder;
  return options;
}

}  // namespace

TEST_CASE("a dump replaces a planted link and leaves the file behind it alone") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string dump = dump_path(fake, scratch / "dump");
  REQUIRE(mkdir((scratch / "dump").c_str(), 0777) == 0);
  std::ofstream(scratch / "victim.txt") << "precious";
  fs::create_symlink(scratch / "victim.txt", dump);
  Options options;
  options.dump_dir = scratch / "dump";
  Process process(fake, options);
  process.runtime->image(process.with_spec("a"), kTarget);
  CHECK(text_of(scratch / "victim.txt") == "precious");
  CHECK(fs::is_regular_file(fs::symlink_status(dump)));
  CHECK(text_of(dump) == "text of a");
  CHECK(process.lines.empty());
}

TEST_CASE("a pipe in the place of a dump or a recording is not waited for") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string dump = dump_path(fake, scratch / "dump");
  REQUIRE(mkdir((scratch / "dump").c_str(), 0700) == 0);
  REQUIRE(mkfifo(dump.c_str(), 0600) == 0);
  REQUIRE(mkfifo((scratch / "record").c_str(), 0600) == 0);
  const ChildEnd end = in_child(
      [&] {
        Options options;
        options.dump_dir = scratch / "dump";
        options.record = scratch / "record";
        Process process(fake, options);
        process.runtime->image(process.with_spec("a"), kTarget);
        const std::vector<std::string> said = {"cannot write " + scratch / "record" +
                                               " (TESSERA_RECORD): is not a regular file"};
        return process.lines == said && text_of(dump) == "text of a" ? 0 : 1;
      },
      20);
  CHECK(end.signal == 0);
  CHECK(end.exit_code == 0);
}

TEST_CASE("a dump that cannot be written is a warning with the reason") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string dump = dump_path(fake, scratch / "dump");
  Options options;
  options.dump_dir = scratch / "dump";
  std::string reason;
  SECTION("the folder is a link") {
    REQUIRE(mkdir((scratch / "real").c_str(), 0700) == 0);
    fs::create_directory_symlink(scratch / "real", scratch / "dump");
    reason = "is not a directory (links are not followed)";
  }
  SECTION("a folder is in its place") {
    fs::create_directories(dump);
    reason = "Is a directory";
  }
  Process process(fake, options);
  process.runtime->image(process.with_spec("a"), kTarget);
  CHECK(process.lines ==
        std::vector<std::string>{"cannot write " + dump + " (TESSERA_DUMP_DIR): " + reason});
}

TEST_CASE("a recording follows no link") {
  const ScratchFolder scratch;
  std::ofstream(scratch / "victim.txt") << "precious";
  fs::create_symlink(scratch / "victim.txt", scratch / "record");
  const Image image = sample_image();
  CHECK(append_record(scratch / "record", {"spec", "code", image}) == "is a symbolic link");
  CHECK(text_of(scratch / "victim.txt") == "precious");
}

TEST_CASE("a recording beyond the file size limit is an error text and not the end") {
  const ScratchFolder scratch;
  const ChildEnd end = in_child([&] {
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 2;
    const Image image = sample_image();
    return append_record(scratch / "record", {"spec", "code", image}) == "File too large" ? 0 : 1;
  });
  CHECK(end.signal == 0);
  CHECK(end.exit_code == 0);
}

TEST_CASE("an override that others can write or that is no file is an error, not compiled") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string folder = scratch / "mine";
  const std::string file = dump_path(fake, folder);
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  std::string got;
  std::string hint;
  SECTION("the folder is writable by others") {
    std::ofstream(file) << "scale_kernel";
    REQUIRE(chmod(folder.c_str(), 0777) == 0);
    got = folder + " is writable by group or others (mode 0777)";
    hint = "\n  hint      chmod go-w it";
  }
  SECTION("the file is writable by others") {
    std::ofstream(file) << "scale_kernel";
    REQUIRE(chmod(file.c_str(), 0666) == 0);
    got = file + " is writable by group or others (mode 0666)";
    hint = "\n  hint      chmod go-w it";
  }
  SECTION("the file is another user's") {
    if (geteuid() != 0) TESSERA_SKIP("only root can give a file away");
    std::ofstream(file) << "scale_kernel";
    REQUIRE(chown(file.c_str(), 12345, 12345) == 0);
    got = file + " belongs to another user (uid 12345)";
  }
  SECTION("a pipe") {
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    got = file + " is not a regular file";
  }
  SECTION("a folder") {
    REQUIRE(mkdir(file.c_str(), 0700) == 0);
    got = file + " is not a regular file";
  }
  SECTION("a link to a device that never ends") {
    fs::create_symlink("/dev/zero", file);
    got = file + " is a symbolic link";
  }
  SECTION("more than a text can be") {
    std::ofstream(file) << "scale_kernel";
    fs::resize_file(file, (uintmax_t{16} << 20) + 1);
    got = file + " is too large (16777217 bytes, at most 16777216)";
  }
  if (got.empty()) return;
  Process process(fake, with_override(folder));
  CHECK(error_of([&] { process.runtime->image(process.with_spec("a"), kTarget); }) ==
        "tessera: scale: the text of TESSERA_OVERRIDE_DIR cannot be used\n"
        "  expected  a folder and a file that only this user can write, at most 16777216 bytes, no "
        "links\n"
        "  got       " +
            got + hint);
  CHECK(fake.state().num_compiles == 1);  // of dump_path()
}

TEST_CASE("an override without the kernel in it is an error that says so") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string folder = scratch / "mine";
  const std::string file = dump_path(fake, folder);
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  const bool is_empty = GENERATE(true, false);
  std::ofstream(file) << (is_empty ? "" : "extern \"C\" __global__ void other() {}");
  Process process(fake, with_override(folder));
  CHECK(error_of([&] { process.runtime->image(process.with_spec("a"), kTarget); }) ==
        "tessera: scale: the text of TESSERA_OVERRIDE_DIR does not define the kernel\n"
        "  expected  an extern \"C\" function scale_kernel in " +
            file + "\n  got       " + (is_empty ? "an empty file" : "a text without that name"));
}

TEST_CASE("an override folder that does not exist is said once") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Process process(fake, with_override(scratch / "typo"));
  process.runtime->image(process.with_spec("a"), kTarget);
  process.runtime->image(process.with_spec("b"), kTarget);
  CHECK(process.lines == std::vector<std::string>{"there is no folder " + scratch / "typo" +
                                                  " (TESSERA_OVERRIDE_DIR)"});
}
