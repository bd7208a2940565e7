// Whether this is compiled for a sanitizer. GCC defines a macro, Clang has a feature.
#pragma once

#ifdef __has_feature
#define ESPALIER_HAS_FEATURE(name) __has_feature(name)
#else
#define ESPALIER_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || ESPALIER_HAS_FEATURE(address_sanitizer)
#define ESPALIER_ADDRESS_SANITIZER 1
#else
#define ESPALIER_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || ESPALIER_HAS_FEATURE(thread_sanitizer)
#define ESPALIER_THREAD_SANITIZER 1
#else
#define ESPALIER_THREAD_SANITIZER 0
#endif
