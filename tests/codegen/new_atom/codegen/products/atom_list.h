#pragma once
// Stands before the list of the compiler: one row more.

#define TESSERA_ATOMS(ROW) ROW(kMma) ROW(kWgmma) ROW(kFma)
