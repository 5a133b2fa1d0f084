# Writes OUTPUT, C++ that holds the shipped tile sizes of FOLDER, a JSON file per GPU model.
file(GLOB files ${FOLDER}/*.json)
list(SORT files)
set(cases)
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text HEX)
  # Bytes as a list: a string literal has a length limit.
  string(REGEX REPLACE "(..)" "'\\\\x\\1', " bytes "${text}")
  string(APPEND cases "  if (tuned_file_name(device, num_sms) == \"${name}\") {\n"
    "    static const char text[] = {${bytes}};\n    return decode_tuned({text, sizeof(text)});\n  }\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"runtime/cache/tuned.h\"\n\nnamespace tessera::runtime {\n\n"
  "TunedFile shipped_tuned([[maybe_unused]] std::string_view device, [[maybe_unused]] int64_t num_sms) {\n"
  "${cases}  return {};\n}\n\n}  // namespace tessera::runtime\n")
