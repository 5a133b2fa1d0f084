# The targets tessera::... for other projects, in a build tree and installed; what `cmake --install` puts where.
#   tessera_runtime      the shared library
#   tessera_development  archives, headers, CMake and pkg-config files
#   tessera_tools        the program, and its archives for own kernels
include(CMakePackageConfigHelpers)

set(rooms dsl codegen runtime jit kernels)
if(TESSERA_SHARED)
  # All rooms in one library. The archives stay for the tests and the program, which use more than is public.
  set(objects ${rooms})
  list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:tessera_\\1>")
  add_library(tessera_shared SHARED ${objects})
  string(REGEX MATCH "^0\\.[0-9]+|^[0-9]+" interface_version ${PROJECT_VERSION})  # what stays compatible
  set_target_properties(tessera_shared PROPERTIES OUTPUT_NAME tessera EXPORT_NAME shared LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${interface_version})
  configure_file(tools/cmake/exports.map.in exports.map @ONLY)
  # No other copy in the process takes the place of its own functions.
  target_link_options(tessera_shared PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/exports.map -Wl,-Bsymbolic
    $<$<NOT:$<BOOL:${TESSERA_SANITIZE}>>:-Wl,--no-undefined>)  # sanitizers are in the program
  target_link_libraries(tessera_shared PUBLIC tessera_base
    PRIVATE fmt::fmt OpenSSL::Crypto Threads::Threads ${CMAKE_DL_LIBS})
  set_property(TARGET tessera_shared PROPERTY LINK_DEPENDS ${PROJECT_BINARY_DIR}/exports.map)
  set(exported base shared)
  foreach(room ${rooms} tessera)
    add_library(tessera_shared_${room} INTERFACE)
    target_link_libraries(tessera_shared_${room} INTERFACE tessera_shared)
    set_target_properties(tessera_shared_${room} PROPERTIES EXPORT_NAME ${room})
    add_library(tessera::${room} ALIAS tessera_shared_${room})
    list(APPEND exported shared_${room})
  endforeach()
else()
  add_library(tessera_tessera INTERFACE)
  target_link_libraries(tessera_tessera INTERFACE tessera_kernels)
  set(exported base ${rooms} tessera)
  foreach(room ${rooms} tessera)
    add_library(tessera::${room} ALIAS tessera_${room})
    set_target_properties(tessera_${room} PROPERTIES EXPORT_NAME ${room})
  endforeach()
endif()
add_library(tessera::base ALIAS tessera_base)
set_target_properties(tessera_base PROPERTIES EXPORT_NAME base)
if(TARGET tessera)
  add_executable(tessera::cli ALIAS tessera)
  set_target_properties(tessera PROPERTIES EXPORT_NAME cli)
endif()
set(program_parts)  # installed where the program is; it needs the archives of all rooms
if(TARGET tessera_program)
  add_library(tessera::program ALIAS tessera_program)
  add_library(tessera::tool_library ALIAS tessera_tool_library)
  set_target_properties(tessera_program PROPERTIES EXPORT_NAME program)
  set_target_properties(tessera_tool_library PROPERTIES EXPORT_NAME tool_library)
  if(TARGET tessera AND NOT TESSERA_SHARED)
    set(program_parts tessera_program tessera_tool_library)
  endif()
endif()

# A project that exports a library of its own which links these can do so whether or not it installs them.
list(TRANSFORM exported PREPEND tessera_)
set(unless_wanted)
if(NOT TESSERA_INSTALL)
  set(unless_wanted EXCLUDE_FROM_ALL)
endif()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(TARGETS ${exported} EXPORT tesseraTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tessera_runtime NAMELINK_COMPONENT tessera_development
    ${unless_wanted}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tessera_development ${unless_wanted})
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package_folder} COMPONENT tessera_development
  ${unless_wanted})
export(EXPORT tesseraTargets NAMESPACE tessera:: FILE ${PROJECT_BINARY_DIR}/tesseraTargets.cmake)
if(TARGET tessera)
  install(TARGETS tessera ${program_parts} EXPORT tesseraProgram
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tessera_tools ${unless_wanted}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tessera_tools ${unless_wanted})
  install(EXPORT tesseraProgram NAMESPACE tessera:: DESTINATION ${package_folder} COMPONENT tessera_tools
    ${unless_wanted})
  export(EXPORT tesseraProgram NAMESPACE tessera:: FILE ${PROJECT_BINARY_DIR}/tesseraProgram.cmake)
endif()
install(DIRECTORY ${PROJECT_BINARY_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT tessera_development ${unless_wanted} FILES_MATCHING PATTERN *.h)

configure_package_config_file(tools/cmake/tesseraConfig.cmake.in tesseraConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
set(compatibility SameMajorVersion)
if(PROJECT_VERSION VERSION_LESS 1)
  set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(tesseraConfigVersion.cmake COMPATIBILITY ${compatibility})
file(COPY ${PROJECT_SOURCE_DIR}/tools/cmake/tessera_stamp.cmake ${PROJECT_SOURCE_DIR}/tools/cmake/write_stamp.cmake
  DESTINATION ${PROJECT_BINARY_DIR})  # beside tesseraConfig.cmake there too
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
    ${PROJECT_SOURCE_DIR}/tools/cmake/tessera_stamp.cmake ${PROJECT_SOURCE_DIR}/tools/cmake/write_stamp.cmake
  DESTINATION ${package_folder} COMPONENT tessera_development ${unless_wanted})

file(RELATIVE_PATH prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix "\${pcfiledir}/${prefix}")
set(libraries -ltessera)
set(runtime_libraries -ltessera)
set(private_packages)
set(private_libraries)
if(NOT TESSERA_SHARED)
  set(libraries "-ltessera_kernels -ltessera_jit -ltessera_codegen -ltessera_runtime -ltessera_dsl")
  set(runtime_libraries "-ltessera_runtime -ltessera_dsl")
  set(private_packages "fmt, libcrypto")
  set(private_libraries "-pthread -ldl")
endif()
foreach(package tessera tessera-runtime)
  configure_file(tools/cmake/${package}.pc.in ${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT tessera_development ${unless_wanted})
endforeach()
