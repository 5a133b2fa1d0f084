#pragma once
// TESSERA_API marks the functions and classes of the installed headers. The libraries are compiled with hidden
// visibility, so the shared library exports nothing else, and static libraries export nothing from the program or
// plugin that links them. TESSERA_LOCAL marks a class inside a public one that is not public itself.

#ifdef TESSERA_SHARED
#define TESSERA_API __attribute__((visibility("default")))
#else
#define TESSERA_API
#endif
#define TESSERA_LOCAL __attribute__((visibility("hidden")))
