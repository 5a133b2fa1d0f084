#include "runtime/build_info.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "dsl/base/version.h"
#include "runtime/code_stamp.h"

namespace tessera::runtime {
namespace {

// Owner of the note that tools/code_stamp.cmake writes: "0.2.0 <64 digits>".
constexpr std::string_view kNoteOwner = "Tessera";
constexpr uint32_t kType = 1;

uint64_t aligned(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

/// Returns the text of Tessera's note in one note segment. Notes are aligned as their segment is, to 4 or 8 bytes.
std::optional<std::string> find_note(const char* bytes, uint64_t size, uint64_t alignment) {
  const uint64_t align = alignment == 8 ? 8 : 4;
  for (uint64_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) header;
    std::memcpy(&header, bytes + at, sizeof(header));
    const uint64_t name = at + sizeof(header);
    const uint64_t text = aligned(name + header.n_namesz, align);
    const uint64_t end = text + header.n_descsz;
    if (end > size) break;
    if (header.n_type == kType && header.n_namesz == kNoteOwner.size() + 1 &&
        std::memcmp(bytes + name, kNoteOwner.data(), kNoteOwner.size() + 1) == 0 &&
        header.n_descsz > 0) {
      return std::string(bytes + text, header.n_descsz - 1);
    }
    at = aligned(end, align);
  }
  return std::nullopt;
}

std::string path_of(const dl_phdr_info& image) {
  const std::string name = image.dlpi_name;
  std::error_code error;
  if (!name.empty()) {
    const auto path = std::filesystem::absolute(name, error);
    return error ? name : path.lexically_normal().string();
  }
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "the program" : program.string();
}

struct NoteSearch {
  BuildInfo info;
  uintptr_t here;  // an address of this copy
};

int visit(dl_phdr_info* image, size_t, void* data) {
  NoteSearch& search = *static_cast<NoteSearch*>(data);
  bool is_here = false;
  std::optional<std::string> note;
  for (int i = 0; i < image->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = image->dlpi_phdr[i];
    const uintptr_t begin = image->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD) {
      is_here = is_here || search.here - begin < segment.p_memsz;
    } else if (segment.p_type == PT_NOTE && !note) {
      note = find_note(reinterpret_cast<const char*>(begin), segment.p_memsz, segment.p_align);
    }
  }
  if (is_here) {
    search.info.path = path_of(*image);
  } else if (note) {
    const size_t space = note->find(' ');
    search.info.others.push_back({note->substr(0, space),
                                  space == std::string::npos ? "" : note->substr(space + 1),
                                  path_of(*image)});
  }
  return 0;
}

}  // namespace

BuildInfo build_info() {
  NoteSearch search;
  search.info.version = TESSERA_VERSION;
  search.info.stamp = code_stamp();
  search.here = reinterpret_cast<uintptr_t>(&visit);
  dl_iterate_phdr(&visit, &search);
  search.info.shared =
      std::filesystem::path(search.info.path).filename().string().starts_with("libtessera.so");
  return std::move(search.info);
}

}  // namespace tessera::runtime
