# Writes OUTPUT, C++ that holds the shipped tile sizes of FOLDER, a JSON file per GPU model.
file(GLOB files ${FOLDER}/*.json)
list(SORT files)
set(texts)
set(names)
set(number 0)
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text HEX)
  # Bytes as a list: a string literal has a length limit.
  string(REGEX REPLACE "(..)" "'\\\\x\\1', " bytes "${text}")
  string(APPEND texts "constexpr char kText${number}[] = {${bytes}};\n")
  string(APPEND names "    {\"${name}\", {kText${number}, sizeof(kText${number})}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"runtime/cache/shipped_tuned.h\"\n\nnamespace tessera::runtime {\n\n${texts}\n"
  "std::vector<ShippedTuned> shipped_tuned_files() {\n  return {\n${names}  };\n}\n\n}  // namespace tessera::runtime\n")
