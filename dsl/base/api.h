#pragma once
// TESSERA_API marks the functions and classes of the installed headers. The libraries are compiled with hidden
// visibility: the shared library exports nothing else, and static libraries export nothing from the program or
// plugin that links them. TESSERA_LOCAL marks a private class inside a public one.

#ifdef TESSERA_SHARED
#define TESSERA_API __attribute__((visibility("default")))
#else
#define TESSERA_API
#endif
#define TESSERA_LOCAL __attribute__((visibility("hidden")))
