# tessera_stamp(<target> [SOURCES <file>...])
#
# Gives the target a function that identifies the code of its kernels in the disk cache, so that a second process starts
# without lowering them:
#   #include "<target>_code_stamp.h"                 // std::string <target>_code_stamp();
#   jit::run("scale", Spec{cols}, build_scale, {{x, y}}, {}, stream, jit::Code::stamp(<target>_code_stamp()));
# The stamp is a digest of the target's sources and of SOURCES: name the headers there that builders are made of. The
# build makes it anew when one of them changes. Tessera adds the stamp of its own code.
set(TESSERA_STAMP_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/write_stamp.cmake CACHE INTERNAL "What tessera_stamp() runs")

function(tessera_stamp target)
  cmake_parse_arguments(STAMP "" "" "SOURCES" ${ARGN})
  if(STAMP_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_stamp(${target}): unknown argument '${STAMP_UNPARSED_ARGUMENTS}'; expected SOURCES")
  endif()
  if(NOT target MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
    message(FATAL_ERROR "tessera_stamp(${target}): the function ${target}_code_stamp() needs a target named as an identifier")
  endif()
  get_target_property(sources ${target} SOURCES)
  if(NOT sources)
    set(sources)
  endif()
  get_target_property(folder ${target} SOURCE_DIR)
  set(files)
  foreach(source IN LISTS sources STAMP_SOURCES)
    if(source MATCHES "\\$<")
      message(FATAL_ERROR "tessera_stamp(${target}): '${source}' is not known yet; name the file in SOURCES and add it afterwards")
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
    list(APPEND files ${source})
  endforeach()
  list(REMOVE_DUPLICATES files)
  if(NOT files)
    message(FATAL_ERROR "tessera_stamp(${target}): the target has no sources")
  endif()
  set(output ${CMAKE_CURRENT_BINARY_DIR}/tessera_stamp/${target}_code_stamp)
  list(JOIN files "," names)
  add_custom_command(OUTPUT ${output}.cpp ${output}.h
    COMMAND ${CMAKE_COMMAND} -DNAME=${target}_code_stamp -DFOLDER=${folder} -DFILES=${names} -DOUTPUT=${output}
      -P ${TESSERA_STAMP_SCRIPT}
    DEPENDS ${files} ${TESSERA_STAMP_SCRIPT} VERBATIM COMMENT "Stamp of the kernels of ${target}")
  target_sources(${target} PRIVATE ${output}.cpp ${output}.h)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/tessera_stamp)
endfunction()
