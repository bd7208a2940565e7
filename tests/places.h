// Folders and programs that tests use. One source, which CMake writes, holds their paths, so that the objects
// of all others are the same in every clone and ccache shares them.
#pragma once

namespace espalier::testing::places {

extern const char* const sample_tables;
extern const char* const figures;
extern const char* const read_events;  // a Python program
extern const char* const checkpoint_process;
extern const char* const emulator;  // a command before programs of another processor, or empty
// Of builds with programs; the others are empty.
extern const char* const programs;
extern const char* const c_program;
extern const char* const c_host;          // of a static library
extern const char* const c_plugin;        // of a static library
extern const char* const shared_library;  // of a shared library
extern const char* const classify;        // of builds with samples, else empty
extern const char* const run_plan;        // a Python program

}  // namespace espalier::testing::places
