#include "runtime/driver/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/cache/sha256.h"

namespace tessera::runtime {
namespace {

void* open_library(const std::string& path, std::string& error) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    error = reason ? reason : "dlopen failed";
  }
  return library;
}

const link_map* map_of(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map : nullptr;
}

std::string path_of_library(void* library) {
  const link_map* map = map_of(library);
  return map && map->l_name ? map->l_name : "";
}

std::string identity_of_library(void* library) {
  const link_map* map = map_of(library);
  return map ? image_identity(map->l_ld) : "";
}

struct BuildIdSearch {
  uintptr_t address = 0;
  std::string id;
};

// Notes are a sequence of {name size, desc size, type, name, desc}. Name and desc are padded to 4
// bytes.
std::string build_id_in(std::span<const uint8_t> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note{};
    std::memcpy(&note, notes.data(), sizeof(note));
    notes = notes.subspan(sizeof(note));
    const size_t name_size = (note.n_namesz + size_t{3}) & ~size_t{3};
    const size_t desc_size = (note.n_descsz + size_t{3}) & ~size_t{3};
    if (name_size > notes.size() || desc_size > notes.size() - name_size) break;
    const bool is_gnu = note.n_namesz == 4 && std::memcmp(notes.data(), "GNU", 4) == 0;
    if (is_gnu && note.n_type == NT_GNU_BUILD_ID) {
      std::string id;
      for (const uint8_t byte : notes.subspan(name_size, note.n_descsz)) {
        id += fmt::format("{:02x}", byte);
      }
      return id;
    }
    notes = notes.subspan(name_size + desc_size);
  }
  return "";
}

int visit_image(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<BuildIdSearch*>(data);
  const std::span headers(info->dlpi_phdr, info->dlpi_phnum);
  bool holds_address = false;
  for (const ElfW(Phdr) & header : headers) {
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    holds_address = holds_address || (header.p_type == PT_LOAD && search.address >= begin &&
                                      search.address < begin + header.p_memsz);
  }
  if (!holds_address) return 0;
  for (const ElfW(Phdr) & header : headers) {
    if (header.p_type != PT_NOTE || !search.id.empty()) continue;
    // NOTE: the loader gives addresses as integers.
    const auto* begin = reinterpret_cast<const uint8_t*>(info->dlpi_addr + header.p_vaddr);
    search.id = build_id_in({begin, header.p_memsz});
  }
  return 1;
}

std::string build_id_of(const void* address) {
  BuildIdSearch search;
  search.address = reinterpret_cast<uintptr_t>(address);
  dl_iterate_phdr(visit_image, &search);
  return search.id;
}

// Reads the notes of an ELF file of this machine's class, without mapping it.
std::optional<std::string> identity_of_file(const std::string& path) {
  constexpr size_t kMaxNoteBytes = 4096;
  constexpr size_t kMaxHeaders = 64;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const auto read = [&](auto* to, size_t bytes, uint64_t offset) {
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(bytes));
    return static_cast<bool>(file);
  };
  ElfW(Ehdr) head{};
  if (!read(&head, sizeof(head), 0) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_phentsize != sizeof(ElfW(Phdr)) || head.e_phnum > kMaxHeaders) {
    return "";
  }
  std::vector<ElfW(Phdr)> headers(head.e_phnum);
  if (!read(headers.data(), headers.size() * sizeof(headers[0]), head.e_phoff)) return "";
  for (const ElfW(Phdr) & header : headers) {
    if (header.p_type != PT_NOTE || header.p_filesz > kMaxNoteBytes) continue;
    std::vector<uint8_t> notes(header.p_filesz);
    if (!read(notes.data(), notes.size(), header.p_offset)) continue;
    if (const std::string id = build_id_in(notes); !id.empty()) return "build-id " + id;
  }
  return "";
}

// The loader lists the program itself without a path.
std::string file_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || !info.dli_fname) return "";
  return std::string_view(info.dli_fname).find('/') == std::string_view::npos ? "/proc/self/exe"
                                                                              : info.dli_fname;
}

}  // namespace

const LibraryLoader& system_loader() {
  static const LibraryLoader* loader = new LibraryLoader{
      open_library,
      [](const std::string& name) { return dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD); },
      [](void* library, const char* symbol) { return dlsym(library, symbol); },
      path_of_library,
      identity_of_library,
      identity_of_file};
  return *loader;
}

std::string image_identity(const void* address) {
  const std::string id = build_id_of(address);
  if (!id.empty()) return "build-id " + id;
  std::ifstream file(file_of(address), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return bytes.empty() ? "" : "sha256 " + to_hex(sha256(bytes));
}

}  // namespace tessera::runtime
